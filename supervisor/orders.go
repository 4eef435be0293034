package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/node"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

// orders are what the leader asks of other ranks' watchers. Its number grows from
// leader to leader: it is the time.
type orders struct {
	last uint64
	// asked is the rank that traces for us now, and the order's number.
	asked   rss.ProcID
	askedID uint64

	// done is the order that was carried out last, of who stands by, and trim the
	// number of the piece in it.
	done, trim uint64
}

func (o *orders) next() uint64 {
	o.last = max(o.last+1, uint64(time.Now().UnixNano()))
	return o.last
}

// rankOf is the other rank that a process belongs to, nil for ours or none.
func (w *watcher) rankOf(pid int) *node.Member {
	if len(w.peers.others) == 0 {
		return nil
	}
	for up := range view.Lineage(w.view.Sample.Procs).Up(pid) {
		if up == w.observe.Pop.Command.PID {
			return nil
		}
		for i := range w.peers.others {
			if m := &w.peers.others[i]; m.Command.PID == up {
				return m
			}
		}
	}
	return nil
}

// ourPIDs are the holders and watchers of this node.
func (w *watcher) ourPIDs() []int {
	pids := []int{w.observe.Pop.Holder, w.Self}
	for i := range w.peers.others {
		pids = append(pids, w.peers.others[i].Holder.PID, w.peers.others[i].Watcher.PID)
	}
	return pids
}

// tracerOf is the holder that traces a process: only an ancestor may, where Yama is.
func (w *watcher) tracerOf(pid int) int {
	if m := w.rankOf(pid); m != nil {
		return m.Holder.PID
	}
	return w.observe.Pop.Holder
}

// give has a piece of a process given back, by the holder that may.
func (w *watcher) give(r hold.TrimRequest) error {
	m := w.rankOf(r.PID)
	if m == nil {
		return w.Link.Trim(r)
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	o := &w.peers.orders
	id := o.next()
	if err := w.peers.post.Command(m.Holder, node.Order{ID: id, Trim: data}); err != nil {
		return fmt.Errorf("cannot ask %s: %w", w.rankName(m), err)
	}
	o.asked, o.askedID = m.Holder, id
	return nil
}

// answers takes in what another rank's watcher answered, and says whether there is
// something that the action in flight waits for.
func (w *watcher) answers() bool {
	o := &w.peers.orders
	if o.askedID == 0 || w.peers.post == nil {
		return false
	}
	a, err := w.peers.post.Answered(o.asked)
	if err != nil || a.ID != o.askedID {
		return false
	}
	o.askedID = 0
	var t hold.TrimAnswer
	if a.Error != "" {
		err = errors.New(a.Error)
	} else {
		err = json.Unmarshal(a.Trim, &t)
	}
	if err != nil {
		w.traceNoMore("error", err.Error())
		return false
	}
	w.taken(t)
	return true
}
