package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/remote"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// targetFlags are the flags of every command that asks leaders.
func targetFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "job", Usage: "the runs of the Slurm job `ID`, on all its nodes"},
		&cli.StringFlag{Name: "node", Usage: "on the node `NODE` and no other"},
		&cli.BoolFlag{Name: "all", Usage: "all your runs on this node"},
		// On another node, where remote.Ask has started us by srun.
		&cli.BoolFlag{Name: "as-node", Hidden: true},
		&cli.DurationFlag{Name: "every", Hidden: true},
	}
}

func targetOf(c *cli.Context) (remote.Target, error) {
	t := remote.Target{Job: c.String("job"), Node: c.String("node"), All: c.Bool("all")}
	m := jobID().FindStringSubmatch(t.Job)
	switch {
	case c.IsSet("job") && (m == nil || m[2] != ""):
		return t, usagef("give a job as squeue shows it: 46, or 46_3", "--job %q is not a Slurm job", t.Job)
	case c.IsSet("node") && (t.Node == "" || strings.HasPrefix(t.Node, "-") || strings.ContainsAny(t.Node, " ,[]")):
		return t, usagef("give one node, as squeue shows it", "--node %q is not a node", t.Node)
	case t.All && t.Job != "":
		return t, usagef("leave one of them out", "--all is for this node, --job for all nodes of a job")
	}
	return t, nil
}

// hasProcess says whether a process is one of a run: of its commands, of what they started, or
// of rsswarden itself. Each run has the process 0.
func hasProcess(st *control.Status, pid int) bool {
	return pid == 0 || slices.ContainsFunc(st.Ranks, func(r control.Rank) bool { return r.PID == pid || r.Holder == pid || r.Watcher == pid }) ||
		slices.ContainsFunc(st.Procs, func(p control.Proc) bool { return p.PID == pid })
}

func noProcess(pid int) error {
	return &remote.Error{Msg: fmt.Sprintf("process %d is in no run of yours on this node", pid), Hint: "rsswarden status lists the runs"}
}

// pidFlag chooses the run that has a process.
func pidFlag() cli.Flag {
	return &cli.StringFlag{Name: "pid", Usage: "the run that has the process `PID`"}
}

// pidTarget is the target with the process that chooses a run of it, 0 for none: among all on
// this node.
func pidTarget(c *cli.Context) (t remote.Target, pid int, err error) {
	if t, err = targetOf(c); err != nil || !c.IsSet("pid") {
		return t, 0, err
	}
	if t.Job != "" {
		return t, 0, usagef("leave one of them out", "--pid is for this node, --job for all nodes of a job")
	}
	t.All = true
	pid, err = parsePID("--pid ", c.String("pid"), "rsswarden "+c.Command.Name+" --pid")
	return t, pid, err
}

// caller is this process as package remote needs to know it.
func (p process) caller() remote.Caller {
	return remote.Caller{Lookup: p.lookup, Environ: p.env, Warn: p.warn}
}

func recycleCommand(p process) *cli.Command {
	return askCommand(p, event.ActionRecycle,
		"replace DataLoader workers by fresh ones now",
		examples(
			"rsswarden recycle --rank 0",
			"rsswarden recycle --job 118 --node n3",
		),
		"Asks the rsswarden that leads on the node, which replaces one worker after the\n"+
			"other: those that have memory to give back, or those that --pid and --rank\n"+
			"name. No batch is lost.\n")
}

func checkpointCommand(p process) *cli.Command {
	return askCommand(p, event.ActionSignal,
		"ask trainers for a checkpoint now",
		examples(
			"rsswarden checkpoint --rank 0",
			"rsswarden checkpoint --job 118 --signal USR1",
		),
		"Asks the rsswarden that leads on the node, which sends each trainer the signal\n"+
			"of the run's own options, or --signal, where the trainer catches it.\n",
		&cli.StringFlag{Name: "signal", Usage: "send `SIG`, such as USR1"})
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
		Flags: slices.Concat(targetFlags(), []cli.Flag{
			&cli.StringSliceFlag{Name: "pid", Usage: "the process `PID` alone; may be given several times"},
			&cli.StringSliceFlag{Name: "rank", Usage: "those of rank `N` alone (SLURM_PROCID); may be given several times"},
		}, more, []cli.Flag{jsonFlag(), colorFlag(p)}),
		ArgsUsage: examples,
	}, func(c *cli.Context) error {
		t, err := targetOf(c)
		if err != nil {
			return err
		}
		q, err := requestOf(c, do)
		if err != nil {
			return err
		}
		return askLeaders(p, c, t, q)
	})
}

