// Package remote asks the watchers that lead a node, for their status or to act: those of
// this node by their sockets, those of a job's other nodes by one step of Slurm's, in
// which this same program answers for its node.
package remote

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/node"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

const program = "rsswarden"

// Caller is the process that asks.
type Caller struct {
	Lookup  func(string) (string, bool)
	Environ []string
	Warn    func(text string)
}

func (c *Caller) get(name string) string {
	v, _ := c.Lookup(name)
	return strings.TrimSpace(v)
}

// Target says which leaders are asked.
type Target struct {
	Job, Node string
	All       bool // those of this user on this node, whatever job the caller is in
}

// jobHere is the job whose leaders on this node are asked, empty for all.
func (t Target) jobHere(c Caller) string {
	if t.Job == "" && !t.All {
		return c.get("SLURM_JOB_ID")
	}
	return t.Job
}

// Request is what leaders are asked for: their status, or to act.
type Request struct {
	Do     event.Action // empty for the status
	PIDs   []int
	Ranks  []int
	Signal string
	Every  time.Duration // how often other nodes repeat their status; 0: they give it once
}

// arguments is the command line by which this program asks the same on another node.
func (q Request) arguments() []string {
	args := []string{"status"}
	if q.Do != "" {
		args[0] = q.Do.Row().Command
	}
	for _, pid := range q.PIDs {
		args = append(args, "--pid", strconv.Itoa(pid))
	}
	for _, r := range q.Ranks {
		args = append(args, "--rank", strconv.Itoa(r))
	}
	if q.Signal != "" {
		args = append(args, "--signal", q.Signal)
	}
	if q.Every > 0 {
		args = append(args, "--every", q.Every.String())
	}
	return args
}

// Answer is one message of a leader, or an error in its place. Nodes send it as a JSON
// object; a node may have several leaders.
type Answer struct {
	Node string `json:"node"`
	Job  string `json:"job,omitempty"`
	// Begun is in the first answer of a node, and Over in its last.
	Begun bool `json:"begun,omitempty"`
	Over  bool `json:"over,omitempty"`

	Status *control.Status `json:"status,omitempty"`
	Result *control.Result `json:"result,omitempty"`
	// Leader is the PID of a node's leader, and Ranks those asked for that it has.
	Leader int   `json:"leader,omitempty"`
	Ranks  []int `json:"ranks,omitempty"`
	// Error is why a leader has not answered or acted.
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"`
}

func (a Answer) asError() error { return &Error{Msg: a.Node + ": " + a.Error, Hint: a.Hint} }

// Error is about leaders that are not there, or that do not act.
type Error struct {
	Msg, Hint string
	Usage     bool // the request itself is wrong
}

func (e *Error) Error() string { return e.Msg }

// Outcome sums up the answers of all nodes.
type Outcome struct {
	Answers int            // leaders that answered
	Failed  []Answer       // in the place of an answer
	Nodes   []string       // that were asked
	Ranks   []int          // those asked for that some leader has
	Signal  syscall.Signal // that ended the waiting, 0 for none
}

// Ask finds the leaders and asks them. Each answer goes to each as it comes, errors too.
func Ask(c Caller, t Target, q Request, each func(Answer)) (Outcome, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var ended atomic.Int32 // the signal that did
	asked := make(chan os.Signal, 1)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) { // nohup
			signal.Notify(asked, s)
		}
	}
	defer signal.Stop(asked)
	go func() {
		select {
		case s := <-asked:
			ended.Store(int32(s.(syscall.Signal)))
			cancel()
		case <-ctx.Done():
		}
	}()
	var o Outcome
	nodes, err := t.reach(ctx, c, q, func(a Answer) {
		switch {
		case a.Error != "":
			o.Failed = append(o.Failed, a)
		case a.Status != nil || a.Result != nil && a.Result.Done:
			o.Answers++
		}
		o.Ranks = append(o.Ranks, a.Ranks...)
		each(a)
	})
	o.Nodes = nodes
	if o.Signal = syscall.Signal(ended.Load()); o.Signal != 0 {
		err = nil
	}
	return o, err
}

// Here says whether any run of this user leads on this node.
func Here(ctx context.Context, c Caller) bool { return len(Target{}.askLocal(ctx, c, "")) > 0 }

// Jobs are the Slurm jobs of which a watcher leads on this node.
func Jobs(c Caller) (jobs []string) {
	for _, l := range findLeaders("/proc", c.get) {
		if l.job != "" {
			jobs = append(jobs, l.job)
		}
	}
	return jobs
}

