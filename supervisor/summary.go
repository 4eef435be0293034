package supervisor

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/policy"
)

// summary is what is remembered of a whole run.
type summary struct {
	watched bool // by this watcher, from the start
	led     bool // another led at first
	ranks   int  // the most that were watched together
	peaks   event.Peaks
	// elsewhere is the most memory of the tree that a cgroup did not count, by its
	// directory.
	elsewhere map[string]rss.Bytes
	uncounted map[string]rss.Bytes // … in the last sample
	unread    int                  // the most processes at a time that could not be read
	looks     int                  // samples that had the tree
	// members are those of the last look. left says that a process of the tree ended
	// while the command ran on, seen before or not.
	members []rss.ProcID
	left    bool
	// nearest is the reading that came nearest to its limit.
	nearest *event.Limit
	// ends is that of the limits by which Slurm or the kernel ends the job.
	ends *event.Limit
	// jobSum is the fullest reading of slurmd's limit on all steps of the job, and overAt
	// when they last had more than that. cancelled says that slurmstepd's SIGTERM came
	// shortly after, and not at the job's end.
	jobSum    *event.Limit
	overAt    time.Duration
	cancelled bool
	// node is the fullest reading of the node's memory, where that is a limit.
	node *event.Limit
	// sides holds the fullest reading of each limit that is none on memory that
	// is summed.
	sides     map[event.LimitName]event.Limit
	tails     map[event.LimitName]*sideTail // … and how each stood lately
	slowed    string                        // where memory.high slowed allocations down
	pickled   *event.Sharing                // what a DataLoader was about to send, the last
	pickledBy int
	pickledAt time.Duration
	holders   string // who held what in /dev/shm, when it was nearly full
	cures     []string

	ended        []rss.ProcID // what outlived the command and got TERM from us
	othersKilled uint64       // by the OOM killer in the job's cgroup, none of them seen in the tree

	requeue     requeuing
	stopped     bool
	skipped     int
	trims       int // outcomes of trim rules
	collected   int // … of gc rules
	asked       int // signals that trainers got by rules, several at once counted as one
	ran         int // commands of exec= rules that ended well
	recycles    int
	forked      int // of the recycles, those through the loader hook
	signalled   int // workers of pools, whether or not another was seen in their place
	failed      int
	freed       rss.Bytes
	paused      time.Duration
	helped      int
	budget      rss.Bytes // the last budget of mapped file pages of a worker, 0 for none
	budgetTold  rss.Bytes // … and the one that a line told of when it was set
	budgetTrims int       // trims that workers made to keep to it
	budgetFreed rss.Bytes
}

// peak takes in one sample. pace is by how many a second a limit on numbers is known
// to be approached, 0 for the others.
func (s *summary) peak(sample *rss.Sample, limits []event.Limit, pace func(*event.Limit) float64) {
	var sum, noshared rss.Bytes
	var pss rss.PSSSum
	known := true
	s.meet(sample.Procs)
	s.unread = max(s.unread, sample.Gaps.Denied+sample.Gaps.Malformed)
	for i := range sample.Procs {
		p := &sample.Procs[i]
		sum += p.RSS
		noshared += p.NoShared()
		pss.Add(p)
		known = known && (p.PSS != nil || p.RSS == 0)
	}
	if sum > 0 {
		raise(&s.peaks.RSS, sum)
		raise(&s.peaks.NoShared, noshared)
		if known {
			least, _ := pss.Range() // what was read before a fork is not all there after it
			raise(&s.peaks.PSS, least)
		}
	}
	// Of several levels the innermost: others' jobs may count in those above.
	var inner *event.Limit
	for i := range limits {
		l := &limits[i]
		if l.Name == event.LimitCgroup && (inner == nil || len(l.Level) > len(inner.Level)) {
			inner = l
		}
		// The node is everybody's: it is no measure of this job.
		if l.Limit > 0 && l.Name == event.LimitNode {
			s.node = nearer(s.node, l)
		}
		if l.Limit == 0 || l.Name == event.LimitNode || l.Name == event.LimitThrottle {
			continue
		}
		if !l.Name.Memory() {
			s.side(l)
			s.late(l, sample.Mono, pace(l))
			continue
		}
		s.nearest = nearer(s.nearest, l)
		if l.ByJobSum() {
			s.jobSum = nearer(s.jobSum, l)
			if l.UsedMax > l.Limit {
				s.overAt = sample.Mono
			}
		}
		if l.Name != event.LimitUser {
			s.ends = nearer(s.ends, l)
		}
	}
	if inner != nil {
		raise(&s.peaks.Cgroup, inner.Used)
	}
}

// apartShare is the share of a limit's use from which on memory that it does not count
// matters.
const apartShare = 1.0 / 16

