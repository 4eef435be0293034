package analysis

import (
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Ending is why one run ended. Package render has the sentence.
type Ending struct {
	Kind      endKind
	Cause     event.Cause
	Certainty Certainty
	Limit     int        // the limit that ended it, index in Run.Limits, -1 for none
	Near      LimitState // how near that limit was
	Count     CountUse   // of an end for want of mappings or descriptors
	Signal    SignalSeen
	Slurm     agreement
	Overruled *Ending // what the record alone says, where Slurm says otherwise
}

// endKind is a way to end. A cause has several where the record shows different things
// of it.
type endKind int

const (
	EndRunning endKind = iota
	EndFine
	EndDetached
	EndHandedOver    // another rank's watcher goes on with the record
	EndStopped       // by a rule
	EndRequeued      // by a rule
	EndKernelKill    // a kill that the kernel counted
	EndCgroupFull    // a SIGKILL with the cgroup full
	EndNodeFull      // a SIGKILL with the node's memory full
	EndStepKill      // slurmstepd's OverMemoryKill
	EndJobKill       // slurmd's, by SIGTERM
	EndJobKillUnseen // slurmd's, by a SIGTERM that did not come here
	EndAsked         // a signal that asks for the end
	EndAskedDirectly // SIGTERM to the command alone
	EndTimeLimit     // by a SIGKILL with no signal before it: a batch script may keep SIGTERM to itself
	EndSIGKILL       // that nothing explains
	EndSIGKILLSlurm  // that Slurm alone knows of
	EndCrash
	EndCrashSlurm    // that Slurm alone knows of
	EndStepKillSlurm // that Slurm alone knows of
	EndHolderKilled
	EndAbrupt // the record ends with nothing near
	EndSHM
	EndCount   // mappings or descriptors
	EndUsedUp  // tasks or address space
	EndSending // a data set that was sent to workers
	endSlurm   // what Slurm says overrules the record
)

// agreement is how what Slurm says of an end goes with the record.
type agreement int

const (
	slurmSilent agreement = iota
	SlurmConfirms
	SlurmState    // it tells the state of the job, which goes on
	SlurmStepKill // it tells that slurmstepd killed, and the limit was not full yet
	SlurmYet      // it says otherwise, and the record knows more
	SlurmOverrules
)

// WorthTelling is the share of a limit from which on its nearness is worth a line.
const WorthTelling = 0.5

// Case looks for why one run ended. What the record has comes first, Slurm's
// word second: Slurm names the state that it put the job into, which tells who
// acted and not always why.
type Case struct {
	*RunScan
	Said *SlurmSays // nil where it does not speak of this run
	Step *StepSays  // what it says of the run's own step
	// settled says that the record of a run of the job, on whatever node, shows
	// the cause that Slurm names: the others ended of something else then.
	settled bool
	// rank is another rank of the node than the record's own, whose end is asked
	// about; nil for the record's own.
	Rank  *RankSeen
	Found Ending
}

const (
	// full is the share of /dev/shm from which on a failure is attributed to it where no
	// SIGBUS speaks for it.
	full = 0.98
	// mayBe is the share from which on a sentence says that a limit may have had
	// to do with it.
	MayBe = 0.95
	// mayClose is the share of a memory limit from which on a record that breaks
	// off may be attributed to it: as much as most can grow by between the last sample
	// and the kill. closeWithin is the time in which it would have been full.
	mayClose    = 0.75
	closeWithin = 5 * time.Second
	// termToKill is how long after a SIGTERM an end is attributed to it: KillWait of
	// slurm.conf, which is 30 s by default, and some more.
	termToKill = 3 * time.Minute
	// endSlack is how much earlier than the job's end Slurm's SIGTERM may come:
	// times in slurmctld are whole seconds.
	EndSlack = 5 * time.Second
)

func (q *Case) setSlurmStatus(said *SlurmSays) {
	q.Said = said
	if j := q.Run.Meta.Job; j != nil {
		step := j.Step
		if q.Rank != nil {
			step = q.Rank.Step
		}
		if step != "" {
			q.Step = said.Step(j.ID, step)
		}
	}
}

func (q *Case) diagnose() Ending {
	var f Ending
	switch {
	case q.Run.Live:
		f = seen(EndRunning, event.CauseRunning)
	case q.Rank == nil && q.requeued():
		f = seen(EndRequeued, event.CauseRequeued)
	case q.handedOver():
		f = seen(EndHandedOver, event.CauseDetached)
	case q.Exit == nil:
		f = q.endsAbruptly()
	case q.Exit.By == "detached":
		f = seen(EndDetached, event.CauseDetached)
	case q.Exit.By == "rsswarden":
		f = seen(EndStopped, event.CauseStopped)
	default:
		f = q.witnessedEnd()
	}
	if q.Said != nil && f.Cause != event.CauseRunning && f.Cause != event.CauseDetached {
		f = q.reconcile(f)
	}
	return f
}

func seen(kind endKind, cause event.Cause) Ending {
	return Ending{Kind: kind, Cause: cause, Certainty: Seen, Limit: -1}
}

func inferred(kind endKind, cause event.Cause) Ending {
	return Ending{Kind: kind, Cause: cause, Certainty: Inferred, Limit: -1}
}

// by lays an end to a limit.
func (f Ending) by(b LimitState) Ending {
	f.Limit, f.Near = b.I, b
	return f
}

// witnessedEnd finds out why the command ended, with the watcher there to see it.
func (q *Case) witnessedEnd() Ending {
	d := q.Death()
	signal, told := q.terminationSignal()
	shm, _ := q.Fullest(event.LimitSHM)
	tasks, _ := q.Fullest(event.LimitTasks)
	addresses, _ := q.Fullest(event.LimitAS)
	maps, fds := q.Maps.Fullest(q.End), q.FDs.Fullest(q.End)
	switch {
	case q.KernelKills() > 0:
		return q.byKernel()
	case d.OK():
		return seen(EndFine, event.CauseEnded)
	case !d.Seen:
		return q.endsAbruptly()
	case told:
		return q.onSignal(signal)
	case d.By("SIGBUS", 7) && shm.Ratio() >= NearFull:
		return inferred(EndSHM, event.CauseSHM).by(shm)
	case d.By("SIGKILL", 9):
		if f, ok := q.byMemory(); ok {
			return f
		}
		if q.TimeUp() {
			return inferred(EndTimeLimit, event.CauseTimeLimit)
		}
		return seen(EndSIGKILL, event.CauseKilled)
	case d.By("SIGTERM", 15):
		if q.TimeUp() {
			return inferred(EndTimeLimit, event.CauseTimeLimit)
		}
		return inferred(EndAskedDirectly, event.CauseCancelled)
	case maps.near():
		return q.outOf(EndCount, event.CauseMaps, maps)
	case fds.near():
		return q.outOf(EndCount, event.CauseFDs, fds)
	case q.Sharing != nil && q.End-q.Sharing.At <= SentHolds && q.Sharing.TooMuch() != "":
		return q.outOf(EndSending, q.Sharing.TooMuch(), CountUse{})
	case shm.Ratio() >= full:
		return inferred(EndSHM, event.CauseSHM).by(shm)
	case tasks.near():
		return inferred(EndUsedUp, event.CauseTasks).by(tasks)
	case addresses.near():
		return inferred(EndUsedUp, event.CauseAS).by(addresses)
	}
	return seen(EndCrash, event.CauseCrash)
}

// endsAbruptly finds out why a record has no end, or one that the watcher did not
// learn: SIGKILL took the holder and most often the watcher too, as slurmstepd's
// OverMemoryKill, a cgroup with memory.oom.group and the end of KillWait do, or the
// node is gone.
func (q *Case) endsAbruptly() Ending {
	if signal, told := q.terminationSignal(); told {
		return q.onSignal(signal)
	}
	if f, ok := q.unheardOfSlurmd(); ok {
		return f
	}
	if f, ok := q.byMemory(); ok {
		return f
	}
	if q.TimeUp() || q.timeUpAfter() {
		return inferred(EndTimeLimit, event.CauseTimeLimit)
	}
	if b, ok := q.Fullest(event.LimitSlurm, event.LimitCgroup); ok && b.closing() {
		b.Rate = b.growth
		return q.memory(b)
	}
	if q.Exit != nil {
		return inferred(EndHolderKilled, event.CauseKilled)
	}
	return inferred(EndAbrupt, event.CauseUnknown)
}

// byMemory lays a SIGKILL to the memory limit that was nearest, where one was
// near.
func (q *Case) byMemory() (Ending, bool) {
	b, ok := q.Fullest(event.LimitSlurm, event.LimitCgroup, event.LimitNode)
	if !ok || !b.near() {
		return Ending{}, false
	}
	return q.memory(b), true
}

// memory lays a SIGKILL to one memory limit.
func (q *Case) memory(b LimitState) Ending {
	switch b.Name {
	case event.LimitSlurm:
		return inferred(EndStepKill, event.CauseOverKill).by(b)
	case event.LimitNode:
		return inferred(EndNodeFull, event.CauseNodeOOM).by(b)
	}
	return inferred(EndCgroupFull, event.CauseKernelOOM).by(b)
}

// KernelKills counts what the kernel's OOM killer ended of this run: a level
// above the job is others' too. Of several ranks, the one that failed first is listed
// by itself; what was counted for all of them is not attributed to the others as well.
func (q *Case) KernelKills() (n uint64) {
	if e := q.Exit; q.Run.Meta.Job == nil && e.Code != nil && *e.Code == 0 && e.Outcome != event.RunOOM {
		return 0 // others', as the run itself saw it
	}
	for _, k := range q.Exit.Kernel {
		if k.Leaf && q.Rank != nil || !k.Leaf && q.Rank == nil && q.fallen != nil {
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

// terminationSignal returns the first signal of those that asked for the end, where one did
// shortly before: Slurm sends SIGTERM, twice to some, and after KillWait SIGKILL.
func (q *Case) terminationSignal() (SignalSeen, bool) {
	i := slices.IndexFunc(q.Signals, func(s SignalSeen) bool {
		return slices.Contains(endings, s.Signal.Signal) && q.End-s.At <= termToKill
	})
	if i < 0 {
		return SignalSeen{}, false
	}
	return q.Signals[i], true
}

// TimeUp says that the run went on until the job's end and no longer than Slurm
// lets it.
func (q *Case) TimeUp() bool {
	return !q.JobEnd.IsZero() && !q.Wall(q.End).Before(q.JobEnd.Add(-EndSlack))
}

// journalSilence is the share of a run for which a journal may have nothing to
// tell while nothing moves, and leastSilence the time.
const (
	journalSilence = 0.11
	leastSilence   = 33 * time.Second
)

// timeUpAfter says that the job's end came while the journal of a run that broke
// off had nothing to tell.
func (q *Case) timeUpAfter() bool {
	if !q.Run.JournalOnly || q.JobEnd.IsZero() {
		return false
	}
	silence := max(leastSilence, time.Duration(float64(q.End)*journalSilence))
	return !q.Wall(q.End).Add(silence).Before(q.JobEnd)
}

// LimitState is how near a limit was at the end of a run. The zero value is no limit.
type LimitState struct {
	event.Limit
	I  int           // in Run.Limits
	At time.Duration // negative: between two samples
	// Rate is by how many bytes a second it grew between the last two readings,
	// where at that rate the limit was reached by the end; else 0.
	Rate   float64
	growth float64 // the same wherever the limit was then
}

func (b *LimitState) near() bool { return near(b.Ratio(), b.Rate) }

// closing says that a limit which was not near yet was on its way to be: a record
// that ends with no other reason is attributed to it.
func (b *LimitState) closing() bool {
	left := float64(b.Limit.Limit) - float64(b.Used)
	return b.Ratio() >= mayClose && b.growth > 0 && left <= b.growth*closeWithin.Seconds()
}

// Fullest returns the limit of these names that was nearest at the end, all of
// them that may end a run if none is named. Who may lock no more goes on without.
func (q *Case) Fullest(names ...event.LimitName) (best LimitState, ok bool) {
	for i := range q.Limits {
		l := &q.Limits[i]
		if !l.Seen || len(names) > 0 && !slices.Contains(names, l.Name) ||
			len(names) == 0 && l.Name.Row().Spares ||
			len(names) > 0 && l.ByJobSum() { // slurmd asks by SIGTERM first: see bySlurmd
			continue
		}
		if b, found := q.State(i); found && (!ok || b.reach() > best.reach()) {
			best, ok = b, true
		}
	}
	return best, ok
}

// State is how near one limit was at the end.
func (q *Case) State(i int) (b LimitState, ok bool) {
	l := &q.Limits[i]
	r, at, found := l.Tail.Fullest(q.End)
	if !found || r.Size == 0 {
		return b, false
	}
	b = LimitState{Limit: *l.Limit, I: i, At: at}
	b.Used, b.Limit.Limit = r.Used, r.Size
	rate, reached := l.Tail.reach(q.End)
	if b.growth = rate; reached && b.Ratio() < 1 {
		b.Rate = rate
	}
	return b, true
}

// reach orders limits by how near they were: what grew into its limit before
// what was merely high.
func (b *LimitState) reach() float64 {
	if b.Rate > 0 && b.Ratio() >= 0.5 {
		return max(b.Ratio(), 1)
	}
	return b.Ratio()
}

func (q *Case) byKernel() Ending {
	f := seen(EndKernelKill, event.CauseKernelOOM)
	b, ok := q.Fullest(event.LimitCgroup)
	node, onNode := q.Fullest(event.LimitNode)
	switch {
	case onNode && node.near() && (!ok || !b.near()):
		f.Cause = event.CauseNodeOOM
		return f.by(node)
	case ok:
		return f.by(q.highestOf(b))
	}
	return f
}

// highestOf is a cgroup that the kernel has counted a kill in, as the exit event
// has it where samples missed that it was full.
func (q *Case) highestOf(b LimitState) LimitState {
	if b.near() {
		return b
	}
	n := q.Exit.Binding
	switch {
	case n != nil && n.Name == event.LimitCgroup && n.Limit == b.Limit.Limit && n.Ratio() >= NearFull:
		b.Used, b.At, b.Rate = n.Used, -1, 0
	case b.closing():
		b.Rate = b.growth
	}
	return b
}

func (q *Case) onSignal(s SignalSeen) Ending {
	if f, ok := q.bySlurmd(s); ok {
		return f
	}
	f := seen(EndAsked, event.CauseCancelled)
	f.Signal = s
	switch at := q.Wall(s.At); {
	case q.Run.Meta.Job == nil:
	case q.JobEnd.IsZero():
		f.Certainty = Inferred
	case !at.Before(q.JobEnd.Add(-EndSlack)):
		f.Cause = event.CauseTimeLimit
	}
	if !q.Death().Seen {
		f.Certainty = Inferred
	}
	return f
}

// bySlurmd is the ending of a job that slurmd had cancelled because its steps had more than its
// memory together: slurmstepd sends SIGTERM, as it does for scancel.
func (q *Case) bySlurmd(s SignalSeen) (f Ending, ok bool) {
	if s.Signal.Signal != "SIGTERM" || !strings.HasPrefix(s.Comm, "slurmstepd") ||
		!q.JobEnd.IsZero() && !q.Wall(s.At).Before(q.JobEnd.Add(-EndSlack)) {
		return f, false
	}
	b, ok := q.jobSum()
	if !ok {
		return f, false
	}
	if b.Used <= b.Limit.Limit && b.Rate == 0 {
		// A checkpoint after SIGTERM takes up to KillWait: the watcher saw it before.
		if q.Exit == nil || q.Exit.Outcome != event.RunSlurmKill && q.Exit.Outcome != event.RunKilled || q.Death().By("SIGKILL", 9) {
			return f, false
		}
		max := q.Limits[b.I].Max
		b.Used, b.Limit.Limit, b.At = max.Used, max.Size, -1
	}
	f = inferred(EndJobKill, event.CauseOverKill).by(b)
	f.Signal = s
	return f, true
}

// unheardOfSlurmd is the same where the record ends without a SIGTERM: a batch
// script that does not start rsswarden by exec dies of it, and all the rest by SIGKILL.
func (q *Case) unheardOfSlurmd() (f Ending, ok bool) {
	b, ok := q.jobSum()
	step, _ := q.Fullest(event.LimitSlurm)
	if !ok || b.Used <= b.Limit.Limit || step.Ratio() >= 1 || q.TimeUp() {
		return f, false // slurmstepd kills a step that has more than its limit, and looks more often
	}
	return inferred(EndJobKillUnseen, event.CauseOverKill).by(b), true
}

// jobSum is how near slurmd's limit on all steps of the job was at the end. Who knows that
// a user had the job cancelled knows better.
func (q *Case) jobSum() (b LimitState, ok bool) {
	i := slices.IndexFunc(q.Limits, func(l LimitScan) bool { return l.Seen && l.ByJobSum() })
	if i < 0 || q.Said != nil && q.Said.By != "" && q.Said.By != "0" {
		return b, false
	}
	return q.State(i)
}

// outOf is the ending of a process that ran out of what is counted.
func (q *Case) outOf(kind endKind, cause event.Cause, c CountUse) Ending {
	f := inferred(kind, cause)
	name := event.LimitMaps
	if cause == event.CauseFDs {
		name = event.LimitFDs
	}
	f.Count = c
	for i := range q.Limits {
		if q.Limits[i].Name == name {
			f.Limit = i // the last of that name
		}
	}
	return f
}

// requeued says that a rule put the job back into the queue: what ended the run
// then was Slurm, because of it.
func (q *Case) requeued() bool {
	return q.Exit != nil && q.Exit.Outcome == event.RunRequeued || q.Actions.Sum(event.ActionRequeue).Worked > 0
}

// handedOver says that a record ends and that another goes on.
func (q *Case) handedOver() bool {
	return q.Handing != nil && q.Exit == nil && q.Rank == nil
}

// Death is how the command ended, as the exit event has it. The zero value is an end that
// was not seen.
type Death struct {
	Seen   bool
	Code   int
	Signal string // empty where it exited
}

func (q *Case) Death() Death {
	d := Death{Seen: true}
	switch e := q.Exit; {
	case e == nil:
		d.Seen = false
	case e.Signal != nil:
		d.Signal = *e.Signal
	case e.Code != nil:
		d.Code = *e.Code
	default:
		d.Seen = false
	}
	return d
}

// OK says that it ended well.
func (d Death) OK() bool { return d.Seen && d.Signal == "" && d.Code == 0 }

// By says that this signal ended it, or the command that a shell ran for it: a
// shell exits with 128 and the number then.
func (d Death) By(name string, number int) bool {
	return d.Seen && (d.Signal == name || d.Signal == "" && d.Code == 128+number)
}

// decisive is of all ends the one that tells why the job ended. A record that goes
// on in another one decides nothing, where there are others.
func decisive(cases []*Case, last int) *Case {
	var best *Case
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
func (q *Case) before(o *Case) bool {
	if q.Found.Cause == event.CauseEnded && q.Ranks.led && o.Ranks.led {
		a, aok := q.Highest()
		b, bok := o.Highest()
		if aok && bok && a.Max.Ratio() != b.Max.Ratio() {
			return a.Max.Ratio() > b.Max.Ratio()
		}
	}
	return q.Wall(q.End).Before(o.Wall(o.End))
}

// tells ranks findings, of equals first what the record has itself. The runs before a
// requeue come last.
func (q *Case) tells(last int) int {
	rank := causeRows[q.Found.Cause].rank
	if q.Restarts() < last && q.Run.Meta.Job != nil {
		rank += 10
	}
	return 3*rank + slices.Index([]Certainty{Seen, Inferred, Slurm}, q.Found.Certainty)
}
