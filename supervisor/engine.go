// Package supervisor is the watcher: it puts the parts together that read memory, judge it,
// act on it and tell, and runs the loop in [Watch], whose goroutine owns all state.
//
// A full read takes the processes that are watched (package population), finds their
// roles (workers) and how near each limit is (limit, counts), lets the ladder judge
// (policy), begins and advances actions (action), and tells (tell). Between two full reads a
// fast one reads one counter of the limit that binds, after a pause that follows from
// headroom and the fastest growth seen (cadence). What may hang is read beside the loop
// (probe, observe). docs/architecture.md has the picture.
//
// The command depends on none of this. The watcher is a process of its own: a panic here
// ends it, the holder starts it again, and the command notices nothing. Any other failure is
// told once, and the part is left out from then on; docs/promises.md has a row, and a test,
// for each.
package supervisor

import (
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/attach"
	"github.com/rsswarden/rsswarden/supervisor/cadence"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/counts"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/node"
	"github.com/rsswarden/rsswarden/supervisor/observe"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/population"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/tell"
	"github.com/rsswarden/rsswarden/supervisor/view"
	"github.com/rsswarden/rsswarden/supervisor/wake"
)

// Options are what one watcher works with.
type Options struct {
	Settings settings.Settings
	Link     Holder
	Proc     string // "/proc"
	Sys      string // "/sys"
	Self     int    // PID of the watcher
	Lookup   func(string) (string, bool)
	Log      tell.Lines
	Able     attach.Abilities
	Job      func() population.Job // of a job that we attached to; else nil
	Keep     []int                 // descriptors that are the user's, and that Settings name
	Served   func() bool           // this program lies on a file server, and is not executed again; nil for so
}

// Holder is the holder as the watcher sees it: [hold.Link] outside tests.
type Holder interface {
	Begin() hold.Begin
	// Messages yields what the holder says, in its order.
	Messages() <-chan hold.Message
	Subreaper(on bool) error
	Override(status int) error
	Unstick() error
	Prepare() error
	Start(cmd *exec.Cmd) error
	// Trim asks for one piece to be given back; a message answers.
	Trim(hold.TrimRequest) error
	// Rest has this process do nothing but wait. It returns where that cannot be.
	Rest(r hold.Rest, last func()) error
}

// engine is the state of the watcher. Only the loop's goroutine touches it.
type engine struct {
	Options
	clock

	early   view.News // what was met before anything could be said
	node    *node.Place
	observe *observe.Observer
	probes  probe.Set
	bell    *wake.Bell // rings for the causes below

	tell *tell.Fan
	slim selfTrim
	view *view.View // what was seen last
	pace cadence.Pace
	acts *action.Set
	oom  *action.OOMPrefer

	prepared bool          // what is needed near a limit was taken
	rests    time.Duration // when a follower's watcher rests at the earliest
}

// Watch watches the command of opt.Link until it has ended, and says so.
func Watch(opt Options) {
	begin := opt.Link.Begin()
	if s := &opt.Settings; begin.LeftOut {
		s.Dir = ""
		s.Warnings = append(s.Warnings, "the loader hook is off: the environment leaves no room for our variables (E2BIG)")
	}
	e := newEngine(opt, begin)
	if job, in := slurm.FromEnv(opt.Lookup); begin.Attempt <= 1 && !e.observe.Pop.Attached() && (!in || job.Tasks <= 1) {
		e.bell.Later()
		time.AfterFunc(listenAfter, func() { e.bell.Ring(listenDue) })
	}
	if e.join(begin); e.node.Leads() {
		e.open(begin)
	} else {
		e.openFollowing(begin)
	}
	e.loop()
	if limits := e.observe.Limits; limits != nil {
		limits.Close()
	}
}

// What the bell rings for.
const (
	loaderNews wake.Cause = 1 << iota // something was put into a run directory
	rankNews                          // a rank came or went, or answers
	limitMet                          // a limit of cgroup v2 has slowed a process, was met, or had one killed
	stalled                           // tasks of the node wait for memory
	actionDue                         // the action in flight goes on, or a program has ended
	sinkFailed                        // something could not be told
	listenDue                         // the command is no short one
)

