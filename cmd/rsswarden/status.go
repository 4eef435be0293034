package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/rsswarden/rsswarden/supervisor/control"
)

func statusCommand(p process, status *int) *cli.Command {
	return &cli.Command{
		Name:            "status",
		Usage:           "tell what stands on this node, or on all nodes of a job",
		UsageText:       "rsswarden status [--job ID] [--node NODE] [--all] [--json]",
		HideHelp:        true,
		HideHelpCommand: true,
		OnUsageError:    onUsageError,
		Description: "Of the rsswarden runs of this Slurm job on this node; outside a job, of all of\n" +
			"yours. Other nodes are asked by srun --overlap, in a small step of the job's,\n" +
			"which takes some of its memory for a moment.\n" +
			"Exit status: 0 when every leader has answered, else 1.",
		Flags: append(whomFlags(), &cli.BoolFlag{Name: "json", Usage: "for programs"}, helpFlag()),
		Action: func(c *cli.Context) error {
			if c.Bool("help") {
				return showHelp(p, c)
			}
			if c.NArg() > 0 {
				return unexpected(c)
			}
			w, err := whomOf(c)
			if err != nil {
				return err
			}
			if w.asNode {
				*status = question{}.serve(p, w.every)
				return nil
			}
			*status, err = w.status(p, c.Bool("json"))
			return err
		},
	}
}

// nodesJSON is what status --json prints.
type nodesJSON struct {
	V      int               `json:"v"`
	Nodes  []*control.Status `json:"nodes"`
	Errors []nodeError       `json:"errors,omitempty"`
}

type nodeError struct {
	Node  string `json:"node"`
	Error string `json:"error"`
	Hint  string `json:"hint,omitempty"`
}

// stands asks what stands, and returns it in the order of the nodes' names.
func (w whom) stands(p process) (all []*control.Status, a arrived, err error) {
	a, err = w.ask(p, question{}, []string{"status"}, func(s says) {
		if s.Status != nil {
			all = append(all, s.Status)
		}
	})
	slices.SortStableFunc(all, func(x, y *control.Status) int {
		return cmp.Or(cmp.Compare(len(x.Node), len(y.Node)), cmp.Compare(x.Node, y.Node), cmp.Compare(x.Leader, y.Leader))
	})
	return all, a, err
}

func (w whom) status(p process, asJSON bool) (int, error) {
	all, a, err := w.stands(p)
	if err != nil {
		return exitUsage, err
	}
	if asJSON {
		out := nodesJSON{V: control.Version, Nodes: all, Errors: errorsOf(a.failed)}
		if out.Nodes == nil {
			out.Nodes = []*control.Status{}
		}
		err = printed(p, func(w io.Writer) error {
			return writeJSON(w, out)
		})
	} else {
		width := math.MaxInt // nothing is cut off for a file or a pipe
		if term.IsTerminal(int(p.stdout.Fd())) {
			width = columns(p.stdout)
		}
		err = printed(p, func(w io.Writer) error {
			for i, st := range all {
				if i > 0 {
					fmt.Fprintln(w)
				}
				if err := writeStatus(w, st, width); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err != nil {
		return exitNotAll, err
	}
	return a.end(p), nil
}

func errorsOf(failed []says) []nodeError {
	var list []nodeError
	for _, s := range failed {
		list = append(list, nodeError{s.Node, s.Error, s.Hint})
	}
	return list
}

// end tells of those that did not answer, and returns the exit status. Where a
// signal ended the waiting we die by it.
func (a *arrived) end(p process) int {
	tellFailed(p, a.failed)
	if a.told != 0 {
		dieBy(a.told)
	}
	if len(a.failed) > 0 || a.answers == 0 {
		return exitNotAll
	}
	return exitOK
}

// tellFailed prints an error for each reason, with the nodes that share it.
func tellFailed(p process, failed []says) {
	type why struct{ text, hint string }
	nodes := map[why][]string{}
	var order []why
	for _, s := range failed {
		y := why{s.Error, s.Hint}
		if nodes[y] == nil {
			order = append(order, y)
		}
		nodes[y] = append(nodes[y], s.Node)
	}
	for _, y := range order {
		fmt.Fprint(p.stderr, line("", "error", oneLine(strings.Join(shortList(nodes[y]), ", ")+": "+y.text), oneLine(y.hint)))
	}
}