// apart takes in how much of the tree's memory each cgroup does not count: what
// processes have that are in another one, or have brought with them. What one process
// has in anonymous pages is charged once, whatever it shares. Two samples in a row must
// say so: one process may end between the two counters. outside is the RSS of the tree
// outside of a limit.
func (s *summary) apart(sample *rss.Sample, limits []event.Limit, outside func(*event.Limit, *rss.Sample) rss.Bytes) {
	var anon rss.Bytes // of the largest
	for i := range sample.Procs {
		anon = max(anon, sample.Procs[i].Anon)
	}
	was := s.uncounted
	s.uncounted = make(map[string]rss.Bytes, len(was))
	other := func(l *event.Limit, n rss.Bytes) {
		if l.Name != event.LimitCgroup || n <= max(l.Charged.Scale(apartShare), 16*rss.MiB) {
			return
		}
		s.uncounted[l.Level] = max(n, s.uncounted[l.Level])
		if n = min(n, was[l.Level]); n <= s.elsewhere[l.Level] {
			return
		}
		if s.elsewhere == nil {
			s.elsewhere = map[string]rss.Bytes{}
		}
		s.elsewhere[l.Level] = n
	}
	// A limit that came near earlier may be that of a cgroup which is gone by now.
	for _, l := range []*event.Limit{s.nearest, s.ends} {
		if l != nil {
			other(l, outside(l, sample))
		}
	}
	for i := range limits {
		l := &limits[i]
		other(l, max(outside(l, sample), anon.Sub(l.Charged)))
	}
}

// meet takes in who is in the tree, the command first, the others by PID. One that has
// ended and waits for its parent has left too.
func (s *summary) meet(procs []rss.Proc) {
	if len(procs) == 0 || len(s.members) > 0 && s.members[0] != procs[0].ID {
		return // the command has ended, and its children with it
	}
	s.looks++
	if s.left {
		return
	}
	now := 0
	for _, id := range s.members {
		for now < len(procs) && procs[now].ID != id {
			now++
		}
		s.left = s.left || now == len(procs) || now > 0 && procs[now].State == 'Z'
	}
	s.members = s.members[:0]
	for i := range procs {
		s.left = s.left || procs[i].Reaped
		s.members = append(s.members, procs[i].ID)
	}
}

// nearer is a copy of l where it is fuller than the fullest so far.
func nearer(so, l *event.Limit) *event.Limit {
	if so != nil && l.Ratio() <= so.Ratio() {
		return so
	}
	c := *l
	return &c
}

const (
	// cancelWithin is how long before slurmd's cancel the job was seen over its memory, and
	// cancelAhead how long it may have grown unseen.
	cancelWithin = 30 * time.Second
	cancelAhead  = 2 * time.Second
	// nearEnd is how long before the job's end a SIGTERM counts as the time limit's.
	nearEnd = 5 * time.Second
)

// term takes in a SIGTERM of slurmstepd's: of scancel, of the time limit, or of slurmd,
// which cancels a job whose steps have more than its memory together.
// perSecond is by how much a limit is approached.
func (s *summary) term(now time.Duration, limits []event.Limit, perSecond func(*event.Limit) float64) {
	for i := range limits {
		l := &limits[i]
		if l.Name == event.LimitTime && l.ETA != nil && *l.ETA <= nearEnd.Seconds() {
			return
		}
		if l.ByJobSum() && float64(l.UsedMax)+perSecond(l)*cancelAhead.Seconds() > float64(l.Limit) {
			s.overAt = now
		}
	}
	if s.jobSum != nil && s.overAt > 0 && now-s.overAt <= cancelWithin {
		s.cancelled = true
	}
}

// side takes in a limit that is none on summed memory.
func (s *summary) side(l *event.Limit) {
	if best, ok := s.sides[l.Name]; ok && best.Ratio() >= l.Ratio() {
		return
	}
	if s.sides == nil {
		s.sides = map[event.LimitName]event.Limit{}
	}
	s.sides[l.Name] = *l
}

func raise(peak **rss.Bytes, v rss.Bytes) {
	if *peak == nil || v > **peak {
		*peak = &v
	}
}

// acted takes in what an action brought.
func (s *summary) acted(d *event.Decision, o *event.Outcome) {
	a := d.Action
	switch {
	case o.Reason == event.ReasonDryRun, o.Reason == event.ReasonVanished, o.Reason == event.ReasonDeferred, o.OK && (a == event.ActionStop || a == event.ActionRequeue):
		return
	case !o.OK:
		s.failed++
		return
	case a == event.ActionTrim:
		s.trims++
	case a == event.ActionRecycle:
		s.recycles++
	case a == event.ActionGC:
		s.collected++
	case a == event.ActionSignal:
		s.asked++
	case a == event.ActionExec:
		s.ran++
	}
	s.freed += o.Freed
	s.paused += time.Duration(o.Paused * float64(time.Second))
	if o.Freed > 0 && !d.Unneeded() {
		s.helped++
	}
}

