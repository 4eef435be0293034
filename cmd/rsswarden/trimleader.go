package main

import (
	"context"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// trimByLeader says whether a trim is asked of who leads: where an option says so, and
// outside a Slurm job without --pid, within a run or to name the runs that there are.
func trimByLeader(p process, c *cli.Context) (w whom, q question, yes bool, err error) {
	if w, err = whomOf(c); err != nil {
		return w, q, false, err
	}
	meant := ""
	for _, name := range []string{"job", "node", "all", "rank", "as-node"} {
		if c.IsSet(name) {
			meant = "--" + name
			break
		}
	}
	for _, name := range []string{"pid", "drop", "dry-run"} {
		if meant != "" && c.IsSet(name) {
			return w, q, false, usagef("leave one of them out: --"+name+" is done here, by ptrace; "+meant+" asks who leads", "--%s does not go with %s", name, meant)
		}
	}
	if q, err = questionOf(c, event.ActionTrim); err != nil || meant != "" {
		return w, q, err == nil, err
	}
	if c.IsSet("pid") || c.Bool("drop") || c.Bool("dry-run") || p.get("SLURM_JOB_ID") != "" {
		return w, q, false, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return w, q, len(meet(ctx, findLeaders("/proc", p.get), "", "")) > 0, nil
}
