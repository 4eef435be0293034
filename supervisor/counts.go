package supervisor

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// countReader counts memory mappings and descriptors of processes on the side:
// /proc/PID/maps waits for the process's mmap_lock and may hang. What is
// counted, and how often, is told by counting. It is asked in a full look and
// its answer is taken in the next, so that it wakes nobody.
type countReader struct {
	counting counting
	asks     chan []countAsk
	reads    chan []countRead
	busy     bool
}

// countAsk is one count that is due.
type countAsk struct {
	id   rss.ProcID
	kind countKind
	// limit says that the limit is to be read too.
	limit bool
}

type countRead struct {
	ask   countAsk
	count proctree.Count
	limit uint64 // 0 where it was not asked for, or could not be read
	err   error
}

func newCountReader(proc string) *countReader {
	r := &countReader{asks: make(chan []countAsk, 1), reads: make(chan []countRead, 1)}
	go func() {
		c := proctree.NewCounter(proc)
		for asks := range r.asks {
			reads := make([]countRead, 0, len(asks))
			for _, ask := range asks {
				reads = append(reads, ask.read(c, proc))
			}
			r.reads <- reads
		}
	}()
	return r
}

// read counts for one ask. A process whose limit cannot be read is counted all
// the same.
func (a countAsk) read(c *proctree.Counter, proc string) countRead {
	r := countRead{ask: a}
	switch a.kind {
	case countMaps:
		r.count, r.err = c.Maps(a.id)
		if a.limit {
			r.limit, _ = proctree.MapLimit(proc)
		}
	case countFDs:
		r.count, r.err = c.Descriptors(a.id)
		if a.limit {
			r.limit, _ = proctree.DescriptorLimit(proc, a.id.PID)
		}
	}
	return r
}

// update takes in what was counted and asks for what is due. procs have their
// roles.
func (r *countReader) update(now time.Duration, procs []rss.Proc) {
	if r == nil {
		return
	}
	r.take()
	r.counting.update(now, procs)
	if r.busy {
		return
	}
	if asks := r.counting.due(now); len(asks) > 0 {
		r.asks <- asks // there is room: none is under way
		r.busy = true
	}
}

// take takes in what was counted, if anything was since.
func (r *countReader) take() {
	if r == nil {
		return
	}
	select {
	case reads := <-r.reads:
		r.busy = false
		for _, got := range reads {
			r.counting.done(got)
		}
	default:
	}
}

// of returns the last counts of a process, 0 for what was not read.
func (r *countReader) of(id rss.ProcID) (maps, fds int) {
	if r == nil {
		return 0, 0
	}
	if e := r.counting.entries[id]; e != nil {
		return e.tallies[countMaps].n, e.tallies[countFDs].n
	}
	return 0, 0
}

// worst returns, for each limit on a count, the process that is nearest to its
// limit; none for a limit against which nothing was counted yet.
func (r *countReader) worst() []nearest {
	if r == nil {
		return nil
	}
	var all []nearest
	for kind := range countKind(countKinds) {
		best := nearest{name: countNames[kind]}
		for id, e := range r.counting.entries {
			t := &e.tallies[kind]
			// Of two that are as full the one with the lower PID, at every look.
			if s := t.share(); t.known && t.limit > 0 && (best.limit == 0 || s > best.share() || s == best.share() && id.PID < best.id.PID) {
				best.id, best.count, best.limit, best.at = id, t.n, t.limit, t.at
			}
		}
		if best.limit > 0 {
			all = append(all, best)
		}
	}
	return all
}

// nearest is the process that is nearest to a limit on a count.
type nearest struct {
	name  event.LimitName
	id    rss.ProcID
	count int
	limit uint64
	at    time.Duration // when it was counted, on the watcher's clock
}

func (n *nearest) share() float64 { return float64(n.count) / float64(n.limit) }

// reading is it as a limit. Used and Limit are numbers, not bytes.
func (n *nearest) reading() event.Limit {
	l := event.Limit{
		Name: n.name, Scope: event.ScopeProcess,
		Used: rss.Bytes(n.count), UsedMax: rss.Bytes(n.count), Limit: rss.Bytes(n.limit),
		Enforcer: "kernel, by ENOMEM of mmap", UsedSource: "lines of /proc/PID/maps", LimitSource: "vm.max_map_count",
	}
	if n.name == event.LimitFDs {
		l.Enforcer, l.UsedSource, l.LimitSource = "kernel, by EMFILE of open", "/proc/PID/fd", "soft RLIMIT_NOFILE of /proc/PID/limits"
	}
	return l
}
