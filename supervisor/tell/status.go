package tell

import (
	"cmp"
	"context"
	"maps"
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
	server   *control.Server   // nil where it cannot be asked
	requests chan Request      // nil before the first
	gone     chan struct{}     // closed with the server
	outcomes []control.Outcome // the newest first
	sum      *Summary
	recycled map[rss.ProcID]int           // by holder
	workers  map[int]control.WorkerCounts // by PID
	growth   growth
	made     atomic.Pointer[control.Status] // nil where something has changed since
}

const (
	mostOutcomes = 8       // that the status has
	mostWorkers  = 1 << 12 // that are counted for, before those that ended are dropped
)

// StatusFacts is what the status is made of, as of the last full look.
type StatusFacts struct {
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

// CountRecycled notes that a worker of the rank of that holder was, by whatever means.
func (s *Status) CountRecycled(holder rss.ProcID) {
	if s.recycled == nil {
		s.recycled = map[rss.ProcID]int{}
	}
	s.recycled[holder]++
	s.Changed()
}

// Replaced notes that one process has the place of another, old, in its pool or loader: it
// goes on with the other's counts.
func (s *Status) Replaced(old, by int) {
	c := s.workers[old]
	c.Recycled++
	delete(s.workers, old)
	s.count(by, c)
}

// ReplacedIn is [Status.Replaced] where only the sample tells by which: the youngest with the
// same parent.
func (s *Status) ReplacedIn(sample *rss.Sample, old *rss.Proc) {
	var young *rss.Proc
	for i := range sample.Procs {
		if p := &sample.Procs[i]; p.Parent == old.Parent && p.ID.Start >= old.ID.Start && p.ID != old.ID && (young == nil || p.ID.Start >= young.ID.Start) {
			young = p
		}
	}
	if young != nil {
		s.Replaced(old.ID.PID, young.ID.PID)
	}
}

func (s *Status) count(pid int, c control.WorkerCounts) {
	if s.workers == nil {
		s.workers = map[int]control.WorkerCounts{}
	}
	if len(s.workers) >= mostWorkers && s.growth.last != nil {
		maps.DeleteFunc(s.workers, func(pid int, _ control.WorkerCounts) bool { return s.growth.last.Sample.Find(pid) == nil })
	}
	s.workers[pid] = c
}

// said takes in what a loader reported.
func (s *Status) said(l *event.LoaderSaid) {
	if l.What == event.LoaderTrimmed {
		pid := cmp.Or(l.Worker, l.PID)
		c := s.workers[pid]
		c.Trims += max(l.Count, 1)
		s.count(pid, c)
	}
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
func (s *Status) Answer(r Request, from *StatusFacts) {
	st := s.Of(from)
	s.made.Store(st)
	r.reply <- reply{status: st}
}

// Begun answers a command: what [control.Source] returns for it. Whoever asked for it and
// then for the status sees what was begun.
func (s *Status) Begun(r Request, results <-chan control.Result, err error) {
	s.Changed()
	r.reply <- reply{results: results, err: err}
}

// limits are those of the last full read: what a fast read has read since is no part of that
// sample, and stands beside it.
func (s *Status) limits(v *view.View, now time.Time) []control.Limit {
	all := make([]control.Limit, len(v.Limits))
	for i := range v.Limits {
		l := &all[i]
		l.Limit = v.Limits[i]
		if l.Name == event.LimitTime {
			continue
		}
		l.Growth = s.growth.ofLimit(l.ID())
		if s.growth.last == nil || v.Now == s.growth.last.Now {
			continue
		}
		if full := s.growth.last.Limit(l.ID()); full != nil && full.Used != l.Used {
			used, at := l.Used, now.Add(v.Now-s.growth.last.Now)
			l.Now, l.NowAt = &used, &at
			l.Used, l.UsedMax, l.Charged = full.Used, full.UsedMax, full.Charged
		}
	}
	return all
}

// Of makes the status.
func (s *Status) Of(from *StatusFacts) *control.Status {
	run := &s.out.Run
	saved := &event.Saved{}
	saved.Add(&s.sum.Saved.Saved)
	st := &control.Status{
		V: control.Version, Time: from.View.Sample.At, Node: run.Node, Job: from.Job, Leader: run.Self, Version: run.Version,
		Since: from.Since, Limits: s.limits(from.View, from.View.Sample.At), Gaps: from.View.Sample.Gaps, Rules: from.Rules, DryRun: from.DryRun,
		Action: from.Action, Last: slices.Clone(s.outcomes), Ranks: slices.Clone(from.Ranks), Procs: []control.Proc{},
		Alerts: from.Alerts, Ours: from.Ours, Saved: saved, Peak: s.sum.peak(),
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
		c.Growth = s.growth.ofProc(q.ID)
		c.WorkerCounts = s.workers[q.ID.PID]
		if r := lineage.Rank(q.ID.PID, at); r >= 0 {
			k := &st.Ranks[r]
			c.Task, c.Step = k.Task, k.Step
			k.Add(c.Memory)
			k.Procs++
			if q.Role.IsWorker() {
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
func (from *StatusFacts) proc(p *rss.Proc) control.Proc {
	c := control.Proc{
		PID: p.ID.PID, Start: p.ID.Start, Parent: p.Parent, Role: p.Role, Task: -1, Step: from.Step(p.ID),
		Pool: event.PoolOf(from.Trainers, p.ID.PID), Comm: p.Comm, State: string(rune(p.State)), Threads: p.Threads,
		Memory:     control.Memory{RSS: p.RSS, Anon: p.Anon, File: p.File, Shmem: p.Shmem},
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
			return reply{err: control.ErrEnded}
		}
	}
}

const (
	// growthSpan is over what time growth is measured: at least so long, at most twice.
	growthSpan = 5 * time.Second
	// leastGrowthSpan is the least of what is younger: one fault may map 2 MiB at once.
	leastGrowthSpan = time.Second
)

// growth keeps the last full read, and two before it to measure by.
type growth struct{ last, newer, older *view.View }

func (g *growth) add(v *view.View) {
	if g.newer == nil || v.Now-g.newer.Now >= growthSpan {
		g.older, g.newer = g.newer, v
	}
	g.last = v
}

// of measures in bytes a second, from the oldest read that has the number; nil where no read
// is old enough.
func (g *growth) of(read func(*view.View) (rss.Bytes, bool)) *float64 {
	if g.last == nil {
		return nil
	}
	now, ok := read(g.last)
	for _, v := range []*view.View{g.older, g.newer} {
		if v == nil || !ok || g.last.Now-v.Now < leastGrowthSpan {
			continue
		}
		if then, ok := read(v); ok {
			rate := (float64(now) - float64(then)) / (g.last.Now - v.Now).Seconds()
			return &rate
		}
	}
	return nil
}

func (g *growth) ofLimit(id event.LimitID) *float64 {
	return g.of(func(v *view.View) (rss.Bytes, bool) {
		if l := v.Limit(id); l != nil {
			return view.Growing(l), true
		}
		return 0, false
	})
}

func (g *growth) ofProc(id rss.ProcID) *float64 {
	return g.of(func(v *view.View) (rss.Bytes, bool) {
		if p := view.Lineage(v.Sample.Procs).Find(id.PID); p != nil && p.ID == id {
			return p.RSS, true
		}
		return 0, false
	})
}
