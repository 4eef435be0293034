package analysis

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Need is what the whole job will need at its peak, from a part of it. All but Peak and
// Rate is estimated.
type Need struct {
	Accounting event.Accounting `json:"accounting"` // how Peak and the ranges add up
	Peak       rss.Bytes        `json:"peak_bytes"` // the highest so far
	// Without is the range without rsswarden. Its High is 0 where nothing bounds it.
	Without MemRange `json:"without"`
	// With is the range with it; nil where no action lowers what is needed, or it is not known.
	With *MemRange `json:"with,omitempty"`
	// Open says why Without is too wide to ask for, or has no end.
	Open NeedOpen `json:"open,omitempty"`
	// Rate is how many bytes a second grow, and Grows in which processes, where Open is NeedGrows.
	Rate  rss.Bytes `json:"growing_bytes_per_s,omitempty"`
	Grows rss.Role  `json:"grows_in,omitempty"`
	// Workers have mapped up to Each of files, as far as that is known.
	Workers int       `json:"workers,omitempty"`
	Each    rss.Bytes `json:"mapped_bytes,omitempty"`
}

// MemRange is an amount of memory that is not known exactly.
type MemRange struct {
	Low  rss.Bytes `json:"low_bytes"`
	High rss.Bytes `json:"high_bytes"`
}

// Wide says that the range is too wide to ask for a size.
func (r MemRange) Wide() bool { return r.High-min(r.Low, r.High) > r.High.Scale(mostWide) }

// NeedOpen is why it is not known what a job needs.
type NeedOpen string

const (
	NeedShort    NeedOpen = "workers seen too shortly"
	NeedGrows    NeedOpen = "grows without a known bound"
	NeedRecycled NeedOpen = "recycles hid the growth"
	NeedFiles    NeedOpen = "mapped files are not read yet"
	NeedTrimmed  NeedOpen = "trims hid how much of mapped files is read"
	NeedCopies   NeedOpen = "workers still copy the trainer's memory"
)

// NeedFacts are what a [Need] follows from, of one limit or of the tree's summed RSS.
type NeedFacts struct {
	Accounting event.Accounting
	Took       time.Duration // from the first sample to the last
	Peak       rss.Bytes
	// Own is the use without file pages of workers, at its highest and how it went, Anon
	// the anonymous pages of all processes, each counted, and Files those of files of workers.
	OwnPeak          rss.Bytes
	Own, Anon, Files Growth
	// Private is the most that anonymous and shared memory of all processes came to, each
	// counted: pages that a fork shares come to no more when they are copied.
	Private rss.Bytes
	// Mapped is at most the use with all that workers have mapped in memory; 0 where not known.
	Mapped  rss.Bytes
	Workers int
	Each    rss.Bytes
	Seen    time.Duration // for how long there were workers
	Grows   rss.Role      // whose anonymous memory grew most; empty where none did
	Trims   bool          // workers were trimmed
	Hidden  bool          // recycles or collections gave back what grew
}

const (
	// leastNeed is how long a run must be, and leastWorkers how long it must have had workers.
	leastNeed, leastWorkers = 110 * time.Second, 60 * time.Second
	// mostWide is how wide a range is at most, as a part of its high end.
	mostWide = 0.4
	// levelSlack is how far batches to come may exceed those so far, at a guess, and boundSlack
	// where the rest is bounded by what is mapped.
	boundSlack, levelSlack = 1.05, 1.1
	// bareShare is what a bare run needs at least of a peak: the loader hook takes a few MiB.
	bareShare = 0.97
	// trimmedTo is the file pages that trims leave in a worker at least.
	trimmedTo = 32 * rss.MiB
)

// WithoutActions is at most what a run would have needed without actions: its use with all
// that workers have mapped in memory, as an event mapped has it, and what recycles and
// collections gave back. Of recycles that is by how much workers had grown, where known:
// pages that a fresh one maps or copies again are given back again and again.
func WithoutActions(most *event.Limit, s *event.Saved, grown rss.Bytes, known bool) rss.Bytes {
	if known && s.Recycled > 0 {
		return most.UsedMax + grown + s.Sum(event.ActionGC).Freed
	}
	return most.Used + freed(s)
}

func freed(s *event.Saved) rss.Bytes {
	return s.Sum(event.ActionRecycle).Freed + s.Sum(event.ActionGC).Freed
}

// level says that it has not grown since the first third.
func (g *Growth) level() bool {
	return !g.Creeps && g.All() < max(stillLeast, g.Thirds[2].Scale(stillShare))
}

func (g *Growth) grows() bool { return g.Still || g.Creeps }

// copies says that what grows is pages that a fork shared: what each process has stays, and
// comes to more than is used so far.
func (f *NeedFacts) copies() bool {
	shared := f.Accounting == event.AccountingPSS || f.Accounting == event.AccountingCgroup
	return shared && !f.Anon.grows() && f.Private > f.OwnPeak
}

