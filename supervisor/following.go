package supervisor

import (
	"fmt"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/cadence"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// While another watcher of the node leads, this one waits for the end of its own command,
// carries out the leader's orders for it, and takes the lead when it falls to it.

// standUnstick is how often the holder is looked after meanwhile: two calls see that
// it alone was stopped.
const standUnstick = 3 * time.Second

// standBy returns true when the lead has fallen to us, and false when our command
// has ended.
func (w *watcher) standBy(begin hold.Begin) bool {
	if dir := w.Settings.Textfile; dir != "" && begin.Attempt > 1 {
		w.tell.DropTextfile(dir)
	}
	w.tell.Sum.Led, w.tell.Sum.Watched = true, false
	w.sayStart(begin)
	w.warn(w.early)
	for _, text := range w.Settings.Warnings {
		w.fault("start", &said{text})
	}
	w.heardNode(w.node.Follow())
	w.followed() // what was written before the bell could ring for it
	timer := time.NewTimer(w.sleep(w.standPause()))
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
				if err := w.node.Answer(m.ID, m, nil); err != nil {
					w.fault("leader", err)
				}
			}
		case <-w.bell.C():
		case <-w.probes.C():
		case <-timer.C:
			w.standTick()
		}
		if w.followed(); w.node.Leads() {
			w.due, w.gap = 0, 0 // nothing was to be seen so far
			return true
		}
		timer.Reset(w.sleep(w.standPause()))
	}
}

// standPause is how long who stands by waits for what nobody tells it of.
func (w *watcher) standPause() time.Duration {
	now := w.now()
	return max(w.node.Within(now, w.pace.HolderDue(now, standUnstick)), cadence.MinPause)
}

func (w *watcher) followed() { w.heardNode(w.node.Advance(w.now())) }

// standTick does what is due by the time.
func (w *watcher) standTick() {
	if w.pace.Holder(w.now(), standUnstick) {
		if err := w.Link.Unstick(); err != nil {
			w.fault("holder", err)
		}
		w.slim()
	}
}

// endStandBy says the last words. What memory did is the leader's to tell.
func (w *watcher) endStandBy(exit *hold.Exit) {
	w.beginBriefRecord()
	w.resolveLeft()
	w.tellSignals()
	e := exitOf(exit, w.Settings.StopStatus)
	out, how := e.Exit(w.tell.Sum.Stopped && exit != nil)
	out.Verdict = event.VerdictLed
	w.tell.Put(event.NameExit, func(h event.Head) any { out.Head = h; return out })
	if exit == nil || exit.Code != 0 || exit.Signal != 0 {
		w.tell.Info(fmt.Sprintf("rank %d: %s after %s; another rank's rsswarden on this node watched it and tells of memory", w.node.Me.Task, how, text.Span(w.runTime())))
	}
	w.tell.Record.Close(true, flush)
	w.pass(exit)
	w.tell.CloseStream(flush)
	w.tell.LastAlerts()
}

// briefRecord is from how long a run on its end is worth a record of its own; a
// shorter one leaves nothing, as ever.
const briefRecord = time.Minute

// beginBriefRecord begins a record where the lead has fallen to us and our command
// has ended before we began to lead: the ends of the ranks are all that is in it. Ranks end
// together as a rule, within less time than it takes to lead; how they ended would be in no
// record, for the leader's was closed with the first.
func (w *watcher) beginBriefRecord() {
	if !w.node.HasLock() || w.runTime() < briefRecord && w.Settings.Record == settings.RecordAuto {
		return
	}
	w.startRecording(w.Link.Begin())
	w.heardNode(w.node.Lead(w.now()))
	w.noteStart()
	w.heardNode(w.node.Ends())
}
