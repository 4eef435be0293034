package supervisor

import (
	"sync"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/event"
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
	removed := w.tell.Textfile.Close()
	w.tell.Alerts.Close(len(w.node.Others) == 0) // else the next leader goes on with them
	w.pass(exit)                                 // others' commands may live on
	w.poll(true)
	w.tell.SHMUsers(w.now(), w.observe.SHMUsers.Told())
	w.tellSignals()
	ended := w.acts.End(exit != nil)
	if w.observe.Loader != nil {
		w.observe.Loader.Trials.Stop(action.LastPatience)
	}
	w.acts.Close()
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
	w.tell.Findings.Last(e.Findings)
	if w.observe.Pop.Attached() {
		e.Attached = phrase.AttachEnded(w.observe.Pop.Command.PID, w.observe.Pop.Name, exit != nil, w.tell.Sum.Stopped, time.Since(w.started))
	}
	out, lines := w.tell.Sum.End(&e)
	if w.tell.Streams() {
		out.Ours = w.tell.Costs(w.now())
	}
	w.tell.Put(event.NameExit, func(h event.Head) any { out.Head = h; return out })
	for _, line := range lines {
		w.tell.Info(line)
	}
	var closing sync.WaitGroup
	rank := -1
	if len(w.node.Others) > 0 {
		rank = w.node.Me.Task
	}
	closing.Go(w.tell.Alerts.Comment.Last(&out, rank, action.LastPatience))
	closing.Go(func() {
		w.tell.Record.Close(out.Verdict != event.VerdictFine && out.Verdict != event.VerdictUnwatched, flush)
	})
	closing.Go(func() {
		select {
		case <-removed:
		case <-time.After(flush):
		}
	})
	w.tell.CloseStream(flush)
	closing.Wait()
	w.tell.Alerts.Last()
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
	e := tell.Ending{StopStatus: stopStatus}
	if exit != nil {
		e.Said, e.Code, e.Signal = true, exit.Code, exit.Signal
	}
	return e
}