// listenAfter is when the kernel is asked to tell of changes. Until then there are looks alone,
// as often as where it cannot be asked; another rank, a loader, or a process as large as
// listenFrom has it asked at once: none that has imported PyTorch is smaller.
const (
	listenAfter = 2 * time.Second
	listenFrom  = 64 * rss.MiB
)

// listen has the bell ring for what the kernel tells. Where that fails, it is looked for.
func (e *engine) listen() {
	if !e.bell.Quiet() {
		return
	}
	if err := e.bell.Listen(); err != nil {
		e.fault("inotify", err)
		e.observe.Hears = false
		e.node.Deaf()
	}
}

// sameWake is by how much something may come early in a wake that is there anyway.
const sameWake = counts.Tolerance

// paced is what the pace is decided by.
func (e *engine) paced(now time.Duration) *cadence.Input {
	in := e.pace.Input(now, e.view, e.acts)
	in.Unheard = e.observe.Loader != nil && (!e.observe.Hears || e.bell.Quiet())
	if f := e.acts.InFlight(); f != nil {
		in.Flight = now - f.Began
	}
	return in
}

// pause is how long to wait before the next look, of whatever kind.
func (e *engine) pause(now time.Duration) time.Duration {
	if !e.node.Leads() {
		pause := e.node.Within(now, e.pace.HolderDue(now, followedHolderEvery))
		if due := e.rests - now; due > 0 {
			pause = min(pause, due)
		} else {
			pause = min(pause, restAgain)
		}
		return max(pause, cadence.MinPause)
	}
	in := e.paced(now)
	in.Wake = e.observe.Wake(now)
	return max(e.node.Within(now, e.pace.Next(in)), cadence.MinPause)
}

// loop runs until the command has ended.
func (e *engine) loop() {
	timer := time.NewTimer(e.sleep(e.pause(e.now())))
	for !e.turn(timer) {
	}
}

// woken is what has woken the loop, where that is not over at once.
type woken struct {
	message hold.Message
	why     wake.Cause
	probes  bool
	timer   bool
}

// turn waits for the next message or read and handles it, as leader or as follower. It says
// whether the command has ended.
func (e *engine) turn(timer *time.Timer) (ended bool) {
	var by woken
	select {
	case by.message = <-e.Link.Messages():
	case r := <-e.tell.Status.Requests():
		if e.node.Leads() && e.pace.Old(e.now()) {
			e.full()
			timer.Reset(e.sleep(e.pause(e.now())))
		}
		e.answerClient(r)
		return false // nothing that is measured has changed
	case <-e.bell.C():
		if by.why = e.bell.Causes(); by.why&sinkFailed != 0 {
			e.tell.HearFailures(e.now())
		}
	case <-e.probes.C():
		by.probes = true
	case <-timer.C:
		by.timer = true
	}
	e.tell.Status.Changed()
	switch m := by.message.(type) {
	case hold.Exit:
		e.end(&m)
		return true
	case hold.Gone:
		e.end(nil)
		return true
	case hold.Signal:
		e.tellSignal(m)
		if m.JobControl() {
			e.rests = max(e.rests, e.now()+restCalm)
		} else {
			e.rests = cadence.Never // for how the run ended
		}
	}
	if !e.node.Leads() {
		e.follow(by)
	} else if e.lead(by) {
		e.heardNode(e.node.Advance(e.now()))
	} else {
		return false // the timer runs on: news must not put looks off
	}
	timer.Reset(e.sleep(e.pause(e.now())))
	return false
}

// lead has memory read where that is called for, and says whether the loop is to think again
// about when to wake.
func (e *engine) lead(by woken) bool {
	switch {
	case by.timer:
		e.tick()
		return true
	case by.probes:
		return e.heardProbes()
	case by.why != 0:
		return e.rung(by.why)
	}
	if a, ok := by.message.(hold.TrimAnswer); ok {
		if e.acts.Trimmed(a); e.acts.Advance() {
			e.full()
			return true
		}
	}
	return false // nothing that is measured has changed
}

