package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/cadence"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/node"
	"github.com/rsswarden/rsswarden/supervisor/observe"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/population"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/tell"
	"golang.org/x/sys/unix"
)

// join meets the other watchers of the job on this node. Where that fails we lead for our
// own command alone.
func (e *engine) join(begin hold.Begin) {
	if e.Able.Ranks != "" {
		return
	}
	// Tasks may have a TMPDIR each, so it comes last here.
	parents := loader.RunParents(func(name string) string {
		if name == "TMPDIR" {
			return ""
		}
		v, _ := e.Lookup(name)
		return v
	})
	if dir, ok := e.Lookup("TMPDIR"); ok && filepath.IsAbs(dir) {
		parents = append(parents, dir)
	}
	name, me := placeName(&e.Options, begin.Holder), member(&e.Options, begin, e.observe.Pop.Command)
	var err error
	if r := begin.Rested; r != nil {
		e.tell.GoOn(r.Event)
		if r.Ended {
			e.early.Fault("leader", errors.New("the watcher that led was stopped; it is ended, and this one leads"))
		}
		err = e.node.JoinAgain(parents, name, me, r.Order, r.Lock)
	} else {
		err = e.node.Join(parents, name, me)
	}
	if err != nil {
		e.early.Fault("leader", fmt.Errorf("%w; other ranks of this node are not known", err))
	}
}

// member is who we are, for the others.
func member(o *Options, begin hold.Begin, command rss.ProcID) node.Member {
	m := node.Member{
		Command: command, Watcher: rss.ProcID{PID: o.Self}, Holder: rss.ProcID{PID: begin.Holder},
		Task: -1, Dir: o.Settings.Dir, Words: node.FirstWords(o.Settings.Command), Since: o.Settings.Begun,
	}
	m.Watcher.Start, _ = proctree.StartTime(o.Proc, o.Self)
	m.Holder.Start, _ = proctree.StartTime(o.Proc, begin.Holder)
	if job := tell.JobOf(o.Lookup); job != nil {
		m.Step, m.Task = job.Step, job.Task
	}
	return m
}

// placeName is where those meet that judge alike.
func placeName(o *Options, holder int) string {
	s := &o.Settings
	return node.Name(o.Proc, o.Lookup, holder, []any{
		s.Version, s.Limit, s.LimitShare, s.Accounting, s.Rules, s.DryRun, s.Interval, s.Loader, s.Forks, s.Trim, s.TrimPrivate,
		s.OOMPrefer, s.Revive, s.NoFile, s.WorkerSignal, s.WorkerMatch, s.StopStatus, s.Grace, s.Alerts, s.AlertComment, s.BySite,
	})
}

// takeLead begins to lead: it meets the other ranks here and reports them. It returns
// whether there are any.
func (e *engine) takeLead() bool {
	e.heardNode(e.node.Lead(e.now()))
	if e.node.Successor {
		e.tell.NoteStart(e.starts(e.Link.Begin()), e.view)
	}
	if !e.node.Joined() {
		return false
	}
	if job, in := e.observe.Limits.Job(); in {
		e.observe.Pop.FindUnmanaged(&e.probes, e.Sys, job)
	}
	met := e.meet()
	e.loadHandover()
	return met
}

// meet finds the ranks that are here, and says whether the tree is to be read again.
func (e *engine) meet() (changed bool) { return e.heardNode(e.node.Meet(e.now())) }

