package replay

import (
	"slices"
	"sort"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// fine is the part of a growth that must have been added to be remembered: so a
// day of a worker is some hundred numbers.
const fine = 1.0 / 64

// curve is how a worker grew from when it was first seen: all that it ever rose
// by, falls left out.
type curve struct {
	first      time.Duration
	anon, file rss.Bytes // when it was seen first
	points     []point

	last record.Usage
	rose point
}

type point struct {
	after      time.Duration
	anon, file rss.Bytes
}

func (c *curve) add(at time.Duration, u *record.Usage) {
	if c.points == nil {
		c.first, c.anon, c.file = at, u.Anon, u.File
		c.points = []point{{}}
	} else {
		c.rose = point{at - c.first, c.rose.anon + u.Anon.Sub(c.last.Anon), c.rose.file + u.File.Sub(c.last.File)}
		kept := c.points[len(c.points)-1]
		if grown := c.rose.anon - kept.anon + c.rose.file - kept.file; float64(grown) > fine*float64(c.anon+c.file+kept.anon+kept.file) {
			c.points = append(c.points, c.rose)
		}
	}
	c.last = *u
}

// grown is what the worker had grown by so long after it was first seen.
func (c *curve) grown(after time.Duration) point {
	i := sort.Search(len(c.points), func(i int) bool { return c.points[i].after > after })
	return c.points[max(i-1, 0)]
}

// history is how every process of the record grew that an action may be about:
// the workers, and where every process was to be trimmed the others as well.
type history struct {
	curves map[int]*curve // by index in Run.Procs
	// anon and file are what the least had when it was seen first, anon of the
	// workers alone.
	anon, file rss.Bytes
}

// readHistory reads the curves of all workers.
func (p *recording) readHistory() *history {
	h := &history{curves: map[int]*curve{}}
	for s := range p.run.Samples() {
		for i := range s.Procs {
			u := &s.Procs[i]
			if !p.gives(u.Proc) || u.RSS() == 0 {
				continue // a zombie
			}
			c := h.curves[u.Proc]
			if c == nil {
				c = &curve{}
				h.curves[u.Proc] = c
			}
			c.add(s.At, u)
		}
	}
	anon, file := false, false
	for proc, c := range h.curves {
		if p.isWorker(proc) && (!anon || c.anon < h.anon) {
			h.anon, anon = c.anon, true
		}
		if !file || c.file < h.file {
			h.file, file = c.file, true
		}
	}
	return h
}

// gives says that a process can be had give its mapped pages back.
func (p *recording) gives(proc int) bool {
	return p.isWorker(proc) || p.trimsAll && p.inTree(proc)
}

func (p *recording) isWorker(proc int) bool {
	return proc >= 0 && proc < len(p.run.Procs) && p.run.Procs[proc].Role.IsWorker()
}

type worker struct {
	*curve
	proc       int
	usage      record.Usage
	alive      bool
	able       bool          // it can be recycled
	trimAt     time.Duration // when it gave its mapped pages back last, -1 for never
	recycledAt time.Duration // when a fresh one took its place last, -1 for never
}

// less is what the worker has less than the record says, and by how much its
// PSS counts for that.
func (w *worker) less(h *history, now time.Duration) (anon, file rss.Bytes) {
	if at := max(w.trimAt, w.recycledAt); at >= 0 {
		file = w.usage.File.Sub(h.file + w.grown(now-at).file)
	}
	if w.recycledAt >= 0 {
		anon = w.usage.Anon.Sub(h.anon + w.grown(now-w.recycledAt).anon)
	}
	return anon, file
}

// counted is what an accounting takes note of: of what a worker has mapped from
// files only sums of RSS and PSS do.
func (w *worker) counted(a event.Accounting, anon, file rss.Bytes) rss.Bytes {
	switch a {
	case event.AccountingRSS:
		return anon + file
	case event.AccountingPSS:
		if w.usage.PSS == 0 {
			return 0 // it was not read: nothing is claimed
		}
		return (anon + file).Scale(min(w.usage.PSS.Of(w.usage.RSS()), 1))
	case event.AccountingVirtual:
		return 0
	}
	return anon
}

type livingWorkers struct {
	*history
	list []*worker
}

func (w *livingWorkers) update(p *recording, s *record.Sample) {
	for _, e := range w.list {
		e.alive = false
	}
	at := 0
	for i := range s.Procs {
		u := &s.Procs[i]
		if !p.gives(u.Proc) || u.RSS() == 0 {
			continue
		}
		if at >= len(w.list) || w.list[at].proc != u.Proc { // they keep their order nearly always
			at = slices.IndexFunc(w.list, func(e *worker) bool { return e.proc == u.Proc })
		}
		if at < 0 {
			at = len(w.list)
			w.list = append(w.list, &worker{curve: w.curves[u.Proc], proc: u.Proc, able: p.isWorker(u.Proc), trimAt: -1, recycledAt: -1})
		}
		w.list[at].usage, w.list[at].alive = *u, true
		at++
	}
	w.list = slices.DeleteFunc(w.list, func(e *worker) bool { return !e.alive })
}

func (w *livingWorkers) less(a event.Accounting, now time.Duration) (sum rss.Bytes) {
	for _, e := range w.list {
		anon, file := e.less(w.history, now)
		sum += e.counted(a, anon, file)
	}
	return sum
}
