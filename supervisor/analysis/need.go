package analysis

import (
	"cmp"
	"path/filepath"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
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
		return most.UsedMax + grown + freed(s, false)
	}
	return most.Used + freed(s, true)
}

// freed is what actions gave back, but for trims, whose pages are still mapped. single says
// that those count which act on one worker.
func freed(s *event.Saved, single bool) (sum rss.Bytes) {
	for i := range s.Actions {
		a := s.Actions[i].Action
		if r := a.Row(); a.Frees() && !r.Trims && (single || !r.Single) {
			sum += s.Actions[i].Freed
		}
	}
	return sum
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
	f.Trims, f.Hidden = s.WorkerTrims > 0 || s.Sum(event.ActionTrim).Worked > 0, s.Recycled > 0 || freed(s, true) > 0
	return f.Need()
}

// highest is the most of the course.
func (c *course) highest() (most rss.Bytes) {
	for _, v := range c.most {
		most = max(most, rss.Bytes(max(v, 0)))
	}
	return most
}

// LimitKey names the limit that advice on --mem is about, in all runs of a kind:
// only what is added up alike can be compared.
type LimitKey struct {
	Name       event.LimitName
	Accounting event.Accounting
}

// KeyOf is the key of a limit.
func KeyOf(l *event.Limit) LimitKey { return LimitKey{l.Name, l.Accounting} }

// memLimit is the limit on memory that a run came nearest to, with its highest
// use, of those by which Slurm or the kernel ends the job, else --limit; nil where
// there is none.
func (k *RunScan) memLimit() *event.Limit {
	var told *event.Limit
	if e := k.Recorded; e != nil && e.Binding != nil && e.Binding.Used > 0 && e.Binding.Name.Row().OfJob {
		told = e.Binding
	}
	if told != nil && told.Name != event.LimitUser {
		return told
	}
	var best *event.Limit
	for i := range k.Limits {
		l := k.atPeak(i)
		if l == nil || l.Name == event.LimitUser && told != nil {
			continue
		}
		if own := l.Name == event.LimitUser; best == nil || own == (best.Name == event.LimitUser) && l.Ratio() > best.Ratio() || !own && best.Name == event.LimitUser {
			best = l
		}
	}
	return cmp.Or(best, told)
}

// atPeak is a limit on memory with its highest use, nil for another limit.
func (k *RunScan) atPeak(i int) *event.Limit {
	l, seen := k.Run.Limits[i], &k.Limits[i]
	if !seen.Seen || seen.Peak.Size == 0 || seen.Peak.Used == 0 || !l.Name.Row().OfJob {
		return nil
	}
	l.Used, l.UsedMax, l.Limit = seen.Peak.Used, seen.Peak.UsedMax, seen.Peak.Size
	return &l
}

// Index is the limit of that key with the highest share used, -1 for none.
func (k *RunScan) Index(key LimitKey) int {
	best, ratio := -1, -1.0
	for i := range k.Limits {
		if l := k.atPeak(i); l != nil && KeyOf(l) == key && l.Ratio() > ratio {
			best, ratio = i, l.Ratio()
		}
	}
	return best
}

// PeakOf is the limit of that key at its highest use, nil where the run has none.
// The exit event knows what lay between two samples.
func (k *RunScan) PeakOf(key LimitKey) *event.Limit {
	var l *event.Limit
	if i := k.Index(key); i >= 0 {
		l = k.atPeak(i)
	}
	if e := k.Recorded; e != nil && e.Binding != nil && KeyOf(e.Binding) == key &&
		(l == nil || e.Binding.Used > l.Used) {
		l = e.Binding
	}
	return l
}

// Key is the limit that the newest run with one came nearest to.
func (k *Program) Key() (LimitKey, bool) {
	for i := len(k.Jobs) - 1; i >= 0; i-- {
		for n := len(k.Jobs[i].Runs) - 1; n >= 0; n-- {
			if l := k.Jobs[i].Runs[n].memLimit(); l != nil {
				return KeyOf(l), true
			}
		}
	}
	return LimitKey{}, false
}

// Sufficiency is what a job's peak says about what it needs.
type Sufficiency int

const (
	NeedKnown     Sufficiency = iota // all of it
	NeedAtLeast                      // the least: it goes on, or ended early, or was seen in part
	KeptByActions                    // enough with rsswarden
	LimitTooSmall                    // the limit was too small
)

