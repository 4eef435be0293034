package supervisor

import (
	"time"

	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/cadence"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/tell"
	"github.com/rsswarden/rsswarden/supervisor/view"
	"github.com/rsswarden/rsswarden/supervisor/wake"
)

// loop runs until the command has ended.
func (w *watcher) loop() {
	timer := time.NewTimer(w.sleep(w.pause(w.now())))
	for !w.turn(timer) {
	}
}

// woken is what has woken the loop, where that is not over at once.
type woken struct {
	message hold.Message
	why     wake.Cause
	probes  bool
	timer   bool
}

// turn waits for what comes next and does what follows from it, as who leads or as who
// follows. It says whether the command has ended.
func (w *watcher) turn(timer *time.Timer) (ended bool) {
	var by woken
	select {
	case by.message = <-w.Link.Messages():
	case r := <-w.acts.Ended():
		w.acts.Ran(r)
	case e := <-w.tell.Failures():
		w.tell.Failed(w.now(), e)
	case r := <-w.tell.Status.Requests():
		w.answerClient(r)
	case <-w.bell.C():
		by.why = w.bell.Causes()
	case <-w.probes.C():
		by.probes = true
	case <-timer.C:
		by.timer = true
	}
	switch m := by.message.(type) {
	case hold.Exit:
		w.end(&m)
		return true
	case hold.Gone:
		w.end(nil)
		return true
	case hold.Signal:
		w.tellSignal(m)
	}
	if !w.node.Leads() {
		w.follow(by)
	} else if w.lead(by) {
		w.heardNode(w.node.Advance(w.now()))
	} else {
		return false // the timer runs on: news must not put looks off
	}
	timer.Reset(w.sleep(w.pause(w.now())))
	return false
}

// lead has memory read where that is called for, and says whether the loop is to think again
// about when to wake.
func (w *watcher) lead(by woken) bool {
	switch {
	case by.timer:
		w.tick()
		return true
	case by.probes:
		return w.heardProbes()
	case by.why != 0:
		return w.rung(by.why)
	}
	if a, ok := by.message.(hold.TrimAnswer); ok {
		if w.acts.Trimmed(a); w.acts.Advance() {
			w.full()
			return true
		}
	}
	return false // nothing that is measured has changed
}

// heardProbes takes in what was read beside the loop, with a full look where that calls for
// one, and says whether the loop is to think again about when to wake.
func (w *watcher) heardProbes() bool {
	now := w.look()
	h := w.observe.Hear(now, w.view, w.acts.Ladder)
	w.tell.Tell(now, h.News)
	if h.Woken {
		w.observe.PSS.Spend(w.pace.Full.Cost())
	}
	plan := w.acts.Planned()
	hurry := h.PSS && w.pace.Hurry(now)
	if plan || hurry || h.Full {
		w.full()
		return true
	}
	return h.Any
}

// rung does what the bell has rung for, and says whether that was anything.
func (w *watcher) rung(why wake.Cause) (done bool) {
	full := false
	if why&rankNews != 0 {
		done, full = true, (ranks{w}).answers() && w.acts.Advance() || w.meet()
	}
	if why&actionDue != 0 && w.acts.Advance() {
		full = true
	}
	if why&loaderNews != 0 && (w.poll(true) || w.acts.Heard()) {
		full = true
	}
	if full = full || why&(limitMet|stalled) != 0 && w.pace.Hint(w.now()); full {
		w.full()
	}
	return full || done
}

// poll takes in what loaders said, and tells whether there is a new one, for
// which a budget must be found before it has outgrown every limit. told says that
// there is news.
func (w *watcher) poll(told bool) (added bool) {
	if w.observe.Loader == nil {
		return false
	}
	said, news := w.observe.HearLoaders(w.now(), w.view, told, w.tell.Sum.Watched)
	w.node.Stagger.Withdrawn(w.observe.Loader.Withdrawn(), w.now())
	w.tell.Loaders(w.now(), said, news)
	for i := range said {
		s := &said[i]
		added = added || s.What == event.LoaderHello || s.What == event.LoaderIter || s.What == event.LoaderPickling
		w.acts.Hear(action.Said{LoaderSaid: s.LoaderSaid, Request: s.Request})
	}
	return added
}

// tick takes a fast look, and a full one where that is due or called for.
func (w *watcher) tick() {
	fault.Point("watcher")
	w.tell.Status.Changed()
	now := w.look()
	w.observe.Counts.Ask(now)
	w.observe.PSS.Wake(now)
	due := w.pace.Due(now)
	if w.pace.Holder(now, cadence.HolderEvery) {
		due = true // a look more in a wake that is there anyway
		if err := w.Link.Unstick(); err != nil {
			w.fault("holder", err)
		}
	}
	if (ranks{w}).answers() && w.acts.Advance() {
		w.full()
		return
	}
	if !due {
		return
	}
	w.pace.Again()
	if w.pace.FullDue(w.paced(now)) {
		w.full()
		return
	}
	if w.view.Watched < 0 {
		return
	}
	next := w.acts.Next(&w.view.Limits[w.view.Watched], w.view.From)
	began := time.Now()
	v, full := w.observe.Fast(now, w.view, next)
	w.pace.Fast.Add(time.Since(began))
	if w.see(v); full {
		w.full()
	}
}

