package record

import (
	"fmt"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// slurmLook is one look at a job of Slurm on cgroup v2: a trainer with 16
// workers, of whose limits each stands at used parts in a thousand.
func slurmLook(at time.Duration, used int) *Look {
	const dir = "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_12345678"
	of := func(size rss.Bytes) rss.Bytes { return size / 1000 * rss.Bytes(used) }
	l := &Look{At: at, Sample: &rss.Sample{}}
	for _, lim := range []event.Limit{
		{Name: event.LimitCgroup, Scope: event.ScopeJob, Accounting: event.AccountingCgroup, Limit: 256 * rss.GiB, Level: dir, LimitSource: dir + "/memory.max", UsedSource: dir + "/memory.current"},
		{Name: event.LimitCgroup, Scope: event.ScopeStep, Accounting: event.AccountingCgroup, Limit: 250 * rss.GiB, Level: dir + "/step_batch", LimitSource: dir + "/step_batch/memory.max", UsedSource: dir + "/step_batch/memory.current"},
		{Name: event.LimitThrottle, Scope: event.ScopeStep, Accounting: event.AccountingCgroup, Limit: 249 * rss.GiB, Level: dir + "/step_batch", LimitSource: dir + "/step_batch/memory.high"},
		{Name: event.LimitSlurm, Scope: event.ScopeStep, Accounting: event.AccountingPSS, Limit: 256 * rss.GiB, LimitSource: "SLURM_MEM_PER_NODE", Age: 1.234},
		{Name: event.LimitNode, Scope: event.ScopeNode, Limit: 512 * rss.GiB, LimitSource: "meminfo: MemTotal", Note: "everything on the node counts"},
		{Name: event.LimitSHM, Scope: event.ScopeNode, Limit: 256 * rss.GiB, LimitSource: "statvfs of /dev/shm"},
		{Name: event.LimitMaps, Scope: event.ScopeProcess, Limit: 65530, LimitSource: "vm.max_map_count"},
		{Name: event.LimitFDs, Scope: event.ScopeProcess, Limit: 131072, LimitSource: "soft RLIMIT_NOFILE of /proc/PID/limits"},
		{Name: event.LimitTasks, Scope: event.ScopeJob, Limit: 629145, Level: dir, LimitSource: dir + "/pids.max"},
	} {
		lim.Used = of(lim.Limit)
		lim.UsedMax = lim.Used
		lim.Enforcer = "kernel OOM killer"
		if lim.Accounting == event.AccountingCgroup {
			lim.Charged, lim.WorkingSet = lim.Used+lim.Used/7, lim.Used+lim.Used/9
		}
		l.Limits = append(l.Limits, lim)
	}
	for i, role := range []rss.Role{rss.RoleOther, rss.RoleAgent, rss.RoleTrainer, rss.RolePinThread, rss.RoleShmManager, rss.RoleWorker, rss.RoleWorker} {
		p := rss.Proc{ID: rss.ProcID{PID: 100 + i}, Role: role, Anon: of(9 * rss.GiB), File: of(17 * rss.GiB), Shmem: of(rss.GiB)}
		p.RSS = p.Anon + p.File + p.Shmem
		l.Sample.Procs = append(l.Sample.Procs, p)
	}
	return l
}

// headed is the head of an event of the run at a moment.
func headed(start time.Time, at time.Duration, name event.Name) event.Head {
	return event.Head{V: event.Version, Time: start.Add(at), Seq: uint64(at / time.Second), Event: name}
}

// TestSizeOfAJournal: a run that is quiet fits into 64 KiB, however long it is,
// a week of one that is not into 1 MiB, with its end.
func TestSizeOfAJournal(t *testing.T) {
	const week = 7 * 24 * time.Hour
	for name, c := range map[string]struct {
		last, step time.Duration
		most       int
		used       func(n int) int
		each       func(r *Recorder, n int, head func(event.Name) event.Head)
	}{
		"quiet":             {last: week, step: time.Second, most: 64 << 10, used: func(n int) int { return 400 + n%7 }},
		"quiet and growing": {last: week, step: time.Second, most: 64 << 10, used: func(n int) int { return 100 + n/3000 }},
		"quiet for a year":  {last: 52 * week, step: time.Minute, most: 64 << 10, used: func(n int) int { return 400 + n%7 }},
		"sawtooth":          {last: week, step: time.Second, most: 1 << 20, used: func(n int) int { return 300 + n%5*120 }},
		"decisions": {
			last: week, step: 3 * time.Second, most: 1 << 20, used: func(n int) int { return 790 + n%3*10 },
			each: func(r *Recorder, n int, head func(event.Name) event.Head) {
				id := uint64(n)
				r.Event(event.NameDecision, event.Decision{Head: head(event.NameDecision), ID: id, Rule: "80%:signal=SIGUSR1", Limit: event.LimitCgroup, Action: event.ActionSignal})
				r.Event(event.NameOutcome, event.Outcome{Head: head(event.NameOutcome), Decision: id, Reason: event.ReasonTooLittle})
			},
		},
		"quiet, with all findings": {
			last: week, step: time.Second, most: 72 << 10, used: func(n int) int { return 400 + n%7 },
			each: func(r *Recorder, n int, head func(event.Name) event.Head) {
				if n > 0 && n&(n-1) == 0 { // as it doubles
					for _, f := range event.Findings {
						r.Event(event.NameDiagnosis, leak(head(event.NameDiagnosis), f, rss.RoleWorker, rss.Bytes(n)*rss.KiB))
					}
				}
			},
		},
		"faults and signals": {
			last: week, step: 5 * time.Second, most: 1 << 20, used: func(int) int { return 400 },
			each: func(r *Recorder, n int, head func(event.Name) event.Head) {
				r.Event(event.NameFault, event.Fault{Head: head(event.NameFault), Part: "proctree", Error: fmt.Sprintf("cannot read process %d", n)})
				r.Event(event.NameSignal, event.Signal{Head: head(event.NameSignal), Signal: "SIGUSR1", Sender: n})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := New(Options{Meta: testMeta()})
			r.begun = true // nothing is written: what would be is counted
			start := r.opt.Meta.Start
			begin := event.Start{Head: headed(start, 0, event.NameStart), Command: []string{"python", "train.py"}, Limits: slurmLook(0, 100).Limits}
			for range 20 {
				begin.Settings = append(begin.Settings, event.Setting{Name: "worker-signal", Value: "SIGUSR1", Origin: "environment"})
			}
			r.Event(event.NameStart, begin)
			looks := map[int]*Look{}
			for n := 0; time.Duration(n)*c.step < c.last; n++ {
				at, used := time.Duration(n)*c.step, c.used(n)
				if looks[used] == nil {
					looks[used] = slurmLook(0, used)
				}
				l := *looks[used]
				l.At = at
				r.journal.sample(&l)
				if c.each != nil {
					c.each(r, n, func(name event.Name) event.Head { return headed(start, at, name) })
				}
				if n%1000 == 0 {
					r.take()
				}
			}
			if a := c.last - r.journal.last.At; c.last > week && a > c.last*2/3 {
				t.Errorf("the last sample is %v old", a)
			}
			before := r.journal.written()
			code := 0
			r.Event(event.NameExit, event.Exit{Head: headed(start, c.last, event.NameExit), Code: &code})
			size := r.journal.written()
			t.Logf("%d KiB", size>>10)
			if size == before {
				t.Error("its end found no room")
			}
			if size > c.most {
				t.Errorf("%d bytes, more than %d", size, c.most)
			}
		})
	}
}

// take empties the queues, as the writers do.
func (r *Recorder) take() {
	r.mu.Lock()
	r.waiting = waiting{}
	r.mu.Unlock()
	r.journal.mu.Lock()
	r.journal.lines = nil
	r.journal.mu.Unlock()
}
