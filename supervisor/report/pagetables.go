package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// mostRows bounds the decisions that are listed in a page.
const mostRows = 400

// table writes one table with its heads; a head that begins with "#" is of
// numbers, and one that ends with "*" can be sorted by.
func table(b *strings.Builder, title, id string, heads []string, rows func()) {
	tall := ""
	if id == "events" || id == "processes" || id == "ranks" || id == "nodes" {
		tall = " tall" // what may have hundreds of rows scrolls by itself
	}
	fmt.Fprintf(b, "<section class=\"card\"><h2 id=\"%s\">%s</h2><div class=\"scroll%s\" tabindex=\"0\" role=\"region\" aria-labelledby=\"%s\"><table", id, title, tall, id)
	if strings.Contains(strings.Join(heads, ""), "*") {
		b.WriteString(" data-sortable")
	}
	b.WriteString("><thead><tr>")
	for _, h := range heads {
		name, number := strings.CutPrefix(h, "#")
		name, sorts := strings.CutSuffix(name, "*")
		b.WriteString("<th scope=\"col\"")
		if number {
			b.WriteString(" class=\"n\"")
		}
		if sorts {
			fmt.Fprintf(b, " data-sort=\"%s\"", []string{"t", "n"}[b2i(number)])
		}
		fmt.Fprintf(b, ">%s</th>", name)
	}
	b.WriteString("</tr></thead><tbody>\n")
	rows()
	b.WriteString("</tbody></table></div>")
}

func writeLimits(b *strings.Builder, rep *Report, t *Timeline, at clockFace) {
	if len(rep.Limits) == 0 {
		return
	}
	several, list := len(rep.Runs) > 1, rep.joinedLimits()
	heads := []string{"Limit", "#Highest", "#Share", "Over time", "When", "#At the end", "Who ends the job", "Compared with it"}
	if several {
		heads = append([]string{"Run"}, heads...)
	}
	table(b, "Limits", "limits", heads, func() {
		for i := range list {
			l := &list[i]
			b.WriteString("<tr>")
			if several {
				fmt.Fprintf(b, "<td class=\"w\">%s</td>", escape(strandName(t, l.Run)))
			}
			fmt.Fprintf(b, "<td class=\"w\">%s<br><small>%s</small></td>", escape(string(l.Name)), escape(string(l.Scope)))
			fmt.Fprintf(b, "<td class=\"n\">%s<br><small>of %s</small></td><td class=\"n\">%.1f %%</td><td>", l.Name.Amount(l.Used), l.Name.Amount(l.Limit.Limit), 100*l.Ratio())
			writeSpark(b, l.Spark, 1)
			fmt.Fprintf(b, "</td><td class=\"w\">%s</td><td class=\"n\">%s</td>", at.text(l.At), l.Name.Amount(l.Last))
			fmt.Fprintf(b, "<td class=\"long\">%s<br><small>%s</small></td>", escape(l.Enforcer), escape(l.LimitSource))
			fmt.Fprintf(b, "<td class=\"long\">%s<br><small>%s</small></td></tr>\n", escape(usedMeans(&l.Limit)), escape(unbroken(l.Note)))
		}
	})
	b.WriteString("</section>\n")
}

func strandName(t *Timeline, id string) string {
	for i := range t.Runs {
		if t.Runs[i].ID == id || slices.Contains(t.Runs[i].also, id) {
			return t.Runs[i].Name
		}
	}
	return id
}

func writeRolesActions(b *strings.Builder, rep *Report, at clockFace) {
	if len(rep.Roles) > 0 {
		heads := []string{"Role", "#Most at once", "#Sum of RSS", "#Anon", "#File", "#Shmem", "#Largest process", "When"}
		table(b, "Roles at their peaks", "roles", heads, func() {
			for i := range rep.Roles {
				writeRole(b, &rep.Roles[i], at)
			}
		})
		b.WriteString("</section>\n")
	}
	if len(rep.Actions) > 0 {
		table(b, "Actions", "actions", []string{"Action", "#Fired", "#Worked", "#Freed", "#Trainer paused", "First", "Last", "Why not"}, func() {
			for _, a := range rep.Actions {
				fmt.Fprintf(b, "<tr><td class=\"w\">%s</td><td class=\"n\">%d</td><td class=\"n\">%d</td><td class=\"n\">%v</td><td class=\"n\">%.1f s</td><td class=\"w\">%s</td><td class=\"w\">%s</td><td class=\"long\">%s</td></tr>\n",
					escape(string(a.Action)), a.Fired, a.Worked, a.Freed, a.Paused, at.text(a.FirstAt), at.text(a.LastAt), escape(reasons(a)))
			}
		})
		b.WriteString("</section>\n")
	}
}

