package supervisor

import (
	"time"

	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/settings"
)

// While another watcher of the node leads, this one waits for the end of its own command,
// carries out the leader's orders for it, and takes the lead when it falls to it.

// followedHolderEvery is how often the holder is looked after meanwhile: two calls see that
// it alone was stopped.
const followedHolderEvery = 3 * time.Second

// openFollowing begins to follow.
func (w *watcher) openFollowing(begin hold.Begin) {
	if begin.Attempt > 1 {
		w.tell.Textfile.Drop()
	}
	w.tell.Sum.Led, w.tell.Sum.Watched = true, false
	w.tell.Start(w.starts(begin), w.view)
	w.tell.Tell(w.now(), w.early)
	w.tell.Faults(w.now(), "start", w.Settings.Warnings...)
	w.heardNode(w.node.Follow())
	w.follow(woken{}) // what was asked for before the bell could ring for it
}

// follow does what the leader asks for, and takes the lead where it has fallen to us.
func (w *watcher) follow(by woken) {
	if a, ok := by.message.(hold.TrimAnswer); ok {
		if err := w.node.Answer(a.ID, a, nil); err != nil {
			w.fault("leader", err)
		}
	}
	if by.timer && w.pace.Holder(w.now(), followedHolderEvery) {
		if err := w.Link.Unstick(); err != nil {
			w.fault("holder", err)
		}
		w.slim.at(w.now())
	}
	if w.heardNode(w.node.Advance(w.now())); w.node.Leads() {
		w.due, w.gap = 0, 0 // nothing was to be seen so far
		w.open(w.Link.Begin())
	}
}

// endFollowing says the last words. What memory did is the leader's to tell.
func (w *watcher) endFollowing(exit *hold.Exit) {
	if w.node.HasLock() {
		w.endInherited()
	}
	w.tellSignals()
	e := exitOf(exit, w.Settings.StopStatus)
	e.Rank, e.Took = w.node.Me.Task, w.runTime()
	w.tell.EndFollowing(&e)
	w.pass(exit)
	w.tell.CloseFollowing()
}

// briefRecord is from how long a run on its end is worth a record of its own; a
// shorter one leaves nothing, as ever.
const briefRecord = time.Minute

// endInherited does what is left of the lead where that has fallen to us and our command has
// ended before we began to lead: ranks end together as a rule, within less time than that
// takes. A record has the ends of the ranks, for the leader's was closed with the first, and
// where no command lives any more, what the leader has told of is resolved.
func (w *watcher) endInherited() {
	ends, alone := w.node.Ends()
	if w.runTime() >= briefRecord || w.Settings.Record != settings.RecordAuto {
		begin := w.Link.Begin()
		w.tell.Record.Open(w.observe.Pop.Command, begin.Attempt, begin.Last)
		w.heardNode(w.node.Lead(w.now()))
		w.tell.NoteStart(w.starts(begin), w.view)
		w.heardNode(ends)
	}
	if !alone || w.Settings.DryRun || len(w.Settings.Alerts) == 0 {
		return
	}
	data, err := w.node.Kept()
	if err != nil || data == nil {
		return
	}
	m, err := policy.ParseMemory(data)
	if err != nil || len(m.Alerts) == 0 {
		return
	}
	w.tell.Alerts.Inherit(m)
	w.openAlerts()
	w.tell.Alerts.Close(true)
}
