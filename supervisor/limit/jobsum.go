package limit

import (
	"fmt"
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
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// jobSum adds up the steps of a job on this node as slurmd does: of each step the number
// that its own slurmstepd has for it, rounded down to MiB, and 1 MiB at least
// (job_mem_limit_enforce in slurmd/job_mem_limit.c). Our own step is read with each
// sample, the others seldom: slurmd compares at its pings, 100 to 200 s apart.
type jobSum struct {
	dir     string // the job's cgroup directory, whose folders are its steps; empty where none can be seen
	version int    // of that hierarchy
	own     string // our step's folder in it
	reader  *proctree.Reader

	others []otherStep
	known  bool // others were read
	at     time.Duration
	near   bool      // the sum was near the limit then
	used   rss.Bytes // that sum, when they were read
	grows  bool      // by more than jobSumStep of the limit since they were read before
	cost   rss.Meter
	pss    map[rss.ProcID]*rss.PSS
}

// otherStep is a step of the job beside ours, as it was last read.
type otherStep struct {
	procs []rss.Proc
	charge
}

const (
	// jobSumEvery is how often the other steps are read, and jobSumNear where the sum is
	// above jobSumClose of the limit.
	jobSumEvery = 2 * time.Second
	jobSumNear  = time.Second
	jobSumClose = 0.7
	// jobSumShare is the most of a core that it may take, and jobSumHaste near the limit
	// while the sum grows: the kill may come before the next reading.
	jobSumShare = 0.005
	jobSumHaste = 0.05
	jobSumStep  = 0.01
	// pssPatience is how long PSS may be read in one look: the sampling waits for it.
	pssPatience = 20 * time.Millisecond
)

const jobKiller = "slurmd, by OverMemoryKill, at each ping (SlurmdTimeout/3 to 2/3)"

const jobKillNote = "the whole job is cancelled as by scancel: TERM, and KILL after KillWait"

// findJobSum finds the directory of the job, in whatever hierarchy names it.
func (s *step) findJobSum() {
	b, err := procfile.Read(filepath.Join(s.cfg.Proc, strconv.Itoa(s.cfg.PID), "cgroup"), procfile.Small)
	if err != nil {
		return
	}
	all, err := cgroup.Hierarchies(s.cfg.Proc, s.cfg.Sys)
	if err != nil {
		return
	}
	for p := range slurm.StepsOfCgroup(b) {
		own := "step_" + p.Step
		for _, h := range all {
			if dir := filepath.Join(h.Dir, p.Dir); h.Is(p.Controllers) && isDir(filepath.Join(dir, own)) {
				s.sum = jobSum{dir: dir, version: h.Version, own: own}
				return
			}
		}
	}
}

func isDir(name string) bool {
	info, err := os.Lstat(name)
	return err == nil && info.IsDir()
}

// jobMemory is what slurmd compares with: the most job memory that a launch request on
// this node has named. The batch step has it as its RLIMIT_RSS; what srun --mem gave a
// step is less.
func (s *step) jobMemory() slurm.Memory {
	most := s.given[0]
	if s.job.StepID == slurm.StepBatch && most.Step {
		return most
	}
	for _, m := range s.given[1:] {
		if m.Bytes >= most.Bytes {
			most = m
		}
	}
	return most
}

// older says that the job's Slurm is older than 26.05, which puts SLURM_JOB_SLUID beside the
// other variables.
func (s *step) older() bool {
	_, job := s.cfg.Lookup("SLURM_JOB_NODELIST")
	_, sluid := s.cfg.Lookup("SLURM_JOB_SLUID")
	return job && !sluid
}

// readJob returns the limit of the whole job. step is that of our own step, as it was read
// with the sample.
func (s *step) readJob(step event.Limit, sample *rss.Sample) (e event.Limit, ok bool) {
	kills, known := s.rules.JobKill()
	if !kills || !known && (s.older() || !s.asked && sample.Mono <= unanswered) {
		return e, false
	}
	given := s.jobMemory()
	e = step
	e.Scope, e.Level = event.ScopeJob, ""
	e.Limit, e.LimitSource = rss.Bytes(given.Bytes), given.Source
	e.Enforcer, e.Note = jobKiller, jobKillNote
	if !known {
		e.Enforcer = strings.Replace(jobKiller, "slurmd", "slurmd perhaps", 1)
		e.Note = "Slurm's version is not known: 26.05.3 and newer cancel the whole job (TERM, and KILL after KillWait), " +
			"20.11 to 26.05.2 only write \"Exceeded job memory limit\" to its stderr"
	}
	s.sum.look(s, step.Accounting, sample.Mono)
	e.Used, e.UsedMax, e.Charged = asSlurmd(step.Used), asSlurmd(step.UsedMax), 0
	if step.Charged > 0 {
		e.Charged = asSlurmd(step.Charged)
	}
	for i := range s.sum.others {
		o := &s.sum.others[i]
		low, high := o.low, o.high
		if step.Accounting != event.AccountingCgroup {
			var t total
			for k := range o.procs {
				t.add(&o.procs[k], step.Accounting)
			}
			sum := event.Limit{Accounting: step.Accounting}
			t.put(&sum, 0)
			low, high = sum.Used, sum.UsedMax
		} else {
			e.Charged += asSlurmd(o.charged)
		}
		e.Used += asSlurmd(low)
		e.UsedMax += asSlurmd(high)
	}
	e.UsedSource = fmt.Sprintf("%s, of %s on this node", step.UsedSource, text.Count(len(s.sum.others)+1, "step"))
	if s.sum.dir == "" {
		e.Note += "; other steps of the job are not counted here: no cgroup tells their processes"
	}
	s.sum.near = e.UsedMax.Of(e.Limit) >= jobSumClose
	if s.sum.at == sample.Mono {
		s.sum.grows = e.UsedMax > s.sum.used+e.Limit.Scale(jobSumStep)
		s.sum.used = e.UsedMax
	}
	return e, true
}

// asSlurmd is a step's number as slurmd adds it.
func asSlurmd(b rss.Bytes) rss.Bytes { return max(b/rss.MiB*rss.MiB, rss.MiB) }

// look reads the other steps where that is due.
func (j *jobSum) look(s *step, acc event.Accounting, now time.Duration) {
	pause, share := jobSumEvery, jobSumShare
	if j.near {
		pause = jobSumNear
		if j.grows {
			share = jobSumHaste
		}
	}
	if j.dir == "" || j.known && now-j.at < max(pause, j.cost.Pause(share)) {
		return
	}
	entries, err := os.ReadDir(j.dir)
	if err != nil {
		return // the last reading counts on
	}
	began := time.Now()
	var others []otherStep
	for _, d := range entries {
		if _, isStep := slurm.StepOfDir(d.Name()); !isStep || !d.IsDir() || d.Name() == j.own {
			continue
		}
		dir := filepath.Join(j.dir, d.Name())
		if user := filepath.Join(dir, "user"); j.version == 2 && isDir(user) {
			dir = user // slurmstepd itself is beside it
		}
		var o otherStep
		if acc == event.AccountingCgroup {
			o.charge, _ = s.tasksCharge(dir, j.version)
		} else if o.procs, err = j.counted(s.cfg.Proc, dir); err != nil {
			return // short of descriptors or memory: a part is no sum
		}
		others = append(others, o)
	}
	if acc == event.AccountingPSS {
		j.readPSS(others)
	}
	j.others, j.known, j.at = others, true, now
	j.cost.Add(time.Since(began))
}

// counted reads the processes of a step that its slurmstepd counts: its children and what
// descends from them by parent.
func (j *jobSum) counted(proc, dir string) ([]rss.Proc, error) {
	level := cgroup.Level{Version: j.version, Dir: dir}
	pids, err := level.Procs()
	if err != nil && !ended(&level, err) {
		return nil, err
	}
	if j.reader == nil {
		j.reader = proctree.New(proc)
	}
	procs, _, err := j.reader.Group(pids)
	if err != nil {
		return nil, err
	}
	byPID := make(map[int]*rss.Proc, len(procs))
	for i := range procs {
		byPID[procs[i].ID.PID] = &procs[i]
	}
	stepd := map[int]bool{} // whether a parent outside is a slurmstepd
	top := func(pid int) bool {
		is, asked := stepd[pid]
		if !asked {
			up, err := j.reader.One(pid)
			is = err != nil && pid > 1 || err == nil && isStepd(&up) // hidepid hides it
			stepd[pid] = is
		}
		return is
	}
	under := func(p *rss.Proc) bool {
		for range len(procs) {
			up := byPID[p.Parent]
			if up == nil || isStepd(up) {
				return up != nil || top(p.Parent)
			}
			p = up
		}
		return false
	}
	return slices.DeleteFunc(slices.Clone(procs), func(p rss.Proc) bool {
		return p.State == 'Z' || isStepd(&p) || !under(&p)
	}), nil
}

// readPSS reads the PSS of some processes, and puts in what was read of the others before:
// RSS and private pages bound what was not. smaps_rollup of a large process would hold its
// mmap_lock for long.
func (j *jobSum) readPSS(others []otherStep) {
	began, was := time.Now(), j.pss
	if was == nil {
		was = map[rss.ProcID]*rss.PSS{}
	}
	j.pss = make(map[rss.ProcID]*rss.PSS)
	for _, again := range []bool{false, true} {
		for i := range others {
			for k := range others[i].procs {
				p := &others[i].procs[k]
				if p.PSS = was[p.ID]; (p.PSS == nil || again && p.PSS.RSS != p.RSS) && !proctree.Lengthy(p.RSS) && time.Since(began) < pssPatience {
					if pss, err := j.reader.PSS(p.ID); err == nil {
						p.PSS = &pss
					}
				}
				if p.PSS != nil {
					was[p.ID], j.pss[p.ID] = p.PSS, p.PSS
				}
			}
		}
	}
}

func isStepd(p *rss.Proc) bool { return strings.HasPrefix(p.Comm, stepdName) }

func (j *jobSum) close() {
	if j.reader != nil {
		j.reader.Close()
	}
}
