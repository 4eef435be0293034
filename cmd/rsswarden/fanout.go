package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/slurm"
)

const (
	// reachPatience is how long every node may take to say its first word, and
	// answerPatience how long what stands may take after that.
	reachPatience  = 20 * time.Second
	answerPatience = 10 * time.Second
)

// overlap asks all nodes of a job, by a step of Slurm's that runs beside the job's.
type overlap struct {
	job  slurm.Running
	node string   // the only one, empty for all
	args []string // of this program there
	env  []string
	// lasting says that the answers may take their time once they have begun.
	lasting bool
}

// unreached is what no answer came for, and why. Hint says what to run where.
type unreached struct {
	nodes []string
	why   string
	hint  string
}

func (u *unreached) Error() string {
	return fmt.Sprintf("cannot ask %s by srun: %s", strings.Join(shortList(u.nodes), ", "), u.why)
}

// shortList keeps a sentence short.
func shortList(names []string) []string {
	if len(names) > 4 {
		return append(slices.Clone(names[:3]), fmt.Sprintf("%d more nodes", len(names)-3))
	}
	return names
}

// nodes are those that are asked.
func (o overlap) nodes() []string {
	if o.node != "" {
		return []string{o.node}
	}
	return o.job.Nodes
}

// run asks, and hands each answer on as it comes. The error is an *unreached where
// nodes did not say their last word.
func (o overlap) run(ctx context.Context, each func(says)) error {
	exe, err := os.Readlink("/proc/self/exe")
	if err == nil && strings.HasSuffix(exe, " (deleted)") {
		err = errors.New("this program was replaced while it runs; start it again")
	}
	if err != nil {
		return o.missed(o.nodes(), err.Error())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, "srun", slurm.OverlapArgs(o.job, o.node, append([]string{exe}, o.args...)...)...)
	cmd.Env = slurm.OverlapEnv(o.env)
	// A Ctrl-C is ours to pass on: at the first one srun only says where it is.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 3 * time.Second
	var errs kept
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if errors.Is(err, exec.ErrNotFound) {
		err = errors.New("srun is not installed here")
	}
	if err != nil {
		return o.missed(o.nodes(), plain(err).Error())
	}

	lines := make(chan *says)
	var damaged atomic.Bool
	go func() {
		defer close(lines)
		g := gathered{}
		s := bufio.NewScanner(out)
		s.Buffer(nil, 64<<10)
		for s.Scan() {
			m, err := g.add(s.Bytes())
			if err != nil {
				damaged.Store(true)
			} else if m != nil {
				lines <- m
			}
		}
	}()
	begun, over, late := map[string]bool{}, map[string]bool{}, false
	patience := time.NewTimer(reachPatience)
	defer patience.Stop()
	for open := true; open; {
		select {
		case m, ok := <-lines:
			switch {
			case !ok:
				open = false
			case m.Begun:
				begun[m.Node] = true
				if len(begun) == len(o.nodes()) {
					patience.Stop()
					if !o.lasting {
						patience.Reset(answerPatience)
					}
				}
			case m.Over:
				over[m.Node] = true
			default:
				each(*m)
			}
		case <-patience.C:
			late = true
			if !o.lasting || len(begun) == 0 {
				cancel()
			}
		}
		if late && len(over) == len(begun) {
			cancel() // those that have begun have done
		}
	}
	err = cmd.Wait()
	var silent []string
	for _, n := range o.nodes() {
		if !over[n] {
			silent = append(silent, n)
		}
	}
	switch {
	case len(silent) == 0:
		return nil
	case late:
		return o.missed(silent, fmt.Sprintf("no answer within %v", reachPatience))
	case ctx.Err() != nil:
		return ctx.Err()
	case damaged.Load():
		return o.missed(silent, errPieces.Error())
	}
	why := oneLine(slurm.OverlapRefused(errs.Bytes()))
	if why == "" && err != nil {
		why = err.Error()
	}
	if why == "" {
		why = "it ended without an answer"
	}
	return o.missed(silent, why)
}

// missed is the error for nodes that were not reached.
func (o overlap) missed(nodes []string, why string) *unreached {
	command := programName + " " + o.args[0]
	where := "ssh " + nodes[0]
	if len(nodes) > 1 {
		where = "on each of them: ssh NODE"
	}
	return &unreached{nodes, why, fmt.Sprintf("%s %s; or in the job's script, where srun may be allowed", where, command)}
}

// nodeSide is what this program does on each node: it says what the leaders here
// say, in pieces.
func (q question) serve(p process, every time.Duration) int {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	node := p.get("SLURMD_NODENAME")
	job := p.get("SLURM_JOB_ID")
	if node == "" || job == "" {
		return fail(p, usagef(programName+" status --job ID", "this is no step of a Slurm job"))
	}
	broken := false
	put := func(s says) {
		s.Node = node
		if !broken && putPieces(p.stdout, s) != nil {
			broken = true // who asked has gone
		}
	}
	put(says{Begun: true})
	for end := time.Now().Add(watchedAtMost); ; {
		leaders := meet(ctx, findLeaders("/proc", p.get), job, node)
		if len(leaders) == 0 {
			put(says{Job: job, Error: "no rsswarden run of the job is there now", Hint: "it has ended, or none was started there: rsswarden report tells of those that left a record"})
		}
		q.here(ctx, node, leaders, put)
		if every == 0 || broken || time.Now().After(end) {
			break
		}
		select {
		case <-time.After(every):
			continue
		case <-ctx.Done():
		}
		break
	}
	put(says{Over: true})
	return exitOK
}

// watchedAtMost is how long one step says again and again what stands: should who
// asked have gone without a word, the step does not stay for ever.
const watchedAtMost = 10 * time.Minute
