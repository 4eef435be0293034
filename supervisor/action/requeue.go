package action

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/observe"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/tell"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

const (
	// nearlyFull is the use from which on no checkpoint is waited for: the kernel
	// may strike with the next page. A rule above it leaves half of what is left.
	nearlyFull = 0.99
	// lastRequeue is how long the watcher waits, when the command has ended, for
	// the job to be back in the queue: with the last process of ours Slurm would
	// end the one that sees to it too. See [RequeueFlush].
	lastRequeue = 20 * time.Second
	// afterKillWait is how long after KillWait a job is to start again: its nodes
	// are tidied up by then. Slurm would have it wait for 2 minutes.
	afterKillWait = 10 * time.Second
	// factsHold is how long Slurm's word about the job is believed.
	factsHold = 5 * time.Minute
	// errorHolds is the same where it did not answer.
	errorHolds = 2 * time.Second
)

// RequeueFlush is how long the holder is to give a watcher with a requeue= rule
// when the command has ended.
const RequeueFlush = lastRequeue + 4*time.Second

// requeuing is what the watcher remembers of requeue= rules.
type requeuing struct {
	*Env
	asking  *probe.Reader[factsAsk, jobFacts]
	hurry   chan struct{} // closed where the answer is needed now; nil where it comes anyway
	facts   jobFacts
	factsAt time.Duration // when they came, 0 for never
	under   *putting      // what was started last
	// asked is the signal that asked the command to end while the checkpoint was
	// waited for: then it has not ended by itself.
	asked string
	done  *tell.Requeued // the job is in the queue
}

func (a *requeuing) Can(r event.Rule, l *event.Limit) event.Feasibility {
	no := func(reason event.Reason, detail string) event.Feasibility {
		return event.Feasibility{Reason: reason, Detail: detail}
	}
	job, ok := a.Limits.Job()
	switch {
	case a.Able.Requeue != "":
		return no(event.ReasonUnsupported, a.Able.Requeue)
	case a.done != nil:
		return no(event.ReasonNoRequeue, "the job is in the queue already")
	case !ok || job.ID == "":
		return no(event.ReasonUnsupported, "not in a Slurm job")
	case !a.byJobMemory(l):
		return no(event.ReasonNoHelp, event.ActionRequeue.Why(event.ReasonNoHelp))
	case job.Restarts >= a.Settings.MaxRequeues:
		return no(event.ReasonRequeues, fmt.Sprintf("the job was started again %s, and --max-requeues is %d", text.Times(job.Restarts), a.Settings.MaxRequeues))
	}
	facts, known := a.jobFacts(job)
	if !known {
		return event.Feasibility{Reason: event.ReasonNoRequeue, Detail: "Slurm is being asked about the job", Later: true}
	}
	if facts.err != nil {
		return no(event.ReasonError, facts.err.Error())
	}
	_, h := a.newSize(r, l, &facts)
	return h
}

// byJobMemory says that a limit moves with the memory of the job.
func (a *requeuing) byJobMemory(l *event.Limit) bool {
	switch l.Name {
	case event.LimitSlurm:
	case event.LimitCgroup:
		if l.Scope != event.ScopeStep && l.Scope != event.ScopeJob {
			return false
		}
	case event.LimitUser:
		return a.Settings.LimitShare > 0
	default:
		return false
	}
	if l.Scope != event.ScopeStep {
		return true
	}
	// A step that was given less than the job by srun --mem has no more next time.
	return !slices.ContainsFunc(a.View.Limits, func(o event.Limit) bool {
		return o.Name == l.Name && o.Scope == event.ScopeJob && o.Limit > l.Limit
	})
}

