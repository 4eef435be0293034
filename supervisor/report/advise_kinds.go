package report

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/rsswarden/rsswarden/supervisor/record"
)

// gather scans runs for advice alone.
func gather(runs []*record.Run) []*facts {
	runs = stints(distinct(runs)) // a run's journal is no second run
	all := make([]*facts, len(runs))
	several(len(runs), func(i int) {
		all[i] = newFacts(runs[i])
		scan(runs[i], all[i])
	})
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