func writeRole(b *strings.Builder, r *Role, at clockFace) {
	fmt.Fprintf(b, "<tr><td class=\"w\">%s</td><td class=\"n\">%d</td><td class=\"n\">%v</td>", escape(roleTitle(r.Role)), r.Count, r.Peak)
	journal := r.Anon+r.File+r.Shmem == 0 && r.Peak > 0
	for _, v := range []rss.Bytes{r.Anon, r.File, r.Shmem, r.PerProcess} {
		text := v.String()
		if journal {
			text = "–"
		}
		fmt.Fprintf(b, "<td class=\"n\">%s</td>", text)
	}
	fmt.Fprintf(b, "<td class=\"w\">%s</td></tr>\n", at.text(r.At))
}

func writeDecisions(b *strings.Builder, t *Timeline, at clockFace) {
	total := 0
	for i := range t.Runs {
		total += len(t.Runs[i].Marks)
	}
	if total == 0 {
		return
	}
	several := len(t.Runs) > 1
	heads := []string{"Time", "#After", "What", "What came of it"}
	if several {
		heads = append([]string{"Run"}, heads...)
	}
	left := 0
	table(b, "Events", "events", heads, func() {
		for i := range t.Runs {
			s := &t.Runs[i]
			left += s.MarksLeftOut
			most := max(20, mostRows/len(t.Runs))
			for k := range s.Marks {
				if k >= most/2 && k < len(s.Marks)-most/2 {
					left++
					continue
				}
				writeEvent(b, t, i, &s.Marks[k], several, at)
			}
		}
	})
	if left > 0 {
		fmt.Fprintf(b, "<p class=\"soft\">The first and the last of each run; %d between them are not listed.</p>", left)
	}
	b.WriteString("</section>\n")
}

func writeEvent(b *strings.Builder, t *Timeline, run int, m *Mark, several bool, at clockFace) {
	s := &t.Runs[run]
	b.WriteString("<tr>")
	if several {
		fmt.Fprintf(b, "<td class=\"w\">%s</td>", escape(s.Name))
	}
	fmt.Fprintf(b, "<td class=\"w\" data-t=\"%d\" data-run=\"%d\">%s</td><td class=\"n\">%s</td><td class=\"long\">%s</td>",
		m.At.Milliseconds(), run, at.text(t.Start.Add(m.At)), values.Span(m.At-s.From), escape(m.Text))
	class := "long"
	if m.Kind == MarkDecision && m.OK {
		class += " good"
	}
	fmt.Fprintf(b, "<td class=\"%s\">%s</td></tr>\n", class, escape(m.Result))
}

func writeProcs(b *strings.Builder, t *Timeline, at clockFace) {
	total, left := 0, 0
	for i := range t.Runs {
		total += len(t.Runs[i].Procs)
		left += t.Runs[i].ProcsLeftOut
	}
	if total == 0 {
		return
	}
	several := len(t.Runs) > 1
	heads := []string{"Process*", "#PID*", "Role*", "#Peak RSS*", "RSS over its life", "#Anon*", "#File*", "#Shmem*", "#When*", "#Lived*"}
	if several {
		heads = append([]string{"Run*"}, heads...)
	}
	table(b, "Processes", "processes", heads, func() {
		for i := range t.Runs {
			for k := range t.Runs[i].Procs {
				writeProc(b, t, i, k, several, at)
			}
		}
	})
	if left > 0 {
		fmt.Fprintf(b, "<p class=\"soft\">The largest by peak; %d smaller ones are not listed.</p>", left)
	}
	b.WriteString("</section>\n")
}

func writeProc(b *strings.Builder, t *Timeline, run, k int, several bool, at clockFace) {
	s := &t.Runs[run]
	p := &s.Procs[k]
	b.WriteString("<tr>")
	if several {
		fmt.Fprintf(b, "<td class=\"w\">%s</td>", escape(s.Name))
	}
	name := clean(p.Proc.Comm)
	if strings.TrimSpace(name) == "" {
		name = "(no name)"
	}
	fmt.Fprintf(b, "<td class=\"w\" data-proc=\"%d\" data-run=\"%d\">%s</td><td class=\"n\">%d</td><td class=\"w\">%s</td>",
		k, run, escape(name), p.Proc.ID.PID, escape(procRole(p)))
	size := func(v rss.Bytes) { fmt.Fprintf(b, "<td class=\"n\" data-v=\"%d\">%v</td>", uint64(v), v) }
	size(p.Peak)
	shape := make([]float64, len(p.RSS))
	for i, v := range p.RSS {
		shape[i] = float64(v)
	}
	b.WriteString("<td>")
	writeSpark(b, shape, float64(p.Peak/rss.KiB))
	b.WriteString("</td>")
	size(p.Anon)
	size(p.File)
	size(p.Shmem)
	fmt.Fprintf(b, "<td class=\"n\" data-v=\"%d\">%s</td><td class=\"n\" data-v=\"%d\">%s</td></tr>\n",
		p.PeakAt.Milliseconds(), at.text(t.Start.Add(p.PeakAt)), (p.Last - p.From).Milliseconds(), values.Span(p.Last-p.From))
}

func procRole(t *Trace) string {
	switch {
	case t.Proc.Ours:
		return "rsswarden"
	case t.Proc.Extra:
		return "beside the tree"
	}
	return string(bandOf(&t.Proc))
}
