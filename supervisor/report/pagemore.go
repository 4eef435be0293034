package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rsswarden/rsswarden/supervisor/event"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// Size of a sparkline, in CSS pixels.
const (
	sparkWidth  = 120.0
	sparkHeight = 24.0
)

// writeSpark draws values of which top is the height; negative ones are holes.
// Values are joined to at most one each 1.5 pixels, the highest of each.
func writeSpark(b *strings.Builder, values []float64, top float64) {
	if len(values) == 0 {
		b.WriteString("–")
		return
	}
	for _, v := range values {
		top = max(top, v)
	}
	n := min(len(values), int(sparkWidth/1.5))
	x := func(i int) float64 { return (float64(i) + 0.5) / float64(n) * sparkWidth }
	line, area := shape{x: same, y: same}, shape{x: same, y: same}
	from := -1.0
	y := func(v float64) float64 { return sparkHeight - 2 - (sparkHeight-4)*v/max(top, 1e-9) }
	last := 0.0
	done := func() {
		if area.pen {
			area.to(last, sparkHeight-2)
			area.to(from, sparkHeight-2)
			area.close()
		}
		line.up()
	}
	for i := range n {
		v := slices.Max(values[i*len(values)/n : max(i*len(values)/n+1, (i+1)*len(values)/n)])
		if v < 0 {
			done()
			continue
		}
		if !line.pen {
			from = x(i)
			line.to(from-0.7, y(v))
		}
		last = x(i)
		line.to(last, y(v))
		area.to(last, y(v))
	}
	done()
	fmt.Fprintf(b, "<svg viewBox=\"0 0 120 24\" aria-hidden=\"true\"><path %s d=\"%s\"/><path %s d=\"%s\"/></svg>",
		paint("sparkfill"), area.b, paint("spark"), line.b)
}

func same(v float64) float64 { return v }

// reasons tells why actions did not work, the most frequent first.
func reasons(a Action) string {
	list := make([]event.Reason, 0, len(a.Reasons))
	for r := range a.Reasons {
		list = append(list, r)
	}
	slices.SortFunc(list, func(x, y event.Reason) int {
		if a.Reasons[x] != a.Reasons[y] {
			return a.Reasons[y] - a.Reasons[x]
		}
		return strings.Compare(string(x), string(y))
	})
	var parts []string
	for _, r := range list {
		parts = append(parts, fmt.Sprintf("%s (%d)", r, a.Reasons[r]))
	}
	return strings.Join(parts, ", ")
}

// mostCommand is how much of a command line a page shows: a script of its own is cut.
const mostCommand = 500

// writeRuns writes what was run where, and what Slurm says of it.
func writeRuns(b *strings.Builder, rep *Report) {
	if len(rep.Runs) > 0 {
		table(b, "Runs", "runs", []string{"Node", "Command", "Ended", "#Samples", "#Decisions", "Read from"}, func() {
			for i := range rep.Runs {
				r := &rep.Runs[i]
				where := clean(r.Node)
				if r.Step != "" {
					where += fmt.Sprintf(", step %s, task %d", r.Step, r.Task)
				}
				if r.Restart > 0 {
					where += fmt.Sprintf(", life %d", r.Restart+1)
				}
				fmt.Fprintf(b, "<tr><td class=\"w\">%s</td><td class=\"long\"><code>%s</code></td><td class=\"long\">%s</td><td class=\"n\">%d</td><td class=\"n\">%d</td><td class=\"long\">%s</td></tr>\n",
					escape(where), escape(values.Command(r.Command, mostCommand)), escape(howEnded(r)), r.Samples, r.Decisions, escape(strings.Join(r.Sources, ", ")))
			}
		})
		b.WriteString("</section>\n")
	}
	s := rep.Slurm
	if s == nil {
		return
	}
	fmt.Fprintf(b, "<section class=\"card\"><h2>What Slurm says</h2><p>State %s%s, exit code %s, asked for %s <span class=\"soft\">(%s)</span></p>",
		escape(s.State), escape(dash(s.Reason)), escape(orDash(s.ExitCode)), escape(orDash(s.ReqMem)), escape(s.Source))
	if len(s.Steps) > 0 {
		b.WriteString("<div class=\"scroll\"><table><thead><tr><th>Step</th><th>State</th><th>Exit code</th><th class=\"n\">MaxRSS</th></tr></thead><tbody>")
		for _, st := range s.Steps {
			fmt.Fprintf(b, "<tr><td>%s</td><td>%s</td><td>%s</td><td class=\"n\">%v</td></tr>", escape(st.ID), escape(st.State), escape(st.ExitCode), st.MaxRSS)
		}
		b.WriteString("</tbody></table></div><p class=\"soft\">MaxRSS is polled by slurmstepd: it misses peaks.</p>")
	}
	b.WriteString("</section>\n")
}

func howEnded(r *Run) string {
	text := string(r.Cause)
	switch {
	case r.Signal != nil:
		text += ", " + *r.Signal
	case r.Code != nil:
		text += fmt.Sprintf(", status %d", *r.Code)
	}
	if r.JournalOnly {
		text += "; journal only"
	}
	for _, d := range r.Damage {
		text += "; " + d
	}
	return text
}

func orDash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

func dash(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}
