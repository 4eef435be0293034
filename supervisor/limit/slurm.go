package limit

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

const stepdName = "slurmstepd"

// step is what Slurm says of the job and its step, and what slurmstepd and slurmd
// compare.
type step struct {
	*search
	cgroups *cgroups

	job    slurm.Job
	inJob  bool
	inStep bool // slurmstepd counts us
	end    time.Time
	stepd  int // slurmstepd, 0 where none is above us
	task   int // its child that is us or above us
	rules  slurm.Enforcement
	asked  bool // all who could tell the rules were asked
	given  []slurm.Memory
	free   bool // RLIMIT_RSS was read, and there is none
	sum    jobSum
}

func findStep(ctx context.Context, in *search, cgroups *cgroups) *step {
	s := &step{search: in, cgroups: cgroups}
	s.job, s.inJob = slurm.FromEnv(s.cfg.Lookup)
	if !s.inJob {
		s.look("environment", "no SLURM_JOB_ID: not in a Slurm job")
		return s
	}
	if b, err := procfile.Read(filepath.Join(s.cfg.Proc, strconv.Itoa(s.cfg.PID), "cgroup"), procfile.Small); err == nil {
		s.job = s.job.InCgroup(b)
	}
	s.end = s.job.End
	if s.job.StepID == "" {
		s.look("environment", "Slurm job %s, in no step of it: slurmstepd does not count it", s.job)
		return s
	}
	s.inStep = true
	s.look("environment", "Slurm job %s", s.job)
	s.findStepd()

	resident, err := proctree.ResidentLimit(s.cfg.Proc, s.cfg.PID)
	if err != nil {
		s.warn("slurm", "%v", err)
	}
	s.given, s.free = slurm.StepLimits(s.cfg.Lookup, resident), resident == slurm.NoLimit
	for _, m := range s.given {
		s.look(m.Source, "%v", rss.Bytes(m.Bytes))
	}
	if len(s.given) == 0 {
		s.look("RLIMIT_RSS, SLURM_MEM_*", "nothing")
	}
	s.findJobSum()
	search := s.cfg.Slurm
	if search.Lookup == nil {
		search.Lookup = s.cfg.Lookup
	}
	s.asked = search.Scontrol != nil
	s.settle(slurm.FindEnforcement(ctx, s.job, search))
	return s
}

// SetEnforcement replaces what is known of slurmstepd's doings, by the result
// of [slurm.FindEnforcement]: for a caller that asked scontrol later, on the
// side.
func (s *Set) SetEnforcement(e slurm.Enforcement, err error) {
	s.asked = true
	s.settle(e, err)
	s.findUser()
}

func (s *step) settle(e slurm.Enforcement, err error) {
	// Whether memory is a resource by default depends on SelectType and the version. Where it
	// is, slurmstepd has set RLIMIT_RSS.
	e.OverMemoryKill = e.OverMemoryKill && (e.SelectTypeParameters != "" || !s.free)
	s.rules = e
	if err != nil {
		s.look("Slurm's configuration", "%v", err)
		if !e.Known {
			s.warn("slurm", "cannot tell whether slurmstepd kills on memory: %v", err)
		}
		return
	}
	s.look(e.Source, "%v", e)
	if sums, _ := e.Sums(); sums != "" {
		switch kills, known := e.JobKill(); {
		case known && kills:
			s.look("Slurm "+e.Version, "slurmd has the job cancelled where its steps have more than its memory together")
		case known:
			s.look("Slurm "+e.Version, "slurmd only says so on the job's stderr where its steps have more than its memory together")
		}
	}
	if sums, _ := e.Sums(); sums != "" && len(s.given) == 0 {
		s.warn("slurm", "slurmstepd kills on summed %s above the step's memory, and that is not known here", sums)
	}
}

// SetEnd says when Slurm ends the job, for a caller that asked scontrol.
func (s *step) SetEnd(t time.Time) { s.end = t }

func (s *step) Job() (slurm.Job, bool) { return s.job, s.inJob }

func (s *step) Enforcement() slurm.Enforcement { return s.rules }

// LeftOpen says that only scontrol can tell whether slurmstepd kills, and on
// which sum. Ask it late and on the side, then call [Set.SetEnforcement].
func (s *step) LeftOpen() bool { return s.openSum() || s.openVersion() }

func (s *step) openSum() bool {
	return s.inStep && (!s.rules.Known || s.rules.OverMemoryKill && s.rules.Gather == "")
}

