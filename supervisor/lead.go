package supervisor

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/node"
	"github.com/rsswarden/rsswarden/supervisor/population"
	"github.com/rsswarden/rsswarden/supervisor/tell"
)

// join meets the other watchers of the job on this node. Where that fails we lead for our
// own command alone.
func (w *watcher) join(begin hold.Begin) {
	if w.Able.Ranks != "" {
		return
	}
	// Tasks may have a TMPDIR each, so it comes last here.
	parents := loader.RunParents(func(name string) string {
		if name == "TMPDIR" {
			return ""
		}
		v, _ := w.Lookup(name)
		return v
	})
	if dir, ok := w.Lookup("TMPDIR"); ok && filepath.IsAbs(dir) {
		parents = append(parents, dir)
	}
	if err := w.node.Join(parents, placeName(&w.Options, begin.Holder), member(&w.Options, begin, w.observe.Pop.Command)); err != nil {
		w.early.Fault("leader", fmt.Errorf("%w; other ranks of this node are not known", err))
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
		s.Version, s.Limit, s.LimitShare, s.Accounting, s.Rules, s.DryRun, s.Interval, s.Loader, s.Trim, s.TrimPrivate,
		s.OOMPrefer, s.NoFile, s.WorkerSignal, s.WorkerMatch, s.StopStatus, s.Grace, s.Alerts, s.AlertComment,
	})
}

// takeLead begins to lead: who else is here is met, and told of. It says whether
// anybody is.
func (w *watcher) takeLead() bool {
	w.heardNode(w.node.Lead(w.now()))
	if w.node.Heir {
		w.tell.NoteStart(w.starts(w.Link.Begin()), w.view)
	}
	if !w.node.Joined() {
		return false
	}
	if job, in := w.observe.Limits.Job(); in {
		w.observe.Pop.FindUnmanaged(&w.probes, w.Sys, job)
	}
	met := w.meet()
	w.loadHandover()
	return met
}

// meet looks who is here, and says whether the tree is to be read again.
func (w *watcher) meet() (changed bool) { return w.heardNode(w.node.Meet(w.now())) }

// heardNode tells of what other ranks are up to, and does what follows from it. It says
// whether any came or went.
func (w *watcher) heardNode(n node.News) (changed bool) {
	for _, f := range n.Faults {
		w.fault(f.Part, f.Err)
	}
	for _, line := range n.Lines {
		w.tell.Say(w.now(), "stop", line)
	}
	leader := 0
	if w.node.HasLock() {
		leader = w.Self
	}
	for i := range n.Ranks {
		c := &n.Ranks[i]
		e := rankEvent(c, w.tell.Run.Node, leader)
		w.tell.Put(event.NameRank, func(h event.Head) any { e.Head = h; return e })
		switch c.What {
		case event.RankJoined:
			if c.Dir == "" || !w.Settings.Loader {
				break
			}
			if err := w.observe.OpenLoaders(c.Dir); err != nil {
				w.fault("loader", err)
			}
		case event.RankEnded:
			said, news := w.observe.DropLoaders(w.now(), w.view, c.Dir)
			w.tell.Loaders(w.now(), said, news)
		}
	}
	if n.Changed {
		w.tell.Sum.Ranks = max(w.tell.Sum.Ranks, len(w.node.Others)+1)
		var others []population.Rank
		for i := range w.node.Others {
			others = append(others, populated(&w.node.Others[i]))
		}
		w.observe.Pop.SetRanks(populated(&w.node.Me), others)
	}
	if n.Renewed && w.tell.Status.Requests() != nil && w.node.HasLock() && !w.node.Has(control.SocketName) {
		w.serveNoMore()
		w.serve()
	}
	if n.Stopped {
		w.tell.Sum.Stopped, w.Settings.StopStatus = true, n.Status
	}
	if len(n.Trim) > 0 {
		var r hold.TrimRequest
		err := json.Unmarshal(n.Trim, &r)
		if err == nil {
			r.ID = n.Order
			err = w.Link.Trim(r)
		}
		if err != nil {
			_ = w.node.Answer(n.Order, nil, err)
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
	e := event.Rank{What: c.What, Task: c.Task, Step: c.Step, Node: name, PID: c.Command.PID, Holder: c.Holder.PID, Leader: leader}
	if end := c.Ended; end != nil {
		if end.Signal != 0 {
			name := tell.SignalName(end.Signal)
			e.Signal = &name
		} else {
			e.Code = &end.Code
		}
	}
	return e
}

// pass gives the lead up: our command has ended, others' may not have.
func (w *watcher) pass(exit *hold.Exit) {
	if !w.node.Joined() {
		return
	}
	w.serveNoMore()
	if exit == nil {
		w.node.Leave(nil)
		return
	}
	// Our command has ended by itself: a requeue that only waited for its checkpoint is
	// begun now by us, see [action.Set.End].
	w.acts.KeepRequeue()
	w.saveHandover()
	w.node.Leave(&node.Ended{Code: exit.Code, Signal: exit.Signal})
}
