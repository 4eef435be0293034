package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
)

// question is what is asked of leaders: what stands, or to do something.
type question struct {
	do     event.Action // empty for what stands
	pids   []int
	ranks  []int
	signal string
}

// says is one thing that a leader says, or that is said in the place of one. It
// also goes from node to node, as a JSON object; a node may have several leaders.
type says struct {
	Node string `json:"node"`
	Job  string `json:"job,omitempty"`
	// Begun is the first word of a node, before any leader's, and Over its last.
	Begun bool `json:"begun,omitempty"`
	Over  bool `json:"over,omitempty"`

	Status *control.Status `json:"status,omitempty"`
	Result *control.Result `json:"result,omitempty"`
	// Leader tells the leaders of a node apart; Ranks are those of the asked ones
	// that it has.
	Leader int   `json:"leader,omitempty"`
	Ranks  []int `json:"ranks,omitempty"`
	// Error says why a leader has not answered or done it.
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"`
}

// asError is an error as a command's own, with its hint.
func (s says) asError() error { return &leaderError{s.Node + ": " + s.Error, s.Hint} }

// met is a leader of this node with its first answer.
type met struct {
	leading
	client *control.Client
	status *control.Status // nil where err says why
	err    error
}

func (m *met) says() says {
	s := says{Job: m.job}
	if m.status != nil {
		s.Node, s.Job, s.Leader = m.status.Node, m.status.Job, m.status.Leader
	}
	return s
}

// lookAt is what finds the processes of a run, which have two names.
const lookAt = "ps -C rss-watcher,rsswarden -o pid,ppid,stat,args"

// errMoving says that members of the place live, and that none of them has had the
// lead for as long as taking it over takes.
var errMoving = errors.New("nobody leads just now")

// failed is what m says that did not answer.
func (m *met) failed(node string, err error) says {
	s := m.says()
	s.Node = cmp.Or(s.Node, m.node, node)
	s.Error = oneLine(err.Error())
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
		s.Error = strings.Replace(who, "the leader", "nobody leads just now: the lead", 1) + " is being taken over"
		s.Hint = "ask again in a moment; if that does not help, look at the processes: " + lookAt
	case errors.As(err, &other):
		s.Error = who + " is not understood: " + other.Error()
		s.Hint = "ask with the rsswarden that the run was started with"
		if other.Program != "" {
			s.Hint += ", version " + oneLine(other.Program)
		}
	case errors.As(err, &refused):
		s.Error = oneLine(cmp.Or(refused.Detail, string(refused.Reason)))
		s.Hint = oneLine(refused.Hint)
	case errors.As(err, &answer):
		s.Hint = oneLine(answer.Hint)
	case errors.Is(err, control.ErrClosed), errors.Is(err, control.ErrCut), errors.Is(err, control.ErrNobody):
		s.Error = who + " ended before all was done"
		s.Hint = "where ranks are left the next one leads soon: rsswarden status tells what was done, then ask again"
	case errors.Is(err, control.ErrSilent):
		_, more, _ := strings.Cut(err.Error(), control.ErrSilent.Error())
		s.Error = oneLine(who + " does not answer" + strings.TrimSuffix(more, ": the watcher does not answer"))
		s.Hint = "is the job suspended, or a process of it stopped? squeue tells the one, STAT of T the other: " + lookAt
	case errors.Is(err, control.ErrForeign):
		s.Hint = "ask as the user who runs the job; its files lie in " + m.dir
	}
	return s
}

const (
	// takeover is how long a leader that has ended may have left nobody: the next one
	// has the lead within 2 s.
	takeover = 2 * time.Second
	// meetPatience bounds all of it, for who waits at a terminal.
	meetPatience = 2800 * time.Millisecond
)

// meet asks the leaders of this node what stands, all at a time. Those that have
// ended are left out. job and node say whom alone to ask, where not empty.
func meet(ctx context.Context, found []leading, job, node string) []*met {
	all := make([]*met, len(found))
	var asked sync.WaitGroup
	for i, l := range found {
		if job != "" && l.job != "" && l.job != job {
			continue
		}
		asked.Go(func() {
			m := &met{leading: l}
			m.patiently(ctx)
			all[i] = m
		})
	}
	asked.Wait()
	all = slices.DeleteFunc(all, func(m *met) bool {
		if m == nil || errors.Is(m.err, control.ErrNobody) {
			return true
		}
		if m.status == nil {
			return job != "" && m.job != job // whoever it is
		}
		return job != "" && m.status.Job != job || node != "" && m.status.Node != node
	})
	slices.SortStableFunc(all, func(a, b *met) int { return strings.Compare(a.dir, b.dir) })
	return all
}

// patiently asks until the next one leads, where one is about to.
func (m *met) patiently(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, meetPatience)
	defer cancel()
	for end := time.Now().Add(takeover); ; {
		m.once(bounded)
		waits := somebodyWaits(m.dir)
		again := errors.Is(m.err, control.ErrNobody) && waits || errors.Is(m.err, control.ErrClosed)
		if again && time.Now().Before(end) {
			select {
			case <-time.After(50 * time.Millisecond):
				continue
			case <-bounded.Done():
			}
		}
		switch {
		case errors.Is(m.err, control.ErrNobody) && waits:
			m.err = errMoving
		case bounded.Err() != nil && ctx.Err() == nil && m.err != nil:
			m.err = control.ErrSilent
		}
		return
	}
}

// once asks one time. Whoever takes the lead makes a socket of its own.
func (m *met) once(ctx context.Context) {
	if m.client == nil {
		if m.client, m.err = control.Dial(m.dir); m.err != nil {
			return
		}
	}
	m.status, m.err = m.client.Status(ctx)
}

// somebodyWaits says that a member of the place lives, who leads or can be the next
// to.
func somebodyWaits(dir string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		id, ok := nodedir.ProcOf(e.Name(), "rank")
		if !ok {
			return false
		}
		now, err := proctree.StartTime("/proc", id.PID)
		return err == nil && now == id.Start
	})
}

// here asks the leaders of this node, one after the other where something is to be
// done. each is called by one goroutine.
func (q question) here(ctx context.Context, node string, leaders []*met, each func(says)) {
	for _, m := range leaders {
		switch {
		case m.err != nil:
			each(m.failed(node, m.err))
		case q.do == "":
			s := m.says()
			s.Status = m.status
			each(s)
		default:
			q.command(ctx, m, len(leaders) > 1, each)
		}
	}
}

// command has one leader do it, where what was named is there.
func (q question) command(ctx context.Context, m *met, several bool, each func(says)) {
	c := control.Command{Do: q.do, PIDs: q.pids, Ranks: q.ranks, Signal: q.signal}
	if len(q.ranks) > 0 {
		c.Ranks = slices.DeleteFunc(slices.Clone(q.ranks), func(r int) bool {
			return !slices.ContainsFunc(m.status.Ranks, func(k control.Rank) bool { return k.Task == r })
		})
		if len(c.Ranks) == 0 {
			if !several && !slices.ContainsFunc(m.status.Ranks, func(k control.Rank) bool { return k.Task >= 0 }) {
				s := m.says()
				s.Error, s.Hint = "this run is in no step of Slurm's, so its ranks have no numbers", "leave --rank out, or name a process by --pid"
				each(s)
			}
			return
		}
	}
	if len(q.pids) > 0 && several {
		c.PIDs = slices.DeleteFunc(slices.Clone(q.pids), func(pid int) bool { return !knows(m.status, pid) })
		if len(c.PIDs) == 0 {
			return
		}
	}
	s := m.says()
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
