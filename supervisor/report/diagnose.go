package report

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// finding is why one run ended.
type finding struct {
	cause     event.Cause
	certainty Certainty
	text      string // one sentence, without a full stop
	evidence  []string
	limit     int // the limit that ended it, index in Run.Limits, -1 for none
}

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
	zone    *time.Location
	now     time.Time
	// rank is another rank of the node than the record's own, whose end is asked
	// about; nil for the record's own.
	rank  *lookRank
	found finding
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
func (q *inquest) diagnose() finding {
	var f finding
	switch {
	case q.run.Live:
		f = q.running()
	case q.rank == nil && q.requeued():
		f = q.putBack()
	case q.handedOver():
		f = q.handed()
	case q.exit == nil:
		f = q.brokenOff()
	case q.exit.By == "detached":
		f = q.detached()
	case q.exit.By == "rsswarden":
		f = q.stopped()
	default:
		f = q.ended()
	}
	if q.said != nil && f.cause != event.CauseRunning && f.cause != event.CauseDetached {
		f = q.heed(f)
	}
	f.evidence = q.evidence(&f)
	return f
}

// ended finds out why the command ended, with the watcher there to see it.
func (q *inquest) ended() finding {
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
		return q.fine()
	case !d.seen:
		return q.brokenOff()
	case told:
		return q.onSignal(signal, d)
	case d.by("SIGBUS", 7) && shm.ratio >= nearFull:
		return q.noSHM(shm, d)
	case d.by("SIGKILL", 9):
		return q.bySIGKILL(d)
	case d.by("SIGTERM", 15):
		return q.bySIGTERM(d)
	case maps.near():
		return q.outOf(event.CauseMaps, maps, d)
	case fds.near():
		return q.outOf(event.CauseFDs, fds, d)
	case q.sentTooMuch():
		return q.bySending(d)
	case shm.ratio >= full:
		return q.noSHM(shm, d)
	case tasks.near():
		return q.noTasks(tasks, d)
	case addresses.near():
		return q.noAddresses(addresses, d)
	}
	return q.crash(d)
}

// brokenOff finds out why a record has no end, or one that nobody told the watcher
// of: SIGKILL took the holder and most often the watcher too, as slurmstepd's
// OverMemoryKill, a cgroup with memory.oom.group and the end of KillWait do, or the
// node is gone.
func (q *inquest) brokenOff() finding {
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
		return q.holderKilled()
	}
	return q.withoutAWord()
}

// bySIGKILL finds out whose SIGKILL it was.
func (q *inquest) bySIGKILL(d death) finding {
	if f, ok := q.byMemory(d); ok {
		return f
	}
	if q.timeUp() {
		return q.timeLimit(d)
	}
	return q.killed(d)
}

// byMemory lays a SIGKILL to the memory limit that was nearest, where one was
// near.
func (q *inquest) byMemory(d death) (finding, bool) {
	b, ok := q.fullest(event.LimitSlurm, event.LimitCgroup, event.LimitNode)
	if !ok || !b.near() {
		return finding{}, false
	}
	return q.memory(b, d), true
}

// memory lays a SIGKILL to one memory limit.
func (q *inquest) memory(b brink, d death) finding {
	switch b.Name {
	case event.LimitSlurm:
		return q.overMemory(b, d)
	case event.LimitNode:
		return q.nodeMemory(b, d)
	}
	return q.cgroupFull(b, d)
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
func (b *brink) near() bool { return b.ratio >= nearFull || b.rate > 0 && b.ratio >= 0.5 }

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
