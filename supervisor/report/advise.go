package report

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
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
	runs = stints(distinct(runs)) // a run's journal is no second run
	all := make([]*facts, len(runs))
	several(len(runs), func(i int) {
		all[i] = newFacts(runs[i])
		scan(runs[i], all[i])
	})
	return advise(all, true)
}

// advise leaves out, where it is not asked for them, what else tells of findings.
func advise(runs []*facts, findings bool) []Line {
	var all []Line
	kinds := kindsOf(runs)
	for _, k := range kinds[:min(len(kinds), mostKinds)] {
		lines := k.advise()
		if line, ok := k.finding(); ok && findings {
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

// kind is the runs of one program, by time.
type kind struct {
	words []string // of the command, as far as they are alike
	jobs  []job
}

// job is the runs of one job, one for each task and node, or one run outside
// Slurm.
type job struct{ runs []*facts }

// last is the run of the job that began last, and where its nodes have leaders the
// one that came nearest to a limit: --mem is for each node.
func (j *job) last() *facts { return j.runs[len(j.runs)-1] }

// kindsOf sorts runs, the kind that ran last first.
func kindsOf(all []*facts) []kind {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b *facts) int { return a.run.Meta.Start.Compare(b.run.Meta.Start) })
	ofJob := map[string][]*facts{}
	for _, f := range all {
		ofJob[jobName(f.run)] = append(ofJob[jobName(f.run)], f)
	}
	for _, list := range ofJob {
		follow(list)
	}
	var kinds []kind
	for _, f := range all {
		words := kindWords(f.run.Meta.Command)
		if first := f.first; first != nil {
			words = kindWords(first.run.Meta.Command) // it led the others, whatever they run
		}
		i := slices.IndexFunc(kinds, func(k kind) bool { return slices.Equal(k.words, words) })
		if i < 0 {
			kinds = append(kinds, kind{words: words})
			i = len(kinds) - 1
		}
		k := &kinds[i]
		n := slices.IndexFunc(k.jobs, func(j job) bool { return jobName(j.runs[0].run) == jobName(f.run) })
		if n < 0 {
			k.jobs = append(k.jobs, job{})
			n = len(k.jobs) - 1
		}
		k.jobs[n].runs = append(k.jobs[n].runs, f)
	}
	for i := range kinds {
		for n := range kinds[i].jobs {
			kinds[i].jobs[n].settle()
		}
	}
	slices.SortStableFunc(kinds, func(a, b kind) int {
		return cmp.Compare(b.newest().run.Meta.Start.UnixNano(), a.newest().run.Meta.Start.UnixNano())
	})
	return kinds
}

// newest is the run that began last.
func (k *kind) newest() *facts {
	newest := k.jobs[0].last()
	for i := range k.jobs {
		if f := k.jobs[i].last(); f.run.Meta.Start.After(newest.run.Meta.Start) {
			newest = f
		}
	}
	return newest
}

// scripts are the ends of names of programs that another program runs.
var scripts = []string{".py", ".pyc", ".sh", ".bash", ".R", ".jl", ".pl", ".lua", ".m"}

// kindWords is a command up to its script, or all of it.
func kindWords(command []string) []string {
	for i, word := range command {
		if i > 0 && slices.Contains(scripts, filepath.Ext(word)) {
			return command[:i+1]
		}
	}
	return command
}

// jobName is what the runs of one job have in common and no others.
func jobName(r *record.Run) string {
	j := r.Meta.Job
	if j == nil {
		return r.Meta.ID
	}
	// A job that Slurm has requeued is another observation.
	return fmt.Sprintf("%s %s %s %d", j.Cluster, j.ID, j.Step, j.Restarts)
}

// advise gives the lines for one kind.
func (k *kind) advise() []Line {
	var lines []Line
	key, ok := k.key()
	if !ok {
		return append(lines, Line{Line: noMem, Why: k.unlimited() + ", so nothing can be said about --mem", Evidence: k.sources()})
	}
	m := k.mem(key)
	lines = append(lines, m.line())
	return append(lines, k.loaders(key)...)
}

// unlimited says what there was in the place of a limit on the job's memory.
func (k *kind) unlimited() string {
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
func (k *kind) sources() string {
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
