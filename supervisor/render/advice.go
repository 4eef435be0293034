package render

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/record"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// mostKinds is of how many kinds of run advice is given.
const mostKinds = 5

// Advise says what to ask for next, from one run or many: --mem first, then what
// the loaders could do with less. Runs of one program with one script are of one
// kind, whatever the script's own arguments; of several kinds the one that ran
// last comes first. Each line has what it rests on, and there is none for
// which the records have nothing.
func Advise(runs []*record.Run) []analysis.AdviceLine {
	var all []analysis.AdviceLine
	kinds := analysis.Programs(analysis.Gather(runs))
	for i := range kinds[:min(len(kinds), mostKinds)] {
		k := &kinds[i]
		lines := adviseKind(k)
		if line, ok := adviseFinding(k); ok {
			lines = append(lines, line)
		}
		if len(kinds) > 1 {
			for i := range lines {
				lines[i].Why = "`" + values.Command(k.Words, 60) + "`: " + lines[i].Why
			}
		}
		all = append(all, lines...)
	}
	return all
}

// adviceOf is the advice of one job: what its summary says to ask for, then what the loaders
// could do with less.
func adviceOf(rep *analysis.Result) []analysis.AdviceLine {
	lines := []analysis.AdviceLine{}
	n := &rep.Brief.Next
	if line := NextLine(n); line != "" {
		l := analysis.AdviceLine{Line: line, Why: NextWhy(n)}
		if n.Option == "--mem" {
			l.Mem = n.Size
		}
		if p := rep.Brief.Peak; p != nil {
			l.Evidence = phrase.Use(p.Name, p.Used, p.Limit) + ", " + p.Compared() + "; " + against(p)
		}
		lines = append(lines, l)
	}
	kinds := analysis.Programs(rep.Scanned)
	if len(kinds) == 0 {
		return lines
	}
	key, ok := kinds[0].Key()
	if !ok {
		return lines
	}
	if len(lines) > 0 {
		if text := memOf(&kinds[0], key).growing(); text != "" {
			lines[0].Why += "; " + text
		}
	}
	return append(lines, adviseLoaders(&kinds[0], key)...)
}

// adviseKind gives the lines for one kind.
func adviseKind(k *analysis.Program) []analysis.AdviceLine {
	var lines []analysis.AdviceLine
	key, ok := k.Key()
	if !ok {
		return nil
	}
	m := memOf(k, key)
	if line, ok := m.line(); ok {
		lines = append(lines, line)
	}
	return append(lines, adviseLoaders(k, key)...)
}

// sources names the runs, the last three where there are more.
func sources(k *analysis.Program) string {
	var ids []string
	for i := range k.Jobs {
		ids = append(ids, k.Jobs[i].LastRun().Run.Meta.ID)
	}
	text := values.Count(len(ids), "run")
	if jobs := len(ids); jobs > 3 {
		ids = ids[jobs-3:]
		return text + ", the last " + strings.Join(ids, ", ")
	}
	return text + ": " + strings.Join(ids, ", ")
}

// adviseFinding is what to write instead of what the newest job was found to do, the
// weightiest finding alone: what older jobs did may have been fixed since.
func adviseFinding(k *analysis.Program) (analysis.AdviceLine, bool) {
	newest := k.Newest()
	for i := range k.Jobs {
		if k.Jobs[i].LastRun() != newest {
			continue
		}
		for _, d := range analysis.MergeFindings(k.Jobs[i].Runs) {
			if len(d.Advice) == 0 || len(d.Evidence) == 0 {
				continue
			}
			return analysis.AdviceLine{Line: d.Advice[0], Why: findingTitle(&d, len(k.Jobs[i].Runs)), Evidence: fmt.Sprintf("%s (%s)", d.Evidence[0], d.Run)}, true
		}
	}
	return analysis.AdviceLine{}, false
}