// Fate is the fate of one run.
func (k *RunScan) Fate(l *event.Limit) Sufficiency {
	e := k.Recorded
	if e == nil {
		if k.Handing != nil && k.Handing.whole(k) {
			return NeedKnown // the next record has the rest
		}
		// A kill of the whole job leaves no exit event.
		asked := slices.ContainsFunc(k.Signals, func(s SignalSeen) bool { return s.Signal.Signal == "SIGTERM" && k.End-s.At < afterTerm })
		if !k.Run.Live && !asked && l.Ratio() >= likelyDied {
			return LimitTooSmall
		}
		return NeedAtLeast
	}
	if b := e.Binding; e.Outcome == event.RunStopped && b != nil && b.Name == event.LimitUser && l.Name != event.LimitUser {
		return NeedAtLeast // it was --limit that it was stopped for
	}
	switch e.Outcome {
	case event.RunOOM, event.RunStopped, event.RunRequeued, event.RunSlurmKill:
		return LimitTooSmall
	case event.RunKilled:
		if l.Ratio() >= NearFull {
			return LimitTooSmall
		}
		return NeedAtLeast
	case event.RunKept:
		return KeptByActions
	case event.RunFailed:
		if k.Actions.Sum(event.ActionSignal).Worked > 0 {
			return LimitTooSmall // a rule asked it to end
		}
	}
	if e.Signal != nil || e.Code == nil || *e.Code != 0 || k.Ranks.Failed() || e.Watched != event.WatchedAll && !k.Follows {
		return NeedAtLeast
	}
	return NeedKnown
}

// afterTerm is how long after a SIGTERM the end is most likely its doing.
const afterTerm = 5 * time.Minute

// likelyDied is the share of its limit from which on a job whose record just
// ends was most likely killed for it.
const likelyDied = 0.9

// JobNeed is what one job tells.
type JobNeed struct {
	Fate  Sufficiency
	Peak  rss.Bytes
	Size  rss.Bytes // its limit
	Limit *event.Limit
	Facts *RunScan // of the run with the peak
	Runs  int
	Job   *job
}

// Least is the least that the job needs, as far as it tells.
func (o *JobNeed) Least() rss.Bytes {
	if o.Fate == LimitTooSmall {
		return max(o.Peak, o.Size)
	}
	return o.Peak
}

// Observe is what the job's runs come to: of several nodes the fullest, of several
// tasks under one limit that, of tasks with each its own their sum. Leaders that
// followed each other had one limit for all their ranks.
func (j *job) Observe(key LimitKey) (o JobNeed, ok bool) {
	type place struct {
		node string
		line *record.Run
	}
	byPlace := map[place]*JobNeed{}
	var order []place
	for _, f := range j.Runs {
		l := f.PeakOf(key)
		if l == nil {
			continue
		}
		p := place{node: f.Run.Meta.Node}
		if l.Scope == event.ScopeTree && key.Name == event.LimitUser {
			p.line = cmp.Or(f.Line, f.Run) // where no other led it is a limit of the run's own
		}
		one := &JobNeed{Fate: f.Fate(l), Peak: l.Used, Size: l.Limit, Limit: l, Facts: f, Runs: 1}
		if n := byPlace[p]; n != nil {
			n.join(one, func(a, b rss.Bytes) rss.Bytes { return max(a, b) })
			continue
		}
		byPlace[p], order = one, append(order, p)
	}
	byNode := map[string]*JobNeed{}
	for _, p := range order {
		if n := byNode[p.node]; n != nil {
			// under another limit of the node at the same time
			n.join(byPlace[p], func(a, b rss.Bytes) rss.Bytes { return a + b })
			continue
		}
		byNode[p.node] = byPlace[p]
	}
	for _, n := range byNode {
		if !ok || n.Least() > o.Least() || n.Least() == o.Least() && n.Facts.Run.Meta.ID < o.Facts.Run.Meta.ID {
			o, ok = *n, true
		}
	}
	for _, n := range byNode {
		o.Fate = max(o.Fate, n.Fate)
	}
	o.Job = j
	return o, ok
}

// join takes in what others need: their sum, or the most, of a limit that all share.
func (o *JobNeed) join(n *JobNeed, of func(a, b rss.Bytes) rss.Bytes) {
	o.Peak, o.Size, o.Runs = of(o.Peak, n.Peak), of(o.Size, n.Size), o.Runs+n.Runs
	if n.Limit.Used > o.Limit.Used {
		o.Limit, o.Facts = n.Limit, n.Facts
	}
	o.Fate = max(o.Fate, n.Fate)
}

