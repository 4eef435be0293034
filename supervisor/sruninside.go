package supervisor

import (
	"fmt"
	"slices"

	"github.com/rsswarden/rsswarden/rss"
)

// sayInside warns once of a srun within what is watched: slurmstepd starts its tasks, so
// they are no descendants of ours, and the run around them looks as if all were well.
func (w *watcher) sayInside(procs []rss.Proc) {
	// The first look is before the first line.
	if _, ok := w.limits.Job(); !ok || w.seq == 0 || w.followsJob() {
		return
	}
	i := slices.IndexFunc(procs, func(p rss.Proc) bool { return p.Comm == "srun" })
	if i < 0 || !w.tell.Once("srun", "") {
		return
	}
	w.tell.Warn(fmt.Sprintf("process %d is srun: Slurm starts its tasks beside this run, which does not see their processes; "+
		"turn the two round: srun [OPTIONS] rsswarden run -- COMMAND", procs[i].ID.PID))
}