// reach asks the leaders of this node, or of all nodes of the job, and returns the nodes
// that were asked.
func (t Target) reach(ctx context.Context, c Caller, q Request, each func(Answer)) (nodes []string, err error) {
	here := []string{slurm.NodeName(c.Lookup)}
	if t.Job == "" {
		return here, t.reachHere(ctx, c, q, each)
	}
	job := t.Job
	r, err := t.running(ctx, c)
	if err == nil && t.Node != "" && !slices.Contains(r.Nodes, t.Node) {
		return nil, &Error{Msg: fmt.Sprintf("job %s does not run on %s", t.Job, t.Node), Hint: "it runs on " + r.List}
	}
	if err == nil {
		job = r.ID
	}
	local := t.askLocal(ctx, c, job)
	switch {
	case err != nil && len(local) == 0:
		return nil, &Error{Msg: err.Error(), Hint: fmt.Sprintf("on a node of the job: %s %s", program, q.arguments()[0])}
	case err != nil:
		// The job may have other nodes too.
		c.Warn(text.Plain(err.Error()) + "; only this node is asked")
		fallthrough
	case len(r.Nodes) == 1 && len(local) > 0:
		q.here(ctx, here[0], local, each)
		return here, nil
	}
	step := srunStep{job: r, node: t.Node, args: append(q.arguments(), "--as-node"), env: c.Environ, lasting: q.Do != "" || q.Every > 0}
	if nodes = step.nodes(); len(q.PIDs) > 0 && len(nodes) > 1 {
		name := q.arguments()[0]
		return nodes, &Error{Usage: true, Hint: "say on which with --node: " + program + " " + name + " --job " + t.Job + " --node " + nodes[0] + " --pid PID",
			Msg: fmt.Sprintf("job %s runs on %d nodes, and a PID means another process on each", t.Job, len(nodes))}
	}
	silent, why, err := step.run(ctx, each)
	if len(silent) == len(nodes) && q.Do == "" && len(local) > 0 {
		// None was reached, but the status of this node is known all the same.
		q.here(ctx, here[0], local, each)
		silent = slices.DeleteFunc(slices.Clone(silent), func(n string) bool {
			return slices.ContainsFunc(local, func(m *Reply) bool { return m.status != nil && m.status.Node == n })
		})
	}
	for _, n := range silent {
		each(Answer{Node: n, Job: r.ID, Error: "cannot be asked by srun: " + why, Hint: step.hint(silent)})
	}
	return nodes, err
}

// reachHere asks the leaders of this node.
func (t Target) reachHere(ctx context.Context, c Caller, q Request, each func(Answer)) error {
	leaders := t.askLocal(ctx, c, t.jobHere(c))
	if len(leaders) == 0 {
		return t.noRun(c)
	}
	if q.Do != "" && t.jobHere(c) == "" && !t.All && len(q.PIDs) == 0 {
		own := filepath.Base(c.get(loader.EnvDir)) // set in what a run has started
		i := slices.IndexFunc(leaders, func(m *Reply) bool { return filepath.Base(m.dir) == node.Prefix+own })
		if i < 0 {
			return noRunNamed(q.arguments()[0], leaders)
		}
		leaders = leaders[i : i+1]
	}
	q.here(ctx, slurm.NodeName(c.Lookup), leaders, each)
	return nil
}

// running finds the nodes of the job: of the caller's own job from its environment.
func (t Target) running(ctx context.Context, c Caller) (slurm.Running, error) {
	if list := c.get("SLURM_JOB_NODELIST"); list != "" && c.get("SLURM_JOB_ID") == t.Job {
		if nodes, err := slurm.ExpandNodes(list); err == nil {
			return slurm.Running{ID: t.Job, State: "RUNNING", List: list, Nodes: nodes}, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, slurm.ScontrolTimeout)
	defer cancel()
	r, err := slurm.FindRunning(ctx, slurm.Scontrol, t.Job)
	switch {
	case errors.Is(err, slurm.ErrNoJob):
		err = fmt.Errorf("no job %s is known to Slurm", t.Job)
	case errors.Is(err, slurm.ErrArray):
		err = fmt.Errorf("job %s is an array: name one of its tasks, such as %s_0", t.Job, t.Job)
	case errors.Is(err, slurm.ErrNotRunning):
		err = fmt.Errorf("job %s does not run, it is %s", t.Job, r.State)
	case errors.Is(err, exec.ErrNotFound):
		err = fmt.Errorf("cannot ask Slurm on which nodes job %s runs: scontrol is not installed here", t.Job)
	case err != nil:
		err = fmt.Errorf("cannot ask Slurm on which nodes job %s runs: %w", t.Job, err)
	}
	return r, err
}

// noRun is the error where no leader is found on this node. It avoids the word leader,
// which its reader may not know.
func (t Target) noRun(c Caller) error {
	host, job := slurm.NodeName(c.Lookup), t.jobHere(c)
	switch {
	case t.Node != "" && t.Node != host:
		return &Error{Msg: fmt.Sprintf("this node is %s, not %s", host, t.Node), Hint: fmt.Sprintf("of a job on other nodes: %s … --job ID --node %s", program, t.Node)}
	case job != "":
		return &Error{Msg: fmt.Sprintf("no rsswarden run of job %s is on this node (%s) now", job, host),
			Hint: "--job " + job + " asks its other nodes, --all your other runs here"}
	}
	return &Error{Msg: fmt.Sprintf("no rsswarden run of yours is on this node (%s) now", host),
		Hint: "of a Slurm job on other nodes: --job ID; of a run that has ended: " + program + " report"}
}

// noRunNamed is the error of a command typed outside a job: any run of this user may be
// on the node, and none is acted on that was not named.
func noRunNamed(command string, leaders []*Reply) error {
	hint := "your runs on this node:"
	for _, m := range leaders {
		line, about := program+" "+command, "in "+m.dir
		if s := m.status; s != nil {
			if about = ""; len(s.Ranks) > 0 {
				line += fmt.Sprintf(" --pid %d", s.Ranks[0].PID)
				about = s.Ranks[0].Command
			}
			if s.Job != "" {
				line = program + " " + command + " --job " + s.Job
			}
		}
		line = fmt.Sprintf("%-30s ", text.Plain(line))
		hint += "\n" + strings.TrimRight(line+text.Cut(text.Plain(about), 76-text.Columns(line)), " ")
	}
	return &Error{Usage: true, Msg: "outside a job " + command + " needs --pid PID, --job ID or --all", Hint: hint}
}