// newSize finds how much memory the job is to have, in the unit that it was asked
// for in, or says why it cannot be requeued.
func (a *requeuing) newSize(r event.Rule, l *event.Limit, f *jobFacts) (mib uint64, h event.Feasibility) {
	no := func(reason event.Reason, detail string) (uint64, event.Feasibility) {
		return 0, event.Feasibility{Reason: reason, Detail: detail}
	}
	j := &f.job
	switch {
	case !j.Batch:
		return no(event.ReasonNoRequeue, "it has no batch script that could be started again (salloc, or srun alone)")
	case !j.Requeue:
		return no(event.ReasonNoRequeue, "it may not be requeued (--no-requeue, or JobRequeue=0 of this site): Requeue=0 in scontrol show job")
	case f.diesOnTERM != "":
		return no(event.ReasonNoRequeue, f.diesOnTERM)
	case j.State != "RUNNING":
		return no(event.ReasonNoRequeue, "it is "+j.State)
	case j.Restarts >= a.Settings.MaxRequeues:
		return no(event.ReasonRequeues, fmt.Sprintf("the job was started again %s, and --max-requeues is %d", text.Times(j.Restarts), a.Settings.MaxRequeues))
	}
	has := rss.Bytes(j.PerNode()) * rss.MiB
	// A step of Slurm's may have less than its job.
	if l.Name == event.LimitSlurm && l.Scope == event.ScopeStep && l.Accounting != event.AccountingVirtual && l.Limit < has.Scale(0.98) {
		return no(event.ReasonNoHelp, fmt.Sprintf("this step has %v of the job's %v, by srun --mem", l.Limit, has))
	}
	m, _ := r.More()
	want := m.Size
	switch {
	case m.Advice:
		want = policy.GuessMem(max(l.Used, l.Limit).Scale(1.5))
	case m.Share > 0:
		want = has + has.Scale(m.Share)
	}
	mib, err := j.Raise(uint64(want), f.room)
	if err != nil {
		return no(event.ReasonNoRequeue, err.Error())
	}
	return mib, event.Feasibility{OK: true}
}

func (a *requeuing) Begin(f *Flight, l *event.Limit) (Running, Result) {
	facts := a.facts
	mib, h := a.newSize(f.Decision.Rung, l, &facts)
	if !h.OK {
		return nil, Result{Reason: h.Reason, Detail: h.Detail}
	}
	c := Checkpoint{Wanted: a.Settings.CheckpointSignal != "", Timeout: a.Settings.CheckpointTimeout}
	tooNear := max(l.Limit.Scale(nearlyFull), l.Used+l.Headroom()/2)
	c.Near = func() bool {
		now := a.View.Limit(l.ID())
		return now != nil && now.Used >= tooNear
	}
	if c.Wanted && a.Settings.CheckpointFile != "" {
		c.File = watchFile(a.Settings.CheckpointFile)
	}
	a.asked = ""
	a.under = &putting{requeuing: a, flight: f, limit: *l, plan: RequeuePlan{
		Job: facts.job, MiB: mib, StartIn: facts.killWait + afterKillWait, Places: record.DefaultPlaces(a.Lookup, os.Geteuid()),
		Line: record.RequeueEntry{Rule: f.Decision.Rule, Because: fmt.Sprintf("%s at %s", l.Name, rss.UsedOf(l.Used, l.Limit)), Run: a.Tell.Run.ID},
	}}
	if job, ok := a.Limits.Job(); ok {
		line := &a.under.plan.Line
		line.Cluster, line.Node, line.Restart = job.Cluster, job.NodeName, job.Restarts
	}
	what := "requeueing"
	if c.Wanted {
		what = "checkpoint by " + a.Settings.CheckpointSignal + ", then requeue"
	}
	a.Tell.About(a.Now(), &f.Decision, l, "", what+" with "+a.under.size().String())
	return Requeue(a.under, c, f.Began), Result{}
}

// end ends a requeue under way because the command has ended: by itself,
// with its checkpoint written, or by Slurm, whose job it is again. Where the
// holder has gone without a word nothing is begun any more.
func (a *requeuing) end(f *Flight, held bool) Result {
	run, ok := f.Running.(*Requeuing)
	switch {
	case !ok || f.result != nil && f.result.OK:
		if f.result != nil {
			return *f.result
		}
		return Result{Reason: event.ReasonVanished}
	case !run.started && !held:
		return Result{Reason: event.ReasonVanished}
	case !run.started && a.asked != "":
		return Result{Reason: event.ReasonVanished, Detail: "the command ended by a " + a.asked + ", not by the wish for a checkpoint"}
	case !run.started:
		run.put(fmt.Sprintf("the command ended after %.1f s", (a.Now() - f.Began).Seconds()))
	}
	if a.under.answer == nil {
		return Result{Reason: event.ReasonVanished}
	}
	for end := time.Now().Add(lastRequeue); a.under.sent == nil; a.under.Ended() {
		if !a.under.answer.Wait(time.Until(end)) {
			return Result{Reason: event.ReasonTimeout, Detail: "Slurm does not answer, and the command has ended; " + a.under.whereTold()}
		}
	}
	r, _ := run.Step(World{Now: a.Now()})
	return r
}

func (p *putting) size() tell.Requeued {
	j := p.plan.Job
	to := j
	to.MiB = p.plan.MiB
	return tell.Requeued{From: rss.Bytes(j.PerNode()) * rss.MiB, To: rss.Bytes(to.PerNode()) * rss.MiB}
}