// memAdvice is what the runs of one kind come to under one limit.
type memAdvice struct {
	kind    *analysis.Program
	jobs    []analysis.JobNeed // by time
	top     *analysis.JobNeed  // the one that needs most, as far as they tell
	last    *analysis.JobNeed
	without int         // jobs without that limit
	peaks   []rss.Bytes // of the jobs that tell the whole of what they need
}

// memOf looks at all jobs of the kind under the limit.
func memOf(k *analysis.Program, key analysis.LimitKey) *memAdvice {
	m := &memAdvice{kind: k}
	for i := range k.Jobs {
		o, ok := k.Jobs[i].Observe(key)
		if !ok {
			m.without++
			continue
		}
		m.jobs = append(m.jobs, o)
		if o.Fate == analysis.NeedKnown {
			m.peaks = append(m.peaks, o.Peak)
		}
	}
	m.last = &m.jobs[len(m.jobs)-1]
	for i := range m.jobs {
		if m.superseded(i) {
			continue
		}
		// Of two that need as much the one that tells less: nothing is promised.
		if o := &m.jobs[i]; m.top == nil || cmp.Or(cmp.Compare(o.Least(), m.top.Least()), cmp.Compare(o.Fate, m.top.Fate)) > 0 {
			m.top = o
		}
	}
	return m
}

// superseded says that a job which its limit ended was kept inside that limit by
// actions later on.
func (m *memAdvice) superseded(i int) bool {
	o := &m.jobs[i]
	return o.Fate == analysis.LimitTooSmall && slices.ContainsFunc(m.jobs[i+1:], func(l analysis.JobNeed) bool {
		return l.Fate == analysis.KeptByActions && l.Size <= o.Size
	})
}

// line is the line on --mem; false where the runs do not tell. A job that a limit ended, or
// that actions kept, and that used as much as any other, decides: what is needed then is not
// known. For one run it is what its exit event says.
func (m *memAdvice) line() (analysis.AdviceLine, bool) {
	o := m.top
	var exit *event.Exit
	if len(m.jobs) == 1 && o.Runs == 1 {
		exit = o.Facts.Recorded
	}
	l := analysis.AdviceLine{Evidence: m.evidence()}
	kept := m.kept()
	switch {
	case o.Fate == analysis.LimitTooSmall:
		l.Mem, l.Why = policy.GuessMem(o.Least().Scale(guess)), fmt.Sprintf("ended at %s; rough guess: 1.5 × peak", peakOf(o))
	case exit != nil && exit.Next.Size > 0 && exit.Next.Option == "--mem":
		l.Mem, l.Why = exit.Next.Size, peakOf(o)+"; "+NextWhy(&exit.Next)
		if o.Fate == analysis.NeedAtLeast {
			l.Why += "; a rank failed, so what it would have needed later is not known"
		}
	case kept != nil && kept.Limit.Name == event.LimitUser: // it counts neither us nor the rest of the step
		return l, false
	case kept != nil:
		l.Mem, l.Why = max(kept.Size, o.Least()), peakOf(kept)+"; enough with rsswarden"
	case len(m.peaks) == 0:
		return l, false
	default:
		l.Mem, l.Why = m.enough()
	}
	if l.Line = "#SBATCH --mem=" + policy.MemArg(l.Mem); o.Limit.Name == event.LimitUser {
		l.Line = "--limit " + policy.MemArg(l.Mem)
	}
	if text := m.growing(); text != "" {
		l.Why += "; " + text
	}
	return l, true
}

// guess is what is advised of a limit that ended a job.
const guess = 1.5

// kept is the job that actions kept under the greatest limit, nil where one that tells the
// whole used as much as that.
func (m *memAdvice) kept() *analysis.JobNeed {
	var most *analysis.JobNeed
	for i := range m.jobs {
		o := &m.jobs[i]
		if o.Fate == analysis.KeptByActions && (most == nil || o.Size > most.Size) {
			most = o
		}
	}
	if most == nil || slices.ContainsFunc(m.peaks, func(p rss.Bytes) bool { return p >= most.Size }) {
		return nil
	}
	return most
}

