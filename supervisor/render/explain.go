// Package render puts what package analysis found into words, tables and pages.
//
// A sentence never says more than is known. What the record shows is called
// seen; what follows from it likely, with what it follows from; what Slurm
// says is Slurm's.
package render

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/chart"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// Explain puts a report into words: it fills in its sentences, with times in the zone of
// now.
func Explain(rep *analysis.Result, now time.Time) {
	if len(rep.Runs) == 0 {
		rep.Evidence, rep.Advice = []string{}, []analysis.AdviceLine{}
		rep.Verdict = "there is no record of it"
		if said := rep.Slurm; said != nil {
			rep.Verdict += ": " + slurmSays(said, nil)
		}
		return
	}
	zone := now.Location()
	for i := range rep.Attempts {
		l, end := &rep.Attempts[i], rep.AttemptEnds[i]
		l.Verdict = tell(end, now).sentence(&end.Found)
		if len(rep.Scanned) > 1 {
			l.Verdict = endName(end) + ": " + l.Verdict
		}
	}
	conclude(rep, now)
	rep.Notes = append(missingNotes(rep), notes(rep.Scanned, zone)...)
	if slices.ContainsFunc(rep.Nodes, func(n analysis.Node) bool { return n.Node != rep.Nodes[0].Node }) {
		rep.Notes = append(rep.Notes, "times are of each node's own clock, which may differ")
	}
	rep.Advice = adviceOf(rep)
}

func tell(q *analysis.Case, now time.Time) *caseText { return &caseText{q, now.Location(), now} }

// conclude takes of all runs the finding that tells why the job ended.
func conclude(rep *analysis.Result, now time.Time) {
	cases, best := rep.Cases, rep.Best
	f := &best.Found
	rep.Verdict = tell(best, now).sentence(f)
	rep.Evidence = tell(best, now).evidence(f)
	if len(cases) > 1 || best.Rank != nil {
		rep.Verdict = endName(best) + ": " + rep.Verdict
		rep.Evidence = append(rep.Evidence, others(cases, best, now)...)
	}
	if f.Cause == event.CauseEnded {
		if text := allEnded(rep, best.Restarts()); text != "" {
			rep.Verdict = text + "; " + nearestNode(rep)
		}
	}
}

// allEnded says how many ranks ended well where none is known to have failed, empty for one.
func allEnded(rep *analysis.Result, attempt int) string {
	all, ended, nodes := 0, 0, map[string]bool{}
	for i := range rep.Ranks {
		if r := &rep.Ranks[i]; r.Restart == attempt {
			all++
			nodes[r.Node] = true
			if r.Code != nil && *r.Code == 0 {
				ended++
			}
		}
	}
	where := " on " + values.Count(len(nodes), "node")
	if rep.Unrecorded > 0 {
		where += " with a record"
	}
	switch {
	case all < 2:
		return ""
	case ended == all && all == 2:
		return "both ranks" + where + " ended with exit status 0"
	case ended == all:
		return "all " + values.Count(all, "rank") + where + " ended with exit status 0"
	}
	others := "others"
	if all-ended == 1 {
		others = "other"
	}
	return fmt.Sprintf("%d of %s%s ended with exit status 0, how the %s ended is not recorded", ended, values.Count(all, "rank"), where, others)
}

// nearestNode says which node came nearest to its limit, for the end of a verdict.
func nearestNode(rep *analysis.Result) string {
	b := rep.Binding
	if b == nil {
		return "no limit on memory is in the records"
	}
	return fmt.Sprintf("%s came nearest to its limit, %s, with %s", values.Plain(b.Node), b.Limit, phrase.Fill(b.Limit, b.Used, b.Size))
}

func endName(q *analysis.Case) string {
	if q.Rank == nil {
		return runName(q.RunScan)
	}
	return place(q.Run.Meta.Node, q.Rank.Step, q.Rank.Task, q.Restarts())
}

func runName(k *analysis.RunScan) string {
	if j := k.Run.Meta.Job; j != nil {
		return place(k.Run.Meta.Node, j.Step, j.Task, j.Restarts)
	}
	return values.Plain(k.Run.Meta.Node)
}