func requeueResult(size tell.Requeued, job slurm.RunningJob, r slurm.RequeueResult, steps []slurm.RequeueStep) Result {
	var took []string
	for _, s := range steps {
		if s.Step != slurm.StepLook {
			took = append(took, s.String())
		}
	}
	list := strings.Join(took, ", ")
	switch {
	case r.Requeued && r.Held:
		return Result{OK: true, Reason: event.ReasonDone, Detail: fmt.Sprintf("and held, Slurm did not release it: type scontrol release %s (%s)", job.Leader, list)}
	case r.Requeued && !r.Raised:
		return Result{OK: true, Reason: event.ReasonDone, Detail: fmt.Sprintf("as it was, with %d MiB: Slurm did not take the new size (%s)", size.From/rss.MiB, list)}
	case r.Requeued:
		return Result{OK: true, Reason: event.ReasonDone, Detail: "with " + size.String() + "; " + list}
	case r.Gone:
		return Result{Reason: event.ReasonNoRequeue, Detail: r.Why + ", not by rsswarden"}
	}
	return Result{Reason: event.ReasonNoRequeue, Detail: r.Why}
}

// jobFacts is what Slurm says of the job before it is requeued.
type jobFacts struct {
	job  slurm.RunningJob
	room slurm.MaxMemory // the most that its nodes and partition give
	// killWait is KillWait of slurm.conf.
	killWait time.Duration
	// diesOnTERM is why the process that puts the job back would not live for long
	// enough to do so; empty where it does.
	diesOnTERM string
	err        error
}

// factsAsk asks for the facts about a job, after a delay or once they are needed now.
type factsAsk struct {
	id     string
	holder int
	delay  time.Duration
	hurry  <-chan struct{}
}

func newFactsReader(proc string, run observe.Scontrol) *probe.Reader[factsAsk, jobFacts] {
	return probe.New(nil, func(ask factsAsk) jobFacts {
		select {
		case <-time.After(ask.delay):
		case <-ask.hurry:
		}
		fault.Point("requeue-ask")
		ctx, cancel := context.WithTimeout(context.Background(), slurm.ScontrolTimeout)
		defer cancel()
		f := askFacts(ctx, ask.id, run)
		f.diesOnTERM = diesOnTERM(proc, ask.holder)
		return f
	})
}

const killWaitDefault = 30 * time.Second

// jobFacts returns what Slurm says, or has it asked on the side. What is a little
// old does while it is asked again: the process that puts the job back looks too.
func (a *requeuing) jobFacts(job slurm.Job) (jobFacts, bool) {
	a.askJobFacts(job, 0)
	return a.facts, a.factsAt != 0
}

// askJobFacts takes in what Slurm said, and has it asked, after a delay, where that
// is not fresh.
func (a *requeuing) askJobFacts(job slurm.Job, delay time.Duration) {
	if facts, ok := a.asking.Take(); ok {
		a.facts, a.hurry, a.factsAt = facts, nil, max(a.Now(), 1)
	}
	if a.hurry != nil && delay == 0 {
		close(a.hurry)
		a.hurry = nil
	}
	hold := factsHold
	if a.facts.err != nil {
		hold = errorHolds
	}
	if a.asking.Busy() || a.factsAt != 0 && a.Now()-a.factsAt < hold {
		return
	}
	if delay > 0 {
		a.hurry = make(chan struct{})
	}
	a.asking.Ask(factsAsk{job.ID, a.Pop.Holder, delay, a.hurry}, false)
}

// askFacts asks about the job, its nodes and its partition. What the last two give
// at most may stay unknown.
func askFacts(ctx context.Context, id string, scontrol observe.Scontrol) (f jobFacts) {
	out, err := scontrol(ctx, "show", "job", "-o", id)
	if err == nil {
		f.job, err = slurm.ParseRunningJob(out, id)
	}
	if err != nil {
		f.err = fmt.Errorf("cannot ask Slurm about job %s: %w", id, err)
		return f
	}
	f.killWait = killWaitDefault
	if out, err := scontrol(ctx, "show", "config"); err == nil {
		f.killWait = parseKillWait(out)
	}
	if f.job.NodeList != "" {
		if out, err := scontrol(ctx, "show", "node", "-o", f.job.NodeList); err == nil {
			f.room = f.room.Least(slurm.ParseMaxMemory(out))
		}
	}
	if f.job.Partition != "" {
		if out, err := scontrol(ctx, "show", "partition", "-o", f.job.Partition); err == nil {
			f.room = f.room.Least(slurm.ParseMaxMemory(out))
		}
	}
	return f
}

