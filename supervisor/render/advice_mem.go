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
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

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
// One run is told as its exit event told it: one truth. Several that tell the
// whole of what they need are told by how they differ. A run that a limit
// ended, or that actions carried, and that used as much as any other, decides:
// what is needed then is not known.
func (m *memAdvice) line() analysis.AdviceLine {
	l := analysis.AdviceLine{Evidence: m.evidence()}
	switch {
	case len(m.jobs) == 1 && m.top.Runs == 1:
		l.Mem, l.Why = m.single()
	case m.top.Fate == analysis.LimitTooSmall:
		l.Mem = policy.GuessMem(m.top.Least().Scale(guess))
		l.Why = fmt.Sprintf("one run was ended at %s; what it needs is not known, half as much again, rounded up, is a guess", peakOf(m.top))
	case m.carried() != nil:
		o := m.carried()
		l.Why = fmt.Sprintf("one run had %s; enough with rsswarden, whose actions kept the job inside; without it more is needed, how much is not known", peakOf(o))
		if o.Limit.Name != event.LimitUser { // --limit counts neither us nor the rest of the step
			l.Mem = max(o.Size, m.top.Least())
		}
	case !m.found:
		l.Why = fmt.Sprintf("no run tells all that it needs: the most was %s, and %s", peakOf(m.top), unseen(m.top))
	default:
		l.Mem, l.Why, l.Risk = m.several()
	}
	if l.Mem == 0 {
		l.Line = noMem
	} else {
		l.Line = "#SBATCH --mem=" + policy.MemArg(l.Mem)
	}
	if text := m.growing(); text != "" {
		l.Why += "; " + text
	}
	return l
}

// guess is by how much more than the limit that ended a job is advised, as
// [policy.Advise] does.
const guess = 1.5

// single is what the exit event said, or what [policy.Advise] says where the
// record has none.
func (m *memAdvice) single() (rss.Bytes, string) {
	o := m.top
	if e := o.Facts.Recorded; e != nil && e.AdviceWhy != "" && !o.Facts.Idly() {
		why := e.AdviceWhy
		if o.Fate == analysis.NeedAtLeast && e.Advice > 0 {
			why += "; " + unseen(o)
		}
		return e.Advice, why
	}
	watched := o.Facts.Recorded != nil && o.Facts.Recorded.Verdict != event.VerdictUnwatched
	run := policy.Run{Binding: o.Limit, Watched: watched, Stopped: o.Fate == analysis.LimitTooSmall, Helped: o.Facts.Helped()}
	a := policy.Advise(run)
	if o.Facts.Recorded == nil && o.Fate != analysis.LimitTooSmall {
		return 0, fmt.Sprintf("the most was %s, and %s", peakOf(o), unseen(o))
	}
	if (o.Facts.Ranks.Failed() || o.Facts.Asked()) && o.Fate == analysis.NeedAtLeast {
		a.Why += "; " + unseen(o)
	}
	return a.Mem, a.Why
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
		a := policy.Advise(policy.Run{Binding: m.whole(), Watched: true})
		mem := max(a.Mem, policy.NeatMem(m.top.Least().Scale(1+analysis.LeastMargin)))
		return mem, a.Why + m.others(), nil
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

// others tells of jobs that do not tell the whole.
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

// hourly is the least length of a run of which a growth by the hour is told.
const hourly = 10 * time.Minute

// peakOf is "2.92 GiB of 2.93 GiB (99 %)", with what it is.
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
	case e.Verdict == event.VerdictUnwatched && !o.Open.Follows:
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