func requestOf(c *cli.Context, do event.Action) (remote.Request, error) {
	q := remote.Request{Do: do, Signal: c.String("signal")}
	var err error
	if do != event.ActionTrim {
		if q.PIDs, err = numbersFlag(c, "pid", 1, "give the number that ps shows: rsswarden "+do.Row().Command+" --pid 4711"); err != nil {
			return q, err
		}
	}
	if q.Ranks, err = numbersFlag(c, "rank", 0, "give a number from 0, SLURM_PROCID of the rank"); err != nil {
		return q, err
	}
	if c.IsSet("signal") {
		if _, err := event.AskBySignal(q.Signal); err != nil {
			return q, usageOf("--signal", wrongSignal(err))
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

// commandJSON is what --json prints of a command.
type commandJSON struct {
	V      int            `json:"v"`
	Nodes  []*nodeCommand `json:"nodes"`
	Errors []nodeError    `json:"errors,omitempty"`
}

// nodeCommand is what came of it with one leader.
type nodeCommand struct {
	Node    string           `json:"node"`
	Job     string           `json:"job,omitempty"`
	Leader  int              `json:"leader_pid"`
	OK      bool             `json:"ok"`
	Results []control.Result `json:"results"`
	done    bool             // it has told all
}

// askLeaders has leaders act and prints each result as it comes; on another node it
// answers for that.
func askLeaders(p process, c *cli.Context, t remote.Target, q remote.Request) error {
	if c.Bool("as-node") {
		return remote.Serve(p.caller(), q, p.stdout)
	}
	asJSON := c.Bool("json")
	out, style := commandJSON{V: control.Version, Nodes: []*nodeCommand{}}, styleOf(p, p.stdout)
	a, err := remote.Ask(p.caller(), t, q, func(s remote.Answer) {
		if s.Result == nil {
			return
		}
		out.add(s)
		if l := resultLine(q.Do, s); !asJSON && l != "" {
			fmt.Fprintln(p.stdout, style.Plain(oneLine(l)))
		}
	})
	if err != nil {
		return err
	}
	silent := len(a.Failed) > 0 // one that did not answer may have the rank
	for _, r := range q.Ranks {
		if !slices.Contains(a.Ranks, r) && a.Signal == 0 && !silent {
			a.Failed = append(a.Failed, remote.Answer{Node: strings.Join(shortList(a.Nodes, " nodes"), ", "), Error: fmt.Sprintf("no leader that answered has a rank %d", r), Hint: "rsswarden status lists the ranks"})
		}
	}
	if len(q.PIDs) > 0 && len(out.Nodes) == 0 && len(a.Failed) == 0 && a.Signal == 0 {
		a.Failed = append(a.Failed, remote.Answer{Node: a.Nodes[0], Error: "no leader knows " + strings.Join(shortList(listOfWords(q.PIDs), ""), ", "), Hint: "rsswarden status --json lists the processes"})
	}
	total, ok := out.total(q.Do)
	if asJSON {
		out.Errors = errorsOf(a.Failed)
		err = show(p, true, out, nil)
	} else if total != "" {
		_, err = fmt.Fprintln(p.stdout, total)
	}
	if err != nil {
		return fmt.Errorf("cannot print what was done: %w", errnoOf(err))
	}
	if err := printFailures(p, a); err != nil || ok {
		return err
	}
	return exitStatus(exitFailed)
}

func (o *commandJSON) add(s remote.Answer) {
	i := slices.IndexFunc(o.Nodes, func(n *nodeCommand) bool { return n.Node == s.Node && n.Leader == s.Leader })
	if i < 0 {
		i = len(o.Nodes)
		o.Nodes = append(o.Nodes, &nodeCommand{Node: s.Node, Job: s.Job, Leader: s.Leader, Results: []control.Result{}})
	}
	if n := o.Nodes[i]; s.Result.Done {
		n.OK, n.done = s.Result.OK && (n.OK || !n.done), true
	} else {
		n.Results = append(n.Results, *s.Result)
	}
}

// total is what was done in all, empty where nothing was asked of a process, and whether every
// leader says that all did it.
func (o *commandJSON) total(do event.Action) (line string, ok bool) {
	all, did, given, ok := 0, 0, rss.Bytes(0), len(o.Nodes) > 0
	for _, n := range o.Nodes {
		ok = ok && n.OK
		for i := range n.Results {
			if all++; n.Results[i].OK {
				did++
				given += n.Results[i].Freed
			}
		}
	}
	one := "process"
	if do == event.ActionTrim { // which is done in all processes of a rank at once
		one = "rank"
	}
	if all > 0 {
		line = fmt.Sprintf("%d of %s %s", did, text.Count(all, one), do.Row().Asked)
		if do.Frees() {
			line += fmt.Sprintf(", %v given back in all", given)
		}
	}
	return line, ok
}

// resultLine is one result for people; a last line has one only if it alone says why.
func resultLine(a event.Action, s remote.Answer) string {
	r := s.Result
	why := string(r.Reason)
	if r.Detail != "" {
		if why += " (" + r.Detail + ")"; r.Reason == "" || r.Reason == event.ReasonDone || r.Reason == event.ReasonError {
			why = r.Detail
		}
	}
	if r.Done {
		if r.OK || why == "" || why == string(event.ReasonError) { // the lines before it have their reasons
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
		l += ", its trainer paused for " + text.Seconds(r.Paused)
	}
	return l
}

// trimByLeader says whether leaders are asked to trim: where an option says so, and
// outside a Slurm job without --pid, within a run or to name the runs that there are.
func trimByLeader(p process, c *cli.Context) (t remote.Target, q remote.Request, yes bool, err error) {
	if t, err = targetOf(c); err != nil {
		return t, q, false, err
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
			return t, q, false, usagef("leave one of them out: --"+name+" is done here, by ptrace; "+meant+" asks who leads", "--%s does not go with %s", name, meant)
		}
	}
	if q, err = requestOf(c, event.ActionTrim); err != nil || meant != "" {
		return t, q, err == nil, err
	}
	if c.IsSet("pid") || c.Bool("drop") || c.Bool("dry-run") || p.get("SLURM_JOB_ID") != "" {
		return t, q, false, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return t, q, remote.Here(ctx, p.caller()), nil
}

type nodeError struct {
	Node  string `json:"node"`
	Error string `json:"error"`
	Hint  string `json:"hint,omitempty"`
}

func errorsOf(failed []remote.Answer) []nodeError {
	var list []nodeError
	for _, s := range failed {
		list = append(list, nodeError{s.Node, s.Error, s.Hint})
	}
	return list
}

// printFailures prints an error for each reason, with the nodes that share it. If a
// signal ended the waiting we die by it.
func printFailures(p process, a remote.Outcome) error {
	type why struct{ text, hint string }
	nodes := map[why][]string{}
	var order []why
	for _, s := range a.Failed {
		y := why{s.Error, s.Hint}
		if nodes[y] == nil {
			order = append(order, y)
		}
		nodes[y] = append(nodes[y], s.Node)
	}
	for _, y := range order {
		fmt.Fprint(p.stderr, p.line("", "error", oneLine(strings.Join(shortList(nodes[y], " nodes"), ", ")+": "+y.text), oneLine(y.hint)))
	}
	if a.Signal != 0 {
		dieBy(a.Signal)
	}
	if len(a.Failed) > 0 || a.Answers == 0 {
		return exitStatus(exitFailed)
	}
	return nil
}

// listOfWords are the elements of a list as they are printed.
func listOfWords[T any](list []T) (words []string) {
	for _, v := range list {
		words = append(words, fmt.Sprint(v))
	}
	return words
}

// shortList keeps a sentence short; what is for what it leaves out, such as " nodes".
func shortList(names []string, what string) []string {
	if len(names) > 4 {
		return append(slices.Clone(names[:3]), fmt.Sprintf("%d more%s", len(names)-3, what))
	}
	return names
}