// full reads everything, judges it and acts.
func (w *watcher) full() {
	began := time.Now()
	defer func() { w.pace.Full.Add(time.Since(began)) }()
	w.pace.Again()
	w.tell.Status.Changed()
	w.poll(false)
	w.read()
	w.step()
	w.observe.PSS.Hurry(w.acts.Ladder.Uncertain(w.view.Limits) || w.acts.InFlight() != nil)
	w.tell.Tell(w.now(), w.observe.Warnings())
	w.tell.Look(w.looked())
	w.acts.GoOn()
	w.oom.Raise()
	w.tell.Findings.Tell(w.now(), w.observe.Diagnose(w.now(), sameWake, w.view), w.view.Binding())
	w.tell.SHMUsers(w.now(), w.observe.SHMUsers.Told())
	w.tell.Tell(w.now(), w.observe.CheckHook())
	w.tell.Tell(w.now(), w.observe.TryTorch(w.now(), w.view))
	w.slim.at(w.now())
}

// said is a sentence as an error.
type said struct{ text string }

func (s *said) Error() string { return s.text }

// read takes a sample and reads the limits against it.
func (w *watcher) read() {
	now := w.look()
	if w.node.MeetDue(now+sameWake, &w.view.Sample) {
		w.meet()
	}
	before := w.view
	v, news := w.observe.Full(now, before)
	w.see(v)
	w.tell.Tell(w.now(), news)
	if v.Sample.Seq > 1 || w.node.Heir { // the start event has those of the first read
		if err := w.observe.WatchLimits(w.tell.Limits.Tell(w.now(), before, v)); err != nil {
			w.fault("inotify", err)
		}
	}
	w.pace.Read(now)
	w.tell.See(v)
}

// see makes v what was seen last.
func (w *watcher) see(v *view.View) { w.view, w.acts.View = v, v }

// step lets the ladder judge the last reading and carries out what it says.
func (w *watcher) step() {
	w.acts.Step()
	now := w.now()
	w.see(w.view.Forecast(w.observe.Forecasts.Of(now, w.view.Limits)))
	w.acts.Ladder.Observe(now, w.view.Limits)
	in := policy.Input{Now: now, Limits: w.view.Limits, Lead: w.acts.Leads()}
	in.JobEnd, in.EndUnsure = w.observe.JobEnd(now, w.view, w.acts.Ladder.JobEndAhead())
	for due := range w.acts.Ladder.Asks(&in) {
		in.Feasible[due.Ask] = w.acts.Can(due.Rule, due.Reading)
	}
	res := w.acts.Ladder.Judge(in)
	w.tell.Judged(&in, &res)
	if b, err := w.observe.SetBudget(w.view, w.acts.Ladder); err != nil {
		w.fault("loader", err)
	} else if b != nil {
		w.tell.Budget(b.Each, b.Rung, b.N)
	}
	for _, s := range res.Skipped {
		w.tell.Skipped(now, &s, w.view.Limit(s.On))
	}
	w.saveHandover()
	w.tell.Alerts.Raise(now, w.acts.Ladder.Raised(w.view.Limits), w.view.Limits)
	for _, d := range res.Decisions {
		w.tell.BeforeDecision(w.looked())
		w.acts.Decide(d)
	}
	if len(res.Decisions) > 0 {
		w.tell.AfterDecisions(w.looked())
	}
	w.saveHandover() // with what was over at once, and what waits for its turn
	if res.Changed && len(res.Decisions) == 0 {
		w.tell.Moved(w.looked())
	}
}

// looked is the last look, for who is told.
func (w *watcher) looked() *tell.Look {
	l := &tell.Look{Now: w.now(), Took: w.runTime(), View: w.view}
	if !w.observe.Pop.Attached() {
		l.Ranks = 1 + len(w.node.Others)
	}
	return l
}

// tellSignal tells of a signal that reached the holder.
func (w *watcher) tellSignal(sig hold.Signal) {
	w.acts.Signal(sig)
	now := w.now()
	e := event.Signal{Signal: tell.SignalName(sig.Signal), Sender: sig.Sender, Forwarded: sig.Forwarded}
	w.tell.Signal(now, e, w.view.Limits, func(l *event.Limit) float64 {
		r := w.view.Rate(l)
		return r.PerSecond(now)
	})
}
