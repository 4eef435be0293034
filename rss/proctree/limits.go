package proctree

import (
	"fmt"

	"github.com/prometheus/procfs"
)

// ResidentLimit returns the soft RLIMIT_RSS of a process in bytes, by
// /proc/PID/limits; RLIM_INFINITY, all ones, where there is none. Linux does
// not enforce it: slurmstepd leaves the step's memory there.
func ResidentLimit(proc string, pid int) (uint64, error) {
	l, err := limits(proc, pid)
	if err != nil {
		return 0, fmt.Errorf("cannot read the limits of process %d: %w", pid, err)
	}
	return l.ResidentSet, nil
}

func limits(proc string, pid int) (procfs.ProcLimits, error) {
	fs, err := procfs.NewFS(proc)
	if err != nil {
		return procfs.ProcLimits{}, err
	}
	p, err := fs.Proc(pid)
	if err != nil {
		return procfs.ProcLimits{}, err
	}
	return p.Limits()
}
