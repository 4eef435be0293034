package proctree

import (
	"bytes"
	"fmt"
	"math"

	"github.com/prometheus/procfs"

	"github.com/rsswarden/rsswarden/rss"
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

// Unlimited stands for RLIM_INFINITY, all ones.
const Unlimited = math.MaxUint64

// ResourceLimits are soft limits of one process (getrlimit(2)); [Unlimited]
// where there is none. prlimit(2) changes them from outside at any time.
type ResourceLimits struct {
	// AddressSpace is RLIMIT_AS in bytes: mmap and brk fail with ENOMEM where
	// [rss.Proc].Virtual would pass it.
	AddressSpace rss.Bytes
	// LockedMemory is RLIMIT_MEMLOCK in bytes: see [rss.Proc].Locked and Pinned,
	// each of which is compared with it alone. A process with CAP_IPC_LOCK is
	// exempt.
	LockedMemory rss.Bytes
	// Tasks is RLIMIT_NPROC: how many tasks, threads that is, the user may have
	// when this process makes one more. See [Counter.UserTasks].
	Tasks uint64
	// Descriptors is RLIMIT_NOFILE: see [DescriptorLimit].
	Descriptors uint64
}

// Limits reads /proc/PID/limits (proc_pid_limits(5)) once. Anybody may read it.
// Its error is [Vanished] where there is no such PID.
func Limits(proc string, pid int) (ResourceLimits, error) {
	f := newFiles(proc)
	defer f.close()
	b, err := f.read(pid, "limits")
	// The kernel gives an empty file of a process that is just being reaped.
	if err == nil && len(b) == 0 {
		err = errGone
	}
	if err != nil {
		return ResourceLimits{}, fmt.Errorf("cannot read the limits of process %d: %w", pid, err)
	}
	l, err := parseResourceLimits(b)
	if err != nil {
		return ResourceLimits{}, fmt.Errorf("cannot parse the limits of process %d: %w", pid, err)
	}
	return l, nil
}

// parseResourceLimits reads /proc/PID/limits: a name of several words, the soft
// limit, the hard one, the unit. procfs would give 0 for a line that is not
// there, a limit that forbids everything; here that is no limit.
func parseResourceLimits(b []byte) (ResourceLimits, error) {
	none := ResourceLimits{Unlimited, Unlimited, Unlimited, Unlimited}
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
				*want.to = Unlimited
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
