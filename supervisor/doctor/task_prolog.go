package doctor

import (
	"strings"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/loader"
)

// prologFacts are what there is of a TaskProlog that starts watchers beside tasks.
type prologFacts struct {
	Path    string // the script
	Program string // that it calls, as its line bin=PATH says; empty without one
	Err     error  // why that cannot be executed
	InTask  bool
	Watcher int   // PID of the one beside this task, 0 for none
	Bare    error // why this task gets none; nil where it may have one
}

// taskProlog looks at TaskProlog, where its script calls rsswarden.
func (d *prober) taskProlog() []Check {
	f, ok := within(func() *prologFacts {
		path, text := slurm.TaskProlog(d.Lookup)
		if !strings.Contains(text, "task-prolog") {
			return nil
		}
		f := &prologFacts{Path: path, Bare: d.WhyBare(), InTask: d.get("SLURM_JOB_ID") != ""}
		for line := range strings.Lines(text) {
			if bin, ok := strings.CutPrefix(strings.TrimSpace(line), "bin="); ok {
				f.Program = strings.Trim(bin, `"'`)
				_, f.Err = d.LookPath(f.Program)
			}
		}
		if owner, lives, err := loader.Owner(d.get(loader.EnvDir)); err == nil && lives {
			f.Watcher = owner.PID
		}
		return f
	})
	if !ok || f == nil {
		return nil
	}
	return []Check{prologCheck(f)}
}

func prologCheck(f *prologFacts) Check {
	c := Check{Name: NameTaskProlog, Source: f.Path}
	switch {
	case f.Err != nil:
		return c.as(Off, "install it there, or correct bin= in "+f.Path, "%s: %v; tasks run bare", f.Program, errnoOf(f.Err))
	case !f.InTask:
		return c.as(OK, "", "TaskProlog starts a watcher beside each task")
	case f.Watcher != 0:
		return c.as(OK, "", "a watcher is beside this task, process %d", f.Watcher)
	case f.Bare != nil:
		return c.as(Limited, "rsswarden run -- COMMAND watches it all the same", "this task runs bare: %v", f.Bare)
	}
	return c.as(Limited, "look into the log of slurmd for task_prolog", "this task has no watcher, or its watcher has ended")
}
