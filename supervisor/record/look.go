package record

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

type Look struct {
	At         time.Duration // since Meta.Start
	AtDecision bool
	Sample     *rss.Sample
	Limits     []event.Limit
	// Self and Holder are our own processes.
	Self, Holder int
	// Counts returns lines of maps and open descriptors of a process, 0 for what is not
	// known. It may be nil.
	Counts func(rss.ProcID) (maps, fds int)
}

// Sampler makes samples of looks. It gives processes and limits the numbers that samples
// refer to.
type Sampler struct {
	base   int // of the numbers: an earlier watcher of the run had those below
	procs  map[procKey]int
	limits map[limitKey]int
	count  int // of processes ever
	made   []Item
	most   int          // of processes that are told apart
	more   map[int]bool // numbers of those that are not
}

type procKey struct {
	id   rss.ProcID
	role rss.Role
	comm string
}

const (
	// mostProcs bounds the processes that one record tells apart: a job may start millions.
	// The others are called manyComm.
	mostProcs = 1 << 16
	// procShare is how many bytes of a record there must be for each of them.
	procShare = 1 << 10
	manyComm  = "(more)"
	// mostLimits bounds the limits: a job that is watched whole may have thousands of steps.
	mostLimits = 1 << 13
)

type limitKey struct {
	event.LimitID
	source string
}

// NewSampler returns a sampler for a watcher of the run; attempt counts them from 1.
func NewSampler(attempt int) Sampler {
	return Sampler{base: (max(attempt, 1) - 1) << baseBits, procs: map[procKey]int{}, limits: map[limitKey]int{}, most: mostProcs, more: map[int]bool{}}
}

// Fit bounds the processes that are told apart to what a record of so many bytes holds.
func (t *Sampler) Fit(size int64) { t.most = min(mostProcs, int(size/procShare)) }

// Take returns the entries of what was given a number since the last call.
func (t *Sampler) Take() []Item {
	made := t.made
	t.made = nil
	return made
}

func (t *Sampler) add(kind byte, n int, v any) {
	value, err := json.Marshal(v)
	if err != nil {
		value = []byte("{}") // plain values: this cannot happen
	}
	t.made = append(t.made, Item{kind, uint64(n), value})
}

func (t *Sampler) proc(p *rss.Proc, extra bool, l *Look) int {
	key := procKey{p.ID, p.Role, p.Comm}
	if n, ok := t.procs[key]; ok {
		return n
	}
	if t.count >= t.most {
		// The rest has one number for each role, and no names.
		key = procKey{role: p.Role, comm: manyComm}
		p = &rss.Proc{Comm: manyComm, Role: p.Role}
		if n, ok := t.procs[key]; ok {
			return n
		}
	}
	n := t.base + t.count
	t.count++
	t.procs[key] = n
	if key.comm == manyComm {
		t.more[n] = true
	}
	t.add(KindProc, n, Proc{
		ID: p.ID, Parent: p.Parent, Comm: p.Comm, Role: p.Role, Extra: extra,
		Ours: p.ID.PID == l.Self || p.ID.PID == l.Holder,
	})
	return n
}

// limit returns the number of a limit. One that is new where there are too many
// has none: it is in no sample, which is better than under another's name.
func (t *Sampler) limit(l *event.Limit) (number int, ok bool) {
	key := limitKey{l.ID(), l.LimitSource}
	if n, ok := t.limits[key]; ok {
		return n, true
	}
	if len(t.limits) >= mostLimits {
		return 0, false
	}
	n := t.base + len(t.limits)
	t.limits[key] = n
	t.add(KindLimit, n, still(l))
	return n, true
}

// still is a limit without what changes.
func still(l *event.Limit) event.Limit {
	c := *l
	c.Used, c.UsedMax, c.Limit, c.Charged, c.WorkingSet, c.Age, c.Binding = 0, 0, 0, 0, 0, 0, false
	c.ETA, c.Outlook, c.Files = nil, event.Outlook{}, event.FilePages{}
	c.Note, c.PID, c.Role = "", 0, ""
	return c
}

