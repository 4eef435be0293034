package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// evidence lists what a finding follows from: limits first, then what happened,
// last what Slurm says. Every line can be held against the record.
func (q *teller) evidence(f *ending) []string {
	var out []string
	out = append(out, q.limitLines(f)...)
	for _, c := range []struct {
		name  string
		max   string
		count count
	}{{"memory mappings", "vm.max_map_count", q.maps.fullest(q.end)}, {"descriptors", "RLIMIT_NOFILE", q.fds.fullest(q.end)}} {
		if c.count.ratio() >= worthTelling {
			out = append(out, fmt.Sprintf("%s: %s of %s %s (%s; limit %s)", q.stamp(c.count.at), values.Digits(c.count.v), values.Digits(c.count.size), c.name, q.process(c.count), c.max))
		}
	}
	out = append(out, q.foundLines(f.cause)...)
	if line := q.sentLine(); line != "" && f.cause != event.CauseEnded {
		out = append(out, line)
	}
	out = append(out, q.signalLines()...)
	if !q.jobEnd.IsZero() && f.cause != event.CauseEnded && f.cause != event.CauseRunning {
		out = append(out, fmt.Sprintf("%s: the job's end, as Slurm set it", q.clockOf(q.jobEnd)))
	}
	if d := q.deeds.last; d != nil {
		out = append(out, q.deedLine(d))
	}
	switch {
	case q.exit != nil:
		out = append(out, fmt.Sprintf("%s: %s", q.stamp(q.end), q.exitLine()))
	case !q.run.Live:
		out = append(out, fmt.Sprintf("%s: the last of the record; it has no exit event, so the watcher was killed or the node lost", q.stamp(q.end)))
	}
	if q.said != nil {
		out = append(out, slurmSays(q.said, q.step))
	}
	return out
}

// limitLines tells how full limits were at the end, that of the finding first.
func (q *teller) limitLines(f *ending) (out []string) {
	var list []brink
	for i := range q.limits {
		l := &q.limits[i]
		if !l.seen || l.Name == event.LimitTime || l.Name == event.LimitMaps || l.Name == event.LimitFDs {
			continue
		}
		r, at, ok := l.tail.fullest(q.end)
		if !ok || r.Size == 0 || r.Ratio() < worthTelling && i != f.limit {
			continue
		}
		list = append(list, brink{Limit: l.Limit, i: i, used: uint64(r.Used), size: uint64(r.Size), at: at, ratio: r.Ratio()})
	}
	slices.SortStableFunc(list, func(a, b brink) int {
		if (a.i == f.limit) != (b.i == f.limit) {
			if a.i == f.limit {
				return -1
			}
			return 1
		}
		if a.ratio > b.ratio {
			return -1
		}
		return 1
	})
	for _, b := range list[:min(len(list), 3)] {
		name := string(b.Name)
		if b.Level != "" {
			name += " " + clean(b.Level)
		}
		out = append(out, fmt.Sprintf("%s: %s at %s: %s", q.stamp(b.at), name, phrase.Fill(b.Name, rss.Bytes(b.used), rss.Bytes(b.size)), clean(against(b.Limit))))
	}
	return out
}

// mostSignals bounds the signals that are listed: the first and the last.
const mostSignals = 4

func (q *teller) signalLines() (out []string) {
	list := q.signals
	if n := len(list); n > mostSignals {
		list = slices.Concat(list[:mostSignals/2], list[n-mostSignals/2:])
	}
	for _, s := range list {
		line := fmt.Sprintf("%s: %s reached rsswarden", q.stamp(s.at), s.Signal.Signal)
		if s.Comm != "" {
			line += fmt.Sprintf(" from %s (process %d)", clean(s.Comm), s.Sender)
		}
		if s.Forwarded {
			line += ", which passed it on"
		} else {
			line += ", the command had it already"
		}
		out = append(out, line)
	}
	return out
}

// deedLine tells the last that a rule did.
func (q *teller) deedLine(d *event.Decision) string {
	line := fmt.Sprintf("%s: rule %s fired, limit %s", q.clockOf(q.deeds.lastAt), clean(d.Rule), d.Limit)
	if d.Asked() {
		line = fmt.Sprintf("%s: somebody asked for %s (process %d), limit %s", q.clockOf(q.deeds.lastAt), d.Action, d.By, d.Limit)
	}
	if d.LimitSize > 0 {
		line += " at " + phrase.Fill(d.Limit, d.Used, d.LimitSize)
	}
	o := q.deeds.outcome
	switch {
	case o == nil:
		return line + "; what it brought is not in the record"
	case !o.OK:
		return line + "; " + string(d.Action) + " did not work: " + clean(string(o.Reason))
	case o.Freed > 0:
		return line + fmt.Sprintf("; %s freed %v", d.Action, o.Freed)
	}
	return line + "; " + string(d.Action) + " was done"
}

func (q *teller) exitLine() string {
	e := q.exit
	if q.rank != nil {
		return q.rankLine()
	}
	line := "the command ended with " + howDied(q.death())
	if !q.death().seen {
		line = "rsswarden's holder was gone; how the command ended, or whether it did, nobody saw"
	}
	switch e.By {
	case "rsswarden":
		line = "rsswarden stopped the command"
	case "detached":
		return "the watch ended"
	}
	for _, k := range e.Kernel {
		line += fmt.Sprintf("; the kernel counted %s in cgroup %s", values.Count(int(min(k.Kills, 1<<30)), "OOM kill"), clean(k.Level))
	}
	return line
}

// stamp is a moment to a tenth of a second.
func (q *teller) stamp(at time.Duration) string {
	return q.clock(at) + q.wall(at).Format(".0")
}

// sentLine is the warning as evidence, empty where there was none near the end.
func (q *teller) sentLine() string {
	if q.sent == nil || q.end-q.sent.at > sentHolds {
		return ""
	}
	return fmt.Sprintf("%s: told by the loader hook: %s", q.stamp(q.sent.at), q.sending(q.sent))
}

// bearing are the findings that bear a cause out.
var bearing = map[event.Cause][]event.Finding{
	event.CauseSHM:  {event.FindingPrefetch, event.FindingShmManagers},
	event.CauseMaps: {event.FindingSpawn},
	event.CauseFDs:  {event.FindingSpawn},
}

// foundLines are those of them that were told: who holds /dev/shm, what took the
// mappings.
func (q *teller) foundLines(cause event.Cause) (out []string) {
	for i := range q.grown.found {
		t := &q.grown.found[i]
		if len(t.Evidence) > 0 && slices.Contains(bearing[cause], t.Finding) {
			out = append(out, fmt.Sprintf("%s: %s, %s: %s", q.stamp(t.at), t.Finding, clean(string(t.Confidence)), clean(strings.Join(t.Evidence, "; "))))
		}
	}
	return out
}

// rankLine is how another rank than the record's own ended.
func (q *teller) rankLine() string {
	r := q.rank
	line := r.rankKey.String()
	if r.pid != 0 {
		who := fmt.Sprintf("process %d", r.pid)
		if r.comm != "" {
			who = clean(r.comm) + ", " + who
		}
		line += " (" + who + ")"
	}
	line += " ended with " + howDied(q.death())
	if r.seen {
		line += fmt.Sprintf("; its processes had %v by RSS at most, at %s", r.peak, q.clock(r.peakAt))
	}
	return line + "; the record is that of " + q.ranks.list[0].rankKey.String() + ", which led on its node"
}
