package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// writeFacts writes the few numbers that most readers come for.
func writeFacts(b *strings.Builder, rep *Report, at clockFace) {
	b.WriteString("<dl class=\"facts\">\n")
	fact := func(name, value, more, extra string) {
		fmt.Fprintf(b, "<div><dt>%s</dt><dd>%s<small>%s</small></dd>%s</div>\n", escape(name), escape(value), escape(more), extra)
	}
	if l := nearest(rep); l != nil {
		share := l.Ratio()
		high := ""
		if share >= 0.9 {
			high = " high"
		}
		meter := fmt.Sprintf("<div class=\"meter%s\"><svg viewBox=\"0 0 100 4\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect width=\"%.1f\" height=\"4\"/></svg></div>",
			high, 100*min(share, 1))
		fact("Nearest limit: "+string(l.Name), fmt.Sprintf("%.1f %%", 100*share),
			whereOf(rep, l)+fmt.Sprintf("%s of %s, %s", l.Name.Amount(l.Used), l.Name.Amount(l.Limit.Limit), usedMeans(&l.Limit)), meter)
	}
	if p := rep.Peaks.RSS; p != nil {
		fact("Peak RSS", p.Bytes.String(), "sum over processes, at "+at.text(p.At), "")
	}
	if p := rep.Peaks.Cgroup; p != nil {
		fact("Peak of the cgroup", p.Bytes.String(), "unreclaimable, at "+at.text(p.At), "")
	} else if p := rep.Peaks.PSS; p != nil {
		fact("Peak PSS", p.Bytes.String(), "shared pages divided, at "+at.text(p.At), "")
	}
	fired, freed := 0, rss.Bytes(0)
	for _, a := range rep.Actions {
		if a.Action != event.ActionWarn {
			fired, freed = fired+a.Fired, freed+a.Freed
		}
	}
	text := "nothing had to be done"
	if fired > 0 {
		text = "freed " + freed.String() + " in all"
	}
	fact("Actions", fmt.Sprint(fired), text, "")
	fact("Duration", values.Span(time.Duration(rep.Duration*float64(time.Second))), "from "+at.text(rep.Start)+" to "+at.text(rep.End), "")
	b.WriteString("</dl>\n")
}

// whereOf says on which node a limit is, where there are several.
func whereOf(rep *Report, l *Limit) string {
	if len(rep.lastNodes()) < 2 {
		return ""
	}
	return "on " + runOf(rep, l.Run).Node + ", "
}

// nearest is the limit on memory that came nearest, nil where none was read. What
// cannot end a job is not one.
func nearest(rep *Report) *Limit {
	best := -1
	for i := range rep.Limits {
		l := &rep.Limits[i]
		if !l.Name.Row().Amount || l.Name == event.LimitThrottle || l.Limit.Limit == 0 {
			continue
		}
		if best < 0 || l.Ratio() > rep.Limits[best].Ratio() {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	return &rep.Limits[best]
}

// writeReasons writes what to change, and why the verdict is what it is.
func writeReasons(b *strings.Builder, rep *Report, at clockFace) {
	if len(rep.Advice) > 0 {
		b.WriteString("<section class=\"card\"><h2>Next time</h2><dl class=\"advice\">\n")
		for _, a := range rep.Advice {
			fmt.Fprintf(b, "<dt><code>%s</code></dt><dd>%s", escape(a.Line), escape(a.Why))
			if a.Risk != nil {
				fmt.Fprintf(b, " <span class=\"soft\">Risk: %.1f %% of such jobs.</span>", 100**a.Risk)
			}
			if a.Evidence != "" {
				fmt.Fprintf(b, " <span class=\"soft\">%s</span>", escape(a.Evidence))
			}
			b.WriteString("</dd>\n")
		}
		b.WriteString("</dl></section>\n")
	}
	notes := slices.Clone(rep.Notes)
	if rep.Forecast != nil && rep.Forecast.Note != "" {
		notes = append(notes, "Forecast: "+rep.Forecast.Note)
	}
	writeList(b, "Why this verdict", rep.Evidence)
	writeGrown(b, rep, at)
	writeList(b, "What to know of this report", notes)
}

func writeList(b *strings.Builder, title string, items []string) {
	if len(items) == 0 {
		return
	}
	fmt.Fprintf(b, "<section class=\"card\"><h2>%s</h2><ul class=\"plain\">\n", escape(title))
	for _, item := range items {
		fmt.Fprintf(b, "<li>%s</li>\n", escape(item))
	}
	b.WriteString("</ul></section>\n")
}
