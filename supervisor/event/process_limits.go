package event

import (
	"iter"

	"github.com/rsswarden/rsswarden/rss"
)

// OfProcess is what a limit on one process stands at.
func OfProcess(name LimitName, p *rss.Proc, used, most uint64, enforcer, usedSource, limitSource string) Limit {
	return Limit{
		Name: name, Scope: ScopeProcess, Used: rss.Bytes(used), UsedMax: rss.Bytes(used), Limit: rss.Bytes(most),
		PID: p.ID.PID, Role: p.Role, Enforcer: enforcer, UsedSource: usedSource, LimitSource: limitSource,
	}
}

// LimitsOf yields the limits on one process whose numbers are read with it anyway, of those
// that it has.
func LimitsOf(p *rss.Proc, r *rss.ResourceLimits) iter.Seq[Limit] {
	return func(yield func(Limit) bool) {
		for i := range limits {
			if of := limits[i].process; of != nil {
				if l, ok := of(p, r); ok && !yield(l) {
					return
				}
			}
		}
	}
}

// addressSpace is VmSize of a process against its soft RLIMIT_AS; ok is false without one.
func addressSpace(p *rss.Proc, r *rss.ResourceLimits) (_ Limit, ok bool) {
	return OfProcess(LimitAS, p, uint64(p.Virtual), uint64(r.AddressSpace), "kernel, by ENOMEM of mmap and brk",
		"VmSize of /proc/PID/status", "soft RLIMIT_AS of /proc/PID/limits"), r.AddressSpace != rss.Unlimited && r.AddressSpace > 0
}

// lockedMemory is what a process has locked, or pinned for devices, whichever is more: the
// kernel compares each alone with the soft RLIMIT_MEMLOCK. ok is false without such a limit,
// or with nothing locked: the usual limit is 8 MiB, and says nothing of a process that locks
// no memory.
func lockedMemory(p *rss.Proc, r *rss.ResourceLimits) (_ Limit, ok bool) {
	used, source := p.Locked, "VmLck of /proc/PID/status"
	if p.Pinned > used {
		used, source = p.Pinned, "VmPin of /proc/PID/status"
	}
	return OfProcess(LimitMemlock, p, uint64(used), uint64(r.LockedMemory), "kernel, by ENOMEM of mlock and of drivers",
		source, "soft RLIMIT_MEMLOCK of /proc/PID/limits"), used > 0 && r.LockedMemory != rss.Unlimited && r.LockedMemory > 0
}
