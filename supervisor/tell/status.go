package tell

import (
	"cmp"
	"context"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

// Status answers the clients of the control socket. It is made when one asks, and answers
// all until the loop does something: clients that ask often do not keep it busy.
type Status struct {
	out      *events
	server   *control.Server   // nil where nobody can ask
	requests chan Request      // nil before the first
	gone     chan struct{}     // closed with the server
	outcomes []control.Outcome // the newest first
	recycled map[rss.ProcID]int
	growth   map[rss.ProcID]growthBase
	made     atomic.Pointer[control.Status] // nil where something has changed since
}

// mostOutcomes is how many outcomes the status has.
const mostOutcomes = 8

// Standing is what the status is made of, as of the last full look.
type Standing struct {
	Since      time.Time // when we began to lead
	Job        string    // empty outside Slurm
	View       *view.View
	Rules      []string
	DryRun     bool
	Action     *control.Action // in flight, nil for none
	Ranks      []control.Rank  // who they are
	Trainers   []event.Trainer
	NoHook     string       // why a rank without a trainer has no hook
	Recyclable map[int]bool // processes, by PID
	Trimmable  map[int]bool
	Step       func(rss.ProcID) string
	Counts     func(rss.ProcID) (maps, fds int)
	Ours       []event.Cost
	Alerts     []control.Alerts
}

// Request is what a client asks of the loop.
type Request struct {
	Context context.Context
	Command *control.Command // nil where it asks for the status
	reply   chan reply
}

type reply struct {
	status  *control.Status
	results <-chan control.Result
	err     error
}

// Serve opens the control socket in a directory.
func (s *Status) Serve(dir *os.File) (err error) {
	if s.requests == nil {
		s.requests = make(chan Request)
	}
	s.gone = make(chan struct{})
	s.out.Clients.open()
	s.server, err = control.Listen(dir, control.SocketName, s.Source())
	return err
}

// Close closes the socket, before another watcher opens its own.
func (s *Status) Close() {
	if s.server == nil {
		return
	}
	close(s.gone)
	s.Changed()
	s.out.Clients.Close()
	s.server.Close()
	s.server = nil
}

// Requests yields what clients ask of the loop. It is nil where [Status.Serve] was never called.
func (s *Status) Requests() <-chan Request { return s.requests }

// Changed says that a status made before is not right any more.
func (s *Status) Changed() { s.made.Store(nil) }

// Recycled returns how many workers of the rank of that holder were replaced.
func (s *Status) Recycled(holder rss.ProcID) int { return s.recycled[holder] }

// CountRecycled notes that one was, whoever asked.
func (s *Status) CountRecycled(holder rss.ProcID) {
	if s.recycled == nil {
		s.recycled = map[rss.ProcID]int{}
	}
	s.recycled[holder]++
	s.Changed()
}

// Outcome keeps the newest outcomes.
func (s *Status) Outcome(d *event.Decision, o event.Outcome) {
	kept := control.Outcome{Outcome: o, Action: d.Action, Arg: d.Arg, Rule: d.Rule, By: d.By}
	s.outcomes = append([]control.Outcome{kept}, s.outcomes...)
	s.outcomes = s.outcomes[:min(len(s.outcomes), mostOutcomes)]
	s.Changed()
}

// Answer answers a client that asks for the status.
func (s *Status) Answer(r Request, now time.Duration, from *Standing) {
	st := s.Of(now, from)
	s.made.Store(st)
	r.reply <- reply{status: st}
}

// Begun answers a command: what [control.Source] returns for it. Whoever asked for it and
// then for the status sees what was begun.
func (s *Status) Begun(r Request, results <-chan control.Result, err error) {
	s.Changed()
	r.reply <- reply{results: results, err: err}
}

// Of makes the status.
func (s *Status) Of(now time.Duration, from *Standing) *control.Status {
	run := &s.out.Run
	st := &control.Status{
		V: control.Version, Time: from.View.Sample.At, Node: run.Node, Job: from.Job, Leader: run.Self, Version: run.Version,
		Since: from.Since, Limits: slices.Clone(from.View.Limits), Gaps: from.View.Sample.Gaps, Rules: from.Rules, DryRun: from.DryRun,
		Action: from.Action, Last: slices.Clone(s.outcomes), Ranks: slices.Clone(from.Ranks), Procs: []control.Proc{},
		Alerts: from.Alerts, Ours: from.Ours,
	}
	slices.SortStableFunc(st.Ranks, func(a, b control.Rank) int { return cmp.Or(cmp.Compare(a.Step, b.Step), a.Task-b.Task) })
	at := map[int]int{} // index in Ranks by PID of the command
	for i := range st.Ranks {
		at[st.Ranks[i].PID] = i
		st.Ranks[i].Hook, st.Ranks[i].Why = "off", from.NoHook
	}
	lineage := view.Lineage(from.View.Sample.Procs)
	for i := range from.View.Sample.Procs {
		q := &from.View.Sample.Procs[i]
		c := from.proc(q)
		c.Growth = s.growthOf(now, q)
		if r := lineage.Rank(q.ID.PID, at); r >= 0 {
			k := &st.Ranks[r]
			c.Task, c.Step = k.Task, k.Step
			k.Growth += c.Growth
			k.RSS, k.Anon, k.File, k.Shmem, k.Procs = k.RSS+q.RSS, k.Anon+q.Anon, k.File+q.File, k.Shmem+q.Shmem, k.Procs+1
			if q.Role == rss.RoleWorker {
				k.Workers++
			}
		}
		st.Procs = append(st.Procs, c)
	}
	for _, t := range from.Trainers {
		if from.View.Sample.Find(t.ID.PID) == nil {
			continue
		}
		r := lineage.Rank(t.ID.PID, at)
		if r < 0 {
			continue
		}
		k := &st.Ranks[r]
		k.Hook, k.Why = "trim", t.Why
		switch {
		case t.Off:
			k.Hook, k.Why = "off", t.OffWhy
		case t.CanRecycle:
			k.Hook, k.Why = "recycle", ""
		}
	}
	return st
}

// proc is one process, whose rank is not known yet.
func (from *Standing) proc(p *rss.Proc) control.Proc {
	c := control.Proc{
		PID: p.ID.PID, Start: p.ID.Start, Parent: p.Parent, Role: p.Role, Task: -1, Step: from.Step(p.ID),
		Comm: p.Comm, State: string(rune(p.State)), RSS: p.RSS, Anon: p.Anon, File: p.File, Shmem: p.Shmem, Threads: p.Threads,
		CanRecycle: from.Recyclable[p.ID.PID], CanTrim: from.Trimmable[p.ID.PID],
	}
	if p.PSS != nil {
		low, _ := p.PSSRange()
		c.PSS, c.Age = &low, max(from.View.Sample.Mono-p.PSS.At, 0).Seconds()
	}
	maps, fds := from.Counts(p.ID)
	c.Maps, c.FDs = uint64(max(maps, 0)), uint64(max(fds, 0))
	return c
}

// growthBase is what a process had when its growth was begun to be measured.
type growthBase struct {
	at  time.Duration
	rss rss.Bytes
}

const (
	// growthKept is how far back the growth of a process is looked for, and mostGrowths how
	// many processes are remembered for it.
	growthKept  = time.Minute
	mostGrowths = 1 << 14
)

// growthOf is the change of a process's RSS in bytes a second, since it was asked for
// first or for the last minute or so; 0 at first.
func (s *Status) growthOf(now time.Duration, p *rss.Proc) float64 {
	b, ok := s.growth[p.ID]
	if !ok || now-b.at > 2*growthKept {
		if s.growth == nil {
			s.growth = map[rss.ProcID]growthBase{}
		}
		if len(s.growth) > mostGrowths {
			clear(s.growth)
		}
		s.growth[p.ID] = growthBase{now, p.RSS}
		return 0
	}
	seconds := (now - b.at).Seconds()
	if seconds < 0.5 {
		return 0
	}
	return (float64(p.RSS) - float64(b.rss)) / seconds
}

// Source is the watcher as the server of the socket sees it. It touches nothing of the
// loop's but by requests.
func (s *Status) Source() control.Source {
	return source{&s.made, &s.out.Clients, s.requests, s.gone}
}

type source struct {
	made     *atomic.Pointer[control.Status]
	clients  *Clients
	requests chan<- Request
	gone     <-chan struct{}
}

// Status implements [control.Source].
func (s source) Status(ctx context.Context) (*control.Status, error) {
	if st := s.made.Load(); st != nil {
		return st, nil
	}
	a := s.ask(ctx, nil)
	return a.status, a.err
}

// Do implements [control.Source].
func (s source) Do(ctx context.Context, c control.Command) (<-chan control.Result, error) {
	a := s.ask(ctx, &c)
	return a.results, a.err
}

// Events implements [control.Source].
func (s source) Events(ctx context.Context) (<-chan []byte, error) { return s.clients.Add(ctx) }

// ask has the loop answer.
func (s source) ask(ctx context.Context, c *control.Command) reply {
	r, requests := Request{ctx, c, make(chan reply, 1)}, s.requests
	for {
		select {
		case requests <- r:
			requests = nil // the answer comes now
		case a := <-r.reply:
			return a
		case <-ctx.Done():
			return reply{err: ctx.Err()}
		case <-s.gone:
			return reply{err: errEnded}
		}
	}
}