// openVersion says that slurmstepd kills and that it depends on the version of Slurm who
// else does, and on v2 which counters of a cgroup are summed.
func (s *step) openVersion() bool {
	sums, _ := s.rules.Sums()
	return s.inStep && sums != "" && s.rules.Version == ""
}

// SumsByPPID says that slurmstepd sums over parents and children, so that no
// subreaper may bring orphans back under the task. Where Slurm is there and its
// doings are not known, it says so too.
func (s *step) SumsByPPID() bool {
	if !s.inStep {
		return false
	}
	if s.openSum() {
		return true
	}
	_, by := s.rules.Sums()
	return by
}

func (s *step) limits(sample *rss.Sample) []event.Limit {
	acc, assumed := s.sums(sample.Mono)
	if !s.inStep || acc == "" || len(s.given) == 0 {
		return nil
	}
	given := s.given[0]
	e := event.Limit{
		Name: event.LimitSlurm, Scope: event.ScopeStep, Accounting: acc,
		Limit: rss.Bytes(given.Bytes), Enforcer: stepdName + ", by OverMemoryKill",
		LimitSource: given.Source,
		Note:        s.rules.String(),
	}
	if assumed {
		e.Enforcer, e.Note = assumedEnforcer, assumedNote
	}
	if s.task == 0 {
		e.Note += "; no slurmstepd found above us, it may not count us at all"
	}
	if e.Accounting == event.AccountingCgroup {
		c, from, ok := s.taskCharge()
		if !ok {
			if s.cgroups.path == nil || !ended(s.cgroups.path.Levels[0], fs.ErrNotExist) {
				s.warn("slurm", "slurmstepd sums the tasks' cgroups, and they cannot be read")
			}
			return nil
		}
		e.Used, e.UsedMax, e.Charged, e.UsedSource = c.low, c.high, c.charged, from
		return s.withJob(sample, e)
	}
	s.stepSum(sample, &e)
	out := s.withJob(sample, e)
	if s.rules.VSizeFactor > 0 {
		e.Accounting = event.AccountingVirtual
		s.stepSum(sample, &e)
		for _, l := range s.withJob(sample, e) {
			l.Limit = l.Limit.Scale(float64(s.rules.VSizeFactor) / 100)
			l.LimitSource += fmt.Sprintf(" times VSizeFactor=%d %%", s.rules.VSizeFactor)
			out = append(out, l)
		}
	}
	return out
}

// withJob is the limit of the step, and that of the whole job where there is one.
func (s *step) withJob(sample *rss.Sample, step event.Limit) []event.Limit {
	if job, ok := s.readJob(step, sample); ok {
		return []event.Limit{step, job}
	}
	return []event.Limit{step}
}

var sumSource = map[event.Accounting]string{
	event.AccountingRSS:      "VmRSS of /proc/PID/status, summed over the processes",
	event.AccountingNoShared: "RSS less RssFile and RssShmem of /proc/PID/status, summed over the processes",
	event.AccountingPSS:      "Pss of /proc/PID/smaps_rollup or smaps, summed over the processes",
	event.AccountingVirtual:  "VmSize of /proc/PID/status, summed over the processes",
}

// charge is what jobacct_gather/cgroup counts of tasks, between low and high, and their whole
// charge.
type charge struct{ low, high, charged rss.Bytes }

// taskCharge adds up what jobacct_gather/cgroup reads in the task directories
// of the step.
func (s *step) taskCharge() (c charge, from string, ok bool) {
	if s.cgroups.path == nil {
		return c, "", false
	}
	for _, l := range s.cgroups.path.Levels {
		if ofTask(l) {
			step := filepath.Dir(l.Dir)
			c, ok = s.tasksCharge(step, l.Version)
			return c, filepath.Join(step, "task_*", "memory.stat"), ok
		}
	}
	return c, "", false
}

// tasksCharge is taskCharge of one step's directory.
func (s *step) tasksCharge(step string, version int) (c charge, ok bool) {
	entries, err := os.ReadDir(step)
	if err != nil {
		return c, false
	}
	for _, d := range entries {
		if !d.IsDir() || !strings.HasPrefix(d.Name(), "task_") {
			continue
		}
		task := cgroup.Level{Version: version, Dir: filepath.Join(step, d.Name())}
		m, err := task.Memory()
		task.Close()
		if err != nil {
			// The directory of a task that has just ended.
			continue
		}
		low, high := s.gathered(m, version)
		c, ok = charge{c.low + low, c.high + high, c.charged + m.Charged}, true
	}
	return c, ok
}

