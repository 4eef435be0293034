package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/remote"
	"github.com/rsswarden/rsswarden/supervisor/screen"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

func statusCommand(p process) *cli.Command {
	return command(p, cli.Command{
		Name:      "status",
		Category:  "Look",
		Usage:     "show current runs",
		UsageText: "rsswarden status [--job ID | --pid PID] [--node NODE] [--all] [--json]",
		Description: "Shows the runs of this Slurm job on this node; outside a job all yours here.\n" +
			"Several runs are a line each. One run, or one chosen by --job or --pid, is shown\n" +
			"with its limits, as at the head of top, and its rules. Other nodes are asked by\n" +
			"srun --overlap, in a small step of the job's, which takes some of its memory.\n" +
			"Exit status: 0 when every leader has answered, else 1.",
		Flags: append(targetFlags(), pidFlag(), jsonFlag(), colorFlag(p)),
		ArgsUsage: examples(
			"rsswarden status",
			"rsswarden status --job 118 --json",
		),
	}, func(c *cli.Context) error {
		t, pid, err := pidTarget(c)
		if err != nil {
			return err
		}
		if c.Bool("as-node") {
			return remote.Serve(p.caller(), remote.Request{Every: c.Duration("every")}, p.stdout)
		}
		// Of one run, or of those that were asked for, what top shows above its processes; else a
		// table, by the names of their nodes.
		all := []control.Status{} // to programs no node is a list too
		a, err := remote.Ask(p.caller(), t, remote.Request{}, func(s remote.Answer) {
			if s.Status != nil && hasProcess(s.Status, pid) {
				all = append(all, *s.Status)
			}
		})
		switch {
		case err != nil:
			return err
		case pid > 0 && len(all) == 0 && len(a.Failed) == 0:
			return noProcess(pid)
		}
		slices.SortStableFunc(all, func(x, y control.Status) int {
			return cmp.Or(cmp.Compare(len(x.Node), len(y.Node)), cmp.Compare(x.Node, y.Node), cmp.Compare(x.Leader, y.Leader))
		})
		draw := func(w io.Writer, style text.Style) error {
			for i, f := range screen.Status(all, style, time.Local, t.Job != "" || pid > 0) {
				if i > 0 {
					fmt.Fprintln(w)
				}
				if _, err := io.WriteString(w, f.Styled()); err != nil {
					return err
				}
			}
			return nil
		}
		if err := show(p, c.Bool("json"), nodesJSON{control.Version, all, errorsOf(a.Failed)}, draw); err != nil {
			return err
		}
		return printFailures(p, a)
	})
}

// nodesJSON is what status --json prints.
type nodesJSON struct {
	V      int              `json:"v"`
	Nodes  []control.Status `json:"nodes"`
	Errors []nodeError      `json:"errors,omitempty"`
}
