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
func parseResourceLimits(b []byte) (rss.ResourceLimits, error) {
	none := rss.ResourceLimits{AddressSpace: rss.Unlimited, LockedMemory: rss.Unlimited, Tasks: rss.Unlimited, Descriptors: rss.Unlimited}
	l := none
	found := false
	for len(b) > 0 {
		var line []byte
		line, b = cutLine(b)
		for _, want := range [...]struct {
			name string
			to   *uint64
		}{
			{"Max address space ", (*uint64)(&l.AddressSpace)},
			{"Max locked memory ", (*uint64)(&l.LockedMemory)},
			{"Max processes ", &l.Tasks},
			{"Max open files ", &l.Descriptors},
		} {
			rest, ok := bytes.CutPrefix(line, []byte(want.name))
			if !ok {
				continue
			}
			found = true
			w, _ := field(rest)
			if string(w) == "unlimited" {
				*want.to = rss.Unlimited
			} else if *want.to, ok = number(w); !ok || w[0] == '-' {
				return none, errMalformed
			}
		}
	}
	if !found {
		return none, errMalformed
	}
	return l, nil
}
