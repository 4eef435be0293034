package proctree

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/prometheus/procfs"
	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
)

// ResidentLimit returns the soft RLIMIT_RSS of a process in bytes, by
// /proc/PID/limits; RLIM_INFINITY, all ones, where there is none. Linux does
// not enforce it: slurmstepd leaves the step's memory there.
func ResidentLimit(proc string, pid int) (uint64, error) {
	fs, err := procfs.NewFS(proc)
	var p procfs.Proc
	if err == nil {
		p, err = fs.Proc(pid)
	}
	var l procfs.ProcLimits
	if err == nil {
		l, err = p.Limits()
	}
	if err != nil {
		return 0, fmt.Errorf("cannot read the limits of process %d: %w", pid, err)
	}
	return l.ResidentSet, nil
}

// Limits reads /proc/PID/limits (proc_pid_limits(5)) once. It needs no privilege.
// Its error is [Vanished] where there is no such PID.
func Limits(proc string, pid int) (rss.ResourceLimits, error) {
	b, err := procfile.Read(filepath.Join(proc, strconv.Itoa(pid), "limits"), procfile.Small)
	// The kernel gives an empty file of a process that is just being reaped.
	if err == nil && len(b) == 0 {
		err = errGone
	}
	if err != nil {
		return rss.ResourceLimits{}, fmt.Errorf("cannot read the limits of process %d: %w", pid, err)
	}
	l, err := parseResourceLimits(b)
	if err != nil {
		return rss.ResourceLimits{}, fmt.Errorf("cannot parse the limits of process %d: %w", pid, err)
	}
	return l, nil
}

// parseResourceLimits reads /proc/PID/limits: a name of several words, the soft
// limit, the hard one, the unit. A line that is not there is no limit.
func parseResourceLimits(b []byte) (l rss.ResourceLimits, err error) {
	to := map[string]*uint64{
		"Max address space ": (*uint64)(&l.AddressSpace), "Max locked memory ": (*uint64)(&l.LockedMemory),
		"Max processes ": &l.Tasks, "Max open files ": &l.Descriptors,
	}
	for _, n := range to {
		*n = rss.Unlimited
	}
	err = errMalformed // until one was found
	for line := range bytes.Lines(b) {
		for name, n := range to {
			rest, ok := bytes.CutPrefix(line, []byte(name))
			if !ok {
				continue
			}
			err = nil
			if w, _ := field(rest); string(w) != "unlimited" {
				if *n, ok = number(w); !ok || w[0] == '-' {
					return l, errMalformed
				}
			}
		}
	}
	return l, err
}
