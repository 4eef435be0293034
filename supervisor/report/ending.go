package report

import (
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// ending is why one run ended. Package render has the sentence.
type ending struct {
	kind      endKind
	cause     event.Cause
	certainty Certainty
	limit     int   // the limit that ended it, index in Run.Limits, -1 for none
	near      brink // how near that limit was; its Limit is nil where none is known
	count     count // of an end for want of mappings or descriptors
	death     death // how the command ended
	signal    lookSignal
	slurm     agreement
	overruled *ending // what the record alone says, where Slurm says otherwise
}

// endKind is a way to end. A cause has several where the record shows different things
// of it.
type endKind int

// The ways to end.
const (
	endRunning endKind = iota
	endFine
	endDetached
	endHandedOver    // another rank's watcher goes on with the record
	endStopped       // by a rule
	endRequeued      // by a rule
	endKernelKill    // a kill that the kernel counted
	endCgroupFull    // a SIGKILL with the cgroup full
	endNodeFull      // a SIGKILL with the node's memory full
	endStepKill      // slurmstepd's OverMemoryKill
	endJobKill       // slurmd's, by SIGTERM
	endJobKillUnseen // slurmd's, by a SIGTERM that did not come here
	endAsked         // a signal that asks for the end
	endAskedDirectly // SIGTERM to the command alone
	endTimeLimit
	endSIGKILL      // that nothing explains
	endSIGKILLSlurm // that Slurm alone knows of
	endCrash
	endCrashSlurm    // that Slurm alone knows of
	endStepKillSlurm // that Slurm alone knows of
	endHolderKilled
	endAbrupt // the record breaks off with nothing near
	endSHM
	endCount   // mappings or descriptors
	endUsedUp  // tasks or address space
	endSending // a data set that was sent to workers
	endSlurm   // what Slurm says overrules the record
)

// agreement is how what Slurm says of an end goes with the record.
type agreement int

// The kinds of agreement.
const (
	slurmSilent agreement = iota
	slurmConfirms
	slurmState    // it tells the state of the job, which goes on
	slurmStepKill // it tells that slurmstepd killed, and the limit was not full yet
	slurmYet      // it says otherwise, and the record knows more
	slurmOverrules
)

// worthTelling is the share of a limit from which on it is told how near it was.
const worthTelling = 0.5

// inquest looks for why one run ended. What the record has comes first, Slurm's
// word second: Slurm names the state that it put the job into, which tells who
// acted and not always why.
type inquest struct {
	*look
	said *SlurmSays // nil where it does not speak of this run
	step *StepSays  // what it says of the run's own step
	// settled says that the record of a run of the job, on whatever node, shows
	// the cause that Slurm names: the others ended of something else then.
	settled bool
	// rank is another rank of the node than the record's own, whose end is asked
	// about; nil for the record's own.
	rank  *lookRank
	found ending
}

const (
	// nearFull is the share of a memory limit from which on a SIGKILL is laid to
	// it: between the last sample and a kill it only grew.
	nearFull = 0.9
	// outOf is the share of a count from which on a failure is laid to it, full
	// that of /dev/shm where no SIGBUS speaks for it too.
	outOf = 0.9
	full  = 0.98
	// mayBe is the share from which on a sentence says that a limit may have had
	// to do with it.
	mayBe = 0.95
	// mayClose is the share of a memory limit from which on a record that breaks
	// off may be laid to it: as much as most can grow by between the last sample
	// and the kill. closeWithin is the time in which it would have been full.
	mayClose    = 0.75
	closeWithin = 5 * time.Second
	// termToKill is how long after a SIGTERM an end is laid to it: KillWait of
	// slurm.conf, which is 30 s where nobody changed it, and some more.
	termToKill = 3 * time.Minute
	// endSlack is how much earlier than the job's end Slurm's SIGTERM may come:
	// times in slurmctld are whole seconds.
	endSlack = 5 * time.Second
)

// hear takes in what Slurm says of the run.
func (q *inquest) hear(said *SlurmSays) {
	q.said = said
	if j := q.run.Meta.Job; j != nil {
		step := j.Step
		if q.rank != nil {
			step = q.rank.step
		}
		if step != "" {
			q.step = said.step(j.ID, step)
		}
	}
}

// diagnose finds the cause.
func (q *inquest) diagnose() ending {
	var f ending
	switch {
	case q.run.Live:
		f = seen(endRunning, event.CauseRunning)
	case q.rank == nil && q.requeued():
		f = seen(endRequeued, event.CauseRequeued)
	case q.handedOver():
		f = seen(endHandedOver, event.CauseDetached)
	case q.exit == nil:
		f = q.brokenOff()
	case q.exit.By == "detached":
		f = seen(endDetached, event.CauseDetached)
	case q.exit.By == "rsswarden":
		f = seen(endStopped, event.CauseStopped)
	default:
		f = q.ended()
	}
	if q.said != nil && f.cause != event.CauseRunning && f.cause != event.CauseDetached {
		f = q.heed(f)
	}
	return f
}

func seen(kind endKind, cause event.Cause) ending {
	return ending{kind: kind, cause: cause, certainty: Seen, limit: -1}
}

func inferred(kind endKind, cause event.Cause) ending {
	return ending{kind: kind, cause: cause, certainty: Inferred, limit: -1}
}

// by lays an end to a limit.
func (f ending) by(b brink, d death) ending {
	f.limit, f.near, f.death = b.i, b, d
	return f
}

// ended finds out why the command ended, with the watcher there to see it.
func (q *inquest) ended() ending {
	d := q.death()
	signal, told := q.told()
	shm, _ := q.fullest(event.LimitSHM)
	tasks, _ := q.fullest(event.LimitTasks)
	addresses, _ := q.fullest(event.LimitAS)
	maps, fds := q.maps.fullest(q.end), q.fds.fullest(q.end)
	switch {
	case q.kernelKills() > 0:
		return q.byKernel(d)
	case d.ok():
		f := seen(endFine, event.CauseEnded)
		f.death = d
		return f
	case !d.seen:
		return q.brokenOff()
	case told:
		return q.onSignal(signal, d)
	case d.by("SIGBUS", 7) && shm.ratio >= nearFull:
		return inferred(endSHM, event.CauseSHM).by(shm, d)
	case d.by("SIGKILL", 9):
		return q.bySIGKILL(d)
	case d.by("SIGTERM", 15):
		if q.timeUp() {
			return q.timeLimit(d)
		}
		f := inferred(endAskedDirectly, event.CauseCancelled)
		f.death = d
		return f
	case maps.near():
		return q.outOf(endCount, event.CauseMaps, maps, d)
	case fds.near():
		return q.outOf(endCount, event.CauseFDs, fds, d)
	case q.sentTooMuch():
		return q.outOf(endSending, q.sent.tooMuch(), count{}, d)
	case shm.ratio >= full:
		return inferred(endSHM, event.CauseSHM).by(shm, d)
	case tasks.nearFull():
		return inferred(endUsedUp, event.CauseTasks).by(tasks, d)
	case addresses.nearFull():
		return inferred(endUsedUp, event.CauseAS).by(addresses, d)
	}
	f := seen(endCrash, event.CauseCrash)
	f.death = d
	return f
}

// brokenOff finds out why a record has no end, or one that nobody told the watcher
// of: SIGKILL took the holder and most often the watcher too, as slurmstepd's
// OverMemoryKill, a cgroup with memory.oom.group and the end of KillWait do, or the
// node is gone.
func (q *inquest) brokenOff() ending {
	if signal, told := q.told(); told {
		return q.onSignal(signal, death{})
	}
	if f, ok := q.unheardOfSlurmd(); ok {
		return f
	}
	if f, ok := q.byMemory(death{}); ok {
		return f
	}
	if q.timeUp() || q.timeUpAfter() {
		return q.timeLimit(death{})
	}
	if b, ok := q.fullest(event.LimitSlurm, event.LimitCgroup); ok && b.closing() {
		b.rate = b.growth
		return q.memory(b, death{})
	}
	if q.exit != nil {
		return inferred(endHolderKilled, event.CauseKilled)
	}
	return inferred(endAbrupt, event.CauseUnknown)
}

// bySIGKILL finds out whose SIGKILL it was.
func (q *inquest) bySIGKILL(d death) ending {
	if f, ok := q.byMemory(d); ok {
		return f
	}
	if q.timeUp() {
		return q.timeLimit(d)
	}
	f := seen(endSIGKILL, event.CauseKilled)
	f.death = d
	return f
}

// byMemory lays a SIGKILL to the memory limit that was nearest, where one was
// near.
func (q *inquest) byMemory(d death) (ending, bool) {
	b, ok := q.fullest(event.LimitSlurm, event.LimitCgroup, event.LimitNode)
	if !ok || !b.nearFull() {
		return ending{}, false
	}
	return q.memory(b, d), true
}

// memory lays a SIGKILL to one memory limit.
func (q *inquest) memory(b brink, d death) ending {
	switch b.Name {
	case event.LimitSlurm:
		return inferred(endStepKill, event.CauseOverKill).by(b, d)
	case event.LimitNode:
		return inferred(endNodeFull, event.CauseNodeOOM).by(b, d)
	}
	return inferred(endCgroupFull, event.CauseKernelOOM).by(b, d)
}

// kernelKills counts what the kernel's OOM killer ended of this run: a level
// above the job is others' too. Of several ranks, one that failed first is told by
// itself; what was counted for all of them is not laid to the others as well.
func (q *inquest) kernelKills() (n uint64) {
	if e := q.exit; q.run.Meta.Job == nil && e.Code != nil && *e.Code == 0 && e.Verdict != event.VerdictOOM {
		return 0 // others', as the run itself saw it
	}
	for _, k := range q.exit.Kernel {
		if k.Leaf && q.rank != nil || !k.Leaf && q.rank == nil && q.ranks.fallen != nil {
			continue
		}
		if k.Leaf || k.Scope != event.ScopeCgroup {
			n = max(n, k.Kills)
		}
	}
	return n
}

// endings are the signals that ask for an end.
var endings = []string{"SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"}

// told returns the first signal of those that asked for the end, where one did
// shortly before: Slurm sends SIGTERM, twice to some, and after KillWait SIGKILL.
func (q *inquest) told() (lookSignal, bool) {
	i := slices.IndexFunc(q.signals, func(s lookSignal) bool {
		return slices.Contains(endings, s.Signal.Signal) && q.end-s.at <= termToKill
	})
	if i < 0 {
		return lookSignal{}, false
	}
	return q.signals[i], true
}

// timeUp says that the run went on until the job's end and no longer than Slurm
// lets it.
func (q *inquest) timeUp() bool {
	return !q.jobEnd.IsZero() && !q.wall(q.end).Before(q.jobEnd.Add(-endSlack))
}

// journalSilence is the share of a run for which a journal may have nothing to
// tell while nothing moves, and leastSilence the time.
const (
	journalSilence = 0.11
	leastSilence   = 33 * time.Second
)

// timeUpAfter says that the job's end came while the journal of a run that broke
// off had nothing to tell.
func (q *inquest) timeUpAfter() bool {
	if !q.run.JournalOnly || q.jobEnd.IsZero() {
		return false
	}
	silence := max(leastSilence, time.Duration(float64(q.end)*journalSilence))
	return !q.wall(q.end).Add(silence).Before(q.jobEnd)
}

// brink is how near a limit was at the end of a run.
type brink struct {
	*event.Limit
	i     int
	size  uint64 // as it was then
	used  uint64
	at    time.Duration
	ratio float64
	// rate is by how many bytes a second it grew between the last two readings,
	// where at that rate the limit was reached by the end; else 0.
	rate float64
	// growth is the same wherever the limit was then.
	growth float64
}

// near says that a SIGKILL may be laid to it.
func (b *brink) nearFull() bool { return b.ratio >= nearFull || b.rate > 0 && b.ratio >= 0.5 }

// closing says that a limit which was not near yet was on its way to be: a record
// that breaks off with no other reason is laid to it.
func (b *brink) closing() bool {
	left := float64(b.size) - float64(b.used)
	return b.ratio >= mayClose && b.growth > 0 && left <= b.growth*closeWithin.Seconds()
}

// fullest returns the limit of these names that was nearest at the end, all of
// them that may end a run if none is named. Who may lock no more goes on without.
func (q *inquest) fullest(names ...event.LimitName) (best brink, ok bool) {
	for i := range q.limits {
		l := &q.limits[i]
		if !l.seen || len(names) > 0 && !slices.Contains(names, l.Name) ||
			len(names) == 0 && l.Name.Row().Spares ||
			len(names) > 0 && l.ByJobSum() { // slurmd asks by SIGTERM first: see bySlurmd
			continue
		}
		if b, found := q.brink(i); found && (!ok || b.reach() > best.reach()) {
			best, ok = b, true
		}
	}
	return best, ok
}

// brink is how near one limit was at the end.
func (q *inquest) brink(i int) (b brink, ok bool) {
	l := &q.limits[i]
	r, at, found := l.tail.fullest(q.end)
	if !found || r.Size == 0 {
		return b, false
	}
	b = brink{Limit: l.Limit, i: i, size: uint64(r.Size), used: uint64(r.Used), at: at, ratio: r.Ratio()}
	rate, reached := l.tail.reach(q.end)
	if b.growth = rate; reached && b.ratio < 1 {
		b.rate = rate
	}
	return b, true
}

// reach orders limits by how near they were: what grew into its limit before
// what merely stood high.
func (b *brink) reach() float64 {
	if b.rate > 0 && b.ratio >= 0.5 {
		return max(b.ratio, 1)
	}
	return b.ratio
}

// byKernel tells of a kill that the kernel counted.
func (q *inquest) byKernel(d death) ending {
	f := seen(endKernelKill, event.CauseKernelOOM)
	b, ok := q.fullest(event.LimitCgroup)
	node, onNode := q.fullest(event.LimitNode)
	f.death = d
	switch {
	case onNode && node.nearFull() && (!ok || !b.nearFull()):
		f.cause = event.CauseNodeOOM
		return f.by(node, d)
	case ok:
		return f.by(q.highestOf(b), d)
	}
	return f
}

// highestOf is a cgroup that the kernel has counted a kill in, as the exit event
// has it where samples missed that it was full.
func (q *inquest) highestOf(b brink) brink {
	if b.nearFull() {
		return b
	}
	n := q.exit.Binding
	switch {
	case n != nil && n.Name == event.LimitCgroup && uint64(n.Limit) == b.size && n.Ratio() >= nearFull:
		b.used, b.ratio, b.at, b.rate = uint64(n.Used), n.Ratio(), -1, 0
	case b.closing():
		b.rate = b.growth
	}
	return b
}

// onSignal tells of a run that was asked to end.
func (q *inquest) onSignal(s lookSignal, d death) ending {
	if f, ok := q.bySlurmd(s, d); ok {
		return f
	}
	f := seen(endAsked, event.CauseCancelled)
	f.death, f.signal = d, s
	switch at := q.wall(s.at); {
	case q.run.Meta.Job == nil:
	case q.jobEnd.IsZero():
		f.certainty = Inferred
	case !at.Before(q.jobEnd.Add(-endSlack)):
		f.cause = event.CauseTimeLimit
	}
	if !d.seen {
		f.certainty = Inferred
	}
	return f
}

// bySlurmd tells of a job that slurmd had cancelled because its steps had more than its
// memory together: slurmstepd sends SIGTERM, as it does for scancel.
func (q *inquest) bySlurmd(s lookSignal, d death) (f ending, ok bool) {
	if s.Signal.Signal != "SIGTERM" || !strings.HasPrefix(s.Comm, "slurmstepd") ||
		!q.jobEnd.IsZero() && !q.wall(s.at).Before(q.jobEnd.Add(-endSlack)) {
		return f, false
	}
	b, ok := q.jobSum()
	if !ok {
		return f, false
	}
	if b.used <= b.size && b.rate == 0 {
		// A checkpoint after SIGTERM takes up to KillWait: the watcher saw it before.
		if q.exit == nil || q.exit.Verdict != event.VerdictKilled || d.by("SIGKILL", 9) {
			return f, false
		}
		max := q.limits[b.i].max
		b.used, b.size, b.ratio, b.at = uint64(max.Used), uint64(max.Size), max.Ratio(), -1
	}
	f = inferred(endJobKill, event.CauseOverKill).by(b, d)
	f.signal = s
	return f, true
}

// unheardOfSlurmd tells of the same where the record breaks off without a SIGTERM: a batch
// script that does not start rsswarden by exec dies of it, and all the rest by SIGKILL.
func (q *inquest) unheardOfSlurmd() (f ending, ok bool) {
	b, ok := q.jobSum()
	step, _ := q.fullest(event.LimitSlurm)
	if !ok || b.used <= b.size || step.ratio >= 1 || q.timeUp() {
		return f, false // slurmstepd kills a step that has more than its limit, and looks more often
	}
	return inferred(endJobKillUnseen, event.CauseOverKill).by(b, death{}), true
}

// jobSum is how near slurmd's limit on all steps of the job was at the end. Who knows that
// a user had the job cancelled knows better.
func (q *inquest) jobSum() (b brink, ok bool) {
	i := slices.IndexFunc(q.limits, func(l lookLimit) bool { return l.seen && l.ByJobSum() })
	if i < 0 || q.said != nil && q.said.By != "" && q.said.By != "0" {
		return b, false
	}
	return q.brink(i)
}

// timeLimit tells of a SIGKILL at the job's end with no signal before it: a
// batch script between Slurm and rsswarden keeps SIGTERM to itself.
func (q *inquest) timeLimit(d death) ending {
	f := inferred(endTimeLimit, event.CauseTimeLimit)
	f.death = d
	return f
}

// outOf tells of a process that ran out of what is counted.
func (q *inquest) outOf(kind endKind, cause event.Cause, c count, d death) ending {
	f := inferred(kind, cause)
	name := event.LimitMaps
	if cause == event.CauseFDs {
		name = event.LimitFDs
	}
	f.count, f.death = c, d
	for i := range q.limits {
		if q.limits[i].Name == name {
			f.limit = i // the last of that name
		}
	}
	return f
}

// requeued says that a rule put the job back into the queue: what ended the run
// then was Slurm, because of it.
func (q *inquest) requeued() bool {
	a := q.deeds.kinds[event.ActionRequeue]
	return q.exit != nil && q.exit.Verdict == event.VerdictRequeued || a != nil && a.Worked > 0
}

// handedOver says that a record breaks off and that another goes on.
func (q *inquest) handedOver() bool {
	return q.ranks.handing != nil && q.exit == nil && q.rank == nil
}

// death is how the command ended, as the exit event has it. The zero value is
// that nobody saw it.
type death struct {
	seen   bool
	code   int
	signal string // empty where it exited
}

func (q *inquest) death() death {
	d := death{seen: true}
	switch e := q.exit; {
	case e.Signal != nil:
		d.signal = *e.Signal
	case e.Code != nil:
		d.code = *e.Code
	default:
		d.seen = false
	}
	return d
}

// ok says that it ended well.
func (d death) ok() bool { return d.seen && d.signal == "" && d.code == 0 }

// by says that this signal ended it, or the command that a shell ran for it: a
// shell exits with 128 and the number then.
func (d death) by(name string, number int) bool {
	return d.seen && (d.signal == name || d.signal == "" && d.code == 128+number)
}

// gravity orders the verdicts of exit events, from fine to worst.
var gravity = []event.Verdict{
	event.VerdictLed, event.VerdictFine, event.VerdictTight, event.VerdictCarried, event.VerdictUnwatched, event.VerdictAsked,
	event.VerdictNoHelp, event.VerdictRequeued, event.VerdictStopped, event.VerdictKilled, event.VerdictExhausted, event.VerdictOOM,
}

func worse(a, b event.Verdict) bool { return slices.Index(gravity, a) > slices.Index(gravity, b) }

// decisive is of all ends the one that tells why the job ended. A record that goes
// on in another one decides nothing, where there are others.
func decisive(cases []*inquest, last int) *inquest {
	var best *inquest
	for _, handed := range []bool{false, true} {
		for _, q := range cases {
			if q.handedOver() != handed {
				continue
			}
			if best == nil || q.tells(last) < best.tells(last) || q.tells(last) == best.tells(last) && q.before(best) {
				best = q
			}
		}
		if best != nil {
			break
		}
	}
	return best
}

// before orders ends that tell as much: the first of several failures, and of runs
// on several nodes that all ended well the one that came nearest to a limit.
func (q *inquest) before(o *inquest) bool {
	if q.found.cause == event.CauseEnded && q.ranks.led && o.ranks.led {
		a, aok := q.highest()
		b, bok := o.highest()
		if aok && bok && a.max.Ratio() != b.max.Ratio() {
			return a.max.Ratio() > b.max.Ratio()
		}
	}
	return q.wall(q.end).Before(o.wall(o.end))
}

// tells ranks findings: what ended the others first, what they died of next, of
// equals what the record has itself. The runs before a requeue come last.
func (q *inquest) tells(last int) int {
	rank := 0
	switch q.found.cause {
	case event.CauseCrash, event.CauseKilled:
		rank = 1
	case event.CauseCancelled:
		rank = 2
	case event.CauseUnknown:
		rank = 3
	case event.CauseRunning:
		rank = 4
	case event.CauseDetached:
		rank = 5
	case event.CauseEnded:
		rank = 6
	}
	if q.run.Meta.Job != nil && q.restarts() < last {
		rank += 10
	}
	return 3*rank + slices.Index([]Certainty{Seen, Inferred, Slurm}, q.found.certainty)
}