// heardProbes takes in what was read beside the loop, with a full look where that calls for
// one, and says whether the loop is to think again about when to wake.
func (e *engine) heardProbes() bool {
	now := e.look()
	h := e.observe.Hear(now, e.view, e.acts.Ladder)
	e.tell.Tell(now, h.News)
	if h.Woken {
		e.observe.PSS.Spend(e.pace.Full.Cost())
	}
	plan := e.acts.Planned()
	hurry := h.PSS && e.pace.Hurry(now)
	if plan || hurry || h.Full {
		e.full()
		return true
	}
	return h.Any
}

// rung does what the bell has rung for, and says whether that was anything.
func (e *engine) rung(why wake.Cause) (done bool) {
	full := false
	if why&limitMet != 0 {
		e.observe.Limits.AwaitVictim()
	}
	if why&listenDue != 0 {
		e.listen()
	}
	if why&rankNews != 0 {
		done, full = true, (ranks{e}).answers() && e.acts.Advance() || e.meet()
	}
	if why&actionDue != 0 {
		e.acts.HearPrograms()
		full = e.acts.Advance() || full
	}
	if why&loaderNews != 0 && (e.poll(true) || e.acts.Heard()) {
		full = true
	}
	if full = full || why&(limitMet|stalled) != 0 && e.pace.Hint(e.now()); full {
		e.full()
	}
	return full || done
}

// poll takes in what loaders said, and tells whether there is a new one, for
// which a budget must be found before it has outgrown every limit. told says that
// there is news.
func (e *engine) poll(told bool) (added bool) {
	if e.observe.Loader == nil {
		return false
	}
	said, news := e.observe.HearLoaders(e.now(), e.view, told || e.bell.Quiet(), e.tell.Sum.Watched)
	if len(said) > 0 {
		e.listen()
	}
	e.node.Stagger.Withdrawn(e.observe.Loader.Withdrawn(), e.now())
	e.tell.Loaders(e.now(), said, news)
	for i := range said {
		s := &said[i]
		added = added || s.What == event.LoaderHello || s.What == event.LoaderIter || s.What == event.LoaderPickling
		if s.What == event.LoaderRecycled && event.Reason(s.Reason).PutOff() {
			e.tell.Status.CountRecycled(e.node.Owner(e.view.Sample.Procs, s.Trainer.PID).Holder) // no action waits for it
		}
		e.acts.Hear(action.Said{LoaderSaid: s.LoaderSaid, Request: s.Request})
	}
	return added
}

// tick takes a fast look, and a full one where that is due or called for.
func (e *engine) tick() {
	fault.Point("watcher")
	now := e.look()
	e.observe.Counts.Ask(now)
	e.observe.PSS.Wake(now)
	due := e.pace.Due(now)
	if e.pace.Holder(now, e.pace.HolderEvery(e.paced(now))) {
		due = true // a look more in a wake that is there anyway
		if err := e.Link.Unstick(); err != nil {
			e.fault("holder", err)
		}
	}
	if (ranks{e}).answers() && e.acts.Advance() {
		e.full()
		return
	}
	if !due {
		return
	}
	e.pace.Again()
	if e.pace.FullDue(e.paced(now)) {
		e.full()
		return
	}
	if e.view.Watched < 0 {
		return
	}
	next := e.acts.Next(&e.view.Limits[e.view.Watched], e.view.From)
	began := time.Now()
	v, full := e.observe.Fast(now, e.view, next)
	e.pace.Fast.Add(time.Since(began))
	if e.see(v); full {
		e.full()
	}
}

// full reads everything, judges it and acts.
func (e *engine) full() {
	began := time.Now()
	defer func() { e.pace.Full.Add(time.Since(began)) }()
	e.pace.Again()
	e.poll(false)
	e.read()
	if e.bell.Quiet() && slices.ContainsFunc(e.view.Sample.Procs, func(p rss.Proc) bool { return p.RSS >= listenFrom }) {
		e.listen()
	}
	e.step()
	e.observe.PSS.Hurry(e.acts.Ladder.Uncertain(e.view.Limits) || e.acts.InFlight() != nil)
	e.tell.Tell(e.now(), e.observe.Warnings())
	e.tell.Look(e.looked())
	e.acts.Requests.GoOn()
	e.oom.Raise()
	e.prepare()
	e.tell.Findings.Tell(e.now(), e.observe.Diagnose(e.now(), sameWake, e.view), e.view.Binding())
	e.tell.SHMUsers(e.now(), e.observe.SHMUsers.Told())
	e.tell.Tell(e.now(), e.observe.CheckHook())
	e.tell.Tell(e.now(), e.observe.TryTorch(e.now(), e.view))
	e.slim.at(e.now(), e.prepared)
}

