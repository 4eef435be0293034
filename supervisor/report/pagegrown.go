package report

import (
	"fmt"
	"strings"
)

// writeGrown writes why something grew, all that speaks for it and all that can be
// written instead, and what was changed before it could go wrong.
func writeGrown(b *strings.Builder, rep *Report, at clockFace) {
	if len(rep.Findings) > 0 {
		fmt.Fprintf(b, "<section class=\"card\"><h2 id=\"findings\">%s</h2><dl class=\"advice grown\">\n", heading(grownTitle))
		for i := range rep.Findings {
			writeFinding(b, &rep.Findings[i], len(rep.Runs), at)
		}
		b.WriteString("</dl></section>\n")
	}
	var list []string
	for i := range rep.Cures {
		c := &rep.Cures[i]
		list = append(list, fmt.Sprintf("%s, %s: %s", at.text(c.First), c.Remedy, c.text()))
	}
	writeList(b, "Changed before it could go wrong", list)
}

func writeFinding(b *strings.Builder, d *Diagnosis, runs int, at clockFace) {
	name, rest, _ := strings.Cut(d.title(runs), ", ")
	fmt.Fprintf(b, "<dt><code>%s</code> %s <span class=\"soft\">first told %s</span></dt><dd>", escape(name), escape(rest), escape(at.text(d.First)))
	writeItems(b, "soft", d.Evidence)
	if len(d.Advice) > 0 {
		b.WriteString("<p>Do:</p>")
		writeItems(b, "do", d.Advice)
	}
	b.WriteString("</dd>\n")
}

func writeItems(b *strings.Builder, class string, items []string) {
	if len(items) == 0 {
		return
	}
	fmt.Fprintf(b, "<ul class=\"plain %s\">", class)
	for _, item := range items {
		fmt.Fprintf(b, "<li>%s</li>", escape(item))
	}
	b.WriteString("</ul>")
}

// heading is a title of the terminal's as a page has it.
func heading(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