// gathered is what jobacct_gather/cgroup counts of one task (Slurm's
// cgroup_p_task_get_acct_data): total_rss on v1; on v2 memory.current since 23.11,
// before that anon and swap cache, and up to 23.02.5 anonymous huge pages a second time
// (fixed by commit d01d488d92). Where the version is not known, the least and the most of
// these.
func (s *step) gathered(m cgroup.Memory, version int) (low, high rss.Bytes) {
	anon := m.Anon + m.SwapCached
	switch v := s.rules.Version; {
	case version == 1:
		low, high = m.Anon, m.Anon
	case s.rules.NoFileCache:
		low = m.Charged.Sub(m.ActiveFile + m.InactiveFile)
		high = low
	case v == "":
		low, high = anon, max(m.Charged, anon+m.AnonTHP)
	case slurm.Release{23, 11, 0}.In(v):
		low, high = m.Charged, m.Charged
	case slurm.Release{23, 2, 6}.In(v):
		low, high = anon, anon
	default:
		low, high = anon+m.AnonTHP, anon+m.AnonTHP
	}
	return low, high
}

// unanswered is how long after the start scontrol may still answer: a random
// pause and its own timeout.
const unanswered = 20 * time.Second

const (
	assumedEnforcer = stepdName + " perhaps, by OverMemoryKill"
	assumedNote     = "an assumption: no configuration of Slurm can be read here, so it is unknown whether slurmstepd kills; " +
		"no kernel limit of this job was found, and RLIMIT_RSS is what slurmstepd would compare with"
)

// sums is how slurmstepd adds up the step before it compares, empty where it
// does not. assumed says that this is unknown and the worst is assumed; see assume. now is
// the time since the watcher started.
func (s *step) sums(now time.Duration) (acc event.Accounting, assumed bool) {
	if sums, _ := s.rules.Sums(); sums != "" {
		return event.Accounting(sums), false
	}
	if s.inStep && !s.rules.Known && (s.asked || now > unanswered) {
		if acc := s.assume(); acc != "" {
			return acc, true
		}
	}
	return "", false
}

// assume is what to be afraid of in a step of which nothing is known, as in a
// container that has neither slurm.conf nor scontrol: that slurmstepd compares
// summed RSS, which is the most it can sum, with RLIMIT_RSS, which it sets
// wherever it has a limit. Two things that can be seen speak against that. A
// kernel limit of the step or job says that the kernel kills. And a directory
// of the task in the memory hierarchy is of jobacct_gather/cgroup, which does
// not sum RSS.
func (s *step) assume() event.Accounting {
	if len(s.given) == 0 || s.given[0].Source != "RLIMIT_RSS" {
		return ""
	}
	acc := event.AccountingRSS
	for _, l := range s.cgroups.levels {
		if l.scope != event.ScopeStep && l.scope != event.ScopeJob {
			continue
		}
		if lim, err := l.Limits(); err == nil && lim.Max != cgroup.Unlimited {
			return ""
		}
	}
	if s.cgroups.path != nil && slices.ContainsFunc(s.cgroups.path.Levels, ofTask) {
		acc = event.AccountingCgroup
	}
	return acc
}

// ofTask says that a level is the directory of a task. It need not be the leaf:
// its user may have made one below it.
func ofTask(l *cgroup.Level) bool { return strings.HasPrefix(filepath.Base(l.Dir), "task_") }

func (s *step) time(at time.Time) []event.Limit {
	if s.end.IsZero() {
		return nil
	}
	left := max(s.end.Sub(at).Seconds(), 0)
	source := "scontrol show job: EndTime"
	if s.end.Equal(s.job.End) {
		source = "SLURM_JOB_END_TIME"
	}
	return []event.Limit{{
		Name: event.LimitTime, Scope: event.ScopeJob, ETA: &left,
		Enforcer: "Slurm", LimitSource: source,
		Note: fmt.Sprintf("the job ends at %s", s.end.Format(time.RFC3339)),
	}}
}

