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
	return event.OfProcess(event.LimitMaps, p, n, most, "kernel, by ENOMEM of mmap", "lines of /proc/PID/maps", "vm.max_map_count")
}

// descriptors is how many descriptors a process has open, and may have by its
// soft RLIMIT_NOFILE.
func descriptors(p *rss.Proc, n, most uint64) event.Limit {
	return event.OfProcess(event.LimitFDs, p, n, most, "kernel, by EMFILE of open", "/proc/PID/fd", "soft RLIMIT_NOFILE of /proc/PID/limits")
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
func (f *fullestLimits) offerResources(p *rss.Proc, r rss.ResourceLimits, locks bool) {
	if locks {
		r.LockedMemory = rss.Unlimited
	}
	for l := range event.LimitsOf(p, &r) {
		f.offer(l)
	}
}

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
	var f fullestLimits
	for i := range procs {
		p := &procs[i]
		for kind := range Kind(kinds) {
			a := countQuestion{id: p.ID, kind: kind, limit: true}.read(c, proc)
			if a.err == nil && a.limit > 0 {
				f.offer(limitOf[kind](p, uint64(a.count.N), a.limit))
			}
			if a.limits != nil {
				f.offerResources(p, *a.limits, a.locks)
			}
		}
	}
	return f.limits()
}
