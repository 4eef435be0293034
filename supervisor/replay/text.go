package replay

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// mostShown is how many decisions a text lists from the front; JSON has all.
const mostShown = 20

// WriteText writes the result for people. What of it a record chose, rules too, cannot
// steer a terminal.
func (r *Result) WriteText(w io.Writer) error {
	var b strings.Builder
	r.head(&b)
	r.rungs(&b)
	r.list(&b)
	r.sizes(&b)
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	for line := range strings.Lines(b.String()) {
		if _, err := io.WriteString(w, text.Plain(strings.TrimSuffix(line, "\n"))+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// head says which run it is, in the first line, and in the next what becomes of it.
func (r *Result) head(b *strings.Builder) {
	fmt.Fprintf(b, "run %s: %s; %s recorded from %s on\n", text.Plain(r.Run), text.Command(r.Command, mostCommand), text.Seconds(r.End), r.Start.Format(time.DateTime))
	fate := map[Fate]string{Lives: "the job survived", Dies: "the job died", Unknown: "how the job ended is unknown"}
	if r.Estimate {
		fate = map[Fate]string{Lives: "estimate: the job would have survived", Dies: "estimate: the job would have died", Unknown: "unknown whether the job would have survived"}
		if r.Fate == Dies && r.Death.Limit == event.LimitUser {
			fate[Dies] = "estimate: the limit would have been passed"
		}
	}
	b.WriteString(fate[r.Fate] + ": " + r.Why + "\n")
	if l := r.Limit; l != nil {
		size := "no such limit in the record"
		switch {
		case r.Estimate && l.Recorded > 0 && l.Size != l.Recorded:
			size = fmt.Sprintf("%s in place of %s", l.Size.Typed(), l.Recorded.Typed())
		case l.Size > 0:
			size = l.Size.Typed()
		}
		fmt.Fprintf(b, "limit %s (%s): %s; the record has a peak of %v after %s\n", l.Name.Called(), counts(l), size, l.Peak, clock(l.At))
	}
	if r.Same != nil {
		switch {
		case len(r.Decisions)+len(r.Missed) == 0:
			b.WriteString("as recorded: no rule fired, then as now\n")
		case *r.Same:
			b.WriteString("as recorded: the ladder decides as it did\n")
		default:
			fmt.Fprintf(b, "as recorded: the ladder does not decide as it did: %d decisions are missing, %d are new\n", len(r.Missed), r.countNew())
		}
	}
}

// mostCommand is how much of a command line is shown; JSON has all.
const mostCommand = 60

func (r *Result) countNew() (n int) {
	for i := range r.Decisions {
		if r.Decisions[i].Recorded == nil {
			n++
		}
	}
	return n
}

func counts(l *Limit) string {
	if l.Accounting == "" {
		return string(l.Scope)
	}
	return string(l.Scope) + ", " + string(l.Accounting)
}

func (r *Result) rungs(b *strings.Builder) {
	if len(r.Rungs) == 0 {
		b.WriteString("\nthe ladder has no rules\n")
		return
	}
	b.WriteString("\nrung                    fired  first\n")
	for _, g := range r.Rungs {
		first := "never"
		if g.First != nil {
			first = "after " + clock(*g.First)
		} else if g.Met != nil {
			first = fmt.Sprintf("never; met after %s: %s", clock(*g.Met), text.Plain(cmp.Or(g.Detail, string(g.Reason))))
		}
		fmt.Fprintf(b, "%-22s %6d  %s\n", g.Rule, g.Count, first)
	}
}

func (r *Result) list(b *strings.Builder) {
	if len(r.Decisions) == 0 {
		return
	}
	b.WriteString("\nafter      rule                    limit   used\n")
	for i := range r.Decisions {
		if i == mostShown {
			fmt.Fprintf(b, "… and %d more\n", len(r.Decisions)-i)
			break
		}
		d := &r.Decisions[i]
		fmt.Fprintf(b, "%-10s %-23s %-7s %s\n", clock(d.At), d.Rule, d.Limit.Called(), d.use())
	}
	for i, d := range r.Missed {
		if i == mostShown {
			fmt.Fprintf(b, "… and %d more\n", len(r.Missed)-i)
			break
		}
		fmt.Fprintf(b, "%-10s %-23s in the record and not made here\n", clock(d.At), d.Rule)
	}
}

// use says what a decision was made on, and its result.
func (d *Decision) use() string {
	words := "now"
	if d.ETA != nil {
		words = "in " + text.Seconds(*d.ETA)
	}
	if d.Size > 0 {
		words = fmt.Sprintf("%s of %s", text.Percent(d.Used.Of(d.Size)), d.Limit.Amount(d.Size))
		if d.ETA != nil {
			words += ", " + text.Seconds(*d.ETA) + " left"
		}
	}
	switch {
	case d.Freed > 0:
		words += fmt.Sprintf("; frees %v by the model (estimate)", d.Freed)
	case d.Recorded != nil && d.Recorded.Freed > 0:
		words += fmt.Sprintf("; freed %v", d.Recorded.Freed)
	}
	return words
}

func (r *Result) sizes(b *strings.Builder) {
	if len(r.Least) == 0 {
		return
	}
	fmt.Fprintf(b, "\nsmallest size of %s that survives:\n", r.Limit.Name.Called())
	for _, l := range r.Least {
		text := "none was found"
		if l.Mem > 0 {
			text = mem(l.Mem)
			switch {
			case l.Most > l.Mem:
				text += " to " + mem(l.Most)
			case l.Most == 0:
				text += " or more, an unknown amount"
			}
			if l.AtLeast {
				text += " at least: the record ends with the job"
			}
		}
		kind := "read"
		if l.Estimate {
			kind = "estimate"
		}
		fmt.Fprintf(b, "  %-16s %-9s %s\n", l.Way, kind, text)
	}
}

// mem is a size as --mem takes it, and as people read it.
func mem(b rss.Bytes) string { return fmt.Sprintf("%s (%v)", policy.MemArg(b), b) }

// clock is a moment of the run, as a stop watch has it: "1:02:03", "0:00:12.5".
func clock(seconds float64) string {
	tenths := int64(math.Round(max(0, min(seconds, 1e9)) * 10))
	text := fmt.Sprintf("%d:%02d:%02d", tenths/36000, tenths/600%60, tenths/10%60)
	if tenths%10 > 0 {
		text += fmt.Sprintf(".%d", tenths%10)
	}
	return text
}
