package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
)

// question is what the leader has asked another rank's watcher for. Its number grows from
// leader to leader: it is the time.
type question struct {
	last uint64
	of   rss.ProcID // holder of the rank that traces for us now
	id   uint64     // number of that order, 0 for none
}

func (q *question) next() uint64 {
	q.last = max(q.last+1, uint64(time.Now().UnixNano()))
	return q.last
}

// Ask has another rank's holder give a piece back.
func (p *Place) Ask(m *Member, piece json.RawMessage) error {
	id := p.asked.next()
	if err := p.post.Command(m.Holder, Order{ID: id, Trim: piece}); err != nil {
		return fmt.Errorf("cannot ask %s: %w", p.Title(m), err)
	}
	p.asked.of, p.asked.id = m.Holder, id
	return nil
}

// Answered returns what came of [Place.Ask], once; ok is false as long as that is nothing.
func (p *Place) Answered() (piece json.RawMessage, ok bool, err error) {
	if p.asked.id == 0 || p.post == nil {
		return nil, false, nil
	}
	a, err := p.post.Answered(p.asked.of)
	if err != nil || a.ID != p.asked.id {
		return nil, false, nil // it may come yet
	}
	p.asked.id = 0
	if a.Error != "" {
		return nil, true, errors.New(a.Error)
	}
	return a.Trim, true, nil
}

// Blind says that nothing announces answers, and who comes and goes: look from time to time.
func (p *Place) Blind() bool { return !p.hears }

// hearOrders has the bell ring for orders to us.
func (p *Place) hearOrders(n *News) {
	err := p.opt.Bell.Watch(p.opt.Cause, unix.IN_CLOSE_WRITE, p.post.Orders())
	p.hears = err == nil
	n.fault("leader", err)
}

// obey carries out what the leader asks of us.
func (p *Place) obey(now time.Duration, n *News) {
	o, err := p.post.Ordered()
	if err != nil {
		n.fault("leader", err)
		return
	}
	if o.ID <= p.done {
		return
	}
	p.done = o.ID
	switch {
	case o.Stop:
		p.stopCommand(now, &o, n)
	case len(o.Trim) > 0 && !p.Heir: // else its answer is not waited for
		n.Trim, n.Order = o.Trim, o.ID
	}
}

// Answer passes on to the leader what came of the order that was carried out last.
func (p *Place) Answer(order uint64, piece any, failed error) error {
	if order != p.done || p.post == nil {
		return nil
	}
	a := Answer{ID: order}
	var err error
	if failed != nil {
		a.Error = failed.Error()
	} else if a.Trim, err = json.Marshal(piece); err != nil {
		return err
	}
	return p.post.Answer(a)
}
