package counts

import (
	"cmp"
	"slices"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// maps is how many memory mappings a process has, and may have by vm.max_map_count. Memory of
// Python's and PyTorch's own takes few; files, threads and tensors that were sent to another
// process take one each, or more.
func maps(p *rss.Proc, n, most uint64) event.Limit {
	return each(event.LimitMaps, p, n, most, "kernel, by ENOMEM of mmap", "lines of /proc/PID/maps", "vm.max_map_count")
}

// descriptors is how many descriptors a process has open, and may have by its
// soft RLIMIT_NOFILE.
func descriptors(p *rss.Proc, n, most uint64) event.Limit {
	return each(event.LimitFDs, p, n, most, "kernel, by EMFILE of open", "/proc/PID/fd", "soft RLIMIT_NOFILE of /proc/PID/limits")
}

// addressSpace is VmSize of a process against its soft RLIMIT_AS; ok is false without one.
func addressSpace(p *rss.Proc, l *proctree.ResourceLimits) (_ event.Limit, ok bool) {
	return each(event.LimitAS, p, uint64(p.Virtual), uint64(l.AddressSpace), "kernel, by ENOMEM of mmap and brk",
		"VmSize of /proc/PID/status", "soft RLIMIT_AS of /proc/PID/limits"), l.AddressSpace != proctree.Unlimited && l.AddressSpace > 0
}

// lockedMemory is what a process has locked, or pinned for devices, whichever is more: the
// kernel compares each alone with the soft RLIMIT_MEMLOCK. ok is false without such a limit,
// or with nothing locked: the usual limit is 8 MiB, and says nothing of a process that locks
// no memory.
func lockedMemory(p *rss.Proc, l *proctree.ResourceLimits) (_ event.Limit, ok bool) {
	used, source := p.Locked, "VmLck of /proc/PID/status"
	if p.Pinned > used {
		used, source = p.Pinned, "VmPin of /proc/PID/status"
	}
	return each(event.LimitMemlock, p, uint64(used), uint64(l.LockedMemory), "kernel, by ENOMEM of mlock and of drivers",
		source, "soft RLIMIT_MEMLOCK of /proc/PID/limits"), used > 0 && l.LockedMemory != proctree.Unlimited && l.LockedMemory > 0
}

// fullestLimits keeps each limit on one process as read in the process that is nearest to it.
type fullestLimits struct{ list []event.Limit }

func (f *fullestLimits) offer(l event.Limit) {
	i := slices.IndexFunc(f.list, func(o event.Limit) bool { return o.Name == l.Name })
	if i < 0 {
		f.list = append(f.list, l)
	} else if s, best := l.Ratio(), f.list[i].Ratio(); s > best || s == best && l.PID < f.list[i].PID {
		f.list[i] = l // of two that are as full the one with the lower PID, at every look
	}
}

// offerResources takes in the limits on numbers that p has already, by its rlimits.
// locks says that it is exempt from that on locked memory, or may be.
func (f *fullestLimits) offerResources(p *rss.Proc, r *proctree.ResourceLimits, locks bool) {
	if l, ok := addressSpace(p, r); ok {
		f.offer(l)
	}
	if l, ok := lockedMemory(p, r); ok && !locks {
		f.offer(l)
	}
}

// limits returns them in the order of the documentation.
func (f *fullestLimits) limits() []event.Limit {
	slices.SortFunc(f.list, func(a, b event.Limit) int {
		return cmp.Compare(slices.Index(event.Limits, a.Name), slices.Index(event.Limits, b.Name))
	})
	return f.list
}

// OfProcesses counts in all of these processes, whatever it costs, and returns the
// fullest reading of each limit on one process. It waits for mmap_lock of each.
func OfProcesses(proc string, procs []rss.Proc) []event.Limit {
	c := proctree.NewCounter(proc)
	defer c.Close()
	most, _ := proctree.MapLimit(proc)
	var f fullestLimits
	for i := range procs {
		p := &procs[i]
		if n, err := c.Maps(p.ID); err == nil && most > 0 {
			f.offer(maps(p, uint64(n.N), most))
		}
		l, err := proctree.Limits(proc, p.ID.PID)
		if err != nil {
			continue
		}
		if n, err := c.Descriptors(p.ID); err == nil && l.Descriptors > 0 {
			f.offer(descriptors(p, uint64(n.N), l.Descriptors))
		}
		free, err := proctree.Capable(proc, p.ID.PID, proctree.CapIPCLock)
		f.offerResources(p, &l, free || err != nil)
	}
	return f.limits()
}

func each(name event.LimitName, p *rss.Proc, used, most uint64, enforcer, usedSource, limitSource string) event.Limit {
	return event.Limit{
		Name: name, Scope: event.ScopeProcess, Used: rss.Bytes(used), UsedMax: rss.Bytes(used), Limit: rss.Bytes(most),
		PID: p.ID.PID, Role: p.Role, Enforcer: enforcer, UsedSource: usedSource, LimitSource: limitSource,
	}
}