// read takes a sample and reads the limits against it.
func (e *engine) read() {
	now := e.look()
	if e.node.MeetDue(now+sameWake, &e.view.Sample) {
		e.meet()
	}
	before := e.view
	v, news := e.observe.Full(now, before)
	e.see(v)
	e.tell.Tell(e.now(), news)
	if v.Sample.Seq > 1 || e.node.Successor { // the start event has those of the first read
		if err := e.observe.WatchLimits(e.tell.Limits.Tell(e.now(), before, v)); err != nil {
			e.fault("inotify", err)
		}
	}
	e.pace.Read(now, v)
	e.tell.See(v)
}

// see makes v what was seen last.
func (e *engine) see(v *view.View) { e.view, e.acts.View = v, v }

// step lets the ladder judge the last reading and carries out what it says.
func (e *engine) step() {
	e.acts.Step()
	now := e.now()
	e.see(e.view.Forecast(e.observe.Forecasts.Of(now, e.view.Limits, e.acts.InFlight() != nil)))
	e.acts.Ladder.Observe(now, e.view.Limits)
	if e.Settings.BySite && population.InnerRun(e.view.Sample.Procs, e.observe.Pop.Command.PID) != 0 {
		e.Settings.Short = false // a run that the user has typed decides and speaks
		return
	}
	in := policy.Input{Now: now, Limits: e.view.Limits, Lead: e.acts.Leads()}
	in.JobEnd, in.EndUnsure = e.observe.JobEnd(now, e.view, e.acts.Ladder.JobEndAhead())
	for due := range e.acts.Ladder.Asks(&in) {
		in.Feasible[due.Ask] = e.acts.Can(due.Rule, due.Reading)
	}
	res := e.acts.Ladder.Judge(in)
	e.tell.Judged(&in, &res)
	if b, err := e.observe.SetBudget(e.view, e.acts.Ladder); err != nil {
		e.fault("loader", err)
	} else if b != nil {
		e.tell.Budget(b.Each, b.N)
	}
	if err := e.observe.SetLeft(e.view, e.acts.Ladder); err != nil {
		e.fault("loader", err)
	}
	for _, s := range res.Skipped {
		e.tell.Skipped(now, &s, e.view.Limit(s.On))
	}
	e.saveHandover()
	e.tell.Alerts.Raise(now, e.acts.Ladder.Raised(e.view.Limits), e.view.Limits)
	for _, d := range res.Decisions {
		e.tell.BeforeDecision(e.looked())
		e.acts.Decide(d)
	}
	if len(res.Decisions) > 0 {
		e.tell.AfterDecisions(e.looked())
	}
	e.saveHandover() // with what was over at once, and what waits for its turn
	if res.Changed && len(res.Decisions) == 0 {
		e.tell.Moved(e.looked())
	}
}

// prepare takes what is needed near a limit on memory or on tasks while there is room for it.
func (e *engine) prepare() {
	for i := range e.view.Limits {
		l := &e.view.Limits[i]
		if e.prepared || !l.Name.Memory() && l.Name != event.LimitTasks || l.Limit == 0 || l.Ratio() < prepareAt {
			continue
		}
		e.prepared = true
		if err := e.Link.Prepare(); err != nil {
			e.fault("holder", err)
		}
	}
}

// prepareAt is the share of a limit at which that is done, below the first rung of the defaults.
const prepareAt = 0.75

// looked is the last look, as package tell takes it.
func (e *engine) looked() *tell.Look {
	l := &tell.Look{Now: e.now(), Took: e.runTime(), View: e.view}
	if !e.observe.Pop.Attached() {
		l.Ranks = 1 + len(e.node.Others)
	}
	return l
}

