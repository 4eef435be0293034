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
func (e *engine) end(exit *hold.Exit) {
	if !e.node.Leads() {
		e.endFollowing(exit)
		return
	}
	e.tell.Closing(len(e.node.Others) > 0)
	e.pass(exit) // others' commands may live on
	e.poll(true)
	e.tell.SHMUsers(e.now(), e.observe.SHMUsers.Told())
	e.tellSignals()
	ended := e.acts.End(exit != nil)
	if e.observe.Loader != nil {
		e.observe.Loader.Trials.Stop(action.LastPatience)
	}
	e.acts.Close()
	out := exitOf(exit, e.Settings.StopStatus)
	out.Node, out.Successor, out.Requeued = e.tell.Run.Node, e.node.Successor, e.acts.Requeued()
	if exit != nil {
		if out.Left = e.acts.Left(ended); len(out.Left) > 0 {
			e.read() // it may have grown since the last look
		}
	}
	out.Limits, out.Read, out.Now = e.view.Limits, e.view.Sample.Mono, e.now()
	out.Kills, out.NodeKills = e.observe.Limits.OOMKills(), e.observe.Limits.NodeKills()
	_, out.InJob = e.observe.Limits.Job()
	out.Findings, out.Took = e.observe.Diagnosis.State.Findings(), e.runTime()
	if e.observe.Pop.Attached() {
		out.Attached = phrase.AttachEnded(e.observe.Pop.Command.PID, e.observe.Pop.Name, exit != nil, e.tell.Sum.Stopped, time.Since(e.started))
	}
	if len(e.node.Others) > 0 {
		out.Rank = e.node.Me.Task
	}
	e.tell.End(&out, action.LastPatience)
}

// tellSignals reports the pending signals before the end, so that none of those that ended
// the command is left out.
func (e *engine) tellSignals() {
	for {
		select {
		case m := <-e.Link.Messages():
			if sig, ok := m.(hold.Signal); ok {
				e.tellSignal(sig)
			}
		default:
			return
		}
	}
}

// exitOf is how the command ended.
func exitOf(exit *hold.Exit, stopStatus int) tell.Ending {
	out := tell.Ending{StopStatus: stopStatus, Rank: -1}
	if exit != nil {
		out.Said, out.Code, out.Signal = true, exit.Code, exit.Signal
	}
	return out
}
