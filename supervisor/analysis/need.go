package analysis

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// RunFacts is what advice rests on, of one run.
type RunFacts struct {
	Run  *record.Run
	Exit *event.Exit // nil where none was written
	end  time.Duration

	Limits []limitFacts // by index in run.Limits
	Procs  []procFacts  // by index in run.Procs; nothing in it for a journal
	// What all workers, and all trainers, of the tree had together.
	Workers, Trainers groupFacts
	Tree              groupFacts // … and all of it
	// helped counts outcomes that freed something, and trims to keep to a budget; asked
	// those that a user asked for while there was room, which are not in helped.
	Helped, Asked int
	unneeded      map[uint64]bool // decisions that a user asked for while there was room
	// told is when a SIGTERM reached the holder last, negative for never: Slurm
	// sends one before the job's end and with scancel.
	told     time.Duration
	Findings findingsSeen
	now      groupNow // of the sample at hand
	ledFacts
}

// limitFacts is one limit over a run.
type limitFacts struct {
	Peak    record.Reading // at its highest use
	At      time.Duration
	Seen    bool
	Used    course
	Workers groupNow // at the peak
}

// procFacts is one process.
type procFacts struct {
	Seen        bool
	first, last time.Duration
	Born        rss.Bytes // RssAnon when it was first seen
	Trainer     rss.Bytes // … and its parent's, 0 where that is no trainer
}

// groupFacts is what several processes had together, over the run.
type groupFacts struct {
	Anon, File, Shmem, Pss, Rss course
	Most                        int // at most at a time
	NoPSS                       bool
}

// groupNow is what the workers had in one sample.
type groupNow struct {
	Count, Trainers        int
	anon, file, shmem, pss rss.Bytes
	grown                  rss.Bytes // RssAnon beyond what each was born with
	noPSS                  bool
}

func (g *groupNow) add(u *record.Usage, born rss.Bytes) {
	g.Count++
	g.anon, g.file, g.shmem, g.pss = g.anon+u.Anon, g.file+u.File, g.shmem+u.Shmem, g.pss+u.PSS
	g.grown += u.Anon.Sub(born)
	g.noPSS = g.noPSS || u.PSS == 0
}

func (g *groupFacts) add(at time.Duration, n *groupNow) {
	if n.Count == 0 {
		return
	}
	g.Most = max(g.Most, n.Count)
	g.Anon.add(at, n.anon)
	g.File.add(at, n.file)
	g.Shmem.add(at, n.shmem)
	g.Rss.add(at, n.anon+n.file+n.shmem)
	g.NoPSS = g.NoPSS || n.noPSS
	g.Pss.add(at, n.pss)
}

func NewFacts(r *record.Run) *RunFacts {
	return &RunFacts{
		Run: r, Exit: r.Exit(), told: -1, Limits: make([]limitFacts, len(r.Limits)), Procs: make([]procFacts, len(r.Procs)),
		unneeded: map[uint64]bool{},
	}
}

func (f *RunFacts) entry(entry *record.Entry) {
	f.end = max(f.end, entry.At)
	switch e := entry.Value.(type) {
	case *event.Decision:
		if e.Unneeded() {
			f.unneeded[e.ID] = true
		}
	case *event.Outcome:
		switch {
		case !e.OK || e.Freed == 0:
		case f.unneeded[e.Decision]:
			f.Asked++
		default:
			f.Helped++
		}
	case *event.Signal:
		if e.Signal == "SIGTERM" {
			f.told = entry.At
		}
	case *event.Rank:
		f.rank(entry.At, e)
	case *event.Diagnosis:
		f.Findings.diagnosed(entry.At, e)
	case *event.LoaderSaid:
		if e.What == event.LoaderTrimmed && e.Freed > 0 {
			f.Helped++
		}
	}
}

func (f *RunFacts) sample(s *record.Sample) {
	f.end = max(f.end, s.At)
	f.processes(s)
	for i := range s.Limits {
		r := &s.Limits[i]
		if r.Limit < 0 || r.Limit >= len(f.Limits) {
			continue
		}
		l := &f.Limits[r.Limit]
		l.Used.add(s.At, r.Used)
		if !l.Seen || r.Used > l.Peak.Used {
			l.Peak, l.At, l.Workers = *r, s.At, f.now
		}
		l.Seen = true
	}
}

