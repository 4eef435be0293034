package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

func recycleCommand(p process) *cli.Command {
	return askCommand(p, event.ActionRecycle,
		"have loader workers replaced by fresh ones now",
		examples(
			"rsswarden recycle --rank 0",
			"rsswarden recycle --job 118 --node n3",
		),
		"Asks the rsswarden that leads on the node, which does it one worker after the\n"+
			"other, and loses no batch by it: all that have something to give back, or those\n"+
			"that --pid and --rank name.\n")
}

func checkpointCommand(p process) *cli.Command {
	return askCommand(p, event.ActionSignal,
		"have trainers asked for a checkpoint now",
		examples(
			"rsswarden checkpoint --rank 0",
			"rsswarden checkpoint --job 118 --signal USR1",
		),
		"Asks the rsswarden that leads on the node, which sends each trainer the signal\n"+
			"of the run's own options, or --signal, where the trainer catches it.\n",
		&cli.StringFlag{Name: "signal", Usage: "send `SIG`, such as USR1"})
}

// narrowFlags say which processes of those that a leader has.
func narrowFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "pid", Usage: "the process `PID` alone; may be given several times"},
		&cli.StringSliceFlag{Name: "rank", Usage: "those of rank `N` alone (SLURM_PROCID); may be given several times"},
	}
}

func askCommand(p process, do event.Action, usage, examples, about string, more ...cli.Flag) *cli.Command {
	name := do.Row().Command
	return command(p, cli.Command{
		Name:      name,
		Usage:     usage,
		UsageText: fmt.Sprintf("rsswarden %s [--job ID] [--pid PID]... [--rank N]... [OPTIONS]", name),
		Description: about + "Other nodes are asked by srun --overlap. Outside a job and what a run has\n" +
			"started, --pid, --job or --all is needed.\n" +
			"Exit status: 0 when all did it, 1 when not all did, 2 for bad usage. Ctrl-C\n" +
			"calls off what has not begun.",
		Flags:     slices.Concat(whomFlags(), narrowFlags(), more, []cli.Flag{jsonFlag()}),
		ArgsUsage: examples,
	}, func(c *cli.Context) error {
		w, err := whomOf(c)
		if err != nil {
			return err
		}
		q, err := questionOf(c, do)
		if err != nil {
			return err
		}
		if w.asNode {
			return withStatus(q.serve(p, 0), nil)
		}
		return withStatus(w.do(p, q, c.Bool("json")))
	})
}

// questionOf reads what narrows a command down.
func questionOf(c *cli.Context, do event.Action) (question, error) {
	q := question{do: do, signal: c.String("signal")}
	var err error
	if do != event.ActionTrim {
		if q.pids, err = numbersFlag(c, "pid", 1, "give the number that ps shows: rsswarden "+do.Row().Command+" --pid 4711"); err != nil {
			return q, err
		}
	}
	if q.ranks, err = numbersFlag(c, "rank", 0, "give a number from 0, SLURM_PROCID of the rank"); err != nil {
		return q, err
	}
	if c.IsSet("signal") {
		if _, err := event.AskBySignal(q.signal); err != nil {
			return q, sourcedValue{name: "--signal"}.usage(wrongSignal(err))
		}
	}
	return q, nil
}

