package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// slurmLook is one look at a job of Slurm on cgroup v2: a trainer with 16 workers, each
// limit at used parts in a thousand.
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

// testJournal is one of which nothing is written: what would be is counted.
func testJournal() *Journal {
	start := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	return NewJournal(nil, Meta{ID: NewID(start, nil, "node", 7), Start: start, Node: "node", Command: []string{"python", "train.py"}}, nil)
}

// put has a journal take an event, as a recorder does.
func put(j *Journal, name event.Name, v any) {
	line, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	j.Event(name, v, line)
}

// TestSizeOfAJournal: a run that is quiet fits into 64 KiB, however long it is,
// a week of one that is not into 1 MiB, with its end.
func TestSizeOfAJournal(t *testing.T) {
	const week = 7 * 24 * time.Hour
	for name, c := range map[string]struct {
		last, step time.Duration
		most       int
		used       func(n int) int
		each       func(j *Journal, n int, head func(event.Name) event.Head)
	}{
		"quiet":             {last: week, step: time.Second, most: 64 << 10, used: func(n int) int { return 400 + n%7 }},
		"quiet and growing": {last: week, step: time.Second, most: 64 << 10, used: func(n int) int { return 100 + n/3000 }},
		"quiet for a year":  {last: 52 * week, step: time.Minute, most: 64 << 10, used: func(n int) int { return 400 + n%7 }},
		"sawtooth":          {last: week, step: time.Second, most: 1 << 20, used: func(n int) int { return 300 + n%5*120 }},
		"decisions": {
			last: week, step: 3 * time.Second, most: 1 << 20, used: func(n int) int { return 790 + n%3*10 },
			each: func(j *Journal, n int, head func(event.Name) event.Head) {
				id := uint64(n)
				put(j, event.NameDecision, event.Decision{Head: head(event.NameDecision), ID: id, Rule: "80%:signal=SIGUSR1", Limit: event.LimitCgroup, Action: event.ActionSignal})
				put(j, event.NameOutcome, event.Outcome{Head: head(event.NameOutcome), Decision: id, Reason: event.ReasonTooLittle})
			},
		},
		"quiet, with all findings": {
			last: week, step: time.Second, most: 72 << 10, used: func(n int) int { return 400 + n%7 },
			each: func(j *Journal, n int, head func(event.Name) event.Head) {
				if n > 0 && n&(n-1) == 0 { // as it doubles
					for _, f := range event.Findings {
						put(j, event.NameDiagnosis, leak(head(event.NameDiagnosis), f, rss.RoleWorker, rss.Bytes(n)*rss.KiB))
					}
				}
			},
		},
		"faults and signals": {
			last: week, step: 5 * time.Second, most: 1 << 20, used: func(int) int { return 400 },
			each: func(j *Journal, n int, head func(event.Name) event.Head) {
				put(j, event.NameFault, event.Fault{Head: head(event.NameFault), Part: "proctree", Error: fmt.Sprintf("cannot read process %d", n)})
				put(j, event.NameSignal, event.Signal{Head: head(event.NameSignal), Signal: "SIGUSR1", Sender: n})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := testJournal()
			start := j.meta.Start
			begin := event.Start{Head: headed(start, 0, event.NameStart), Command: []string{"python", "train.py"}, Limits: slurmLook(0, 100).Limits}
			for range 20 {
				begin.Settings = append(begin.Settings, event.Setting{Name: "worker-signal", Value: "SIGUSR1", Origin: "environment"})
			}
			put(j, event.NameStart, begin)
			looks := map[int]*Look{}
			for n := 0; time.Duration(n)*c.step < c.last; n++ {
				at, used := time.Duration(n)*c.step, c.used(n)
				if looks[used] == nil {
					looks[used] = slurmLook(0, used)
				}
				l := *looks[used]
				l.At = at
				j.Sample(&l)
				if c.each != nil {
					c.each(j, n, func(name event.Name) event.Head { return headed(start, at, name) })
				}
				if n%1000 == 0 {
					j.lines = nil // as its writer does
				}
			}
			if a := c.last - j.last.At; c.last > week && a > c.last*2/3 {
				t.Errorf("the last sample is %v old", a)
			}
			before := j.written()
			code := 0
			put(j, event.NameExit, event.Exit{Head: headed(start, c.last, event.NameExit), Code: &code, Brief: event.Brief{Outcome: event.RunFailed}})
			size := j.written()
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

// leak is a finding as long as they get.
func leak(head event.Head, finding event.Finding, role rss.Role, size rss.Bytes) event.Diagnosis {
	return event.Diagnosis{
		Head: head, Finding: finding, Confidence: event.Likely, Role: role, PID: 4711, Bytes: size,
		Evidence: []string{strings.Repeat("evidence ", 30)}, Advice: []string{strings.Repeat("advice ", 80)},
	}
}

// TestWhyInAJournal: what was found, changed and warned of is in a journal, and
// read back as it was told.
func TestWhyInAJournal(t *testing.T) {
	j := testJournal()
	start := j.meta.Start
	code := 1
	events := []Entry{
		{0, event.NameStart, &event.Start{Head: headed(start, 0, event.NameStart)}},
		{time.Second, event.NameLoader, &event.LoaderSaid{Head: headed(start, time.Second, event.NameLoader), What: event.LoaderPickling, PID: 7,
			Sharing: &event.Sharing{Method: "spawn", Workers: 2, Tensors: 9000, FDs: 9010, MaxFDs: 1024}}},
		{2 * time.Second, event.NameCure, &event.Cure{Head: headed(start, 2*time.Second, event.NameCure), Remedy: event.RemedyNoFile, PID: 7, OK: true, Before: 1024, After: 65536}},
	}
	d := leak(headed(start, 3*time.Second, event.NameDiagnosis), event.FindingWorkerLeak, rss.RoleWorker, rss.GiB)
	events = append(events, Entry{3 * time.Second, event.NameDiagnosis, &d},
		Entry{4 * time.Second, event.NameExit, &event.Exit{Head: headed(start, 4*time.Second, event.NameExit), Code: &code, Brief: event.Brief{Outcome: event.RunFailed}}})
	for _, e := range events {
		put(j, e.Name, reflect.ValueOf(e.Value).Elem().Interface())
	}
	first, err := makeRunLine(j.meta)
	must(t, err)
	file := append(first, '\n')
	for _, line := range j.lines {
		file = append(file, line...)
	}
	run, err := parseJournal(bytes.NewReader(file))
	must(t, err)
	if diff := cmp.Diff(events, run.Events); diff != "" || run.Damage != nil {
		t.Errorf("damage %v, -told +read\n%s", run.Damage, diff)
	}
}

// TestWhyIsBounded: findings that are told again and again, and cures and
// warnings of each of many workers, leave a journal small, and what is new is kept.
func TestWhyIsBounded(t *testing.T) {
	j := testJournal()
	start := j.meta.Start
	tell := func(n int, finding event.Finding) {
		at := time.Duration(n) * time.Minute
		put(j, event.NameDiagnosis, leak(headed(start, at, event.NameDiagnosis), finding, rss.RoleWorker, rss.Bytes(n)*rss.MiB))
	}
	for n := range 1000 {
		at := time.Duration(n) * time.Minute
		tell(n, event.FindingWorkerLeak)
		put(j, event.NameCure, event.Cure{Head: headed(start, at, event.NameCure), Remedy: event.RemedyOOMPrefer, PID: n, OK: true, After: 500})
		put(j, event.NameLoader, event.LoaderSaid{Head: headed(start, at, event.NameLoader), What: event.LoaderPickling, PID: n, Sharing: &event.Sharing{}})
	}
	for i, f := range event.Findings {
		tell(2000+i, f)
	}
	text := ""
	for _, line := range j.lines {
		text += string(line)
	}
	if size := j.written(); size > 56<<10 {
		t.Errorf("%d KiB", size>>10)
	}
	for _, f := range event.Findings {
		if !strings.Contains(text, fmt.Sprintf("%q", f)) {
			t.Errorf("%q is not in the journal", f)
		}
	}
	if n := strings.Count(text, `"remedy"`); n != mostCures {
		t.Errorf("%d cures", n)
	}
}

// TestNoReplayOfAJournal: what a ladder took over may be large, and what it was given comes
// often. Both are for a replay alone.
func TestNoReplayOfAJournal(t *testing.T) {
	j := testJournal()
	put(j, event.NameHandover, event.Handover{Head: headed(j.meta.Start, time.Second, event.NameHandover), Ran: time.Second})
	if put(j, event.NameJudged, event.Judged{Head: headed(j.meta.Start, time.Second, event.NameJudged), N: 1}); j.written() != 0 {
		t.Errorf("%d bytes of it are in the journal", j.written())
	}
}

// TestRestartedBeforeItBegan: the second watcher of a run whose first left no
// journal begins it, and one that finds a line cut off goes on behind it.
func TestRestartedBeforeItBegan(t *testing.T) {
	for name, before := range map[string]string{"nothing": "", "cut off": `{"v":1,"time":"2026-`} {
		t.Run(name, func(t *testing.T) {
			j := testJournal()
			j.places = []string{t.TempDir()}
			path := filepath.Join(j.places[0], j.meta.ID+journalSuffix)
			if before != "" {
				line, _ := makeRunLine(j.meta)
				must(t, os.WriteFile(path, append(append(line, '\n'), before...), 0o600))
			}
			j.Begin()
			put(j, event.NameStart, event.Start{Head: headed(j.meta.Start, 0, event.NameStart)})
			j.Sample(slurmLook(time.Second, 400))
			j.Close(time.After(5 * time.Second))
			run, err := ReadJournal(path)
			must(t, err)
			n := 0
			for range run.Samples() {
				n++
			}
			if n != 1 || len(run.Events) != 1 || (len(run.Damage) > 0) != (before != "") {
				t.Errorf("%d samples, %d events, damage %v", n, len(run.Events), run.Damage)
			}
		})
	}
}

func FuzzJournal(f *testing.F) {
	seeds, err := filepath.Glob("testdata/journals/*")
	must(f, err)
	for _, name := range seeds {
		b, err := os.ReadFile(name)
		must(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := parseJournal(bytes.NewReader(b)); err == nil {
			use(t, r)
		}
	})
}

// TestForkStorm: of a job that starts thousands of processes a second for hours
// the record is bounded, and a look does not cost more for it.
func TestForkStorm(t *testing.T) {
	tab := NewSampler(1)
	var into Sample
	size, pid := 0, 1000
	workers := []rss.Proc{{ID: rss.ProcID{PID: 1}, Comm: "pt_data_worker", Role: rss.RoleWorker, Anon: rss.GiB, RSS: rss.GiB}}
	for n := range 1000 {
		l := &Look{At: time.Duration(n) * time.Second, Sample: &rss.Sample{Procs: slices.Clone(workers)}}
		for range 200 {
			pid++
			l.Sample.Procs = append(l.Sample.Procs, rss.Proc{ID: rss.ProcID{PID: pid}, Comm: "sh", Role: rss.RoleOther, Anon: rss.MiB, RSS: rss.MiB})
		}
		tab.Sample(l, &into)
		for _, it := range tab.Take() {
			size += len(it.Value)
		}
		sum := rss.Bytes(0)
		for i := range into.Procs {
			sum += into.Procs[i].RSS()
		}
		var want rss.Bytes
		for i := range l.Sample.Procs {
			want += l.Sample.Procs[i].RSS
		}
		if sum != want {
			t.Fatalf("look %d: %v in all, want %v", n, sum, want)
		}
	}
	if size > 16<<20 || len(tab.procs) > 4096 {
		t.Errorf("%d bytes of processes, %d kept in mind", size, len(tab.procs))
	}
	l := &Look{Sample: &rss.Sample{}} // of 10,000 processes each keeps its name
	for pid := range 10_000 {
		l.Sample.Procs = append(l.Sample.Procs, rss.Proc{ID: rss.ProcID{PID: 2 + pid}, Comm: "python", Anon: rss.MiB, RSS: rss.MiB})
	}
	tab.count = mostProcs - 10_000
	tab.Sample(l, &into)
	best := time.Hour // of some: the machine may be busy
	for range 20 {
		began := time.Now()
		tab.Sample(l, &into)
		best = min(best, time.Since(began))
	}
	if best > 20*time.Millisecond {
		t.Errorf("a look at 10,000 processes takes %v", best)
	}
}

var must = wardentest.NoError
