package supervisor

import (
	"encoding/json"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/cadence"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/node"
	"github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/wake"
)

// While another watcher of the node leads, this one waits for the end of its own command,
// carries out the leader's orders for it, and takes the lead when it falls to it.

// standUnstick is how often the holder is looked after meanwhile: two calls see that
// it alone was stopped.
const standUnstick = 3 * time.Second

// blindEvery is how often it is looked for orders where nothing announces them.
const blindEvery = time.Second

// handOver is how long who takes the lead over from a rank whose command has ended
// waits for the end of its own.
const handOver = time.Second

// standBy returns true when the lead has fallen to us, and false when our command
// has ended.
func (w *watcher) standBy(begin hold.Begin) bool {
	p := &w.peers
	if dir := w.Settings.Textfile; dir != "" && begin.Attempt > 1 {
		w.tell.DropTextfile(dir)
	}
	w.tell.Sum.Led, w.tell.Sum.Watched = true, false
	w.sayStart(begin)
	w.warn(w.early)
	for _, text := range w.Settings.Warnings {
		w.fault("start", &said{text})
	}
	w.tellRank(event.RankFollows, &p.me, nil)
	orders := wake.New()
	hears := true
	hear := func() {
		err := orders.Watch(1, unix.IN_CLOSE_WRITE, p.post.Orders())
		if hears = err == nil; err != nil {
			w.fault("leader", err)
		}
	}
	hear()
	w.obey() // what was written before we could be told of it
	fallen := make(chan error, 1)
	go func(post *node.Post) { fallen <- post.Wait() }(p.post)
	var settled <-chan time.Time
	timer := time.NewTimer(w.sleep(w.standPause(!hears)))
	defer timer.Stop()
	for {
		select {
		case m := <-w.Link.Messages():
			switch m := m.(type) {
			case hold.Exit:
				w.endStandBy(&m)
				return false
			case hold.Gone:
				w.endStandBy(nil)
				return false
			case hold.Signal:
				w.tellSignal(m)
			case hold.TrimAnswer:
				w.report(m)
			}
		case err := <-fallen:
			if err == nil && !p.post.Killed() {
				// Ranks end together as a rule: ours may be about to.
				p.heir = true
				fallen, settled = nil, time.After(handOver)
				continue
			}
			w.inherit(err)
			return true
		case <-settled:
			w.inherit(nil)
			return true
		case <-orders.C():
			w.obey()
		case <-timer.C:
			w.standTick(!hears)
			if w.renew() {
				hear()
				w.obey()
			}
		}
		timer.Reset(w.sleep(w.standPause(!hears)))
	}
}

// standPause is how long who stands by waits for what nobody tells it of. Without
// news orders are among that.
func (w *watcher) standPause(blind bool) time.Duration {
	now := w.now()
	pause := w.pace.HolderDue(now, standUnstick)
	if blind {
		pause = min(pause, blindEvery)
	}
	return max(w.peers.stop.within(now, pause), cadence.MinPause)
}

// standTick does what is due by the time.
func (w *watcher) standTick(blind bool) {
	if w.pace.Holder(w.now(), standUnstick) {
		if err := w.Link.Unstick(); err != nil {
			w.fault("holder", err)
		}
		w.slim()
	}
	if blind {
		w.obey()
	}
	w.killOurs()
}

// inherit begins to take the lead over. The last that the one before asked of us
// is carried out first: it may have left as soon as it had.
func (w *watcher) inherit(err error) {
	p := &w.peers
	p.heir = true
	w.obey()
	if err != nil {
		// Nobody tells us of the leader's end now. Two that watch are a nuisance,
		// nobody is the end of jobs.
		w.fault("leader", err)
		p.post.Leave()
		p.post = nil
	}
	w.due, w.gap = 0, 0 // nothing was to be seen so far
}

// obey carries out what the leader asks of us.
func (w *watcher) obey() {
	p := &w.peers
	o, err := p.post.Ordered()
	if err != nil {
		w.fault("leader", err)
		return
	}
	if o.ID <= p.orders.done {
		return
	}
	p.orders.done = o.ID
	switch {
	case o.Stop:
		w.stopOurs(&o)
	case len(o.Trim) > 0 && !p.heir: // else nobody waits for the answer
		var r hold.TrimRequest
		err := json.Unmarshal(o.Trim, &r)
		if err == nil {
			p.orders.trim, r.ID = r.ID, o.ID
			err = w.Link.Trim(r)
		}
		if err != nil {
			_ = p.post.Answer(node.Answer{ID: o.ID, Error: err.Error()})
		}
	}
}

// report passes the holder's answer on to the leader.
func (w *watcher) report(a hold.TrimAnswer) {
	p := &w.peers
	if a.ID != p.orders.done {
		return
	}
	id := a.ID
	a.ID = p.orders.trim
	data, err := json.Marshal(a)
	if err == nil {
		err = p.post.Answer(node.Answer{ID: id, Trim: data})
	}
	if err != nil {
		w.fault("leader", err)
	}
}

// endStandBy says the last words. What memory did is the leader's to tell.
func (w *watcher) endStandBy(exit *hold.Exit) {
	w.resolveLeft()
	w.beginBriefRecord()
	w.tellSignals()
	e := exitOf(exit, w.Settings.StopStatus)
	out, how := e.Exit(w.tell.Sum.Stopped && exit != nil)
	out.Verdict = event.VerdictLed
	w.tell.Put(event.NameExit, func(h event.Head) any { out.Head = h; return out })
	if exit == nil || exit.Code != 0 || exit.Signal != 0 {
		w.tell.Info(fmt.Sprintf("rank %d: %s after %s; another rank's rsswarden on this node watched it and tells of memory", w.peers.me.Task, how, text.Span(w.runTime())))
	}
	w.tell.Record.Close(true, flush)
	w.pass(exit)
	w.tell.CloseStream(flush)
	w.tell.LastAlerts()
}