func numbersFlag(c *cli.Context, name string, least int, hint string) ([]int, error) {
	var list []int
	for _, v := range c.StringSlice(name) {
		n, err := strconv.Atoi(v)
		if err != nil || n < least {
			what := map[string]string{"pid": "a PID", "rank": "a rank"}[name]
			return nil, usagef(hint, "--%s %q is not %s", name, v, what)
		}
		if !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	return list, nil
}

// arguments are those that another node is given.
func (q question) arguments() []string {
	args := []string{q.do.Row().Command}
	for _, pid := range q.pids {
		args = append(args, "--pid", strconv.Itoa(pid))
	}
	for _, r := range q.ranks {
		args = append(args, "--rank", strconv.Itoa(r))
	}
	if q.signal != "" {
		args = append(args, "--signal", q.signal)
	}
	return args
}

// deedJSON is what --json prints of a command.
type deedJSON struct {
	V      int         `json:"v"`
	Nodes  []*nodeDeed `json:"nodes"`
	Errors []nodeError `json:"errors,omitempty"`
}

// nodeDeed is what came of it with one leader.
type nodeDeed struct {
	Node    string           `json:"node"`
	Job     string           `json:"job,omitempty"`
	Leader  int              `json:"leader_pid"`
	OK      bool             `json:"ok"`
	Results []control.Result `json:"results"`
}

// do has it done and tells of each result as it comes.
func (w whom) do(p process, q question, asJSON bool) (int, error) {
	out := deedJSON{V: control.Version, Nodes: []*nodeDeed{}}
	tally := deedTally{action: q.do}
	a, err := w.ask(p, q, q.arguments(), func(s says) {
		if s.Result == nil {
			return
		}
		out.add(s)
		tally.add(s.Result)
		if l := resultLine(q.do, s); !asJSON && l != "" {
			fmt.Fprintln(p.stdout, oneLine(l))
		}
	})
	if err != nil {
		return exitUsage, err
	}
	silent := len(a.failed) > 0 // whoever did not answer may have it
	for _, r := range q.ranks {
		if !slices.Contains(a.ranks, r) && a.told == 0 && !silent {
			a.failed = append(a.failed, says{Node: strings.Join(shortList(a.nodes), ", "), Error: fmt.Sprintf("no leader that answered has a rank %d", r), Hint: "rsswarden status lists the ranks"})
		}
	}
	if len(q.pids) > 0 && tally.all == 0 && tally.done == 0 && len(a.failed) == 0 && a.told == 0 {
		a.failed = append(a.failed, says{Node: a.nodes[0], Error: "no leader knows " + numbersOf(q.pids), Hint: "rsswarden status --json lists the processes"})
	}
	if asJSON {
		out.Errors = errorsOf(a.failed)
		err = printed(p, func(w io.Writer) error {
			return writeJSON(w, out)
		})
	} else if tally.all > 0 {
		_, err = fmt.Fprintln(p.stdout, tally.String())
	}
	if err != nil {
		return exitNotAll, fmt.Errorf("cannot print what was done: %w", plain(err))
	}
	if status := a.end(p); status != exitOK {
		return status, nil
	}
	if !tally.ok() {
		return exitNotAll, nil
	}
	return exitOK, nil
}

func (o *deedJSON) add(s says) {
	i := slices.IndexFunc(o.Nodes, func(n *nodeDeed) bool { return n.Node == s.Node && n.Leader == s.Leader })
	if i < 0 {
		i = len(o.Nodes)
		o.Nodes = append(o.Nodes, &nodeDeed{Node: s.Node, Job: s.Job, Leader: s.Leader, Results: []control.Result{}})
	}
	if n := o.Nodes[i]; s.Result.Done {
		n.OK = s.Result.OK
	} else {
		n.Results = append(n.Results, *s.Result)
	}
}

// deedTally counts what was done.
type deedTally struct {
	action     event.Action
	all, did   int
	done, good int // leaders that have told all, and of these that all did it
	given      rss.Bytes
}

func (t *deedTally) add(r *control.Result) {
	switch {
	case r.Done && r.OK:
		t.done, t.good = t.done+1, t.good+1
	case r.Done:
		t.done++
	default:
		t.all++
		if r.OK {
			t.did++
			t.given += r.Freed
		}
	}
}

func (t *deedTally) ok() bool { return t.done > 0 && t.good == t.done }

func (t *deedTally) String() string {
	one := "process"
	if t.action == event.ActionTrim { // which is done in all processes of a rank at once
		one = "rank"
	}
	s := fmt.Sprintf("%d of %s %s", t.did, text.Count(t.all, one), t.action.Row().Asked)
	if t.action.Frees() {
		s += fmt.Sprintf(", %v given back in all", t.given)
	}
	return s
}

// resultLine tells of one result of an action; a last line is told of where it alone says why.
func resultLine(a event.Action, s says) string {
	r := s.Result
	why := string(r.Reason)
	if r.Detail != "" {
		if why += " (" + r.Detail + ")"; r.Reason == "" || r.Reason == event.ReasonDone {
			why = r.Detail
		}
	}
	if r.Done {
		if r.OK || why == "" {
			return ""
		}
		return fmt.Sprintf("%s: not all done: %s", s.Node, why)
	}
	who := s.Node + ": "
	switch {
	case r.PID != 0 && r.Task >= 0:
		who += fmt.Sprintf("process %d of rank %d", r.PID, r.Task)
	case r.PID != 0:
		who += fmt.Sprintf("process %d", r.PID)
	case r.Task >= 0: // all its processes that can, at once
		who += fmt.Sprintf("rank %d", r.Task)
	default:
		who += "all its processes"
	}
	if !r.OK {
		if why == "" {
			why = "no reason was given"
		}
		return who + " not " + a.Row().Asked + ": " + why
	}
	l := who + " " + a.Row().Asked
	if a.Frees() {
		l += fmt.Sprintf(", %v given back", r.Freed)
	}
	if r.Duration > 0 {
		l += ", in " + text.Seconds(r.Duration)
	}
	if r.Paused > 0 {
		l += ", its trainer stood still for " + text.Seconds(r.Paused)
	}
	return l
}

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
