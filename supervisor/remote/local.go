package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Reply is a leader of this node with its first answer.
type Reply struct {
	leaderDir
	client *control.Client
	status *control.Status // nil if err is set
	err    error
}

func (m *Reply) answer() Answer {
	s := Answer{Job: m.job}
	if m.status != nil {
		s.Node, s.Job, s.Leader = m.status.Node, m.status.Job, m.status.Leader
	}
	return s
}

// lookAt finds the processes of a run, which have two names.
const lookAt = "ps -C rss-watcher,rsswarden -o pid,ppid,stat,args"

// errMoving: members of the directory live, and none has taken the lead in time.
var errMoving = errors.New("the next rsswarden of the job takes over just now")

// failed is the answer in the place of one that did not come.
func (m *Reply) failed(node string, err error) Answer {
	s := m.answer()
	s.Node = cmp.Or(s.Node, m.node, node)
	s.Error = text.Plain(err.Error())
	who := "the leader"
	if s.Job != "" {
		who += " of job " + s.Job
	}
	if m.client != nil && m.client.Leader() != 0 {
		who += fmt.Sprintf(" (watcher %d)", m.client.Leader())
	}
	var answer *control.AnswerError
	var refused *control.Refused
	var other *control.VersionError
	switch {
	case errors.Is(err, errMoving):
		s.Error = strings.Replace(who, "the leader", "the rsswarden that watched this node", 1) + " has ended, and the next one is about to take over"
		s.Hint = "ask again in a moment; if that does not help, look at the processes: " + lookAt
	case errors.As(err, &other):
		s.Error = who + " is not understood: " + other.Error()
		s.Hint = "ask with the rsswarden that the run was started with"
		if other.Program != "" {
			s.Hint += ", version " + text.Plain(other.Program)
		}
	case errors.As(err, &refused):
		s.Error = text.Plain(cmp.Or(refused.Detail, string(refused.Reason)))
		s.Hint = text.Plain(refused.Hint)
	case errors.As(err, &answer):
		s.Hint = text.Plain(answer.Hint)
	case errors.Is(err, control.ErrClosed), errors.Is(err, control.ErrCut), errors.Is(err, control.ErrNoLeader):
		s.Error = who + " ended before all was done"
		s.Hint = "where ranks are left the next one leads soon: rsswarden status tells what was done, then ask again"
	case errors.Is(err, control.ErrSilent):
		_, more, _ := strings.Cut(err.Error(), control.ErrSilent.Error())
		s.Error = text.Plain(who + " does not answer" + strings.TrimSuffix(more, ": the watcher does not answer"))
		s.Hint = "is the job suspended, or a process of it stopped? squeue tells the one, STAT of T the other: " + lookAt
	case errors.Is(err, control.ErrForeign):
		s.Hint = "ask as the user who runs the job; its files lie in " + m.dir
	}
	return s
}

const (
	// takeover is how long a node may be without a leader: the next one takes over
	// within 2 s.
	takeover = 2 * time.Second
	// localPatience bounds asking the leaders of this node.
	localPatience = 2800 * time.Millisecond
)

// askLocal asks the leaders of this node for their status, all at a time. Those that
// have ended are left out, and those of other jobs where job is not empty.
func (t Target) askLocal(ctx context.Context, c Caller, job string) []*Reply {
	return askEach(ctx, findLeaders("/proc", c.get), job, t.Node)
}

// askEach asks those leaders that were found. node may be empty too.
func askEach(ctx context.Context, found []leaderDir, job, node string) []*Reply {
	all := make([]*Reply, len(found))
	var asked sync.WaitGroup
	for i, l := range found {
		if job != "" && l.job != "" && l.job != job {
			continue
		}
		asked.Go(func() {
			m := &Reply{leaderDir: l}
			m.askUntilTakenOver(ctx)
			all[i] = m
		})
	}
	asked.Wait()
	all = slices.DeleteFunc(all, func(m *Reply) bool {
		if m == nil || errors.Is(m.err, control.ErrNoLeader) {
			return true
		}
		if m.status == nil {
			return job != "" && m.job != job // it is another job's
		}
		return job != "" && m.status.Job != job || node != "" && m.status.Node != node
	})
	slices.SortStableFunc(all, func(a, b *Reply) int { return strings.Compare(a.dir, b.dir) })
	return all
}

// askUntilTakenOver asks again where the next leader is about to take over.
func (m *Reply) askUntilTakenOver(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, localPatience)
	defer cancel()
	for end := time.Now().Add(takeover); ; {
		// The next leader makes a socket of its own.
		if m.client == nil {
			m.client, m.err = control.Dial(m.dir)
		}
		if m.client != nil {
			m.status, m.err = m.client.Status(bounded)
		}
		waits := hasSuccessor(m.dir)
		again := errors.Is(m.err, control.ErrNoLeader) && waits || errors.Is(m.err, control.ErrClosed)
		if again && time.Now().Before(end) {
			select {
			case <-time.After(50 * time.Millisecond):
				continue
			case <-bounded.Done():
			}
		}
		switch {
		case errors.Is(m.err, control.ErrNoLeader) && waits:
			m.err = errMoving
		case bounded.Err() != nil && ctx.Err() == nil && m.err != nil:
			m.err = control.ErrSilent
		}
		return
	}
}

// here passes the status on, or has the leaders act one after the other.
func (q Request) here(ctx context.Context, node string, leaders []*Reply, each func(Answer)) {
	for _, m := range leaders {
		switch {
		case m.err != nil:
			each(m.failed(node, m.err))
		case q.Do == "":
			s := m.answer()
			s.Status = m.status
			each(s)
		default:
			q.command(ctx, m, len(leaders) > 1, each)
		}
	}
}

// command has one leader act, if it has what the request names.
func (q Request) command(ctx context.Context, m *Reply, several bool, each func(Answer)) {
	c := control.Command{Do: q.Do, PIDs: q.PIDs, Ranks: q.Ranks, Signal: q.Signal}
	if len(q.Ranks) > 0 {
		c.Ranks = slices.DeleteFunc(slices.Clone(q.Ranks), func(r int) bool {
			return !slices.ContainsFunc(m.status.Ranks, func(k control.Rank) bool { return k.Task == r })
		})
		if len(c.Ranks) == 0 {
			if !several && !slices.ContainsFunc(m.status.Ranks, func(k control.Rank) bool { return k.Task >= 0 }) {
				s := m.answer()
				s.Error, s.Hint = "this run is in no step of Slurm's, so its ranks have no numbers", "leave --rank out, or name a process by --pid"
				each(s)
			}
			return
		}
	}
	if len(q.PIDs) > 0 && several {
		c.PIDs = slices.DeleteFunc(slices.Clone(q.PIDs), func(pid int) bool { return !knows(m.status, pid) })
		if len(c.PIDs) == 0 {
			return
		}
	}
	s := m.answer()
	s.Ranks = c.Ranks
	for r, err := range m.client.Do(ctx, c) {
		if err != nil {
			f := m.failed(s.Node, err)
			f.Ranks = c.Ranks
			each(f)
			return
		}
		s.Result = &r
		each(s)
	}
}

// knows says that a leader counts a process.
func knows(st *control.Status, pid int) bool {
	return slices.ContainsFunc(st.Procs, func(p control.Proc) bool { return p.PID == pid }) ||
		slices.ContainsFunc(st.Ranks, func(r control.Rank) bool { return r.PID == pid })
}