func (t *Sampler) Sample(l *Look, into *Sample) {
	into.At, into.AtDecision = l.At, l.AtDecision
	into.Limits = into.Limits[:0]
	for i := range l.Limits {
		if n, ok := t.limit(&l.Limits[i]); ok {
			into.Limits = append(into.Limits, stored(reading(&l.Limits[i], n), l.Limits[i].Name))
		}
	}
	into.Procs = into.Procs[:0]
	for i := range l.Sample.Procs {
		t.put(into, t.usage(&l.Sample.Procs[i], false, l))
	}
	for i := range l.Sample.Extra {
		t.put(into, t.usage(&l.Sample.Extra[i], true, l))
	}
	if len(t.procs) > 2*len(into.Procs)+1024 {
		t.sweep(into.Procs)
	}
}

// put adds a process to a sample. Those that are not told apart are one there.
func (t *Sampler) put(into *Sample, u Usage) {
	if t.more[u.Proc] {
		if i := slices.IndexFunc(into.Procs, func(o Usage) bool { return o.Proc == u.Proc }); i >= 0 {
			o := &into.Procs[i]
			o.Anon, o.File, o.Shmem, o.PSS = o.Anon+u.Anon, o.File+u.File, o.Shmem+u.Shmem, o.PSS+u.PSS
			return
		}
	}
	into.Procs = append(into.Procs, u)
}

// sweep forgets processes that have ended: a job may start millions.
func (t *Sampler) sweep(live []Usage) {
	keep := make(map[int]bool, len(live))
	for i := range live {
		keep[live[i].Proc] = true
	}
	for key, n := range t.procs {
		if !keep[n] && key.comm != manyComm {
			delete(t.procs, key)
		}
	}
}

func reading(l *event.Limit, n int) Reading {
	r := Reading{
		Limit: n, Used: l.Used, UsedMax: max(l.Used, l.UsedMax), Charged: l.Charged, WorkingSet: l.WorkingSet,
		Size: l.Limit, ETA: -1, Binding: l.Binding,
	}
	if l.ETA != nil {
		r.ETA, r.MayFlatten = *l.ETA, l.ETAHigh == nil && l.Limit > 0
	}
	return r
}

// stored and read turn a reading into what a block has and back. A number is
// stored as so many KiB, so that blocks keep it whole.
func stored(r Reading, name event.LimitName) Reading {
	if name.Counts() {
		r.Used, r.UsedMax, r.Size = r.Used*rss.KiB, r.UsedMax*rss.KiB, r.Size*rss.KiB
	}
	return r
}

func read(r Reading, name event.LimitName) Reading {
	if name.Counts() {
		r.Used, r.UsedMax, r.Size = r.Used/rss.KiB, r.UsedMax/rss.KiB, r.Size/rss.KiB
	}
	return r
}

func (t *Sampler) usage(p *rss.Proc, extra bool, l *Look) Usage {
	u := Usage{Proc: t.proc(p, extra, l), Anon: p.Anon, File: p.File, Shmem: p.Shmem}
	if p.PSS != nil {
		u.PSS = p.PSS.PSS
	}
	if l.Counts != nil && !extra {
		u.Maps, u.FDs = l.Counts(p.ID)
	}
	return u
}

func roleSums(s *rss.Sample) []RoleSum {
	var sums []RoleSum
	for i := range s.Procs {
		p := &s.Procs[i]
		at := slices.IndexFunc(sums, func(r RoleSum) bool { return r.Role == p.Role })
		if at < 0 {
			at = len(sums)
			sums = append(sums, RoleSum{Role: p.Role})
		}
		r := &sums[at]
		r.Count++
		r.Anon, r.File, r.Shmem, r.RSS = r.Anon+p.Anon, r.File+p.File, r.Shmem+p.Shmem, r.RSS+p.RSS
	}
	return sums
}
