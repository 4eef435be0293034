package report

import (
	"fmt"
	"strings"

	values "github.com/rsswarden/rsswarden/supervisor/text"
)

const (
	// grownTitle heads what was found. Not all of it is memory: mappings,
	// descriptors, /dev/shm.
	grownTitle = "what grew, and why"
	// mostFindings, mostBorne and mostAdvised bound what a terminal shows of them,
	// and of each: the rest is in the page and in the JSON.
	mostFindings = 4
	mostBorne    = 2
	mostAdvised  = 3
)

// grew writes why something grew, what speaks for that, and what to write instead.
func (t *text) grew(rep *Report) {
	if len(rep.Findings) == 0 {
		return
	}
	t.section(grownTitle)
	shown := min(len(rep.Findings), mostFindings)
	for i := range rep.Findings[:shown] {
		d := &rep.Findings[i]
		t.styled(bold, "  ", "    ", d.title(len(rep.Runs)))
		for _, e := range d.Evidence[:min(len(d.Evidence), mostBorne)] {
			t.para("    ", "    ", clean(e))
		}
		for _, a := range d.Advice[:min(len(d.Advice), mostAdvised)] {
			t.para("    do: ", "        ", clean(a))
		}
	}
	if rest := rep.Findings[shown:]; len(rest) > 0 {
		var names []string
		for i := range rest {
			names = append(names, clean(string(rest[i].Finding)))
		}
		t.para("  ", "    ", fmt.Sprintf("and %s: %s", values.Count(len(rest), "more finding"), strings.Join(names, ", ")))
	}
}