// mostMargin is the most that is put on top of the greatest peak: runs that differ by more
// have little in common.
const mostMargin = 0.25

// enough is what the runs that tell the whole come to: their greatest peak and 10 %, or as
// much more as they differ.
func (m *memAdvice) enough() (rss.Bytes, string) {
	least, most := slices.Min(m.peaks), slices.Max(m.peaks)
	margin := min(max(analysis.Margin, most.Sub(least).Of(most)), mostMargin)
	mem := policy.NeatMem(max(most.Scale(1+margin), m.top.Least().Scale(1+analysis.Margin), policy.LeastMem))
	i := slices.IndexFunc(m.jobs, func(o analysis.JobNeed) bool { return o.Fate == analysis.NeedKnown })
	why := peakOf(&m.jobs[i]) + "; peak + 10 %"
	if n := len(m.peaks); n > 1 {
		why = fmt.Sprintf("the greatest of %d peaks is %v (%s), the least %v; the greatest + %s", n, most, m.last.Limit.Compared(), least, values.Percent(margin))
	}
	if n := len(m.jobs) - len(m.peaks); n > 0 {
		why += fmt.Sprintf("; left out: %s that ended early or had help, with peaks up to %v", values.Count(n, "run"), m.top.Least())
	}
	return mem, why
}

// growing says of the last run that tells something that it was growing still.
func (m *memAdvice) growing() string {
	o := m.last
	i := o.Facts.Index(analysis.KeyOf(o.Limit))
	if i < 0 || o.Fate == analysis.LimitTooSmall || o.Fate == analysis.KeptByActions {
		return ""
	}
	g, ok := o.Facts.Limits[i].Used.Growth()
	switch {
	case !ok || !g.Still:
		return ""
	case g.Slowing:
		return fmt.Sprintf("it was growing still, by %v in the last %s, slower and slower: a longer run may need some %v more", g.Rise(), values.Span(g.Third), g.Rest())
	case 3*g.Third < hourly:
		return fmt.Sprintf("it was growing still, by %v in the last %s: a longer run needs more, and this one was too short to say how much", g.Rise(), values.Span(g.Third))
	}
	return fmt.Sprintf("it was growing still, by %v an hour: a run that is longer by an hour needs so much more", g.PerHour())
}

// hourly is the least length of a run whose growth is given by the hour.
const hourly = 10 * time.Minute

// peakOf is "2970 of 3000 MiB (99 %)", with what it is.
func peakOf(o *analysis.JobNeed) string {
	return fmt.Sprintf("%s, %s", phrase.Fill(o.Limit.Name, o.Peak, o.Size), o.Limit.Compared())
}

// evidence is where the figures were read.
func (m *memAdvice) evidence() string {
	text := sources(m.kind)
	l := m.last.Limit
	parts := []string{text, fmt.Sprintf("limit %s: %s", l.Name.Called(), strings.TrimPrefix(against(l), l.Name.Called()+", "))}
	if o := m.top; len(m.jobs) == 1 {
		if i := o.Facts.Index(analysis.KeyOf(l)); i >= 0 {
			parts = append(parts, "highest "+moment(o.Facts.Limits[i].PeakAt))
		}
	}
	if text := fullestNode(m.top); text != "" {
		parts = append(parts, text)
	}
	if m.without > 0 {
		parts = append(parts, values.Count(m.without, "run")+" without that limit left out")
	}
	return strings.Join(parts, "; ")
}

// moment is a time of a run in a sentence.
func moment(at time.Duration) string {
	if at < time.Second {
		return "at the start"
	}
	return values.Span(at) + " after the start"
}