// prefetchJob has Slurm asked about the job ahead, where a rule on requeue= may fire: it
// is to act at once then. At the start of a job thousands of tasks would ask, so
// only the leader does.
func (a *requeuing) prefetchJob(delay time.Duration) {
	job, ok := a.Limits.Job()
	if !ok || a.Able.Requeue != "" || a.Ranks.Alone() && job.LocalID != 0 && delay > 0 || job.Restarts >= a.Settings.MaxRequeues || !a.Settings.Requeues() {
		return
	}
	a.askJobFacts(job, delay)
}

// parseKillWait reads "KillWait = 30 sec" from what `scontrol show config` prints.
func parseKillWait(b []byte) time.Duration {
	values, err := slurm.ParseShowConfig(b)
	if err != nil {
		return killWaitDefault
	}
	number, _, _ := strings.Cut(values["killwait"], " ")
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return killWaitDefault
	}
	return time.Duration(n) * time.Second
}

// diesOnTERM says why all of the job's processes on this node would be gone at Slurm's
// TERM: it ends the batch script, and with that slurmstepd kills what is left.
// Where rsswarden is what slurmstepd has started, it stays until the job is in the
// queue.
func diesOnTERM(proc string, holder int) string {
	task, stepd := 0, false
	for i, err := range proctree.Parents(proc, holder) {
		if i.ID.PID <= 1 || task == 0 && err != nil {
			break
		}
		if stepd = task != 0 && (err != nil || strings.HasPrefix(i.Comm, "slurmstepd")); stepd {
			break
		}
		task = i.ID.PID
	}
	if !stepd {
		return "no slurmstepd found above rsswarden, so it is unknown whether Slurm's TERM leaves it time"
	}
	// What cannot be read does not outlive it as far as we know.
	if lives, _ := signalIn(proc, task, syscall.SIGTERM, "SigCgt:", "SigIgn:"); lives || task == holder {
		return ""
	}
	return "the batch script stands between Slurm and rsswarden: Slurm's TERM would end it, and everything with it, before the job has its memory; " +
		"write `exec rsswarden run -- …` as its last line, or `srun rsswarden run -- …`"
}

// SayLastAttempt says on the side how the attempt before this one ended: it is read
// from a shared file system, and the command does not wait for it.
func (a *Env) SayLastAttempt() {
	find := a.LastAttempt()
	if find == nil {
		return
	}
	probe.Run(func() {
		if text := find(); text != "" {
			a.Tell.Info(text)
		}
	})
}

// LastAttempt returns how to find out how the last attempt ended, empty where it has
// left no word; nil where there was none, or another watcher reports it: on the first
// node the leader.
func (a *Env) LastAttempt() func() string {
	job, ok := a.Limits.Job()
	first := job.NodeID == 0 && !a.Ranks.Successor()
	if a.Ranks.Alone() {
		first = job.Task == 0
	}
	if !ok || job.Restarts == 0 || !first || a.Able.Requeue != "" || a.Attempt > 1 {
		return nil
	}
	has, _ := slurm.StepLimit(a.Lookup, slurm.RlimitRSS())
	places := record.DefaultPlaces(a.Lookup, os.Geteuid())
	return func() string {
		lines := record.ReadRequeueLog(places, job.ID, job.Cluster, time.Now())
		last, ok := record.LastRequeue(lines, job.Restarts)
		if !ok {
			return ""
		}
		return lastAttempt(job.ID, job.Restarts, &last, has.Bytes>>20)
	}
}

var ordinals = []string{"first", "second", "third", "fourth", "fifth"}

func ordinal(restarts int) string {
	if restarts < len(ordinals) {
		return ordinals[restarts]
	}
	return fmt.Sprintf("%dth", restarts+1)
}

// lastAttempt is "second attempt of job 46: the first was requeued at 14:03:22 by
// 97%:requeue, slurm at 291 of 300 MiB; it had 300 MiB and this one has 375".
func lastAttempt(job string, restarts int, last *record.Requeued, hasMiB uint64) string {
	text := fmt.Sprintf("%s attempt of job %s: the %s was requeued at %s by %s, %s",
		ordinal(restarts), job, ordinal(last.Restart), last.Time.Local().Format(time.TimeOnly), last.Rule, last.Because)
	text += fmt.Sprintf("; it had %d MiB", last.FromMiB)
	switch {
	case hasMiB == 0:
	case !slices.Contains([]uint64{last.ToMiB, 0}, hasMiB) && last.Raised:
		text += fmt.Sprintf(" and was to have %d, this one has %d", last.ToMiB, hasMiB)
	default:
		text += fmt.Sprintf(" and this one has %d", hasMiB)
	}
	if len(last.Errors) > 0 {
		text += " (" + strings.Join(last.Errors, "; ") + ")"
	}
	return text
}