// Counted is what a limit counts of processes, false where the record does not tell.
func (s *Sum) Counted(key LimitKey) (rss.Bytes, bool) {
	switch key.Accounting {
	case event.AccountingRSS:
		return s.parts(), true
	case event.AccountingNoShared:
		return s.anon, true
	case event.AccountingPSS:
		return s.pss, !s.noPSS
	case event.AccountingCgroup:
		// A page that a fork shares is charged once: what is a worker's own is
		// what has come since.
		return s.grown + s.shmem, true
	}
	return 0, false
}

// Stayed says that most workers lived through at least half of the time in
// which there were any, and how many did: a loader with persistent workers, or
// one that never ends its epoch.
func (k *RunScan) Stayed() (n int, ok bool) {
	all := 0
	for i := range k.Procs {
		if p := &k.Procs[i]; p.Seen && p.group != nil && p.group.most.Role.IsWorker() {
			if all++; p.last-p.first >= k.Workers.RSS.span()/2 {
				n++
			}
		}
	}
	return n, n > 0 && 2*n >= all
}

// Close says that the limit was so near that saving is worth something.
func (k *RunScan) Close(key LimitKey) bool {
	l := k.PeakOf(key)
	return l != nil && (l.Ratio() >= event.Roomy || k.Fate(l) == LimitTooSmall || k.Fate(l) == KeptByActions)
}

// settle puts the run that came nearest to a limit last, where nodes have leaders.
func (j *job) settle() {
	if !slices.ContainsFunc(j.Runs, func(k *RunScan) bool { return k.Ranks.led }) {
		return
	}
	share := func(k *RunScan) float64 {
		if l := k.memLimit(); l != nil {
			return l.Ratio()
		}
		return 0
	}
	slices.SortStableFunc(j.Runs, func(a, b *RunScan) int { return cmp.Compare(share(a), share(b)) })
}

// Program is the runs of one program, by time.
type Program struct {
	Words []string // of the command, as far as they are alike
	Jobs  []job
}

// job is the runs of one job, one for each task and node, or one run outside
// Slurm.
type job struct{ Runs []*RunScan }

// LastRun is the run of the job that began last, and where its nodes have leaders the
// one that came nearest to a limit: --mem is for each node.
func (j *job) LastRun() *RunScan { return j.Runs[len(j.Runs)-1] }

// Programs sorts runs, the kind that ran last first.
func Programs(all []*RunScan) []Program {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b *RunScan) int { return a.Run.Meta.Start.Compare(b.Run.Meta.Start) })
	var kinds []Program
	for _, f := range all {
		words := kindWords(f.Run.Meta.Command)
		if first := f.Line; first != nil && jobName(first) == jobName(f.Run) {
			words = kindWords(first.Meta.Command) // it led the others, whatever they run
		}
		i := slices.IndexFunc(kinds, func(k Program) bool { return slices.Equal(k.Words, words) })
		if i < 0 {
			kinds = append(kinds, Program{Words: words})
			i = len(kinds) - 1
		}
		k := &kinds[i]
		n := slices.IndexFunc(k.Jobs, func(j job) bool { return jobName(j.Runs[0].Run) == jobName(f.Run) })
		if n < 0 {
			k.Jobs = append(k.Jobs, job{})
			n = len(k.Jobs) - 1
		}
		k.Jobs[n].Runs = append(k.Jobs[n].Runs, f)
	}
	for i := range kinds {
		for n := range kinds[i].Jobs {
			kinds[i].Jobs[n].settle()
		}
	}
	slices.SortStableFunc(kinds, func(a, b Program) int {
		return cmp.Compare(b.Newest().Run.Meta.Start.UnixNano(), a.Newest().Run.Meta.Start.UnixNano())
	})
	return kinds
}

// Newest is the run that began last.
func (k *Program) Newest() *RunScan {
	newest := slices.MaxFunc(k.Jobs, func(a, b job) int { return a.LastRun().Run.Meta.Start.Compare(b.LastRun().Run.Meta.Start) })
	return newest.LastRun()
}

// scripts are the ends of names of programs that another program runs.
var scripts = []string{".py", ".pyc", ".sh", ".bash", ".R", ".jl", ".pl", ".lua", ".m"}

// kindWords is a command up to its script, or all of it.
func kindWords(command []string) []string {
	for i, word := range command {
		if i > 0 && slices.Contains(scripts, filepath.Ext(word)) {
			return command[:i+1]
		}
	}
	return command
}
