package report

import (
	"fmt"
	"strings"

	"github.com/rsswarden/rsswarden/supervisor/phrase"
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
		t.styled(bold, "  ", "    ", findingTitle(d, len(rep.Runs)))
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

// cureText is what was changed: "done once, in process 4711: 65,536, 1,024 before".
func cureText(c *Cure) string {
	text := "done " + values.Times(c.Times)
	if !c.OK {
		text = "not done, " + values.Times(c.Times)
	}
	if c.PID != 0 {
		text += fmt.Sprintf(", in process %d", c.PID)
		if c.Times > 1 {
			text += " last"
		}
	}
	if c.OK {
		text += fmt.Sprintf(": %s, %s before", signed(c.After), signed(c.Before))
	}
	if c.Reason != "" {
		text += "; " + c.Reason
	}
	return clean(text)
}

func signed(v int64) string {
	if v < 0 {
		return "-" + values.Digits(-uint64(v))
	}
	return values.Digits(uint64(v))
}

// findingTitle is naming, and in how many runs of a job.
func findingTitle(d *Diagnosis, runs int) string {
	text := phrase.Found(d.Finding, d.Confidence, d.Bytes, d.Role)
	if runs > 1 {
		text += fmt.Sprintf(", on %d of %s", d.Runs, values.Count(runs, "run"))
	}
	return text
}
