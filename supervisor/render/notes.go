package render

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/analysis"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// mostNotes bounds the notes of one kind.
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
			add("no sample is in the record: it was too short, or killed before the first was written")
		}
		faults := outgrown(k.Faults)
		for _, f := range faults[:min(len(faults), mostNotes)] {
			if said, ok := strings.CutPrefix(f, "start: "); ok { // nothing had worked yet
				add("it was said at the start: %s", values.Plain(said))
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

// outgrown leaves out what is told again, with more that went wrong behind it.
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

// whyMissing is why a node may have none.
const whyMissing = ": no rsswarden ran there, or for less than a minute without a rule that fired, or what it left lies on that node alone or in a directory that was not looked through"

// clockNote says what times are worth, empty where there is one node and nothing to say.
func clockNote(rep *analysis.Result) string {
	c := rep.Clock
	var parts []string
	switch {
	case c.Nodes < 2:
	case c.Spread == nil:
		parts = append(parts, "times are of each node's own clock, and nothing in the records tells how far these are apart")
	case *c.Spread <= closeStart.Seconds():
		parts = append(parts, fmt.Sprintf("times are of each node's own clock; a step of this job began on its nodes within %s by these, so they most likely differ by no more than about that", values.Span(analysis.Seconds(*c.Spread))))
	default:
		parts = append(parts, fmt.Sprintf("times are of each node's own clock; a step of this job began on its nodes up to %s apart by these: the clocks differ, or tasks began late, so the order of what happened on two nodes is known no better", values.Span(analysis.Seconds(*c.Spread))))
	}
	var names []string
	for node := range c.Behind {
		names = append(names, node)
	}
	slices.Sort(names)
	for _, node := range names[:min(len(names), mostNotes)] {
		parts = append(parts, fmt.Sprintf("on %s rsswarden began %s before Slurm began the job: that clock is behind slurmctld's by as much at least", values.Plain(node), values.Span(analysis.Seconds(c.Behind[node]))))
	}
	if n := len(names) - mostNotes; n > 0 {
		parts = append(parts, "so are those of "+values.Count(n, "more node"))
	}
	return strings.Join(parts, "; ")
}

// closeStart is how far apart tasks of one step start with clocks that agree.
const closeStart = 2 * time.Second

// forecastNote says how good the forecasts were.
func forecastNote(f *analysis.Forecast) string {
	told := f.Right + f.False
	if told == 0 {
		return fmt.Sprintf("%s, none of which can be told: an action or the end came first", values.Count(f.Made, "forecast"))
	}
	note := fmt.Sprintf("%s of %s right within a factor of two", values.Digits(uint64(f.Right)), values.Count(told, "forecast"))
	if f.Open > 0 {
		note += fmt.Sprintf("; %s more cannot be told: an action or the end came first", values.Digits(uint64(f.Open)))
	}
	return note
}
