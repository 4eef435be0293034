package supervisor

import (
	"fmt"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/cadence"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/population"
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
	case r := <-w.programs.Ended():
		w.ran(r)
		w.programs.Next()
		w.layDown()
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
		if w.taken(a); w.advance() {
			w.full()
			return true
		}
	}
	return false // nothing that is measured has changed
}

// heardProbes takes in what was read beside the loop, with a full look where that calls for
// one, and says whether the loop is to think again about when to wake.
func (w *watcher) heardProbes() bool {
	w.tryTorch()
	pss := w.heardPSS()
	answer, full := w.scontrol.Take()
	if full {
		w.answered(answer)
	}
	counts, reached := w.heardCounts()
	plan, steps, unmanaged := w.heardPlan(), w.heardSteps(), w.observe.Pop.Heard()
	if full = full || reached || plan || steps || unmanaged; full {
		w.full()
	}
	return pss || full || counts
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
	if w.node.Blind() && w.answers() && w.advance() {
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
	b := &w.view.Limits[w.view.Watched]
	next := w.next(b, w.view.From)
	began := time.Now()
	fast, ok := w.observe.Limits.Fast(now, next, w.observe.Pop.SumRSS)
	w.pace.Fast.Add(time.Since(began))
	if !ok || fast.Limit.ID() != b.ID() {
		w.full()
		return
	}
	w.view = w.view.Fast(now, &fast.Limit)
	if view.Growing(&fast.Limit) >= next {
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
	w.observe.PSS.Hurry(w.straddles() || w.flight != nil)
	w.warn(w.observe.Limits.Warnings())
	for _, err := range w.observe.PSS.Told() {
		w.fault("pss", err)
	}
	w.tell.Look(w.looked())
	w.goOn()
	w.prefer()
	w.diagnose()
	w.tellSHMUsers()
	w.checkHook()
	w.tryTorch()
	w.slim()
}

// said is a sentence as an error.
type said struct{ text string }

func (s *said) Error() string { return s.text }

// read takes a sample and reads the limits against it.
func (w *watcher) read() {
	at, now := time.Now(), w.look()
	if w.node.MeetDue(now+sameWake, &w.view.Sample) {
		w.meet()
	}
	procs, extra, gaps, err := w.population()
	if err != nil {
		w.fault("proctree", err)
		// What is a little old is nearer to the truth than nothing, or than a part.
		last := &w.view.Sample
		procs, extra, gaps = slices.Clone(last.Procs), slices.Clone(last.Extra), last.Gaps
	}
	w.observe.PSS.Update(now, procs, extra)
	s := rss.Sample{
		Seq: w.view.Sample.Seq + 1, At: at, Mono: now, Took: time.Since(at),
		Procs: procs, Extra: extra, Gaps: gaps,
	}
	var roles map[int]rss.Role
	if w.observe.Loader != nil {
		roles = w.observe.Loader.Roles()
		w.observe.Workers.SetTrainers(w.observe.Loader.Trainers())
	}
	for _, owner := range w.observe.Workers.Update(&s, roles, append(slices.Clone(w.observe.Pop.Tasks()), w.observe.Pop.Command)...) {
		w.fault("worker-match", &said{fmt.Sprintf("process %d starts no new worker where one has ended: no more of its workers are signalled", owner.PID)})
	}
	limits := append(w.observe.Limits.Read(&s), w.observe.Counts.Read(now, procs, w.observe.Pop.Command.PID, len(w.observe.Workers.Trainers()) > 0)...)
	for i := range limits {
		l := &limits[i] // what is certain of a sum of PSS may be more than readings say that are seconds old
		l.Used = max(l.Used, min(w.leastOf(l), l.UsedMax))
	}
	before := w.view
	w.view = before.Next(now, s, limits)
	w.changed(before)
	w.pace.Read(now)
	w.tell.See(w.view)
}

// population reads the tree and what counts beside it.
func (w *watcher) population() (procs, extra []rss.Proc, gaps rss.Gaps, err error) {
	procs, gaps, err = w.observe.Pop.Read()
	w.observe.FollowSteps()
	if err != nil {
		return nil, nil, gaps, err
	}
	// The first look is before the first line.
	if _, in := w.observe.Limits.Job(); in && w.view.Sample.Seq > 0 && !w.observe.Pop.FollowsJob() {
		if srun := population.Srun(procs); srun != 0 && w.tell.Once("srun", "") {
			w.tell.Warn(phrase.SrunInside(srun))
		}
	}
	extra, more, err := w.observe.Limits.Extra(w.observe.Pop.Tree, procs)
	return procs, extra, gaps.Add(more), err
}

// step lets the ladder judge the last reading and carries out what it says.
func (w *watcher) step() {
	w.stepAction()
	now := w.now()
	w.view = w.view.Forecast(w.ladder.Observe(now, w.view.Limits))
	in := policy.Input{Now: now, Limits: w.view.Limits, Lead: w.leads()}
	in.JobEnd, in.EndUnsure = w.jobEnd()
	for due := range w.ladder.Asks(&in) {
		in.Feasible[due.Ask] = w.can(due.Rule, due.Reading)
	}
	res := w.ladder.Judge(in)
	w.tell.Helps.Heard(&in, res.Asked)
	w.budget()
	for _, s := range res.Skipped {
		w.tell.Skipped(now, &s, w.view.Limit(s.On))
	}
	w.layDown()
	w.tell.Raise(now, w.ladder.Raised(w.view.Limits), w.view.Limits)
	for _, d := range res.Decisions {
		w.tell.BeforeDecision(w.looked())
		w.decide(d)
	}
	if len(res.Decisions) > 0 {
		w.tell.AfterDecisions(w.looked())
	}
	w.layDown() // with what was over at once, and what waits for its turn
	if res.Changed && len(res.Decisions) == 0 {
		w.tell.Moved(w.looked())
	}
}

// changed tells of limits that are new, and has the bell ring when one of them is met.
func (w *watcher) changed(before *view.View) {
	if w.view.Sample.Seq <= 1 && !w.node.Heir {
		return // the start event has them all
	}
	for _, l := range w.tell.Limits(w.now(), before, w.view) {
		if err := hearPressed(w.bell, l); err != nil {
			w.fault("inotify", err)
		}
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
	w.requeue.heardEnd(sig)
	now := w.now()
	e := event.Signal{Signal: tell.SignalName(sig.Signal), Sender: sig.Sender, Forwarded: sig.Forwarded}
	w.tell.Signal(now, e, w.view.Limits, func(l *event.Limit) float64 {
		r := w.view.Rate(l)
		return r.PerSecond(now)
	})
}