func (f *RunFacts) processes(s *record.Sample) {
	var workers, trainers, tree groupNow
	for i := range s.Procs {
		u := &s.Procs[i]
		if u.Proc < 0 || u.Proc >= len(f.Procs) {
			continue
		}
		p, who := &f.Procs[u.Proc], &f.Run.Procs[u.Proc]
		if who.Extra || who.Ours {
			continue
		}
		if !p.Seen {
			*p = procFacts{Seen: true, first: s.At, Born: u.Anon}
			if who.Role == rss.RoleWorker {
				p.Trainer = f.trainer(s, who.Parent)
			}
		}
		p.last = s.At
		tree.add(u, p.Born)
		switch who.Role {
		case rss.RoleWorker:
			workers.add(u, p.Born)
		case rss.RoleTrainer:
			trainers.add(u, p.Born)
		}
	}
	for i := range s.Roles { // a journal has these alone
		r := &s.Roles[i]
		n := groupNow{Count: r.Count, anon: r.Anon, file: r.File, shmem: r.Shmem, noPSS: true}
		switch r.Role {
		case rss.RoleWorker:
			workers = n
		case rss.RoleTrainer:
			trainers = n
		}
		tree.Count, tree.noPSS = tree.Count+n.Count, true
		tree.anon, tree.file, tree.shmem = tree.anon+n.anon, tree.file+n.file, tree.shmem+n.shmem
	}
	f.Workers.add(s.At, &workers)
	f.Trainers.add(s.At, &trainers)
	f.Tree.add(s.At, &tree)
	f.now = workers
	f.now.Trainers = trainers.Count
}

// trainer is the RssAnon of the trainer with that PID in a sample.
func (f *RunFacts) trainer(s *record.Sample, pid int) rss.Bytes {
	for i := range s.Procs {
		u := &s.Procs[i]
		if u.Proc >= 0 && u.Proc < len(f.Procs) && f.Run.Procs[u.Proc].ID.PID == pid && f.Run.Procs[u.Proc].Role == rss.RoleTrainer {
			return u.Anon
		}
	}
	return 0
}

// Stayed says that most workers lived through at least half of the time in
// which there were any, and how many did: a loader with persistent workers, or
// one that never ends its epoch.
func (f *RunFacts) Stayed() (n int, ok bool) {
	span := f.Workers.Rss.span()
	all := 0
	for i := range f.Procs {
		p := &f.Procs[i]
		if who := &f.Run.Procs[i]; !p.Seen || who.Role != rss.RoleWorker || who.Extra {
			continue
		}
		all++
		if p.last-p.first >= span/2 {
			n++
		}
	}
	return n, n > 0 && 2*n >= all
}

// Inherited is what workers were born with in all, as far as any were there at a
// time.
func (f *RunFacts) Inherited() rss.Bytes {
	var sum rss.Bytes
	n := 0
	for i := range f.Procs {
		if p := &f.Procs[i]; p.Seen && f.Run.Procs[i].Role == rss.RoleWorker && n < f.Workers.Most {
			sum += p.Born
			n++
		}
	}
	return sum
}

// LimitKey names the limit that advice on --mem is about, in all runs of a kind:
// only what is added up alike can be compared.
type LimitKey struct {
	Name       event.LimitName
	Accounting event.Accounting
}

// KeyOf is the key of a limit.
func KeyOf(l *event.Limit) LimitKey { return LimitKey{l.Name, l.Accounting} }

// Counts says that a limit is one on this job's memory.
func (f *RunFacts) Counts(l *event.Limit) bool {
	return l.Name.Row().OfJob
}

// nearest is the limit on memory that a run came nearest to, with its highest
// use, of those by which Slurm or the kernel ends the job, else --limit; nil where
// there is none.
func (f *RunFacts) nearest() *event.Limit {
	var told *event.Limit
	if e := f.Exit; e != nil && e.Binding != nil && e.Binding.Used > 0 && f.Counts(e.Binding) {
		told = e.Binding
	}
	if told != nil && told.Name != event.LimitUser {
		return told
	}
	var best *event.Limit
	for i := range f.Limits {
		l := f.at(i)
		if l == nil || l.Name == event.LimitUser && told != nil {
			continue
		}
		if own := l.Name == event.LimitUser; best == nil || own == (best.Name == event.LimitUser) && l.Ratio() > best.Ratio() || !own && best.Name == event.LimitUser {
			best = l
		}
	}
	return cmp.Or(best, told)
}

