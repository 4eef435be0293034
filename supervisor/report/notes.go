package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// mergePeaks takes the fullest run by each accounting.
func mergePeaks(looks []*look) Peaks {
	var p Peaks
	for i, to := range [accountings]**Peak{byRSS: &p.RSS, byPSS: &p.PSS, byNoShared: &p.NoShared, byCgroup: &p.Cgroup} {
		for _, k := range looks {
			if v := &k.peaks[i]; v.known && (*to == nil || v.v > (*to).Bytes) {
				*to = &Peak{Bytes: v.v, At: k.wall(v.at), Run: k.run.Meta.ID}
			}
		}
	}
	return p
}

// mostNotes bounds the notes of one kind.
const mostNotes = 6

// notes say what is missing or doubtful: what several runs have in common once, with
// how many they are.
func notes(looks []*look, zone *time.Location) (out []string) {
	var texts []string
	names := map[string][]string{} // of the runs that a text is on
	unit := "rank"
	for _, k := range looks {
		r := k.run
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
			add("only the journal was found: it has %s, roles in place of processes, and no PSS", values.Count(k.samples, "sample"))
		}
		for _, d := range r.Damage[:min(len(r.Damage), mostNotes)] {
			add("part of the record could not be read: %s", clean(unbroken(d)))
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
		if k.samples == 0 {
			add("no sample is in the record: it was too short, or killed before the first was written")
		}
		faults := outgrown(k.faults)
		for _, f := range faults[:min(len(faults), mostNotes)] {
			if said, ok := strings.CutPrefix(f, "start: "); ok { // nothing had worked yet
				add("it was said at the start: %s", clean(said))
				continue
			}
			add("a part of rsswarden had stopped working: %s", clean(f))
		}
		for _, why := range k.unreached {
			add("the loader hook did not reach a process that had loaded PyTorch, so its workers were not replaced, and not trimmed but by ptrace: %s", clean(unbroken(why)))
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
func outgrown(faults []string) (out []string) {
	for i, f := range faults {
		if !slices.ContainsFunc(faults[i+1:], func(o string) bool { return strings.HasPrefix(o, f) }) {
			out = append(out, f)
		}
	}
	return out
}