// Need estimates what the whole job needs; nil of a run that is too short.
func (f *NeedFacts) Need() *Need {
	if f.Took < leastNeed || f.Peak == 0 {
		return nil
	}
	n := &Need{Accounting: f.Accounting, Peak: f.Peak, Workers: f.Workers, Each: f.Each}
	n.Without = MemRange{Low: f.Peak.Scale(bareShare), High: f.Peak.Scale(boundSlack)}
	n.With = f.with()
	files := f.Accounting == event.AccountingPSS || f.Accounting == event.AccountingRSS
	copies, grows := f.copies(), f.Own.grows()
	switch {
	case f.Workers > 0 && f.Seen < leastWorkers:
		n.Open, n.Without.High, n.With = NeedShort, 0, nil
		return n
	case f.Hidden && !copies:
		n.Open, n.Without.High = NeedRecycled, 0
		return n
	case grows && !copies:
		n.Open, n.Without.High, n.Grows = NeedGrows, 0, f.Grows
		n.Rate = f.Own.PerHour() / 3600
		return n
	}
	if files && f.Mapped == 0 && !f.Files.level() {
		n.Open, n.Without.High = NeedFiles, 0
		return n
	}
	if copies && (grows || f.Hidden) {
		n.Without.High += f.Private.Sub(f.OwnPeak)
		n.Open = NeedCopies
	}
	if unread := f.Mapped.Sub(f.Peak); files && unread > 0 && (f.Trims || !f.Files.level()) {
		n.Without.High += unread
		if n.Open = NeedFiles; f.Trims {
			n.Open = NeedTrimmed
		}
	}
	n.Without.High = max(n.Without.High, f.Peak.Scale(levelSlack))
	if !n.Without.Wide() {
		n.Open = ""
	}
	if n.With != nil && n.With.High >= n.Without.High.Scale(1-worthSaving) {
		n.With = nil
	}
	return n
}

// with is the range with rsswarden, for a limit below which trims keep the run by giving
// back file pages of workers, or recycles by giving back what grows in them.
func (f *NeedFacts) with() *MemRange {
	low := f.OwnPeak
	if f.Own.grows() {
		if f.Grows != rss.RoleWorker && !f.copies() {
			return nil
		}
		low = f.Own.Thirds[0]
	}
	if low == f.Peak {
		return nil
	}
	return &MemRange{Low: low, High: (low + trimmedTo*rss.Bytes(f.Workers)).Scale(1 / KeptShare)}
}

// died says that a run wanted more than its limit: what it had is no whole.
func died(o event.RunOutcome) bool {
	return o == event.RunOOM || o == event.RunSlurmKill || o == event.RunStopped || o == event.RunKilled || o == event.RunRequeued
}

// need is that of the run with the peak of its job, nil for none; nil where too little was seen.
func (k *RunScan) need(job *event.Limit) *Need {
	f := NeedFacts{Accounting: event.AccountingRSS, Took: k.Tree.RSS.span()}
	var id event.LimitID
	own, peak := &k.own, k.peaks[byRSS].v
	switch l := k.memLimit(); {
	case (l == nil) != (job == nil) || l != nil && (l.ID() != job.ID() || l.Used != job.Used):
		return nil // another run came nearer
	case l == nil:
		id.Accounting = event.AccountingRSS
	default:
		id, f.Accounting, peak = l.ID(), l.Accounting, l.Used
		for i := range k.Limits {
			if k.Limits[i].Seen && k.Limits[i].ID() == id {
				own, f.Took = &k.Limits[i].own, k.Limits[i].Used.span()
			}
		}
	}
	f.Peak, f.OwnPeak = peak, own.highest()
	var ok bool
	if f.Own, ok = own.Growth(); !ok {
		return nil
	}
	f.Anon, _ = k.Tree.Anon.Growth()
	if f.Files, ok = k.Workers.File.Growth(); !ok {
		f.Files.Thirds[2] = k.Workers.File.highest() // too little of it was seen
	}
	f.Private = k.Tree.Anon.highest() + k.Tree.Shmem.highest()
	workers, _ := k.Workers.Anon.Growth()
	trainers, _ := k.Trainers.Anon.Growth()
	switch {
	case workers.Rise() > trainers.Rise() && f.Anon.grows():
		f.Grows = rss.RoleWorker
	case f.Anon.grows():
		f.Grows = rss.RoleTrainer
	}
	f.Workers, f.Seen = k.Workers.Most(), k.Workers.RSS.span()
	if m := k.Mapped; m != nil {
		f.Workers, f.Each = max(f.Workers, m.Workers), m.Each
		for i := range m.Limits {
			if m.Limits[i].ID() == id {
				f.Mapped = m.Limits[i].Used
			}
		}
	}
	s := &k.Actions.Saved
	f.Trims, f.Hidden = s.WorkerTrims > 0 || s.Sum(event.ActionTrim).Worked > 0, s.Recycled > 0 || freed(s) > 0
	return f.Need()
}

// highest is the most of the course.
func (c *course) highest() (most rss.Bytes) {
	for _, v := range c.most {
		most = max(most, rss.Bytes(max(v, 0)))
	}
	return most
}