// heardNode reports news of other ranks and handles them. It says whether any came or went.
func (e *engine) heardNode(n node.News) (changed bool) {
	for _, f := range n.Faults {
		e.fault(f.Part, f.Err)
	}
	for _, line := range n.Lines {
		e.tell.Say(e.now(), "stop", line)
	}
	leader := 0
	if e.node.HasLock() {
		leader = e.Self
	}
	for i := range n.Ranks {
		c := &n.Ranks[i]
		rank := rankEvent(c, e.tell.Run.Node, leader)
		e.tell.Put(event.NameRank, func(h event.Head) any { rank.Head = h; return rank })
		switch c.What {
		case event.RankJoined:
			if c.Dir == "" || !e.Settings.Loader {
				break
			}
			if err := e.observe.OpenLoaders(c.Dir); err != nil {
				e.fault("loader", err)
			}
		case event.RankEnded:
			said, news := e.observe.DropLoaders(e.now(), e.view, c.Dir)
			e.tell.Loaders(e.now(), said, news)
		}
	}
	if n.Changed && len(e.node.Others) > 0 {
		e.listen()
	}
	if n.Changed {
		e.tell.Sum.Ranks = max(e.tell.Sum.Ranks, len(e.node.Others)+1)
		var others []population.Rank
		for i := range e.node.Others {
			others = append(others, populated(&e.node.Others[i]))
		}
		e.observe.Pop.SetRanks(populated(&e.node.Me), others)
	}
	if n.Renewed && e.tell.Status.Requests() != nil && e.node.HasLock() && !e.node.Has(control.SocketName) {
		e.serveNoMore()
		e.serve()
	}
	if n.Stopped {
		e.tell.Sum.Stopped, e.Settings.StopStatus = true, n.Status
	}
	if len(n.Trim) > 0 {
		var r hold.TrimRequest
		err := json.Unmarshal(n.Trim, &r)
		if err == nil {
			r.ID = n.Order
			err = e.Link.Trim(r)
		}
		if err != nil {
			_ = e.node.Answer(n.Order, nil, err)
		}
	}
	return n.Changed
}

func populated(m *node.Member) population.Rank {
	return population.Rank{Command: m.Command, Step: m.Step, Holder: m.Holder.PID, Watcher: m.Watcher.PID}
}

// rankEvent tells what happened to a rank of a node, which this watcher leads if leader is
// not 0.
func rankEvent(c *node.Change, name string, leader int) event.Rank {
	rank := event.Rank{What: c.What, Task: c.Task, Step: c.Step, Node: name, PID: c.Command.PID, Holder: c.Holder.PID, Leader: leader}
	if end := c.Ended; end != nil {
		if end.Signal != 0 {
			name := tell.SignalName(end.Signal)
			rank.Signal = &name
		} else {
			rank.Code = &end.Code
		}
	}
	return rank
}

// pass gives the lead up: our command has ended, others' may not have.
func (e *engine) pass(exit *hold.Exit) {
	if !e.node.Joined() {
		return
	}
	e.serveNoMore()
	if exit == nil {
		e.node.Leave(nil)
		return
	}
	// Our command has ended by itself: a requeue that only waited for its checkpoint is
	// begun now by us, see [action.Set.End].
	e.acts.KeepRequeue()
	e.saveHandover()
	if e.Able.Exit != "" {
		e.node.Leave(nil)
		return
	}
	e.node.Leave(&node.Ended{Code: exit.Code, Signal: exit.Signal})
}

// While another watcher of the node leads, this one waits for the end of its own command,
// carries out the leader's orders for it, and takes the lead when it falls to it.

// followedHolderEvery is how often the holder is looked after meanwhile: two calls see that
// it alone was stopped.
const followedHolderEvery = 3 * time.Second

// openFollowing begins to follow.
func (e *engine) openFollowing(begin hold.Begin) {
	if begin.Attempt > 1 {
		e.tell.Textfile.Drop()
	}
	e.tell.Sum.Led, e.tell.Sum.Watched = true, false
	if e.rests = restAfter; begin.Attempt > 1 || e.Served == nil || e.Served() {
		e.rests = cadence.Never
	}
	if begin.Rested == nil {
		e.tell.Start(e.starts(begin), e.view)
		e.tell.Tell(e.now(), e.early)
		e.tell.Faults(e.now(), "start", e.Settings.Warnings...)
	}
	e.heardNode(e.node.Follow(begin.Rested != nil))
	e.listen()
	e.follow(woken{}) // what was asked for before the bell could ring for it
}

// follow does what the leader asks for, and takes the lead where it has fallen to us.
func (e *engine) follow(by woken) {
	if a, ok := by.message.(hold.TrimAnswer); ok {
		if err := e.node.Answer(a.ID, a, nil); err != nil {
			e.fault("leader", err)
		}
	}
	if by.timer && e.pace.Holder(e.now(), followedHolderEvery) {
		if err := e.Link.Unstick(); err != nil {
			e.fault("holder", err)
		}
		e.slim.at(e.now(), e.prepared)
	}
	if e.heardNode(e.node.Advance(e.now())); e.node.Leads() {
		e.due, e.gap = 0, 0 // nothing was to be seen so far
		e.open(e.Link.Begin())
	} else if by.timer && e.now() >= e.rests {
		(ranks{e}).rest()
	}
}