// at is a limit on memory with its highest use, nil for another limit.
func (f *RunFacts) at(i int) *event.Limit {
	l, seen := f.Run.Limits[i], &f.Limits[i]
	if !seen.Seen || seen.Peak.Size == 0 || seen.Peak.Used == 0 || !f.Counts(&l) {
		return nil
	}
	l.Used, l.UsedMax, l.Limit = seen.Peak.Used, seen.Peak.UsedMax, seen.Peak.Size
	return &l
}

// Index is the limit of that key with the highest share used, -1 for none.
func (f *RunFacts) Index(key LimitKey) int {
	best, ratio := -1, -1.0
	for i := range f.Limits {
		if l := f.at(i); l != nil && KeyOf(l) == key && l.Ratio() > ratio {
			best, ratio = i, l.Ratio()
		}
	}
	return best
}

// Peak is the limit of that key at its highest use, nil where the run has none.
// The exit event knows what lay between two samples.
func (f *RunFacts) Peak(key LimitKey) *event.Limit {
	var l *event.Limit
	if i := f.Index(key); i >= 0 {
		l = f.at(i)
	}
	if e := f.Exit; e != nil && e.Binding != nil && KeyOf(e.Binding) == key &&
		(l == nil || e.Binding.Used > l.Used) {
		l = e.Binding
	}
	return l
}

// Key is the limit that the newest run with one came nearest to.
func (k *Program) Key() (LimitKey, bool) {
	for i := len(k.Jobs) - 1; i >= 0; i-- {
		for n := len(k.Jobs[i].Runs) - 1; n >= 0; n-- {
			if l := k.Jobs[i].Runs[n].nearest(); l != nil {
				return KeyOf(l), true
			}
		}
	}
	return LimitKey{}, false
}

// Sufficiency is what a job's peak tells of what it needs.
type Sufficiency int

const (
	NeedKnown     Sufficiency = iota // all of it
	NeedAtLeast                      // the least: it goes on, or ended early, or was seen in part
	KeptByActions                    // enough with rsswarden
	LimitTooSmall                    // the limit was too small
)

// Fate is the fate of one run.
func (f *RunFacts) Fate(l *event.Limit) Sufficiency {
	e := f.Exit
	if e == nil {
		if f.handed {
			return NeedKnown // the next record has the rest
		}
		// A kill of the whole job leaves no exit event.
		asked := f.told >= 0 && f.end-f.told < afterTerm
		if !f.Run.Live && !asked && l.Ratio() >= likelyDied {
			return LimitTooSmall
		}
		return NeedAtLeast
	}
	failed := e.Signal != nil || e.Code == nil || *e.Code != 0 || f.Failed
	if b := e.Binding; e.Verdict == event.VerdictStopped && b != nil && b.Name == event.LimitUser && l.Name != event.LimitUser {
		return NeedAtLeast // it was --limit that it was stopped for
	}
	switch f.verdict(l) {
	case event.VerdictOOM, event.VerdictStopped, event.VerdictRequeued:
		return LimitTooSmall
	case event.VerdictKilled:
		if e.Advice > 0 { // it was full then
			return LimitTooSmall
		}
		return NeedAtLeast
	case event.VerdictCarried:
		return KeptByActions
	case event.VerdictAsked:
		if failed {
			return LimitTooSmall
		}
	case event.VerdictUnwatched, event.VerdictLed, "":
		return NeedAtLeast
	}
	if failed {
		return NeedAtLeast
	}
	return NeedKnown
}

// verdict is that of the exit event, but for two that others' words can mend. Who led
// from some time on calls the run unwatched, for it was not there before; where another
// record has what was before, the verdict is on what this one has. And a run is not
// carried by what a user asked for while there was room.
func (f *RunFacts) verdict(l *event.Limit) event.Verdict {
	e := f.Exit
	switch {
	case f.Follows && e.Verdict == event.VerdictUnwatched && (e.Code != nil || e.Signal != nil):
	case f.Idly():
	default:
		return e.Verdict
	}
	return policy.Advise(policy.Run{Binding: l, Watched: true, Failed: e.Signal != nil || e.Code == nil || *e.Code != 0, Helped: f.Helped}).Verdict
}

