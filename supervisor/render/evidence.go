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
		name := string(b.Name)
		if b.Level != "" {
			name += " " + values.Plain(b.Level)
		}
		out = append(out, fmt.Sprintf("%s: %s at %s: %s", q.stamp(b.At), name, phrase.Fill(b.Name, b.Used, b.Limit.Limit), values.Plain(against(&b.Limit))))
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
	if l.LimitSource != "" {
		text += "; limit from " + l.Place()
	}
	return text
}
