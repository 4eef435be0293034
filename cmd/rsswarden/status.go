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
		Description: "Of this Slurm job on this node; outside a job, of all your runs here. Several\n" +
			"runs are a line each; of one, or with --job or --pid, it is what top shows above\n" +
			"the processes, and the rules. Other nodes are asked by srun --overlap, in a\n" +
			"small step of the job's, which takes some of its memory for a moment.\n" +
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
		return printStatus(p, t, pid, c.Bool("json"))
	})
}

// nodesJSON is what status --json prints.
type nodesJSON struct {
	V      int               `json:"v"`
	Nodes  []*control.Status `json:"nodes"`
	Errors []nodeError       `json:"errors,omitempty"`
}

// printStatus prints the statuses of all leaders, ordered by the names of their nodes: of one
// run, or of those that were asked for, what top shows above its processes; else a table.
func printStatus(p process, t remote.Target, pid int, asJSON bool) error {
	all := []*control.Status{} // to programs no node is a list too
	a, err := remote.Ask(p.caller(), t, remote.Request{}, func(s remote.Answer) {
		if s.Status != nil && hasProcess(s.Status, pid) {
			all = append(all, s.Status)
		}
	})
	if err != nil {
		return err
	}
	if pid > 0 && len(all) == 0 && len(a.Failed) == 0 {
		return noProcess(pid)
	}
	slices.SortStableFunc(all, func(x, y *control.Status) int {
		return cmp.Or(cmp.Compare(len(x.Node), len(y.Node)), cmp.Compare(x.Node, y.Node), cmp.Compare(x.Leader, y.Leader))
	})
	if err := show(p, asJSON, nodesJSON{control.Version, all, errorsOf(a.Failed)}, func(w io.Writer, style text.Style) error {
		list := make([]control.Status, len(all))
		for i, st := range all {
			list[i] = *st
		}
		for i, f := range screen.Status(list, style, time.Local, t.Job != "" || pid > 0) {
			if i > 0 {
				fmt.Fprintln(w)
			}
			if _, err := io.WriteString(w, f.Styled()); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	return printFailures(p, a)
}