// restAfter is how long a follower's watcher is awake, and restAgain how long it waits where it
// could not rest. A step with many ranks has no room for a watcher of each, be it for a second.
// restCalm is how long it is awake after a signal that stops or continues the job: where those come
// often, this program is not started for each.
const (
	restAfter = 20 * time.Millisecond
	restAgain = time.Second
	restCalm  = 5 * time.Second
)

// rest ends this program where a follower has nothing to do; the process waits on. Where that
// fails it stays awake: without a word on a kernel before 5.3, which has no pidfd_open(2), and
// with another C library than glibc.
func (e ranks) rest() {
	r, err := e.node.Rest()
	if r != nil {
		defer r.Close()
		err = e.Link.Rest(hold.Rest{
			Leader: r.Leader, Lock: r.Lock, Orders: r.Orders, LedBy: r.LedBy, Keep: e.Keep,
			Rested: hold.Rested{Order: r.Order, Event: e.tell.Told()},
		}, e.tell.CloseFollowing)
	}
	if err == nil || errors.Is(err, hold.ErrBusy) {
		return
	}
	if e.rests = cadence.Never; !errors.Is(err, errors.ErrUnsupported) {
		e.fault("leader", err)
	}
}

// endFollowing writes the end of a follower. The leader reports memory.
func (e *engine) endFollowing(exit *hold.Exit) {
	if e.node.HasLock() {
		e.endInherited()
	}
	e.tellSignals()
	out := exitOf(exit, e.Settings.StopStatus)
	out.Rank, out.Took = e.node.Me.Task, e.runTime()
	out.Said = out.Said && e.Able.Exit == ""
	e.tell.EndFollowing(&out)
	e.pass(exit)
	e.tell.CloseFollowing()
}

// briefRecord is from how long a run on its end is worth a record of its own; a
// shorter one leaves nothing, as ever.
const briefRecord = time.Minute

// endInherited does what is left of the lead where that has fallen to us and our command has
// ended before we began to lead: ranks end together as a rule, within less time than that
// takes. A record has the ends of the ranks, for the leader's was closed with the first, and
// where no command lives any more, the leader's alerts are resolved.
func (e *engine) endInherited() {
	ends, alone := e.node.Ends()
	if e.runTime() >= briefRecord || e.Settings.Record != settings.RecordAuto {
		begin := e.Link.Begin()
		e.tell.Record.Open(e.observe.Pop.Command, begin.Attempt, begin.Last)
		e.heardNode(e.node.Lead(e.now()))
		e.tell.NoteStart(e.starts(begin), e.view)
		e.heardNode(ends)
	}
	if !alone || e.Settings.DryRun || len(e.Settings.Alerts) == 0 {
		return
	}
	data, err := e.node.Kept()
	if err != nil || data == nil {
		return
	}
	m, err := policy.ParseMemory(data)
	if err != nil || len(m.Alerts) == 0 {
		return
	}
	e.tell.Alerts.Inherit(m)
	e.openAlerts()
	e.tell.Alerts.Close(true)
}

// saveHandover keeps what the ladder remembers for the next leader, where it has changed.
func (e *engine) saveHandover() {
	if !e.node.Joined() || e.acts.Ladder == nil {
		return
	}
	is := node.Handover{Changes: e.acts.Ladder.Changes(), Waiting: e.acts.Waiting(), Alerts: e.tell.Alerts.OpenIDs()}
	err := e.node.Keep(is, func() ([]byte, error) {
		m := e.acts.Ladder.Snapshot(e.now(), bootTime(), is.Waiting)
		e.tell.Alerts.Remember(&m)
		for i := range m.Rungs {
			if rung := &m.Rungs[i]; rung.Name == event.LimitSlurm && rung.Scope == event.ScopeStep && rung.Level == "" {
				rung.Level = ownPart(e.observe.Pop.Name, e.node.Me.Step)
			}
		}
		return m.Encode()
	})
	if err != nil {
		e.fault("leader", err)
	}
}

