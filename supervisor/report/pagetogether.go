package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// mostRankRows bounds the ranks that are listed in a page.
const mostRankRows = 1024

// writeTogether writes what a job of several ranks, nodes or lives came to.
func writeTogether(b *strings.Builder, rep *Report, at clockFace) {
	if !rep.told {
		return
	}
	var said []string
	if rep.Binding != nil {
		said = append(said, rep.Binding.sentence(at.start.Location()))
	}
	said = append(said, rep.missingNotes()...)
	for i := range rep.Leads[:min(len(rep.Leads), mostShown)] {
		said = append(said, rep.Leads[i].sentence())
	}
	writeList(b, "Nodes and ranks", said)
	writeLives(b, rep, at)
	writeNodes(b, rep, at)
	writeRanks(b, rep, at)
}

func writeLives(b *strings.Builder, rep *Report, at clockFace) {
	if len(rep.Lives) == 0 {
		return
	}
	table(b, "Lives", "lives", []string{"#Life", "From", "To", "#Nodes", "#Highest", "#Share", "How it ended"}, func() {
		for i := range rep.Lives {
			l := &rep.Lives[i]
			peak, share := "–", "–"
			if n := l.Binding; n != nil {
				peak, share = fmt.Sprintf("%v<br><small>of %v</small>", n.Used, n.Size), fmt.Sprintf("%.1f %%", 100*n.Share)
			}
			fmt.Fprintf(b, "<tr><td class=\"n\">%d</td><td class=\"w\">%s</td><td class=\"w\">%s</td><td class=\"n\">%d</td><td class=\"n\">%s</td><td class=\"n\">%s</td><td class=\"long\">%s</td></tr>\n",
				l.Restart+1, at.text(l.Start), at.text(l.End), l.Nodes, peak, share, escape(l.Verdict))
		}
	})
	b.WriteString("</section>\n")
}

func writeNodes(b *strings.Builder, rep *Report, at clockFace) {
	if len(rep.Nodes) == 0 {
		return
	}
	several := len(rep.Lives) > 0
	heads := []string{"Node*", "Limit*", "#Highest*", "#Share*", "#Headroom*", "When", "#Ranks*", "#Peak RSS*", "#Decisions*", "#Recycled*"}
	if several {
		heads = append([]string{"#Life*"}, heads...)
	}
	table(b, "Nodes", "nodes", heads, func() {
		for i := range rep.Nodes {
			n := &rep.Nodes[i]
			b.WriteString("<tr>")
			if several {
				fmt.Fprintf(b, "<td class=\"n\">%d</td>", n.Restart+1)
			}
			fmt.Fprintf(b, "<td class=\"w\">%s</td>", escape(n.Node))
			if l := n.Nearest; l != nil {
				fmt.Fprintf(b, "<td class=\"w\">%s</td><td class=\"n\" data-v=\"%d\">%v<br><small>of %v</small></td><td class=\"n\" data-v=\"%.4f\">%.1f %%</td><td class=\"n\" data-v=\"%d\">%v</td><td class=\"w\">%s</td>",
					escape(string(l.Limit)), uint64(l.Used), l.Used, l.Size, l.Share, 100*l.Share, uint64(l.Headroom), l.Headroom, at.text(l.At))
			} else {
				b.WriteString("<td>–</td><td class=\"n\">–</td><td class=\"n\">–</td><td class=\"n\">–</td><td>–</td>")
			}
			peak, v := "–", uint64(0)
			if n.Peaks.RSS != nil {
				peak, v = n.Peaks.RSS.Bytes.String(), uint64(n.Peaks.RSS.Bytes)
			}
			fmt.Fprintf(b, "<td class=\"n\">%d</td><td class=\"n\" data-v=\"%d\">%s</td><td class=\"n\">%d</td><td class=\"n\">%d</td></tr>\n", n.Ranks, v, peak, n.Decisions, n.Recycled)
		}
	})
	b.WriteString("</section>\n")
}

// writeRanks lists ranks: those that failed first where there are too many.
func writeRanks(b *strings.Builder, rep *Report, at clockFace) {
	if len(rep.Ranks) < 2 {
		return
	}
	list := slices.Clone(rep.Ranks)
	left := 0
	if len(list) > mostRankRows {
		slices.SortStableFunc(list, func(a, b Rank) int { return cmp.Or(b2i(b.failed())-b2i(a.failed()), cmp.Compare(b.peak(), a.peak())) })
		list, left = list[:mostRankRows], len(list)-mostRankRows
	}
	several := len(rep.Lives) > 0
	heads := []string{"Node*", "Step*", "#Task*", "#PID*", "#Peak RSS*", "When", "#Workers*", "Ended", "How*"}
	if several {
		heads = append([]string{"#Life*"}, heads...)
	}
	table(b, "Ranks", "ranks", heads, func() {
		for i := range list {
			r := &list[i]
			b.WriteString("<tr>")
			if several {
				fmt.Fprintf(b, "<td class=\"n\">%d</td>", r.Restart+1)
			}
			peak := "–"
			if r.Peak != nil {
				peak = r.Peak.String()
			}
			fmt.Fprintf(b, "<td class=\"w\">%s</td><td class=\"w\">%s</td><td class=\"n\">%d</td><td class=\"n\">%d</td><td class=\"n\" data-v=\"%d\">%s</td><td class=\"w\">%s</td><td class=\"n\">%d</td><td class=\"w\">%s</td><td class=\"w\">%s</td></tr>\n",
				escape(r.Node), escape(r.Step), r.Task, r.PID, r.peak(), peak, at.text(r.PeakAt), r.Workers, at.text(r.End), escape(r.how()))
		}
	})
	if left > 0 {
		fmt.Fprintf(b, "<p class=\"soft\">%d more ranks are not listed: those that did not fail and had least.</p>", left)
	}
	b.WriteString("</section>\n")
}
