package population

import (
	"slices"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
)

// holderName is what the kernel calls the process of `rsswarden run` that holds a
// command.
const holderName = "rsswarden"

// OuterRun is the nearest `rsswarden run` that the holder of this run is a descendant
// of, 0 for none or where the way up cannot be read.
func OuterRun(proc string, holder int) int {
	for i, err := range proctree.Parents(proc, holder) {
		if err != nil {
			break
		}
		if i.ID.PID != holder && i.Comm == holderName {
			return i.ID.PID
		}
	}
	return 0
}

// Srun is a srun among the processes, 0 for none: slurmstepd starts its tasks, so they are
// no descendants of it.
func Srun(procs []rss.Proc) int {
	i := slices.IndexFunc(procs, func(p rss.Proc) bool { return p.Comm == "srun" })
	if i < 0 {
		return 0
	}
	return procs[i].ID.PID
}

// passers catch every signal and pass it on to what they run, which may have no handler
// for it and die: the parent of a container of Apptainer's or Singularity's, and the init
// where PID numbers are the container's own.
var passers = map[string]bool{"starter": true, "starter-suid": true, "appinit": true, "sinit": true}

// InContainers returns, for each of the processes that only passes signals on, what it
// runs, and every other as it is.
func InContainers(s *rss.Sample, all []*rss.Proc) (list []*rss.Proc) {
	for _, p := range all {
		list = append(list, runs(s, p, 4)...) // a runtime, its init, and to spare
	}
	return list
}

func runs(s *rss.Sample, p *rss.Proc, deep int) (list []*rss.Proc) {
	if passers[p.Comm] && deep > 0 {
		for i := range s.Procs {
			if q := &s.Procs[i]; q.Parent == p.ID.PID && q.State != 'Z' && q.State != 'X' {
				list = append(list, runs(s, q, deep-1)...)
			}
		}
	}
	if len(list) == 0 { // a program of that name runs nothing
		list = append(list, p)
	}
	return list
}
