package render

import (
	"fmt"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
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
func Advise(runs []*record.Run) []analysis.AdviceLine {
	return advise(analysis.Gather(runs), true)
}

// advise leaves out, where it is not asked for them, what else tells of findings.
func advise(runs []*analysis.RunScan, findings bool) []analysis.AdviceLine {
	var all []analysis.AdviceLine
	kinds := analysis.Programs(runs)
	for i := range kinds[:min(len(kinds), mostKinds)] {
		k := &kinds[i]
		lines := adviseKind(k)
		if line, ok := adviseFinding(k); ok && findings {
			lines = append(lines, line)
		}
		if len(kinds) > 1 {
			for i := range lines {
				lines[i].Why = "`" + values.Command(k.Words, 60) + "`: " + lines[i].Why
			}
		}
		all = append(all, lines...)
	}
	return all
}

// adviseKind gives the lines for one kind.
func adviseKind(k *analysis.Program) []analysis.AdviceLine {
	var lines []analysis.AdviceLine
	key, ok := k.Key()
	if !ok {
		return append(lines, analysis.AdviceLine{Line: noMem, Why: unlimited(k) + ", so nothing can be said about --mem", Evidence: sources(k)})
	}
	m := memOf(k, key)
	lines = append(lines, m.line())
	return append(lines, adviseLoaders(k, key)...)
}

// unlimited says what there was in the place of a limit on the job's memory.
func unlimited(k *analysis.Program) string {
	node := false
	for i := range k.Jobs {
		for _, f := range k.Jobs[i].Runs {
			for n := range f.Limits {
				l, seen := &f.Run.Limits[n], &f.Limits[n]
				switch {
				case !seen.Seen || seen.Peak.Size == 0:
				case l.Name.Row().OfJob:
					return fmt.Sprintf("nothing was seen to be used of the limit %s of %v", l.Name, seen.Peak.Size)
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
func sources(k *analysis.Program) string {
	var ids []string
	for i := range k.Jobs {
		ids = append(ids, k.Jobs[i].Last().Run.Meta.ID)
	}
	text := values.Count(len(ids), "run")
	if jobs := len(ids); jobs > 3 {
		ids = ids[jobs-3:]
		return text + ", the last " + strings.Join(ids, ", ")
	}
	return text + ": " + strings.Join(ids, ", ")
}

// adviseFinding is what to write instead of what the newest job was found to do, the
// weightiest finding alone: what older jobs did may have been mended since.
func adviseFinding(k *analysis.Program) (analysis.AdviceLine, bool) {
	newest := k.Newest()
	for i := range k.Jobs {
		if k.Jobs[i].Last() != newest {
			continue
		}
		var all analysis.Diagnoses
		for _, f := range k.Jobs[i].Runs {
			tree := rss.Bytes(0)
			key, _ := k.Key()
			if f.Recorded != nil && f.Recorded.Peaks.RSS != nil {
				tree = *f.Recorded.Peaks.RSS
			}
			all.Add(f.Run.Meta.ID, f.Run.Wall, &f.Findings, tree, key.Accounting)
		}
		for _, d := range all.Sorted() {
			if len(d.Advice) == 0 || len(d.Evidence) == 0 {
				continue
			}
			return analysis.AdviceLine{Line: d.Advice[0], Why: findingTitle(&d, len(k.Jobs[i].Runs)), Evidence: fmt.Sprintf("%s (%s)", d.Evidence[0], d.Run)}, true
		}
	}
	return analysis.AdviceLine{}, false
}
