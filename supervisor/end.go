package supervisor

import (
	"time"

	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/tell"
)

// end emits the exit event and the summary. exit is nil if the holder has gone without a
// word.
func (w *watcher) end(exit *hold.Exit) {
	if !w.node.Leads() {
		w.endFollowing(exit)
		return
	}
	w.tell.Closing(len(w.node.Others) > 0)
	w.pass(exit) // others' commands may live on
	w.poll(true)
	w.tell.SHMUsers(w.now(), w.observe.SHMUsers.Told())
	w.tellSignals()
	ended := w.acts.End(exit != nil)
	if w.observe.Loader != nil {
		w.observe.Loader.Trials.Stop(action.LastPatience)
	}
	w.acts.Close()
	e := exitOf(exit, w.Settings.StopStatus)
	e.Node, e.Heir, e.Requeued, e.Rung = w.tell.Run.Node, w.node.Heir, w.acts.Requeued(), w.acts.Ladder.NextRung
	if exit != nil {
		if e.Left = w.acts.Left(ended); len(e.Left) > 0 {
			w.read() // it may have grown since the last look
		}
	}
	e.Limits, e.Read, e.Now = w.view.Limits, w.view.Sample.Mono, w.now()
	e.Kills, e.NodeKills = w.observe.Limits.OOMKills(), w.observe.Limits.NodeKills()
	_, e.InJob = w.observe.Limits.Job()
	e.Findings, e.Took = w.observe.Diagnosis.State.Findings(), w.runTime()
	if w.observe.Pop.Attached() {
		e.Attached = phrase.AttachEnded(w.observe.Pop.Command.PID, w.observe.Pop.Name, exit != nil, w.tell.Sum.Stopped, time.Since(w.started))
	}
	if len(w.node.Others) > 0 {
		e.Rank = w.node.Me.Task
	}
	w.tell.End(&e, action.LastPatience)
}

// tellSignals tells of those that wait to be told: of what ended the command,
// nothing may be left out because its end was told of first.
func (w *watcher) tellSignals() {
	for {
		select {
		case m := <-w.Link.Messages():
			if sig, ok := m.(hold.Signal); ok {
				w.tellSignal(sig)
			}
		default:
			return
		}
	}
}

// exitOf is how the command ended.
func exitOf(exit *hold.Exit, stopStatus int) tell.Ending {
	e := tell.Ending{StopStatus: stopStatus, Rank: -1}
	if exit != nil {
		e.Said, e.Code, e.Signal = true, exit.Code, exit.Signal
	}
	return e
}