// fullestNode says of which node a job's figures are, where it had several and they have
// leaders; else nothing.
func fullestNode(o *analysis.JobNeed) string {
	nodes := map[string]bool{}
	for _, f := range o.Job.Runs {
		nodes[f.Run.Meta.Node] = true
	}
	if len(nodes) < 2 || !o.Facts.Ranks.Led() {
		return ""
	}
	return fmt.Sprintf("on %s, which needed most of %s; --mem is for each", values.Plain(o.Facts.Run.Meta.Node), values.Count(len(nodes), "node"))
}

// wantedShare is the share of its limit that a job should stay below.
const wantedShare = 0.85

// countedWhat is what of a process each accounting counts.
var countedWhat = map[event.Accounting]string{
	event.AccountingRSS: "RSS", event.AccountingNoShared: "RssAnon", event.AccountingPSS: "PSS",
	event.AccountingCgroup: "RssAnon, less what each began with, and RssShmem",
}

// adviseLoaders gives the lines on how the program loads its data, from the newest run
// that shows processes by role.
func adviseLoaders(k *analysis.Program, key analysis.LimitKey) []analysis.AdviceLine {
	f := k.Newest()
	for i := range k.Jobs {
		if g := k.Jobs[i].LastRun(); g.Workers.Most() > 0 {
			f = g
		}
	}
	if f.Workers.Most() == 0 && f.Trainers.Most() == 0 {
		return nil
	}
	var lines []analysis.AdviceLine
	for _, rule := range []func(*analysis.RunScan, analysis.LimitKey) (analysis.AdviceLine, bool){fewerWorkers, freshWorkers, ownStart} {
		l, ok := rule(f, key)
		if !ok {
			continue
		}
		seen := 0
		for i := range k.Jobs {
			if _, too := rule(k.Jobs[i].LastRun(), key); too {
				seen++
			}
		}
		l.Evidence = fmt.Sprintf("run %s, %s", f.Run.Meta.ID, l.Evidence)
		if len(k.Jobs) > 1 {
			l.Evidence += fmt.Sprintf("; seen in %d of %s", seen, values.Count(len(k.Jobs), "run"))
		}
		lines = append(lines, l)
	}
	return lines
}

// fewerWorkers: the limit was near, and without some of the workers it would not
// have been.
func fewerWorkers(f *analysis.RunScan, key analysis.LimitKey) (analysis.AdviceLine, bool) {
	i := f.Index(key)
	if i < 0 {
		return analysis.AdviceLine{}, false
	}
	l := &f.Limits[i]
	w := &l.Workers
	counted, ok := w.Counted(key)
	if !ok || w.Count < 2 || l.Peak.Ratio() < wantedShare {
		return analysis.AdviceLine{}, false
	}
	each := counted / rss.Bytes(w.Count)
	counted = min(counted, l.Peak.Used)
	rest := l.Peak.Used - counted
	target := l.Peak.Size.Scale(wantedShare)
	if each == 0 || counted < max(analysis.LeastSaved, l.Peak.Size.Scale(analysis.LeastPart)) || rest+each > target {
		return analysis.AdviceLine{}, false
	}
	loaders := max(l.Trainers, 1)
	per := min(int((target-rest)/each), w.Count-1) / loaders
	if per < 1 {
		return analysis.AdviceLine{}, false
	}
	left := per * loaders
	was := fmt.Sprintf("%d workers", w.Count)
	if loaders > 1 {
		was += fmt.Sprintf(" of %d trainers", loaders)
	}
	more := ""
	if f.Recorded == nil || f.Fate(f.PeakOf(key)) == analysis.LimitTooSmall {
		more = "; what more they would have taken is not known"
	}
	line := fmt.Sprintf("num_workers=%d", per)
	if f.PoolsOnly() {
		line = values.Count(per, "pool worker")
	}
	return analysis.AdviceLine{
		Line: line,
		Why: fmt.Sprintf("%s had %v of the %v that %s counted, %v each; with %d it would have been about %s%s",
			was, counted, l.Peak.Used, key.Name.Called(), each, left, phrase.Use(key.Name, rest+rss.Bytes(left)*each, l.Peak.Size), more),
		Evidence: fmt.Sprintf("of the workers %s: %s", moment(l.PeakAt), countedWhat[key.Accounting]),
	}, true
}