// Idly says that all that was done was asked for while there was room.
func (f *RunFacts) Idly() bool {
	return f.Exit.Verdict == event.VerdictCarried && f.Asked > 0 && f.Helped == 0 && f.Run.Dropped == 0
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
	Facts *RunFacts // of the run with the peak
	Open  *RunFacts // … of the one whose fate it is
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
// followed each other had one limit for all whom they led.
func (j *job) Observe(key LimitKey) (o JobNeed, ok bool) {
	type place struct {
		node string
		line int
		run  *RunFacts // where it is a limit of the run's own
	}
	byPlace := map[place]*JobNeed{}
	var order []place
	for _, f := range j.Runs {
		l := f.Peak(key)
		if l == nil {
			continue
		}
		p := place{node: f.Run.Meta.Node}
		if l.Scope == event.ScopeTree && key.Name == event.LimitUser {
			if p.line = f.line; f.line == 0 {
				p.run = f
			}
		}
		n := byPlace[p]
		if n == nil {
			n = &JobNeed{Limit: l, Facts: f, Open: f}
			byPlace[p] = n
			order = append(order, p)
		}
		n.take(f, l)
		if fate := f.Fate(l); fate > n.Fate || fate == n.Fate && n.Facts == f {
			n.Fate, n.Open = fate, f
		}
		n.Runs++
	}
	byNode := map[string]*JobNeed{}
	for _, p := range order {
		n := byNode[p.node]
		if n == nil {
			byNode[p.node] = byPlace[p]
			continue
		}
		n.beside(byPlace[p])
	}
	for _, n := range byNode {
		if !ok || n.Least() > o.Least() || n.Least() == o.Least() && n.Facts.Run.Meta.ID < o.Facts.Run.Meta.ID {
			o, ok = *n, true
		}
	}
	for _, n := range byNode {
		if n.Fate > o.Fate {
			o.Fate, o.Open = n.Fate, n.Open
		}
	}
	o.Job = j
	return o, ok
}

// take takes in what a run had of a limit that it shares with the others.
func (o *JobNeed) take(f *RunFacts, l *event.Limit) {
	o.Peak, o.Size = max(o.Peak, l.Used), max(o.Size, l.Limit)
	if l.Used > o.Limit.Used {
		o.Limit, o.Facts = l, f
	}
}

// beside takes in what was used under another limit of the node at the same time.
func (o *JobNeed) beside(n *JobNeed) {
	o.Peak, o.Size, o.Runs = o.Peak+n.Peak, o.Size+n.Size, o.Runs+n.Runs
	if n.Limit.Used > o.Limit.Used {
		o.Limit, o.Facts = n.Limit, n.Facts
	}
	if n.Fate > o.Fate || n.Fate == o.Fate && o.Facts == n.Facts {
		o.Fate, o.Open = n.Fate, n.Open
	}
}

// Counted is what a limit counts of some processes, false where the record does not
// tell.
func (n *groupNow) Counted(key LimitKey) (rss.Bytes, bool) {
	switch key.Accounting {
	case event.AccountingRSS:
		return n.anon + n.file + n.shmem, true
	case event.AccountingNoShared:
		return n.anon, true
	case event.AccountingPSS:
		return n.pss, !n.noPSS
	case event.AccountingCgroup:
		// A page that a fork shares is charged once: what is a worker's own is
		// what has come since.
		return n.grown + n.shmem, true
	}
	return 0, false
}

// Close says that the limit was so near that saving is worth something.
func (f *RunFacts) Close(key LimitKey) bool {
	l := f.Peak(key)
	return l != nil && (l.Ratio() >= event.Roomy || f.Fate(l) == LimitTooSmall || f.Fate(l) == KeptByActions)
}

// ledFacts is what a leader's record tells of its node.
type ledFacts struct {
	Led    bool
	from   time.Duration // when it began to record
	Failed bool          // a rank is known to have failed
	ranks  []RankKey     // whom it tells of
	// handed says that another rank's watcher went on where the record breaks off:
	// what is missing of it is there. follows says that it went on so itself: what
	// was before it is in another record.
	handed, Follows bool
	// line numbers the leaders that followed each other on one node, under one limit;
	// 0 for who led nobody; first is the first of them.
	line  int
	first *RunFacts
}

func (f *RunFacts) rank(at time.Duration, e *event.Rank) {
	f.Led = true
	if e.What == event.RankLeads && f.from == 0 {
		f.from = at
	}
	f.Failed = f.Failed || e.Failed()
	if key := RankOf(e); !slices.Contains(f.ranks, key) && len(f.ranks) < mostRanks {
		f.ranks = append(f.ranks, key)
	}
}

// own is the rank of the record.
func (f *RunFacts) own() RankKey {
	if j := f.Run.Meta.Job; j != nil {
		return RankKey{Step: j.Step, Task: j.Task}
	}
	return RankKey{Task: -1, holder: f.Run.Meta.Holder}
}

// follow finds which of a job's records go on in others.
func follow(runs []*RunFacts) {
	var led []*RunFacts
	var all []leadership
	for _, f := range runs {
		if f.Led {
			led = append(led, f)
			all = append(all, leadership{
				node: f.Run.Meta.Node, start: f.Run.Meta.Start, began: f.began(), ended: f.Run.Wall(f.end), live: f.Run.Live,
				ranks: append([]RankKey{f.own()}, f.ranks...),
			})
		}
	}
	before := successions(all)
	for i, f := range led {
		first := firstOf(before, i)
		f.line, f.first = first+1, led[first]
		if before[i] < 0 || all[i].began.Sub(all[before[i]].ended) > withIt {
			continue // what was between the two is in no record
		}
		f.Follows = true
		if a := led[before[i]]; a.Exit == nil {
			a.handed = true
		}
	}
}

// settle puts the run that came nearest to a limit last, where nodes have leaders.
func (j *job) settle() {
	if !slices.ContainsFunc(j.Runs, func(f *RunFacts) bool { return f.Led }) {
		return
	}
	share := func(f *RunFacts) float64 {
		if l := f.nearest(); l != nil {
			return l.Ratio()
		}
		return 0
	}
	slices.SortStableFunc(j.Runs, func(a, b *RunFacts) int { return cmp.Compare(share(a), share(b)) })
}

// began is when the record began.
func (f *RunFacts) began() time.Time { return f.Run.Wall(f.from) }

// Gather scans runs for advice alone.
func Gather(runs []*record.Run) []*RunFacts {
	runs = stints(Distinct(runs)) // a run's journal is no second run
	all := make([]*RunFacts, len(runs))
	several(len(runs), func(i int) {
		all[i] = NewFacts(runs[i])
		scan(runs[i], all[i])
	})
	return all
}

// Program is the runs of one program, by time.
type Program struct {
	Words []string // of the command, as far as they are alike
	Jobs  []job
}

// job is the runs of one job, one for each task and node, or one run outside
// Slurm.
type job struct{ Runs []*RunFacts }

// Last is the run of the job that began last, and where its nodes have leaders the
// one that came nearest to a limit: --mem is for each node.
func (j *job) Last() *RunFacts { return j.Runs[len(j.Runs)-1] }

// Programs sorts runs, the kind that ran last first.
func Programs(all []*RunFacts) []Program {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b *RunFacts) int { return a.Run.Meta.Start.Compare(b.Run.Meta.Start) })
	ofJob := map[string][]*RunFacts{}
	for _, f := range all {
		ofJob[jobName(f.Run)] = append(ofJob[jobName(f.Run)], f)
	}
	for _, list := range ofJob {
		follow(list)
	}
	var kinds []Program
	for _, f := range all {
		words := kindWords(f.Run.Meta.Command)
		if first := f.first; first != nil {
			words = kindWords(first.Run.Meta.Command) // it led the others, whatever they run
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
func (k *Program) Newest() *RunFacts {
	newest := k.Jobs[0].Last()
	for i := range k.Jobs {
		if f := k.Jobs[i].Last(); f.Run.Meta.Start.After(newest.Run.Meta.Start) {
			newest = f
		}
	}
	return newest
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

// jobName is what the runs of one job have in common and no others.
func jobName(r *record.Run) string {
	j := r.Meta.Job
	if j == nil {
		return r.Meta.ID
	}
	// A job that Slurm has requeued is another observation.
	return fmt.Sprintf("%s %s %s %d", j.Cluster, j.ID, j.Step, j.Restarts)
}