// findStepd walks up from us to slurmstepd, and to the task it started: its
// child. In a PID namespace of the job's own, or under hidepid, slurmstepd
// cannot be seen; the topmost process that can is the task then.
func (s *step) findStepd() {
	for i, err := range proctree.Parents(s.cfg.Proc, s.cfg.PID) {
		if err != nil {
			break
		}
		switch {
		case s.task == 0:
		case strings.HasPrefix(i.Comm, stepdName):
			s.look("parents", "task %d, child of slurmstepd %d", s.task, s.stepd)
			return
		case i.ID.PID <= 1:
			s.task, s.stepd = 0, 0
			s.look("parents", "no slurmstepd above process %d", s.cfg.PID)
			return
		}
		s.task, s.stepd = i.ID.PID, i.Parent
	}
	s.look("parents", "task %d; its parent %d cannot be seen", s.task, s.stepd)
}

// Extra reads the processes that a limit counts beside the tree: ourselves and,
// where slurmstepd sums over the step, all else that descends from it. Call it
// after the reader's Tree, with what that returned. The error is that of
// [proctree.Reader.Group].
func (s *step) Extra(r *proctree.Reader, tree []rss.Proc) ([]rss.Proc, rss.Gaps, error) {
	in := make(map[int]bool, len(tree))
	for i := range tree {
		in[tree[i].ID.PID] = true
	}
	var pids []int
	add := func(pid int) {
		if pid > 0 && !in[pid] {
			in[pid] = true
			pids = append(pids, pid)
		}
	}
	for _, pid := range s.cfg.Self {
		add(pid)
	}
	if s.task != 0 && s.SumsByPPID() {
		top := s.stepd
		if top == 0 {
			top = s.task
			add(s.task)
		}
		for _, pid := range r.Below(top) {
			add(pid)
		}
	}
	return r.Group(pids)
}

// stepSum adds up the processes that descend from slurmstepd by parent now: the
// batch shell, ourselves and the other tasks of the step are in, orphans are
// out.
func (s *step) stepSum(sample *rss.Sample, e *event.Limit) {
	procs := make(map[int]*rss.Proc, len(sample.Procs)+len(sample.Extra))
	for _, list := range [][]rss.Proc{sample.Procs, sample.Extra} {
		for i := range list {
			procs[list[i].ID.PID] = &list[i]
		}
	}
	var sum total
	for _, p := range procs {
		if s.counted(p, procs) && p.State != 'Z' {
			sum.add(p, e.Accounting)
		}
	}
	sum.put(e, sample.Mono)
	e.UsedSource = sumSource[e.Accounting]
}

// counted walks up the parents. Where the way to slurmstepd is broken, because
// a process in between could not be read, the command itself stands for it.
func (s *step) counted(p *rss.Proc, procs map[int]*rss.Proc) bool {
	for range len(procs) + 1 {
		if s.stepd != 0 && p.Parent == s.stepd || p.ID.PID == s.cfg.PID || p.ID.PID == s.task {
			return true
		}
		up := procs[p.Parent]
		if up == nil {
			return s.task == 0 && !p.Orphan
		}
		p = up
	}
	return false
}

// total adds processes up. A zombie whose threads live on still has memory;
// /proc/PID/stat, which slurmstepd reads, does not show it.
type total struct {
	pss   rss.PSSSum
	bytes rss.Bytes
	read  bool          // PSS of any
	first time.Duration // … and when, of the oldest
	files event.FilePages
}

func (t *total) add(p *rss.Proc, acc event.Accounting) {
	switch acc {
	case event.AccountingPSS:
		t.pss.Add(p)
		low, _ := p.PSSFile()
		// A page that several have mapped counts once: they map the same files.
		t.files = event.FilePages{Now: t.files.Now + low, Most: max(t.files.Most, p.FileMost)}
		if p.PSS != nil && (!t.read || p.PSS.At < t.first) {
			t.read, t.first = true, p.PSS.At
		}
	case event.AccountingNoShared:
		t.bytes += p.NoShared()
	case event.AccountingVirtual:
		t.bytes += p.Virtual
	default:
		t.bytes += p.RSS
		t.files = event.FilePages{Now: t.files.Now + p.File, Most: t.files.Most + p.FileMost}
	}
}

func (t *total) put(e *event.Limit, now time.Duration) {
	e.Used, e.UsedMax, e.Age, e.Files = t.bytes, t.bytes, 0, t.files
	if e.Accounting != event.AccountingPSS {
		return
	}
	e.Used, e.UsedMax = t.pss.Range()
	if t.read {
		e.Age = max(now-t.first, 0).Seconds()
	}
}
