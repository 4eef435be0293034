package report

import (
	"fmt"
	"strings"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// mostKinds is of how many kinds of run advice is given.
const mostKinds = 5

// Advise says what to ask for next, from one run or many: --mem first, then what
// the loaders could do with less. Runs of one program with one script are of one
// kind, whatever the script's own arguments; of several kinds the one that ran
// last is told first. Each line has what it rests on, and there is none for
// which the records have nothing.
func Advise(runs []*record.Run) []Line {
	return advise(gather(runs), true)
}

// advise leaves out, where it is not asked for them, what else tells of findings.
func advise(runs []*facts, findings bool) []Line {
	var all []Line
	kinds := kindsOf(runs)
	for i := range kinds[:min(len(kinds), mostKinds)] {
		k := &kinds[i]
		lines := adviseKind(k)
		if line, ok := adviseFinding(k); ok && findings {
			lines = append(lines, line)
		}
		if len(kinds) > 1 {
			for i := range lines {
				lines[i].Why = "`" + values.Command(k.words, 60) + "`: " + lines[i].Why
			}
		}
		all = append(all, lines...)
	}
	return all
}

// adviseKind gives the lines for one kind.
func adviseKind(k *kind) []Line {
	var lines []Line
	key, ok := k.key()
	if !ok {
		return append(lines, Line{Line: noMem, Why: unlimited(k) + ", so nothing can be said about --mem", Evidence: sources(k)})
	}
	m := memOf(k, key)
	lines = append(lines, m.line())
	return append(lines, adviseLoaders(k, key)...)
}

// unlimited says what there was in the place of a limit on the job's memory.
func unlimited(k *kind) string {
	node := false
	for i := range k.jobs {
		for _, f := range k.jobs[i].runs {
			for n := range f.limits {
				l, seen := &f.run.Limits[n], &f.limits[n]
				switch {
				case !seen.seen || seen.peak.Size == 0:
				case f.counts(l):
					return fmt.Sprintf("nothing was seen to be used of the limit %s of %v", l.Name, seen.peak.Size)
				case l.Name == event.LimitNode:
					node = true
				}
			}
		}
	}
	if node {
		return "no limit on memory but the node's own was found"
	}
	return "no limit on memory was found"
}

// noMem stands in the place of a size that is not known.
const noMem = "#SBATCH --mem=?"

// sources names the runs, the last three where there are more.
func sources(k *kind) string {
	var ids []string
	for i := range k.jobs {
		ids = append(ids, k.jobs[i].last().run.Meta.ID)
	}
	text := values.Count(len(ids), "run")
	if jobs := len(ids); jobs > 3 {
		ids = ids[jobs-3:]
		return text + ", the last " + strings.Join(ids, ", ")
	}
	return text + ": " + strings.Join(ids, ", ")
}