// freshWorkers: workers that stay from epoch to epoch grow and do not stop.
func freshWorkers(f *analysis.RunScan, key analysis.LimitKey) (analysis.AdviceLine, bool) {
	n, stay := f.Stayed()
	if !stay {
		return analysis.AdviceLine{}, false
	}
	g, of, what := analysis.Growth{}, "", ""
	mapped := key.Accounting == event.AccountingRSS || key.Accounting == event.AccountingPSS
	if h, ok := f.Workers.File.Growth(); ok && mapped && h.Grows() {
		g, of, what = h, "RssFile", "mapped file pages, which they drop when they end"
	}
	if h, ok := f.Workers.Anon.Growth(); ok && h.Grows() && h.All() > g.All() {
		g, of, what = h, "RssAnon", "anonymous memory: a cache, a leak, or pages copied on write"
	}
	if of == "" {
		return analysis.AdviceLine{}, false
	}
	line, fresh := "persistent_workers=False", "workers that end with each epoch start fresh"
	if f.PoolsOnly() {
		line, fresh = "maxtasksperchild of a Pool, max_tasks_per_child of an executor", "workers that end after some tasks start fresh"
	}
	return analysis.AdviceLine{
		Line: line,
		Why: fmt.Sprintf("%s that stayed for most of the run had %v in its first third, %v in the second and %v in the last, in %s; %s",
			values.Count(n, "worker"), g.Thirds[0], g.Thirds[1], g.Thirds[2], what, fresh),
		Evidence: fmt.Sprintf("%s of the workers in thirds of %s, the highest of each", of, values.Span(g.Third)),
	}, true
}

// bornAlike is the part of the trainer's anonymous memory from which on a worker
// was born with it.
const bornAlike = 0.7

// ownStart: forked workers begin with all of the trainer's memory, and the limit
// counts it for each of them. Another start method is no way out: what is the data
// set's would be copied to each worker, and how much that is the record does not tell.
func ownStart(f *analysis.RunScan, key analysis.LimitKey) (analysis.AdviceLine, bool) {
	if key.Accounting != event.AccountingRSS && key.Accounting != event.AccountingNoShared || !f.Close(key) {
		return analysis.AdviceLine{}, false
	}
	if _, fresh := freshWorkers(f, key); fresh || f.Findings.Of(event.FindingWorkerLeak) != nil {
		return analysis.AdviceLine{}, false // it is for workers that stay, which is what these had better not
	}
	alike, all := 0, 0
	var least, trainer rss.Bytes
	for i := range f.Procs {
		p, who := &f.Procs[i], &f.Run.Procs[i]
		if !p.Seen || who.Role != rss.RoleWorker || p.Trainer == 0 {
			continue
		}
		all++
		if p.Born < p.Trainer.Scale(bornAlike) {
			continue
		}
		alike++
		if least == 0 || p.Born < least {
			least, trainer = p.Born, p.Trainer
		}
	}
	n := rss.Bytes(min(alike, f.Workers.Most()))
	size := f.PeakOf(key).Limit
	if alike == 0 || 2*alike < all || n*least < max(analysis.LeastSaved, size.Scale(analysis.LeastPart)) {
		return analysis.AdviceLine{}, false
	}
	return analysis.AdviceLine{
		Line: "the first iter(loader) before the model is made, with persistent_workers=True",
		Why: fmt.Sprintf("each forked worker begins with the trainer's memory, %v of %v, and %s counts that for each of %d: %v; workers that start first begin without model and optimizer, and data in a memory map can be trimmed",
			least, trainer, key.Name.Called(), n, n*least),
		Evidence: "RssAnon of workers when they were first seen, and the trainer's then",
	}, true
}
