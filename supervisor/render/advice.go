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
	if line := m.line(); line.Mem > 0 {
		lines = append(lines, line)
	}
	return append(lines, adviseLoaders(k, key)...)
}

// sources names the runs, the last three where there are more.
func sources(k *analysis.Program) string {
	var ids []string
	for i := range k.Jobs {
		ids = append(ids, k.Jobs[i].Last().Run.Meta.ID)
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
		if k.Jobs[i].Last() != newest {
			continue
		}
		var all analysis.Diagnoses
		for _, f := range k.Jobs[i].Runs {
			tree := rss.Bytes(0)
			key, _ := k.Key()
			if f.Recorded != nil && f.Recorded.Peaks.RSS != nil {
				tree = *f.Recorded.Peaks.RSS
			}
			all.Add(f.Run.Meta.ID, f.Run.Wall, &f.Findings, tree, key.Accounting)
		}
		for _, d := range all.Sorted() {
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
	without int // jobs without that limit
	peaks   analysis.Spread
	found   bool // some job tells the whole of what it needs
}

// memOf looks at all jobs of the kind under the limit.
func memOf(k *analysis.Program, key analysis.LimitKey) *memAdvice {
	m := &memAdvice{kind: k}
	var peaks []rss.Bytes
	for i := range k.Jobs {
		o, ok := k.Jobs[i].Observe(key)
		if !ok {
			m.without++
			continue
		}
		m.jobs = append(m.jobs, o)
		if o.Fate == analysis.NeedKnown {
			peaks = append(peaks, o.Peak)
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
	if m.found = len(peaks) > 0; m.found {
		m.peaks = analysis.SpreadOf(peaks)
	}
	return m
}

// superseded says that a job which its limit ended was kept inside that limit by
// actions later on.
func (m *memAdvice) superseded(i int) bool {
	o := &m.jobs[i]
	return o.Fate == analysis.LimitTooSmall && slices.ContainsFunc(m.jobs[i+1:], func(l analysis.JobNeed) bool { return l.Fate == analysis.KeptByActions && l.Size <= o.Size })
}

// line is the line on --mem.
//
// For one run it is that of its exit event: one truth. For several that show all that
// they need it depends on how they differ. A run that a limit
// ended, or that actions carried, and that used as much as any other, decides:
// what is needed then is not known.
func (m *memAdvice) line() analysis.AdviceLine {
	l := analysis.AdviceLine{Evidence: m.evidence()}
	switch {
	case len(m.jobs) == 1 && m.top.Runs == 1:
		l.Mem, l.Why = m.single()
	case m.top.Fate == analysis.LimitTooSmall:
		l.Mem = policy.GuessMem(m.top.Least().Scale(guess))
		l.Why = fmt.Sprintf("one run ended at %s; rough guess: 1.5 × peak", peakOf(m.top))
	case m.carried() != nil:
		o := m.carried()
		l.Why = fmt.Sprintf("one run had %s; enough with rsswarden", peakOf(o))
		if o.Limit.Name != event.LimitUser { // --limit counts neither us nor the rest of the step
			l.Mem = max(o.Size, m.top.Least())
		}
	case !m.found:
		l.Why = fmt.Sprintf("no run tells all that it needs: the most was %s, and %s", peakOf(m.top), unseen(m.top))
	default:
		l.Mem, l.Why, l.Risk = m.several()
	}
	l.Line = "#SBATCH --mem=" + policy.MemArg(l.Mem)
	if text := m.growing(); text != "" {
		l.Why += "; " + text
	}
	return l
}

// guess is what is advised of a limit that ended a job.
const guess = 1.5

// single is what the run itself says.
func (m *memAdvice) single() (rss.Bytes, string) {
	o := m.top
	e := o.Facts.Recorded
	switch {
	case o.Fate == analysis.LimitTooSmall:
		return policy.GuessMem(o.Least().Scale(guess)), fmt.Sprintf("ended at %s; rough guess: 1.5 × peak", peakOf(o))
	case e != nil && e.Next.Size > 0 && e.Next.Option == "--mem":
		why := peakOf(o) + "; " + NextWhy(&e.Next)
		if o.Fate == analysis.NeedAtLeast {
			why += "; " + unseen(o)
		}
		return e.Next.Size, why
	case o.Fate == analysis.NeedAtLeast:
		return 0, fmt.Sprintf("the most was %s, and %s", peakOf(o), unseen(o))
	case o.Fate == analysis.KeptByActions:
		if o.Limit.Name == event.LimitUser { // --limit counts neither us nor the rest of the step
			return 0, peakOf(o) + "; enough with rsswarden"
		}
		return o.Size, peakOf(o) + "; enough with rsswarden"
	}
	return policy.NeatMem(max(o.Peak.Scale(1+analysis.Margin), policy.LeastMem)), peakOf(o) + "; peak + 10 %"
}

// carried is the job that actions carried at the greatest limit, where none that
// tells the whole used as much as that.
func (m *memAdvice) carried() *analysis.JobNeed {
	var most *analysis.JobNeed
	for i := range m.jobs {
		o := &m.jobs[i]
		if o.Fate == analysis.KeptByActions && (most == nil || o.Size > most.Size) {
			most = o
		}
	}
	if most == nil || m.found && m.peaks.Most >= most.Size {
		return nil
	}
	return most
}

// several is what the runs that tell the whole come to.
func (m *memAdvice) several() (rss.Bytes, string, *float64) {
	s := &m.peaks
	if s.N == 1 {
		// One tells the whole, and others less: its own advice, and no less than
		// what the others had.
		l := m.whole()
		mem := policy.NeatMem(max(l.Used, m.top.Least()).Scale(1 + analysis.Margin))
		return mem, fmt.Sprintf("peak %s, %s; peak + 10 %%", phrase.Use(l.Name, l.Used, l.Limit), l.Compared()) + m.others(), nil
	}
	mem := policy.NeatMem(max(s.Enough(), m.top.Least().Scale(1+analysis.LeastMargin), policy.LeastMem))
	risk, greatest := s.Risk(mem)
	why := fmt.Sprintf("the greatest of %d peaks is %v (%s), the least %v; the next run exceeds the greatest with a chance of 1 in %d, and, if peaks go on to differ as these do, %s with a chance of %s",
		s.N, s.Most, m.last.Limit.Compared(), s.Least, int(1/greatest+0.5), policy.MemArg(mem), chance(risk))
	return mem, why + m.others(), &risk
}

// whole is the limit of the one job that tells the whole.
func (m *memAdvice) whole() *event.Limit {
	i := slices.IndexFunc(m.jobs, func(o analysis.JobNeed) bool { return o.Fate == analysis.NeedKnown })
	l := *m.jobs[i].Limit
	l.Used, l.Limit = m.jobs[i].Peak, m.jobs[i].Size
	return &l
}

// others lists jobs that do not show all of their need.
func (m *memAdvice) others() string {
	n := len(m.jobs) - m.peaks.N
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; %s more do not tell all that they need, and had no more than %v", values.Count(n, "run"), m.top.Least())
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

// unseen says why a job's peak is only the least that it needs.
func unseen(o *analysis.JobNeed) string {
	e := o.Open.Recorded
	switch {
	case o.Open.Run.Live:
		return "it is still going on"
	case e == nil:
		return "the record ends before the run did"
	case e.Watched != event.WatchedAll && !o.Open.Follows:
		return "the watcher was not there for all of the run"
	case e.Signal != nil:
		return "it was ended by " + *e.Signal + ", so what it would have needed later is not known"
	case e.Code != nil && *e.Code != 0:
		return fmt.Sprintf("it ended with exit status %d, so what it would have needed later is not known", *e.Code)
	case o.Open.Ranks.Failed():
		return "a rank failed, so what it would have needed later is not known"
	}
	return "it was not seen to its end"
}

// evidence is where the figures were read.
func (m *memAdvice) evidence() string {
	text := sources(m.kind)
	l := m.last.Limit
	parts := []string{text, fmt.Sprintf("limit %s: %s", l.Name, against(l))}
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

// chance writes a share as people bet: "1 in 40".
func chance(p float64) string {
	n := int(1/p + 0.5)
	for step := 1; ; step *= 10 {
		if n/step < 20 {
			return fmt.Sprintf("1 in %d", n/step*step)
		}
	}
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
		if g := k.Jobs[i].Last(); g.Workers.Most() > 0 {
			f = g
		}
	}
	if f.Workers.Most() == 0 && f.Trainers.Most() == 0 {
		return nil
	}
	var lines []analysis.AdviceLine
	for _, rule := range []func(*analysis.RunScan, analysis.LimitKey) (analysis.AdviceLine, bool){fewerWorkers, freshWorkers, ownStart, sharedPages, notPinned} {
		l, ok := rule(f, key)
		if !ok {
			continue
		}
		seen := 0
		for i := range k.Jobs {
			if _, too := rule(k.Jobs[i].Last(), key); too {
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
	if f.Recorded == nil || f.Fate(f.Peak(key)) == analysis.LimitTooSmall {
		more = "; what more they would have taken is not known"
	}
	return analysis.AdviceLine{
		Line: fmt.Sprintf("num_workers=%d", per),
		Why: fmt.Sprintf("%s had %v of the %v that the limit %s counted, %v each; with %d it would have been about %s%s",
			was, counted, l.Peak.Used, key.Name, each, left, phrase.Use(key.Name, rest+rss.Bytes(left)*each, l.Peak.Size), more),
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
	return analysis.AdviceLine{
		Line: "persistent_workers=False",
		Why: fmt.Sprintf("%s that stayed for most of the run had %v in its first third, %v in the second and %v in the last, in %s; workers that end with each epoch start fresh",
			values.Count(n, "worker"), g.Thirds[0], g.Thirds[1], g.Thirds[2], what),
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
	size := f.Peak(key).Limit
	if alike == 0 || 2*alike < all || n*least < max(analysis.LeastSaved, size.Scale(analysis.LeastPart)) {
		return analysis.AdviceLine{}, false
	}
	return analysis.AdviceLine{
		Line: "persistent_workers=True, and the first iter(loader) before the model is made",
		Why: fmt.Sprintf("each forked worker begins with the trainer's memory, %v of %v, and the limit %s counts that for each of %d: %v; workers that start first begin without model and optimizer, and data in a memory map can be trimmed",
			least, trainer, key.Name, n, n*least),
		Evidence: "RssAnon of workers when they were first seen, and the trainer's then",
	}, true
}

// sharedPages: what is charged, or PSS, rises while nothing that a process has
// does: pages that a fork shared are copied as reference counts are written.
func sharedPages(f *analysis.RunScan, key analysis.LimitKey) (analysis.AdviceLine, bool) {
	if f.Workers.Most() == 0 || !f.Close(key) {
		return analysis.AdviceLine{}, false
	}
	resident, ok := f.Workers.RSS.Growth()
	if !ok || resident.All() > resident.Thirds[2].Scale(flat) {
		return analysis.AdviceLine{}, false
	}
	var g analysis.Growth
	from := ""
	switch {
	case key.Accounting == event.AccountingPSS && !f.Workers.NoPSS:
		g, ok = f.Workers.PSS.Growth()
		from = "PSS of the workers, beside their RSS"
	case key.Accounting == event.AccountingCgroup && f.Index(key) >= 0:
		tree, known := f.Tree.Anon.Growth()
		shmem, known2 := f.Tree.Shmem.Growth()
		g, ok = f.Limits[f.Index(key)].Used.Growth()
		// All anonymous and shared memory must be flat, the trainer's too, and
		// what is shared be enough to have been copied.
		ok = ok && known && known2 && 3*(tree.All()+shmem.All()) <= g.All() && f.Inherited() >= g.All()
		from = "unreclaimable memory of the cgroup, beside RssAnon and RssShmem of the tree"
	default:
		return analysis.AdviceLine{}, false
	}
	if !ok || g.All() < max(analysis.LeastSaved, g.Thirds[0].Scale(analysis.LeastPart)) {
		return analysis.AdviceLine{}, false
	}
	return analysis.AdviceLine{
		Line: "dataset: arrays in place of lists, dicts and tuples",
		Why: fmt.Sprintf("use rose by %v while the workers' own memory stayed at %v: pages that a fork shares are copied as Python writes reference counts into them; numpy arrays and tensors have none inside",
			g.All(), resident.Thirds[2]),
		Evidence: fmt.Sprintf("%s, in thirds of %s", from, values.Span(g.Third)),
	}, true
}

// flat is the share by which flat memory may rise.
const flat = 0.03

// notPinned: the trainer's shared memory, in which batches lie that are pinned or
// were taken from workers, grows and does not stop.
func notPinned(f *analysis.RunScan, key analysis.LimitKey) (analysis.AdviceLine, bool) {
	g, ok := f.Trainers.Shmem.Growth()
	if !ok || !g.Grows() || key.Accounting == event.AccountingNoShared {
		return analysis.AdviceLine{}, false
	}
	return analysis.AdviceLine{
		Line: "pin_memory=False",
		Why: fmt.Sprintf("shared memory of the trainer, where pinned batches lie, rose from %v in the first third of the run to %v in the last; where it rises without pin_memory too, the program keeps batches",
			g.Thirds[0], g.Thirds[2]),
		Evidence: fmt.Sprintf("RssShmem of the trainers in thirds of %s, the highest of each", values.Span(g.Third)),
	}, true
}