// end says the last words: exit is nil where the holder went without one.
func (w *watcher) end(exit *hold.Exit) {
	removed := w.tell.Textfile.Close()
	w.tell.Alerts.Close(len(w.peers.others) == 0) // else the next leader goes on with them
	commented, comments := w.commentsJob()        // while we lead
	w.pass(exit)                                  // others' commands may live on
	w.poll(true)
	w.sayHolders()
	w.tellSignals()
	if w.flight != nil {
		// The command's end ended it: for a stop that is what was wanted.
		r := action.Result{Reason: event.ReasonVanished}
		switch w.flight.decision.Action {
		case event.ActionStop:
			if s := &w.sum; s.stopped || w.Attached != nil {
				r = action.Result{OK: true, Reason: event.ReasonDone}
				w.endLeft()
			} else {
				r.Detail = "our command, which was not meant; " + w.flight.target + " is stopped without us"
			}
		case event.ActionRequeue:
			r = w.endRequeue(w.flight, exit != nil)
		}
		if w.flight.decision.Action == event.ActionRequeue {
			w.finish(r) // what became of the job is to be read
		} else {
			w.conclude(r)
		}
	}
	w.trials.stop()
	for _, r := range w.programs.Close(lastPatience) {
		w.ran(r)
	}
	s := &w.sum
	var left []event.Left
	if exit != nil {
		if left = w.left(); len(left) > 0 {
			w.read() // it may have grown since the last look
		}
	}
	out := event.Exit{By: "command", Peaks: s.peaks, Binding: s.nearest, Left: left}
	run := policy.Run{
		Binding: s.nearest, Stopped: s.stopped, Watched: s.watched && exit != nil, Heir: w.peers.heir && exit != nil,
		Helped: s.helped, Trimmed: s.budgetTrims > 0, Skipped: s.skipped,
		Elsewhere: s.elsewhere, JobSum: s.jobSum, Cancelled: s.cancelled,
		Asked: s.asked > 0, Failed: exit != nil && (exit.Code != 0 || exit.Signal != 0),
	}
	if done := s.requeue.done; done != nil {
		run.Requeued, run.From = done.to, done.from
	}
	if failed(exit) {
		run.Exhausted = w.exhausted()
	}
	if s.nearest != nil {
		run.FirstRung = w.ladder.NextRung(&event.Limit{Name: s.nearest.Name, Limit: s.nearest.Limit})
	}
	if run.Ends = s.ends; s.ends != nil {
		run.EndsRung = w.ladder.NextRung(&event.Limit{Name: s.ends.Name, Limit: s.ends.Limit})
	}
	kills := w.limits.OOMKills()
	out.Kernel = killsByKernel(kills)
	s.slowed = slowed(kills, w.readings)
	run.OOMKills = ownKills(kills)
	run.NodeKills = w.limits.NodeKills()
	// In a job any kill counts: Slurm calls the job OUT_OF_MEMORY, whoever was killed.
	if _, inJob := w.limits.Job(); !inJob && exit != nil && *exit == (hold.Exit{}) && !s.left {
		run.OOMKills, s.othersKilled = 0, run.OOMKills
	}
	switch {
	case exit == nil:
	case exit.Signal != 0:
		name := signalName(exit.Signal)
		out.Signal = &name
		run.Killed = exit.Signal == int(unix.SIGKILL) && !s.stopped
	default:
		out.Code = &exit.Code
	}
	if s.stopped {
		out.By, out.Code, out.Signal = "rsswarden", &w.Settings.StopStatus, nil
	}
	if w.Attached != nil {
		w.lastEvent(&out, exit != nil)
	}
	w.lastFindings()
	advice := policy.Advise(run)
	out.Verdict, out.Advice, out.AdviceWhy = advice.Verdict, advice.Mem, advice.Why
	if s.unread > 0 && out.Advice != 0 && (summed(s.nearest) || summed(s.ends)) {
		out.Advice, out.AdviceWhy = 0, "no --mem is told: "+s.unreadWords()
	}
	if s.looks < 2 && out.Advice != 0 && (out.Verdict == event.VerdictFine || out.Verdict == event.VerdictTight) {
		out.Advice, out.AdviceWhy = 0, "no --mem advice: the command ended before a second look at its memory"
	}
	if w.tell.Streams() {
		out.Ours = w.ours()
	}
	w.tell.Put(event.NameExit, func(h event.Head) any { out.Head = h; return out })
	for _, line := range w.summaryLines(exit, &out, run) {
		w.tell.Info(line)
	}
	var closing sync.WaitGroup
	if comments && !w.tell.Comment.Refused() {
		closing.Go(w.tell.LastComment(commented, w.lastComment(&out), lastPatience))
	}
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
	w.tell.LastAlerts()
}