// place is where a rank ran: "n1, step 0, task 3, attempt 2".
func place(node, step string, task, restart int) string {
	name := values.Plain(node)
	if step != "" {
		name += ", step " + values.Plain(step)
	}
	name += fmt.Sprintf(", task %d", task)
	if restart > 0 {
		name += fmt.Sprintf(", attempt %d", restart+1)
	}
	return strings.TrimPrefix(name, ", ")
}

const mostOthers = 8

func others(cases []*analysis.Case, best *analysis.Case, now time.Time) (out []string) {
	left := 0
	for _, q := range cases {
		if q == best || q.Restarts() != best.Restarts() || q.Found.Cause == event.CauseEnded && best.Found.Cause == event.CauseEnded {
			continue
		}
		if len(out) == mostOthers {
			left++
			continue
		}
		out = append(out, fmt.Sprintf("%s, %s: %s", q.Wall(q.End).In(now.Location()).Format(time.TimeOnly), endName(q), tell(q, now).sentence(&q.Found)))
	}
	if left > 0 {
		out = append(out, values.Count(left, "more run")+" of this job ended as listed under ranks")
	}
	return out
}

const mostNotes = 6

// notes say what is missing or doubtful: what several runs have in common once, with
// how many they are.
func notes(looks []*analysis.RunScan, zone *time.Location) (out []string) {
	var texts []string
	names := map[string][]string{} // of the runs that a text is on
	unit := "rank"
	for _, k := range looks {
		r := k.Run
		if r.Meta.Job == nil {
			unit = "run"
		}
		add := func(format string, args ...any) {
			s := fmt.Sprintf(format, args...)
			if names[s] == nil {
				texts = append(texts, s)
			}
			if name := runName(k); !slices.Contains(names[s], name) {
				names[s] = append(names[s], name)
			}
		}
		if r.JournalOnly {
			add("only the journal was found: it has %s, roles in place of processes, and no PSS", values.Count(k.Samples, "sample"))
		}
		for _, d := range r.Damage[:min(len(r.Damage), mostNotes)] {
			add("part of the record could not be read: %s", values.Plain(values.JoinLines(d)))
		}
		if n := len(r.Damage) - mostNotes; n > 0 {
			add("%s more could not be read", values.Count(n, "part"))
		}
		if r.Thinned {
			add("old samples were thinned: one stands for 10 s or more, the fullest of them")
		}
		if r.Dropped > 0 {
			add("%s were taken out, there were too many", values.Count(r.Dropped, "event"))
		}
		if k.Samples == 0 {
			add("no sample in the record: it ended before the first was written")
		}
		faults := outgrown(k.Faults)
		for _, f := range faults[:min(len(faults), mostNotes)] {
			if said, ok := strings.CutPrefix(f, "start: "); ok { // nothing had worked yet
				add("at the start: %s", values.Plain(said))
				continue
			}
			add("a part of rsswarden had stopped working: %s", values.Plain(f))
		}
		for _, why := range k.Unreached {
			add("the loader hook did not reach a process that had loaded PyTorch, so its workers were not replaced, and not trimmed but by ptrace: %s", values.Plain(values.JoinLines(why)))
		}
		if r.Meta.Attached {
			add("it was watched from outside, from %s on", r.Meta.Start.In(zone).Format(time.DateTime))
		}
	}
	for _, text := range texts {
		switch list := names[text]; {
		case len(looks) == 1:
		case len(list) == 1:
			text = list[0] + ": " + text
		default:
			text = fmt.Sprintf("%s, the first %s: %s", values.Count(len(list), unit), list[0], text)
		}
		out = append(out, text)
	}
	return out
}

// outgrown leaves out what comes again later with further failures.
func outgrown(all []string) (out []string) {
	faults := make([]string, len(all))
	for i, f := range all {
		faults[i] = values.JoinLines(f)
	}
	for i, f := range faults {
		if !slices.ContainsFunc(faults[i+1:], func(o string) bool { return strings.HasPrefix(o, f) }) {
			out = append(out, f)
		}
	}
	return out
}

