package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/leader"
	"github.com/rsswarden/rsswarden/supervisor/loader"
)

// whom says which leaders a command is for.
type whom struct {
	job, node string
	all       bool // of this user on this node, whatever job we are in
	// asNode has this program answer for its node, to one that asked by srun; every
	// is for what is said again and again there.
	asNode bool
	every  time.Duration
}

// leaderError is about leaders that are not there or do not do it.
type leaderError struct{ msg, hint string }

func (e *leaderError) Error() string { return e.msg }

// whomFlags are the flags of every command that asks leaders.
func whomFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "job", Usage: "of the Slurm job `ID`, on all its nodes"},
		&cli.StringFlag{Name: "node", Usage: "on the node `NODE` and no other"},
		&cli.BoolFlag{Name: "all", Usage: "of all runs of yours on this node"},
		&cli.BoolFlag{Name: "as-node", Hidden: true},
		&cli.DurationFlag{Name: "every", Hidden: true},
	}
}

func whomOf(c *cli.Context) (whom, error) {
	w := whom{job: c.String("job"), node: c.String("node"), all: c.Bool("all"), asNode: c.Bool("as-node"), every: c.Duration("every")}
	m := jobID.FindStringSubmatch(w.job)
	switch {
	case c.IsSet("job") && (m == nil || m[2] != ""):
		return w, usagef("give a job as squeue shows it: 46, or 46_3", "--job %q is not a Slurm job", w.job)
	case c.IsSet("node") && (w.node == "" || strings.HasPrefix(w.node, "-") || strings.ContainsAny(w.node, " ,[]")):
		return w, usagef("give one node, as squeue shows it", "--node %q is not a node", w.node)
	case w.all && w.job != "":
		return w, usagef("leave one of them out", "--all is for this node, --job for all nodes of a job")
	}
	return w, nil
}

// arrived is what a question came to on all nodes that were asked.
type arrived struct {
	answers int      // leaders that answered
	failed  []says   // what was said in the place of an answer
	nodes   []string // that were asked
	// ranks are those of the asked ones that some leader has.
	ranks []int
	told  syscall.Signal // that ended the waiting
}

// ask finds the leaders and asks them. What they say goes to each as it comes,
// errors too. args is the command line that has this program ask the same on another
// node.
func (w whom) ask(p process, q question, args []string, each func(says)) (arrived, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	told := make(chan os.Signal, 1)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) { // nohup
			signal.Notify(told, s)
		}
	}
	defer signal.Stop(told)
	go func() {
		select {
		case s := <-told:
			cancel(interrupted(s.(syscall.Signal)))
		case <-ctx.Done():
		}
	}()
	var a arrived
	heard := func(s says) {
		switch {
		case s.Error != "":
			a.failed = append(a.failed, s)
		case s.Status != nil || s.Result != nil && s.Result.Done:
			a.answers++
		}
		a.ranks = append(a.ranks, s.Ranks...)
		each(s)
	}
	err := w.reach(ctx, p, q, args, &a, heard)
	var stop interrupted
	if errors.As(context.Cause(ctx), &stop) {
		a.told, err = syscall.Signal(stop), nil
	}
	return a, err
}

// interrupted is a signal that ends the waiting.
type interrupted syscall.Signal

func (i interrupted) Error() string { return syscall.Signal(i).String() }