// tellSignal reports a signal that reached the holder.
func (e *engine) tellSignal(sig hold.Signal) {
	e.acts.HearSignal(sig)
	now := e.now()
	out := event.Signal{Signal: tell.SignalName(sig.Signal), Sender: sig.Sender, Forwarded: sig.Forwarded}
	e.tell.Signal(now, out, e.view.Limits, func(l *event.Limit) float64 {
		r := e.view.Rate(l)
		return r.PerSecond(now)
	})
}

// runTime is the time since the run began.
func (e *engine) runTime() time.Duration { return e.tell.Run.Took(e.started) }

// fault says that a part of ours does not work. The command runs on.
func (e *engine) fault(part string, err error) {
	e.tell.Fault(e.now(), part, err)
}

// serve opens the control socket. Where that fails the run takes no requests.
func (e *engine) serve() {
	if !e.node.Joined() {
		return
	}
	if err := e.tell.Status.Serve(e.node.Dir()); err != nil {
		e.fault("control", err)
	}
}

// serveNoMore closes the socket, before another watcher opens its own.
func (e *engine) serveNoMore() {
	e.acts.Requests.End("the run has ended")
	e.tell.Status.Close()
}

// answerClient answers what a client asks.
func (e *engine) answerClient(r tell.Request) {
	if r.Command != nil {
		results, err := e.acts.Requests.Obey(r.Context, *r.Command)
		e.tell.Status.Begun(r, results, err)
		return
	}
	e.tell.Status.Answer(r, e.statusFacts())
}

// statusFacts is what the status is made of.
func (e *engine) statusFacts() *tell.StatusFacts {
	p := e.node
	st := &tell.StatusFacts{
		Since: e.started.Add(p.From), View: e.view, Rules: e.Settings.RuleTexts(), DryRun: e.Settings.DryRun,
		Trainers: e.observe.Workers.Trainers(), NoHook: e.acts.NoHook(), Recyclable: map[int]bool{}, Trimmable: map[int]bool{},
		Step: e.observe.Pop.Step, Counts: e.observe.Counts.Of, Ours: e.tell.Costs(e.now()), Alerts: e.tell.Alerts.Receivers(),
	}
	if job, ok := e.observe.Limits.Job(); ok {
		st.Job = job.ID
	}
	if f := e.acts.InFlight(); f != nil {
		st.Action = &control.Action{Action: f.Decision.Action, Rule: f.Decision.Rule, Since: e.started.Add(f.Began)}
		for i := range f.Acted.Procs {
			st.Action.PIDs = append(st.Action.PIDs, f.Acted.Procs[i].ID.PID)
		}
	}
	for _, m := range append([]node.Member{p.Me}, p.Others...) {
		st.Ranks = append(st.Ranks, control.Rank{
			Task: m.Task, Step: m.Step, PID: m.Command.PID, Holder: m.Holder.PID, Watcher: m.Watcher.PID, Leads: m.Holder == p.Me.Holder,
			Command: strings.Join(m.Words, " "), Since: m.Since, Recycled: e.tell.Status.Recycled(m.Holder),
		})
	}
	for _, u := range e.observe.Workers.Recyclable(event.AccountingCgroup) {
		st.Recyclable[u.ID.PID] = true
	}
	if e.observe.Loader != nil && e.Settings.Trim.Hook() {
		for _, m := range e.observe.Workers.Mappers(event.AccountingRSS) {
			st.Trimmable[m.ID.PID] = true
		}
	}
	return st
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
	switch {
	case e.observe.Pop.Attached():
		out.Attached = phrase.AttachEnded(e.observe.Pop.Command.PID, e.observe.Pop.Name, exit != nil, e.tell.Sum.Stopped, time.Since(e.started))
	case e.Able.Exit != "":
		out.Attached = phrase.TaskEnded(e.tell.Sum.Stopped, time.Since(e.started))
	}
	if len(e.node.Others) > 0 {
		out.Rank = e.node.Me.Task
	}
	e.tell.End(&out, action.LastPatience)
}