// loadHandover takes in what the leader before us kept. What was kept by ranks that were all
// killed is about another job step.
func (e *engine) loadHandover() {
	data, err := e.node.Kept()
	if data == nil && err == nil {
		return
	}
	var m *policy.Memory
	if err == nil {
		m, err = policy.ParseMemory(data)
	}
	if err != nil {
		e.fault("leader", fmt.Errorf("what the leader before has done is not known, and may be done again: %w", err))
		return
	}
	clock := bootTime()
	if m.At > clock || !e.node.SomeoneSince(m.At) {
		return
	}
	e.tell.Alerts.Inherit(m)
	own, ran := ownPart(e.observe.Pop.Name, e.node.Me.Step), e.runTime()
	now := e.now()
	e.acts.Ladder.Restore(m, now, clock, own)
	if data, err = m.Encode(); err == nil {
		e.tell.Note(event.NameHandover, func(h event.Head) any {
			return event.Handover{Head: h, Ran: ran, Clock: clock, Own: own, Memory: data, Now: now}
		})
	}
}

// ownPart is what the limits of our step are called among those of several; see
// [limit.Union.Read]. Alone they have no name, and others are found on the side.
func ownPart(job, step string) string {
	if step == "" {
		return ""
	}
	return observe.PartName(job, step)
}

// bootTime is the time since boot, which all processes of a node share, and by
// which the kernel has their starts.
func bootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// ranks are those of this node as actions see them.
type ranks struct{ *engine }

// owner is the rank that a process belongs to.
func (e ranks) owner(pid int) *node.Member { return e.node.Owner(e.view.Sample.Procs, pid) }

func (e ranks) Task(pid int) int       { return e.owner(pid).Task }
func (e ranks) Key(pid int) rss.ProcID { return e.owner(pid).Holder }
func (e ranks) Others(pid int) bool    { return e.owner(pid) != &e.node.Me }
func (e ranks) Successor() bool        { return e.node.Successor }
func (e ranks) Several() bool          { return len(e.node.Others) > 0 }
func (e ranks) Alone() bool            { return !e.node.Joined() }
func (e ranks) SaveHandover()          { e.saveHandover() }

func (e ranks) Has(task int) bool {
	_, ok := e.node.Numbered(task)
	return ok
}

func (e ranks) StopOthers(step string) int {
	asked, news := e.node.StopOthers(step, e.Settings.StopStatus, e.Settings.Grace)
	e.heardNode(news)
	return asked
}

func (e ranks) Stopping() bool { return e.node.Stopping() }

func (e ranks) Stops(step string) bool {
	return e.node.Stopping() && e.observe.Pop.InScope(e.observe.Pop.Command, step)
}

func (e ranks) Recycled(rank rss.ProcID)                   { e.node.Stagger.Recycled(rank, e.now()) }
func (e ranks) LastRecycled(rank rss.ProcID) time.Duration { return e.node.Stagger.LastRecycled(rank) }

func (e ranks) Waits(left time.Duration, nodes int) bool {
	p := e.node
	return p.Stagger.Waits(node.Turn{
		Now: e.now(), Left: left, Nodes: nodes, From: p.From, Successor: p.Successor, Within: action.RecycleDeadline,
		Pending: p.Successor && e.observe.Workers.Trainers().Recycling() || e.observe.Loader != nil && e.observe.Loader.Inherited(),
	})
}

func (e ranks) OurPIDs() []int {
	pids := []int{e.observe.Pop.Holder, e.Self}
	for i := range e.node.Others {
		pids = append(pids, e.node.Others[i].Holder.PID, e.node.Others[i].Watcher.PID)
	}
	return pids
}

func (e ranks) Tracer(pid int) int {
	if m := e.owner(pid); m != &e.node.Me {
		return m.Holder.PID
	}
	return e.observe.Pop.Holder
}

func (e ranks) Trim(r hold.TrimRequest) error {
	m := e.owner(r.PID)
	if m == &e.node.Me {
		return e.Link.Trim(r)
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return e.node.Ask(m, data)
}

// answers takes in what another rank's watcher answered, and says whether there is
// something that the action in flight waits for.
func (e ranks) answers() bool {
	data, ok, err := e.node.Answered()
	if !ok {
		return false
	}
	var t hold.TrimAnswer
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	if err != nil {
		e.acts.Tracer.NoMore("error", err.Error())
		return false
	}
	t.ID = e.acts.Tracer.Asked() // it has the order's number
	e.acts.Trimmed(t)
	return true
}