// missingNotes say of which nodes there is no record.
func missingNotes(j *analysis.Result) []string {
	if j.Unrecorded == 0 {
		return nil
	}
	if len(j.Missing) == 0 {
		return []string{fmt.Sprintf("of %s of the job there is no record, and Slurm did not say of which%s", values.Count(j.Unrecorded, "node"), whyMissing)}
	}
	shown := j.Missing[:min(len(j.Missing), mostShown)]
	text := values.Plain(strings.Join(shown, ", "))
	if n := len(j.Missing) - len(shown); n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return []string{fmt.Sprintf("there is no record of %s, which Slurm gave to the job%s", text, whyMissing)}
}

const whyMissing = ": no rsswarden ran there, or for less than a minute without a rule that fired, or what it left lies on that node alone or in a directory that was not looked through"

// evidence lists what a finding follows from: limits first, then what happened,
// last what Slurm says. Every line can be held against the record.
func (q *caseText) evidence(f *analysis.Ending) []string {
	var out []string
	out = append(out, q.limitLines(f)...)
	for _, c := range []struct {
		name  string
		max   string
		count analysis.CountUse
	}{{"memory mappings", "vm.max_map_count", q.Maps.Fullest(q.End)}, {"descriptors", "RLIMIT_NOFILE", q.FDs.Fullest(q.End)}} {
		if c.count.Ratio() >= analysis.WorthTelling {
			out = append(out, fmt.Sprintf("%s: %s of %s %s (%s; limit %s)", q.stamp(c.count.At), values.Digits(c.count.V), values.Digits(c.count.Size), c.name, q.process(c.count), c.max))
		}
	}
	out = append(out, q.foundLines(f.Cause)...)
	if line := q.sentLine(); line != "" && f.Cause != event.CauseEnded {
		out = append(out, line)
	}
	out = append(out, q.signalLines()...)
	if !q.JobEnd.IsZero() && f.Cause != event.CauseEnded && f.Cause != event.CauseRunning {
		out = append(out, fmt.Sprintf("%s: the job's end, as Slurm set it", q.clockOf(q.JobEnd)))
	}
	if d := q.Actions.Last; d != nil {
		out = append(out, q.deedLine(d))
	}
	switch {
	case q.Exit != nil:
		out = append(out, fmt.Sprintf("%s: %s", q.stamp(q.End), q.exitLine()))
	case !q.Run.Live:
		out = append(out, fmt.Sprintf("%s: the last of the record; it has no exit event, so the watcher was killed or the node lost", q.stamp(q.End)))
	}
	if q.Said != nil {
		out = append(out, slurmSays(q.Said, q.Step))
	}
	return out
}

// limitLines tells how full limits were at the end, that of the finding first.
func (q *caseText) limitLines(f *analysis.Ending) (out []string) {
	var list []analysis.LimitState
	for i := range q.Limits {
		l := &q.Limits[i]
		if !l.Seen || l.Name == event.LimitTime || l.Name == event.LimitMaps || l.Name == event.LimitFDs {
			continue
		}
		if b, ok := q.State(i); ok && (b.Ratio() >= analysis.WorthTelling || i == f.Limit) {
			list = append(list, b)
		}
	}
	slices.SortStableFunc(list, func(a, b analysis.LimitState) int {
		return cmp.Or(b2i(b.I == f.Limit)-b2i(a.I == f.Limit), cmp.Compare(b.Ratio(), a.Ratio()))
	})
	for _, b := range list[:min(len(list), 3)] {
		name := b.Name.Called()
		if b.Level != "" {
			name += " " + values.Plain(b.Level)
		}
		out = append(out, fmt.Sprintf("%s: %s at %s: %s", q.stamp(b.At), name, phrase.Fill(b.Name, b.Used, b.Limit.Limit), values.Plain(strings.TrimPrefix(against(&b.Limit), name+", "))))
	}
	return out
}

// mostSignals bounds the signals that are listed: the first and the last.
const mostSignals = 4

func (q *caseText) signalLines() (out []string) {
	list := q.Signals
	if n := len(list); n > mostSignals {
		list = slices.Concat(list[:mostSignals/2], list[n-mostSignals/2:])
	}
	for _, s := range list {
		out = append(out, q.stamp(s.At)+": "+values.Plain(chart.Happened(&analysis.Mark{Event: s.Signal})))
	}
	return out
}