// reach asks the leaders of this node, or of all nodes of the job.
func (w whom) reach(ctx context.Context, p process, q question, args []string, a *arrived, each func(says)) error {
	job := w.job
	if job == "" && !w.all {
		job = p.get("SLURM_JOB_ID")
	}
	if w.job == "" {
		a.nodes = []string{slurm.NodeName(p.lookup)}
		leaders := meet(ctx, findLeaders("/proc", p.get), job, w.node)
		if len(leaders) == 0 {
			return w.nobody(p, job)
		}
		if q.do != "" && !w.all && job == "" && len(q.pids) == 0 {
			own := filepath.Base(p.get(loader.EnvDir)) // set in what a run has started
			i := slices.IndexFunc(leaders, func(m *met) bool { return filepath.Base(m.dir) == leader.Prefix+own })
			if i < 0 {
				return noRunNamed(args[0], leaders)
			}
			leaders = leaders[i : i+1]
		}
		q.here(ctx, a.nodes[0], leaders, each)
		return nil
	}
	r, err := w.running(ctx, p)
	if err == nil && w.node != "" && !slices.Contains(r.Nodes, w.node) {
		return &leaderError{fmt.Sprintf("job %s does not run on %s", w.job, w.node), "it runs on " + r.List}
	}
	if err == nil {
		job = r.ID
	}
	here := meet(ctx, findLeaders("/proc", p.get), job, w.node)
	switch {
	case err != nil && len(here) == 0:
		return &leaderError{err.Error(), fmt.Sprintf("on a node of the job: %s %s", programName, args[0])}
	case err != nil:
		// The job's own nodes may be others too; that is said, and what is here answers.
		fmt.Fprint(p.stderr, line("", "warning", oneLine(err.Error())+"; only this node is asked", ""))
		fallthrough
	case len(r.Nodes) == 1 && len(here) > 0:
		a.nodes = []string{slurm.NodeName(p.lookup)}
		q.here(ctx, a.nodes[0], here, each)
		return nil
	}
	o := overlap{job: r, node: w.node, args: append(args, "--as-node"), env: p.env, lasting: q.do != "" || w.every > 0}
	if a.nodes = o.nodes(); len(q.pids) > 0 && len(a.nodes) > 1 {
		return usagef("say on which with --node: "+programName+" "+args[0]+" --job "+w.job+" --node "+a.nodes[0]+" --pid PID",
			"job %s runs on %d nodes, and a PID means another process on each", w.job, len(a.nodes))
	}
	err = o.run(ctx, each)
	var missed *unreached
	if !errors.As(err, &missed) {
		return err
	}
	nodes := missed.nodes
	if len(nodes) == len(a.nodes) && q.do == "" && len(here) > 0 {
		// None was reached: what is on this node is told all the same.
		q.here(ctx, slurm.NodeName(p.lookup), here, each)
		nodes = slices.DeleteFunc(slices.Clone(nodes), func(n string) bool {
			return slices.ContainsFunc(here, func(m *met) bool { return m.status != nil && m.status.Node == n })
		})
	}
	if len(nodes) == 0 {
		return nil
	}
	missed = o.missed(nodes, missed.why)
	for _, n := range nodes {
		each(says{Node: n, Job: r.ID, Error: "cannot be asked by srun: " + missed.why, Hint: missed.hint})
	}
	return nil
}

// running finds the nodes of the job: of our own from the environment.
func (w whom) running(ctx context.Context, p process) (slurm.Running, error) {
	if list := p.get("SLURM_JOB_NODELIST"); list != "" && p.get("SLURM_JOB_ID") == w.job {
		if nodes, err := slurm.ExpandNodes(list); err == nil {
			return slurm.Running{ID: w.job, State: "RUNNING", List: list, Nodes: nodes}, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, slurm.ScontrolTimeout)
	defer cancel()
	r, err := slurm.FindRunning(ctx, slurm.Scontrol, w.job)
	switch {
	case errors.Is(err, slurm.ErrNoJob):
		err = fmt.Errorf("no job %s is known to Slurm", w.job)
	case errors.Is(err, slurm.ErrArray):
		err = fmt.Errorf("job %s is an array: name one of its tasks, such as %s_0", w.job, w.job)
	case errors.Is(err, slurm.ErrNotRunning):
		err = fmt.Errorf("job %s does not run, it is %s", w.job, r.State)
	case errors.Is(err, exec.ErrNotFound):
		err = fmt.Errorf("cannot ask Slurm on which nodes job %s runs: scontrol is not installed here", w.job)
	case err != nil:
		err = fmt.Errorf("cannot ask Slurm on which nodes job %s runs: %w", w.job, err)
	}
	return r, err
}

// nobody is the error where no leader is found on this node, in words for who has
// never heard of one.
func (w whom) nobody(p process, job string) error {
	host := slurm.NodeName(p.lookup)
	switch {
	case w.node != "" && w.node != host:
		return &leaderError{fmt.Sprintf("this node is %s, not %s", host, w.node), fmt.Sprintf("of a job on other nodes: %s … --job ID --node %s", programName, w.node)}
	case job != "":
		return &leaderError{fmt.Sprintf("no rsswarden run of job %s is on this node (%s) now", job, host),
			"--job " + job + " asks its other nodes, --all your other runs here"}
	}
	return &leaderError{fmt.Sprintf("no rsswarden run of yours is on this node (%s) now", host),
		"of a Slurm job on other nodes: --job ID; of a run that has ended: " + programName + " report"}
}

// noRunNamed is the error of a command typed outside a job: any run of this user may be
// on the node, and none is acted on that was not named.
func noRunNamed(command string, leaders []*met) error {
	var list []string
	for _, m := range leaders {
		name := "in " + m.dir
		if m.status != nil {
			name = "run"
			if m.status.Job != "" {
				name = "job " + m.status.Job
			}
			for _, r := range m.status.Ranks[:min(len(m.status.Ranks), 1)] {
				name += fmt.Sprintf(" of process %d (%s)", r.PID, r.Command)
			}
		}
		list = append(list, oneLine(name))
	}
	return usagef("your runs on this node: "+strings.Join(list, "; "), "outside a job %s needs --pid PID, --job ID or --all", command)
}
