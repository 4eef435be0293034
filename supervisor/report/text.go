package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// leastWidth is how narrow a text report gets.
const leastWidth = 60

// WriteText writes a report for a terminal of so many columns, 80 if 0: the
// verdict first, then what it follows from. Without color there is no escape
// sequence in it, and with it none but our own: every line is cleaned as it is written,
// since a record may have been made to hold one in any of its fields.
func WriteText(w io.Writer, rep *Report, width int, color bool) error {
	if width <= 0 {
		width = 80
	}
	t := &text{width: max(width, leastWidth), color: color, zone: time.Local}
	if !rep.Start.IsZero() {
		t.zone = rep.Start.Location()
	}
	t.head(rep)
	t.together(rep)
	t.limits(rep)
	switch nodes := rep.lastNodes(); {
	case nodeByNode(rep):
	case rep.told && len(nodes) == 1:
		t.peaks(&nodes[0].Peaks)
		t.roles(nodes[0].Roles)
	default:
		t.peaks(&rep.Peaks)
		t.roles(rep.Roles)
	}
	t.actions(rep)
	t.forecast(rep)
	t.advice(rep)
	t.why(rep)
	t.grew(rep)
	if !rep.told {
		t.runs(rep)
	}
	t.eachNode(rep)
	t.notes(rep)
	if _, err := io.WriteString(w, t.b.String()); err != nil {
		return fmt.Errorf("cannot write report: %w", err)
	}
	return nil
}

// WriteAdvice writes what so many runs come to, as WriteText writes that of one.
func WriteAdvice(w io.Writer, runs int, lines []Line, width int, color bool) error {
	t := &text{width: max(width, leastWidth), color: color, zone: time.Local}
	t.styled(bold, "", "", "next time, from "+values.Count(runs, "run"))
	if len(lines) == 0 {
		t.para("  ", "  ", "the runs do not tell: none of them met a limit on memory, or none was watched from start to end")
	}
	t.adviceLines(lines)
	if _, err := io.WriteString(w, t.b.String()); err != nil {
		return fmt.Errorf("cannot write advice: %w", err)
	}
	return nil
}

// text is a report on its way to a terminal.
type text struct {
	b     strings.Builder
	width int
	color bool
	zone  *time.Location
}

// Styles of a terminal, ECMA-48 SGR.
const (
	bold  = "1"
	dim   = "2"
	red   = "1;31"
	green = "1;32"
	amber = "1;33"
)

func (t *text) paint(style, s string) string {
	if !t.color || s == "" {
		return s
	}
	return "\x1b[" + style + "m" + s + "\x1b[0m"
}

// para writes a text broken into lines, the first behind an indent of its own.
func (t *text) para(first, indent, s string) { t.styled("", first, indent, s) }

func (t *text) styled(style, first, indent, s string) {
	for i, line := range values.Wrap(s, t.width-values.Columns(indent)) {
		in, line := indent, clean(line)
		if i == 0 {
			in = clean(first)
		}
		t.b.WriteString(in)
		if style == "" {
			t.b.WriteString(line)
		} else {
			t.b.WriteString(t.paint(style, line))
		}
		t.b.WriteByte('\n')
	}
}

// line writes one line that fits, cut where it does not.
func (t *text) line(format string, args ...any) {
	t.b.WriteString(values.Cut(clean(strings.TrimRight(fmt.Sprintf(format, args...), " ")), t.width) + "\n")
}

func (t *text) section(title string) {
	t.b.WriteString("\n" + t.paint(bold, clean(title)) + "\n")
}

// head writes the verdict, what ran, and when.
func (t *text) head(rep *Report) {
	style := red
	switch rep.Cause {
	case event.CauseEnded, event.CauseRunning, event.CauseDetached:
		style = green
		if rep.Outcome == event.VerdictTight || rep.Outcome == event.VerdictNoHelp {
			style = amber
		}
	case event.CauseStopped, event.CauseRequeued, event.CauseCancelled, event.CauseTimeLimit, event.CauseUnknown:
		style = amber
	}
	t.styled(style, "", "", clean(rep.Verdict))
	if len(rep.Runs) == 0 {
		return
	}
	t.b.WriteByte('\n')
	r := &rep.Runs[0]
	what := "run"
	if rep.Job != "" {
		what = "job " + clean(rep.Job)
	}
	if rep.told {
		what += ", " + sizeOf(rep)
	} else if n := len(rep.Runs); n > 1 {
		what += fmt.Sprintf(", %s on %s", values.Count(n, "run"), values.Count(nodes(rep), "node"))
	} else if r.Node != "" {
		what += " on " + clean(r.Node)
	}
	t.para("", "  ", fmt.Sprintf("%s, %s to %s (%s); cause: %s, %s", what, rep.Start.In(t.zone).Format(time.DateTime), t.clock(rep.End),
		values.Span(seconds(rep.Duration)), rep.Cause, known[rep.Certainty]))
	t.line("%s", values.Command(r.Command, t.width))
}

// Which says which run it is by what a person knows it by: the job, the command, and
// how long ago it ended.
func Which(rep *Report, now time.Time) string {
	if len(rep.Runs) == 0 {
		return "nothing"
	}
	what := values.Command(rep.Runs[0].Command, leastWidth)
	if rep.Job != "" {
		what = "job " + clean(rep.Job) + ", " + what
	}
	if rep.Cause == event.CauseRunning {
		return what + ", which is still going on"
	}
	what += ", ended " + rep.End.In(rep.Start.Location()).Format(time.DateTime)
	if ago := now.Sub(rep.End); ago > 0 { // else of a node with another clock
		what += ", " + values.Span(ago) + " ago"
	}
	return what
}

// known tells a certainty.
var known = map[Certainty]string{
	Seen:     "seen in the record",
	Inferred: "inferred from the record",
	Slurm:    "as Slurm says",
}

func nodes(rep *Report) int {
	seen := map[string]bool{}
	for i := range rep.Runs {
		seen[rep.Runs[i].Node] = true
	}
	return len(seen)
}

// clock is a time of day; a report's first line has the date.
func (t *text) clock(at time.Time) string {
	if at.IsZero() {
		return "between two samples"
	}
	return at.In(t.zone).Format(time.TimeOnly)
}