// deedLine tells the last that a rule did.
func (q *caseText) deedLine(d *event.Decision) string {
	m := analysis.Mark{Event: d}
	if o := q.Actions.Outcome; o != nil {
		m.Outcomes = append(m.Outcomes, o)
	}
	result := cmp.Or(chart.CameOf(&m), "its result is not recorded")
	return q.clockOf(q.Actions.LastAt) + ": " + values.Plain(chart.Happened(&m)+"; "+result)
}

func (q *caseText) exitLine() string {
	e := q.Exit
	if q.Rank != nil {
		return q.rankLine()
	}
	line := "the command ended with " + howDied(q.Death())
	if !q.Death().Seen {
		line = "rsswarden's holder was gone; whether and how the command ended is unknown"
	}
	switch e.By {
	case "rsswarden":
		line = "rsswarden stopped the command"
	case "detached":
		return "the watch ended"
	}
	for _, k := range e.Kernel {
		line += fmt.Sprintf("; the kernel counted %s in cgroup %s", values.Count(int(min(k.Kills, 1<<30)), "OOM kill"), values.Plain(k.Level))
	}
	return line
}

// stamp is a moment to a tenth of a second.
func (q *caseText) stamp(at time.Duration) string {
	return q.clock(at) + q.Wall(at).Format(".0")
}

// sentLine is the warning as evidence, empty where there was none near the end.
func (q *caseText) sentLine() string {
	if q.Sharing == nil || q.End-q.Sharing.At > analysis.SentHolds {
		return ""
	}
	return fmt.Sprintf("%s: reported by the loader hook: %s", q.stamp(q.Sharing.At), values.Plain(phrase.Sharing(q.Sharing.PID, q.Sharing.Sharing)))
}

// bearing are the findings that bear a cause out.
var bearing = map[event.Cause][]event.Finding{
	event.CauseSHM:  {event.FindingPrefetch, event.FindingShmManagers},
	event.CauseMaps: {event.FindingSpawn},
	event.CauseFDs:  {event.FindingSpawn},
}

// foundLines are those of them that were told: who holds /dev/shm, what took the
// mappings.
func (q *caseText) foundLines(cause event.Cause) (out []string) {
	for i := range q.Findings.Found {
		t := &q.Findings.Found[i]
		if len(t.Evidence) > 0 && slices.Contains(bearing[cause], t.Finding) {
			out = append(out, fmt.Sprintf("%s: %s, %s: %s", q.stamp(t.At), t.Finding, values.Plain(string(t.Confidence)), values.Plain(strings.Join(t.Evidence, "; "))))
		}
	}
	return out
}

// rankLine is how another rank than the record's own ended.
func (q *caseText) rankLine() string {
	r := q.Rank
	line := r.RankKey.String()
	if r.Pid != 0 {
		who := fmt.Sprintf("process %d", r.Pid)
		if r.Comm != "" {
			who = values.Plain(r.Comm) + ", " + who
		}
		line += " (" + who + ")"
	}
	line += " ended with " + howDied(q.Death())
	if r.Seen {
		line += fmt.Sprintf("; its processes had %v by RSS at most, at %s", r.Peak, q.clock(r.PeakAt))
	}
	return line + "; the record is that of " + q.Ranks.List[0].RankKey.String() + ", which led on its node"
}

// enforced says what the enforcer of a limit does.
func enforced(l *event.Limit) string {
	who, _, _ := strings.Cut(l.Enforcer, ",")
	switch {
	case l.Name.Row().Acts != "":
		return l.Name.Row().Acts
	case l.ByJobSum() && who != "":
		return who + " cancels the job on "
	case l.Name.Row().Kills:
		if who == "" {
			return "kills on "
		}
		return who + " kills on "
	case who != "":
		return who + " on "
	}
	return "held against "
}

// against says who compares what with a limit, and where the limit was read.
func against(l *event.Limit) string {
	text := enforced(l) + l.Compared()
	if l.LimitSource != "" && l.LimitSource != l.Name.Called() {
		text += "; limit from " + l.Place()
	}
	return text
}
