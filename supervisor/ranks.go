package supervisor

import (
	"encoding/json"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/node"
)

// ranks are those of this node as actions see them.
type ranks struct{ *watcher }

// owner is the rank that a process belongs to.
func (w ranks) owner(pid int) *node.Member { return w.node.Owner(w.view.Sample.Procs, pid) }

func (w ranks) Task(pid int) int       { return w.owner(pid).Task }
func (w ranks) Key(pid int) rss.ProcID { return w.owner(pid).Holder }
func (w ranks) Others(pid int) bool    { return w.owner(pid) != &w.node.Me }
func (w ranks) Heir() bool             { return w.node.Heir }
func (w ranks) Several() bool          { return len(w.node.Others) > 0 }
func (w ranks) Alone() bool            { return !w.node.Joined() }
func (w ranks) SaveHandover()          { w.saveHandover() }

func (w ranks) Has(task int) bool {
	_, ok := w.node.Numbered(task)
	return ok
}

func (w ranks) StopOthers(step string) int {
	asked, news := w.node.StopOthers(step, w.Settings.StopStatus, w.Settings.Grace)
	w.heardNode(news)
	return asked
}

func (w ranks) Stopping() bool { return w.node.Stopping() }

func (w ranks) Stops(step string) bool {
	return w.node.Stopping() && w.observe.Pop.InScope(w.observe.Pop.Command, step)
}

func (w ranks) Recycled(rank rss.ProcID)                   { w.node.Stagger.Recycled(rank, w.now()) }
func (w ranks) LastRecycled(rank rss.ProcID) time.Duration { return w.node.Stagger.LastRecycled(rank) }

func (w ranks) Waits(left time.Duration, nodes int) bool {
	p := w.node
	return p.Stagger.Waits(node.Turn{
		Now: w.now(), Left: left, Nodes: nodes, From: p.From, Heir: p.Heir, Within: action.RecycleDeadline,
		Pending: p.Heir && w.observe.Workers.Trainers().Recycling() || w.observe.Loader != nil && w.observe.Loader.Inherited(),
	})
}

func (w ranks) OurPIDs() []int {
	pids := []int{w.observe.Pop.Holder, w.Self}
	for i := range w.node.Others {
		pids = append(pids, w.node.Others[i].Holder.PID, w.node.Others[i].Watcher.PID)
	}
	return pids
}

func (w ranks) Tracer(pid int) int {
	if m := w.owner(pid); m != &w.node.Me {
		return m.Holder.PID
	}
	return w.observe.Pop.Holder
}

func (w ranks) Trim(r hold.TrimRequest) error {
	m := w.owner(r.PID)
	if m == &w.node.Me {
		return w.Link.Trim(r)
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return w.node.Ask(m, data)
}

// answers takes in what another rank's watcher answered, and says whether there is
// something that the action in flight waits for.
func (w ranks) answers() bool {
	data, ok, err := w.node.Answered()
	if !ok {
		return false
	}
	var t hold.TrimAnswer
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	if err != nil {
		w.acts.TrimNoMore("error", err.Error())
		return false
	}
	t.ID = w.acts.Tracer.Asked() // it has the order's number
	w.acts.Trimmed(t)
	return true
}
