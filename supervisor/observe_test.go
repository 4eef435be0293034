package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/shm"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/observe"
	"github.com/rsswarden/rsswarden/supervisor/probe/probetest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestPSSSettlesOnWhichSideOfARungUseStands, without waiting an interval.
func TestPSSSettlesOnWhichSideOfARungUseStands(t *testing.T) {
	s := newStand(t, func(o *Options) {
		o.Settings.Accounting, o.Settings.Interval = event.AccountingPSS, time.Hour
	})
	s.put(theCommand, theHolder, 100*rss.MiB, 0)
	s.fs.Write(fmt.Sprintf("proc/%d/smaps_rollup", theCommand), "0-1 ---p 0 00:00 0 [rollup]\nRss: 102400 kB\nPss: 97280 kB\n")
	s.Settings.Limit = 110 * rss.MiB
	s.open(s.holder.begin)
	for s.acts.Ladder.Uncertain(s.view.Limits) { // the answer may be there already
		if !s.observe.PSS.Wait(10*time.Second) || !s.observe.PSS.TakeOne(s.now()) {
			t.Fatal("no reading came")
		}
		s.full()
	}
	if s.acts.Ladder.Uncertain(s.view.Limits) || s.user().Used != 95*rss.MiB {
		t.Errorf("reading %+v, want 95 MiB for certain", s.user())
	}
	if d := named(s.events(), event.NameDecision); len(d) != 1 {
		t.Errorf("decisions %v, want the warning and none before it was certain", d)
	}
}

// TestExpensiveLooksAfterReadings: a reading on which much depends causes a full look, within
// the budget of such looks, and never later than they are due.
func TestExpensiveLooksAfterReadings(t *testing.T) {
	s := newStand(t, func(o *Options) {
		o.Settings.Accounting, o.Settings.Interval = event.AccountingPSS, time.Hour
	})
	s.Settings.Limit = 110 * rss.MiB
	s.open(s.holder.begin)
	hand := probetest.New[proctree.PSSAsk, observe.PSSAnswer](&s.probes) // it is answered here
	s.observe.PSS = observe.PSSBy(hand.Reader)
	s.full()
	ask, _ := hand.Asked()
	hand.Answer(t, observe.PSSAnswer{Ask: ask, PSS: rss.PSS{PSS: 95 * rss.MiB, RSS: 100 * rss.MiB}})
	for range 8 {
		s.pace.Full.Add(100 * time.Millisecond)
	}
	s.pace.FullAt = s.now()
	looks := s.view.Sample.Seq
	if !s.heardProbes() {
		t.Error("the reading is not taken")
	}
	if s.view.Sample.Seq != looks {
		t.Error("a look of 0.1 s upon another")
	}
	if pause := s.pace.FullPause(s.paced(s.now())); pause != 2*time.Second {
		t.Errorf("the next look within %v, want 2 s: 5 %% of a core", pause)
	}
	s.later(2 * time.Second)
	s.gap = 0
	s.tick()
	if s.view.Sample.Seq == looks || s.acts.Ladder.Uncertain(s.view.Limits) {
		t.Errorf("%d looks, and use is on either side of a rung: %v", s.view.Sample.Seq-looks, s.acts.Ladder.Uncertain(s.view.Limits))
	}
	if pause := s.pace.FullPause(s.paced(s.now())); pause <= 2*time.Second {
		t.Errorf("the next look within %v, and nothing is to be seen", pause)
	}
}

// TestSHMUsersAreTold with a later look, and kept for the summary.
func TestSHMUsersAreTold(t *testing.T) {
	if space, err := shm.Usage("/proc", os.Getpid()); err != nil || !space.Tmpfs {
		t.Skipf("no tmpfs on /dev/shm: %+v, %v", space, err)
	}
	f, err := os.Create(fmt.Sprintf("/dev/shm/torch_told_%d", os.Getpid()))
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	os.Remove(f.Name())
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(3*rss.MiB)); err != nil {
		t.Skip(err)
	}
	s := opened(t)
	s.tell.SHMUsers(s.now(), s.observe.SHMUsers.Told()) // no probe was started
	s.observe.SHMUsers = observe.NewSHMUsers(&s.probes, "/proc")
	s.view.Sample.Procs = []rss.Proc{{ID: rss.ProcID{PID: os.Getpid()}, Role: rss.RoleTrainer}}
	s.view.Limits = append(s.view.Limits, event.Limit{Name: event.LimitSHM, Scope: event.ScopeNode, Used: 900, Limit: 1000})
	s.acts.Decide(event.Decision{ID: 1, Rule: "shm 80%:warn", On: event.LimitID{Name: event.LimitSHM, Scope: event.ScopeNode}, Limit: event.LimitSHM, Action: event.ActionWarn, Used: 900, LimitSize: 1000, Threshold: 800})
	if !s.observe.SHMUsers.Wait(20 * time.Second) {
		t.Fatal("no probe ended within 20 s")
	}
	if strings.Contains(s.stderr(), "this job holds") {
		t.Error("a line before a look")
	}
	s.tell.SHMUsers(s.now(), s.observe.SHMUsers.Told())
	s.tell.SHMUsers(s.now(), s.observe.SHMUsers.Told())
	s.times(1, "in /dev/shm this job holds torch 3.00 MiB (1 segment, 1 without a name")
	for i, used := range []rss.Bytes{600, 900} {
		late := event.Limit{Name: event.LimitSHM, Scope: event.ScopeNode, Used: used, Limit: 1000}
		s.tell.Sum.Peak(&rss.Sample{Mono: s.view.Sample.Mono + time.Duration(i)*time.Second}, []event.Limit{late}, func(*event.Limit) float64 { return 0 })
	}
	s.end(&hold.Exit{Code: 1})
	if last := s.lines.last(); !strings.Contains(last, "prefetch_factor") {
		t.Errorf("the last line: %s", last)
	}
}

// TestFoundIsTold where it is new, more certain, or has cost twice as much, and on
// stderr once, where the limit that binds is half full.
func TestFoundIsTold(t *testing.T) {
	type seen struct {
		confidence event.Confidence
		bytes      rss.Bytes
		used       rss.Bytes // of 1000 MiB
	}
	for _, c := range []struct {
		name    string
		finding event.Finding
		seen    []seen
		events  int
		lines   int
	}{
		{"possible", event.FindingWorkerLeak, []seen{{event.Possible, 10, 900}, {event.Possible, 900, 900}}, 0, 0},
		{"once", event.FindingWorkerLeak, []seen{{event.Likely, 10, 900}, {event.Likely, 10, 900}, {event.Likely, 19, 900}}, 1, 1},
		{"twice as much", event.FindingWorkerLeak, []seen{{event.Likely, 10, 900}, {event.Likely, 20, 900}, {event.Likely, 39, 900}, {event.Likely, 40, 900}}, 3, 1},
		{"less and again", event.FindingMapped, []seen{{event.Likely, 100, 900}, {event.Likely, 10, 900}, {event.Likely, 100, 900}}, 1, 1},
		{"more certain", event.FindingWorkerLeak, []seen{{event.Likely, 10, 900}, {event.Certain, 10, 900}, {event.Certain, 10, 900}}, 2, 1},
		{"less certain", event.FindingWorkerLeak, []seen{{event.Certain, 10, 900}, {event.Likely, 10, 900}, {event.Certain, 10, 900}, {event.Likely, 10, 900}}, 1, 1},
		{"of no known cost", event.FindingPinned, []seen{{event.Likely, 0, 900}, {event.Likely, 0, 900}, {event.Likely, 0, 900}}, 1, 1},
		{"much is left", event.FindingWorkerLeak, []seen{{event.Certain, 10, 499}, {event.Certain, 10, 499}}, 1, 0},
		{"much was left", event.FindingWorkerLeak, []seen{{event.Certain, 10, 100}, {event.Certain, 10, 499}, {event.Certain, 10, 500}, {event.Certain, 10, 900}}, 1, 1},
		{"mappings tell of themselves", event.FindingSpawn, []seen{{event.Certain, 10, 900}}, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := opened(t)
			for _, f := range c.seen {
				s.view.Limits = []event.Limit{{Name: event.LimitUser, Used: f.used * rss.MiB, Limit: 1000 * rss.MiB, Binding: true}}
				d := event.Diagnosis{
					Finding: c.finding, Role: rss.RoleWorker, Confidence: f.confidence, Bytes: f.bytes * rss.MiB,
					Evidence: []string{"a number", "another", "one too many"}, Advice: []string{"this", "that", "one too many"},
				}
				s.tell.Findings.Tell(s.now(), []event.Diagnosis{d}, s.view.Binding())
				s.later(time.Second)
			}
			told := named(s.events(), event.NameDiagnosis)
			if len(told) != c.events {
				t.Errorf("%d events, want %d: %v", len(told), c.events, told)
			}
			if n := strings.Count(s.stderr(), string(c.finding)); n != c.lines {
				t.Errorf("%d lines, want %d\n%s", n, c.lines, s.stderr())
			}
			if c.lines > 0 && !strings.Contains(s.stderr(), "growth: ") {
				t.Errorf("said\n%s", s.stderr())
			}
			if c.events > 0 && len(told[0]["evidence"].([]any)) != 3 {
				t.Errorf("the event has not all: %v", told[0])
			}
		})
	}
}

// TestFindingsByRole are told each for itself.
func TestFindingsByRole(t *testing.T) {
	s := opened(t)
	for range 3 {
		for _, role := range []rss.Role{rss.RoleWorker, rss.RoleTrainer} {
			s.tell.Findings.Tell(s.now(), []event.Diagnosis{{Finding: event.FindingMapped, Role: role, Confidence: event.Likely, Bytes: rss.GiB}}, nil)
		}
	}
	if told := named(s.events(), event.NameDiagnosis); len(told) != 2 {
		t.Errorf("events %v", told)
	}
}

// TestFindingSurvives: a worker leaks and ends; the summary and the last event have
// it all the same, and a line on the way says why.
func TestFindingSurvives(t *testing.T) {
	s := newStand(t, withLoader(t))
	id := s.trainer(20*rss.MiB, worker1)
	s.open(s.holder.begin)
	grown := 20 * rss.MiB
	for range 150 {
		grown += 5 * rss.MiB
		s.put(worker1, id.PID, grown, 0)
		s.later(time.Second)
		s.full()
	}
	s.told("growth: likely " + string(event.FindingWorkerLeak) + ", +")
	s.fs.End(worker1)
	s.log(id, `"what":"ended","n":1`)
	for range 90 {
		s.later(time.Second)
		s.full()
	}
	s.end(&hold.Exit{})
	told := named(s.events(), event.NameDiagnosis)
	if len(told) == 0 || len(told) > 6 || told[0]["finding"] != string(event.FindingWorkerLeak) || told[0]["role"] != "worker" {
		t.Errorf("%d events %v", len(told), told)
	}
}

// TestCloseReadingHangs: a process whose files cannot be read delays no look.
func TestCloseReadingHangs(t *testing.T) {
	s := newStand(t, withLoader(t))
	id := s.trainer(20*rss.MiB, worker1)
	s.put(worker1, id.PID, 100*rss.MiB, 0)
	fifo := fmt.Sprintf("%s/%d/smaps_rollup", s.fs.Proc, worker1)
	wardentest.NoError(t, unix.Mkfifo(fifo, 0o600))
	s.open(s.holder.begin)
	for range 60 {
		s.later(2 * time.Second)
		s.full()
	}
	if !s.observe.Diagnosis.Busy() {
		t.Errorf("a pipe without a writer was read; wanted %+v", s.observe.Diagnosis.State.Wants())
	}
	if f, err := os.OpenFile(fifo, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
		f.Close() // the reader goes on
	}
}

// TestSaidBeforeTheWatcher: what a trainer said before the first watcher was there is heard;
// a watcher that was started again does not repeat it.
func TestSaidBeforeTheWatcher(t *testing.T) {
	for attempt, want := range map[int]bool{1: true, 2: false} {
		s := newStand(t, withLoader(t), func(o *Options) { o.Link.(*fakeHolder).begin.Attempt = attempt })
		id := s.trainer(100*rss.MiB, worker1, worker2)
		s.put(theCommand, theHolder, 10*rss.MiB, 0)
		s.put(worker1, id.PID, 10*rss.MiB, 0)
		s.put(worker2, id.PID, 10*rss.MiB, 0)
		s.open(s.holder.begin)
		s.poll(true)
		if got := s.count(event.NameLoader, "what", string(event.LoaderHello)) > 0; got != want {
			t.Errorf("attempt %d: told %v", attempt, got)
		}
	}
}

// TestTorchThatIsTried: the result of a trial is reported once, and decides whether its
// workers can be recycled.
func TestTorchThatIsTried(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	prepared, err := loader.Prepare(loader.Options{Env: os.Environ()})
	wardentest.NoError(t, err)
	t.Cleanup(func() { loader.Remove(prepared.Dir) })
	s := newStand(t, withLoader(t))
	key, python := strings.Repeat("a", 32), filepath.Join(t.TempDir(), "python3")
	untried, err := json.Marshal(loader.Untried{Key: key, Torch: "9.0", Executable: python, Hook: prepared.Hook})
	wardentest.NoError(t, err)
	for name, text := range map[string]string{
		python: "#!/bin/sh\n" + `echo 'rsswarden-trial: {"verdict":"refused","why":"batches were lost"}'` + "\n",
		filepath.Join(s.Settings.Dir, "untried."+key): string(untried),
	} {
		wardentest.NoError(t, os.WriteFile(name, []byte(text), 0o700))
	}
	id := s.trainer(100 * rss.MiB)
	s.put(worker1, id.PID, 110*rss.MiB, 0)
	s.log(id, fmt.Sprintf(`"what":"iter","n":2,"kind":"map","num_workers":1,"start":"fork","can_recycle":true,"workers":[%d],"trial":"waiting","key":"%s"`, worker1, key))
	s.open(s.holder.begin)
	const line = "trimmed, not recycled (batches were lost)"
	s.says(line)
	s.full()
	if n := strings.Count(s.stderr(), line); n != 1 || len(s.observe.Workers.Recyclable(event.AccountingRSS)) > 0 {
		t.Errorf("told %d times; %+v", n, s.observe.Workers.Recyclable(event.AccountingRSS))
	}
	if n := s.count(event.NameLoader, "what", string(event.LoaderTried), "trial", string(event.TrialRefused)); n != 1 {
		t.Errorf("%d events", n)
	}
}

// TestTrainingWithoutTheHook: it is reported once, and each refused request says why.
func TestTrainingWithoutTheHook(t *testing.T) {
	s := newStand(t, withLoader(t))
	s.fs.Write("proc/5000001/environ", "A=B\x00")
	s.fs.Write("proc/5000001/maps", "7f00-7f01 r--p 00000000 08:01 1 /usr/lib/libtorch_cpu.so\n")
	s.open(s.holder.begin)
	s.says("does not reach process 5000001")
	s.full()
	if detail := s.acts.Can(mustRules("90%:gc")[0], &s.view.Limits[0]).Detail; strings.Count(s.stderr(), "does not reach") != 1 || !strings.HasPrefix(detail, "process ") {
		t.Errorf("%s\n%s", detail, s.stderr())
	}
	if n := s.count(event.NameLoader, "what", string(event.LoaderUnreached)); n != 1 {
		t.Errorf("%d events", n)
	}
}

// TestEndIsAskedAgain: an administrator may have moved the job's end, and the
// environment does not say. If scontrol does not either, a line says so.
func TestEndIsAskedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		answer observe.SlurmAnswer
		fires  bool
	}{
		"as it was": {observe.SlurmAnswer{End: time.Now().Add(5 * time.Minute)}, true},
		"extended":  {observe.SlurmAnswer{End: time.Now().Add(24 * time.Hour)}, false},
		"lifted":    {observe.SlurmAnswer{EndErr: slurm.ErrNoEnd}, false},
		"no answer": {observe.SlurmAnswer{EndErr: errors.New("no")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, inSlurm(t, time.Now().Add(5*time.Minute)), func(o *Options) { o.Settings.Rules = mustRules("time eta<10m:warn") })
			hand := probetest.New[observe.SlurmQuestion, observe.SlurmAnswer](&s.probes)
			s.observe.Slurm.Reader = hand.Reader
			s.open(s.holder.begin)
			s.full()
			hand.Answer(t, test.answer)
			if !s.heardProbes() {
				t.Error("the answer is not taken")
			}
			s.full()
			if s.observe.Slurm.Busy() {
				t.Error("asked twice within 5 minutes")
			}
			if n := s.count(event.NameDecision); n > 1 || n == 1 != test.fires {
				t.Errorf("%d decisions, want one: %v", n, test.fires)
			}
			if told := s.count(event.NameFault, "part", "scontrol") > 0; told != (name == "no answer") {
				t.Errorf("a missing answer is reported: %v", told)
			}
		})
	}
}

func TestScontrolsAnswerIsTold(t *testing.T) {
	// Neither a configuration that can be read nor the job's end.
	env := map[string]string{"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1", "SLURM_MEM_PER_NODE": "2000", "SLURM_CONF": filepath.Join(t.TempDir(), "none")}
	s := opened(t, with(env))
	end := time.Now().Add(time.Hour)
	s.answered(observe.SlurmAnswer{Open: true, Rules: slurm.Enforcement{Known: true, OverMemoryKill: true, Gather: "linux", Version: "24.11.5"}})
	s.answered(observe.SlurmAnswer{End: end})
	s.full()
	var told []string
	for _, e := range named(s.events(), event.NameLimit) {
		name, ok := e["limit"].(string)
		if !ok {
			t.Fatalf("event %v names no limit", e)
		}
		told = append(told, name)
	}
	slices.Sort(told)
	if !slices.Equal(told, []string{"slurm", "time"}) {
		t.Errorf("reported %v", told)
	}
}

// answered has scontrol answer.
func (s *stand) answered(a observe.SlurmAnswer) {
	s.t.Helper()
	hand := probetest.New[observe.SlurmQuestion, observe.SlurmAnswer](&s.probes)
	s.observe.Slurm.Reader = hand.Reader
	hand.Ask(observe.SlurmQuestion{}, true)
	hand.Answer(s.t, a)
	s.heardProbes()
}

// mostMaps is vm.max_map_count as the kernel has it.
const mostMaps = 65530

// mappings gives a process of the made-up tree so many lines of maps.
func (s *stand) mappings(pid, n int) {
	s.fs.Write(fmt.Sprintf("proc/%d/maps", pid), strings.Repeat("m\n", n))
}

// hurried is within what time a process that is about to map much is counted again.
const hurried = 100 * time.Millisecond

// longRest is longer than any pause between two counts.
const longRest = 5 * time.Minute

// recount plays a look that asks for counts, waits for them, and plays the one
// that judges them.
func (s *stand) recount() {
	s.t.Helper()
	s.later(longRest)
	s.full()
	s.settle()
	s.full()
	s.settle()
}

// settle waits for what package counts reads, and takes it in.
func (s *stand) settle() {
	s.t.Helper()
	wardentest.Until(s.t, "counted", func() bool {
		s.observe.Counts.Take(s.now)
		return !s.observe.Counts.Busy()
	})
}

// decisions returns the rules that fired on a limit.
func decisions(all []map[string]any, l event.LimitName) []map[string]any {
	var some []map[string]any
	for _, d := range named(all, event.NameDecision) {
		if d["limit"] == string(l) {
			some = append(some, d)
		}
	}
	return some
}

// TestWarnOfMappings follows one limit on a number through the ladder: one warning
// with the numbers as numbers, none while another process becomes the nearest, and
// a second once it was 5 points below.
func TestWarnOfMappings(t *testing.T) {
	s := newStand(t, withLoader(t))
	id := s.trainer(20*rss.MiB, worker1)
	s.put(worker1, id.PID, 20*rss.MiB, 0)
	s.fs.Write("proc/sys/vm/max_map_count", fmt.Sprintln(mostMaps))
	at := func(pid int, percent float64) { s.mappings(pid, int(percent/100*mostMaps)) }
	for _, pid := range []int{theCommand, id.PID, worker1} {
		at(pid, 1)
	}
	s.open(s.holder.begin)
	s.settle()
	warned := func(when string, want int) {
		t.Helper()
		s.recount()
		if n := strings.Count(s.stderr(), "memory mappings"); n != want {
			t.Fatalf("%s: %d lines, want %d\n%s", when, n, want, s.stderr())
		}
	}
	warned("at 1 %", 0)
	at(id.PID, 79.9)
	warned("below the rung", 0)
	at(id.PID, 81)
	warned("at 81 %", 1)
	if want := fmt.Sprintf("memory mappings 81 %% of 65,530 in trainer %d\n", id.PID); !strings.Contains(s.stderr(), want) {
		t.Errorf("no %q in\n%s", want, s.stderr())
	}
	at(worker1, 83)
	warned("another is nearest", 1)
	at(id.PID, 84)
	warned("the first is again", 1)
	at(id.PID, 75.5)
	at(worker1, 75.5)
	warned("four points below", 1)
	at(worker1, 82)
	warned("up again", 1)
	at(worker1, 74.5)
	at(id.PID, 74.5)
	s.later(10 * time.Minute)
	warned("five points below", 1)
	at(worker1, 82)
	warned("up from there", 2)
	if want := fmt.Sprintf("in worker %d\n", worker1); !strings.Contains(s.stderr(), want) {
		t.Errorf("no %q in\n%s", want, s.stderr())
	}

	all := s.events()
	list := decisions(all, event.LimitMaps)
	if len(list) != 2 {
		t.Fatalf("decisions %v", list)
	}
	wardentest.Has(t, list[0], "action", "warn", "rule", "maps 80%:warn", "used", 53079.0, "limit_count", float64(mostMaps), "threshold", 52424.0,
		"used_bytes", nil, "limit_bytes", nil, "threshold_bytes", nil)
	found := named(all, event.NameLimit)
	if n := len(slices.DeleteFunc(found, func(e map[string]any) bool { return e["limit"] != "maps" })); n != 1 {
		t.Errorf("%d limit events, want one", n)
	}
}

// TestMappingsAreNotMemory: no rule that gives memory back is tried on a limit on a
// number, and no outcome has bytes that are none.
func TestMappingsAreNotMemory(t *testing.T) {
	rules := []string{"maps 50%:trim", "maps 50%:recycle", "maps 50%:gc", "90%:trim"}
	s := newStand(t, withLoader(t), func(o *Options) {
		o.Settings.Rules = mustRules(rules...)
	})
	id := s.trainer(20*rss.MiB, worker1)
	s.put(worker1, id.PID, 20*rss.MiB, 400*rss.MiB)
	s.fs.Write("proc/sys/vm/max_map_count", "1000\n")
	s.mappings(worker1, 700)
	s.open(s.holder.begin)
	for range 3 {
		s.recount()
	}
	all := s.events()
	if list := named(all, event.NameDecision); len(list) != 0 || s.acts.InFlight() != nil {
		t.Errorf("decisions %v", list)
	}
	reasons := map[string]any{}
	for _, o := range named(all, event.NameOutcome) {
		rule, _, _ := strings.Cut(fmt.Sprint(o["detail"]), ": ")
		if reasons[rule] != nil {
			t.Errorf("%s is reported again", rule)
		}
		reasons[rule] = o["reason"]
		for _, field := range []string{"before_bytes", "after_bytes", "freed_bytes"} {
			if v, has := o[field]; has {
				t.Errorf("%s: %s is %v", rule, field, v)
			}
		}
	}
	for _, rule := range rules[:3] {
		if reasons[rule] == nil || reasons[rule] == "" {
			t.Errorf("%s: refused for no reason; %v", rule, reasons)
		}
	}
	s.told("trim skipped for memory mappings: mapped pages do not count in this limit")
	if s.tell.Sum.Saved.Skipped() != 0 {
		t.Errorf("%d rules of memory skipped", s.tell.Sum.Saved.Skipped())
	}
}

// often from that look on, for half a minute.
func TestPicklingHurries(t *testing.T) {
	s := newStand(t, withLoader(t))
	id := s.trainer(20*rss.MiB, worker1)
	s.fs.Write("proc/sys/vm/max_map_count", fmt.Sprintln(mostMaps))
	s.mappings(id.PID, 100)
	s.open(s.holder.begin)
	s.settle()
	s.recount()
	if pause, ok := s.observe.Counts.Next(s.now()); ok {
		t.Fatalf("a count is due in %v though nothing is said", pause)
	}
	s.log(id, `"what":"pickling","sharing":{"start_method":"spawn","strategy":"file_system","workers":1,"tensors":80000,"tensor_bytes":25600000,`+
		`"maps_needed":80500,"maps_limit":65530,"fds_needed":20,"fds_limit":1024,"fds_hard_limit":4096}`)
	if !s.poll(true) {
		t.Fatal("what was said asks for no look")
	}
	s.full()
	s.settle()
	pause, ok := s.observe.Counts.Next(s.now())
	if !ok || pause > hurried {
		t.Errorf("the next count in %v, %v; want one within %v", pause, ok, hurried)
	}
	s.told("sends 80,000 tensors to workers by spawn", "80,500 memory mappings of the 65,530 in vm.max_map_count", `set_start_method("fork")`)
	if strings.Contains(s.stderr(), "ulimit") {
		t.Errorf("descriptors do not run out:\n%s", s.stderr())
	}
	s.mappings(id.PID, 60000)
	s.later(hurried)
	s.full()
	s.settle()
	s.full()
	if list := decisions(s.events(), event.LimitMaps); len(list) != 1 {
		t.Errorf("decisions %v", list)
	}
	s.later(30 * time.Second)
	s.mappings(id.PID, 100)
	s.recount()
	s.recount()
	if pause, ok := s.observe.Counts.Next(s.now()); ok {
		t.Errorf("a count is due in %v though the hurry is over", pause)
	}
}

// TestRaised: what the hook did for --nofile is reported.
func TestRaised(t *testing.T) {
	s := newStand(t, withLoader(t))
	id := s.trainer(20*rss.MiB, worker1)
	s.open(s.holder.begin)
	say := func(more string, before, now, need int) {
		s.log(id, fmt.Sprintf(`"what":"raised"%s,"sharing":{"start_method":"spawn","strategy":"file_descriptor","workers":1,"tensors":4000,"tensor_bytes":1,`+
			`"maps_needed":4500,"maps_limit":65530,"fds_needed":%d,"fds_limit":%d,"fds_hard_limit":4096,"fds_limit_before":%d}`, more, need, now, before))
		s.poll(true)
	}
	say("", 1024, 4096, 4020)
	say("", 4096, 4096, 9000)
	say(`,"why":"not allowed"`, 1024, 1024, 9000)
	said := s.stderr()
	for _, want := range []string{"may have 4,096 descriptors now, 1,024 before\n", "; it will need 9,000\n", "could not be raised from 1,024: not allowed\n"} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in\n%s", want, said)
		}
	}
	cures := named(s.events(), event.NameCure)
	if len(cures) != 3 || cures[0]["remedy"] != "nofile" || cures[0]["ok"] != true || cures[0]["before"] != 1024.0 || cures[0]["after"] != 4096.0 ||
		cures[2]["ok"] != false || cures[2]["reason"] != "not allowed" {
		t.Errorf("cures %v", cures)
	}
}

// TestWarnedAheadOfTheNextCount: where mappings come so fast that the next count may
// be too late, the rung is met before its time, and the line says so; below half of
// the limit a burst is no news.
func TestWarnedAheadOfTheNextCount(t *testing.T) {
	for _, c := range []struct {
		name string
		n    int
		more int // in 0.2 s
		want bool
	}{
		{"fast, near", 50_000, 5000, true},
		{"fast, below half", 30_000, 5000, false},
		{"slow, near", 52_000, 60, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s *stand
			var all []map[string]any
			for tries := 1; ; tries++ {
				s = newStand(t)
				s.fs.Write("proc/sys/vm/max_map_count", fmt.Sprintln(mostMaps))
				s.mappings(theCommand, c.n-c.more)
				began := time.Now()
				s.open(s.holder.begin)
				s.settle()
				s.observe.Counts.Hurry(theCommand, s.now()+time.Minute)
				s.full()
				s.mappings(theCommand, c.n)
				for range 2 {
					s.later(2 * hurried)
					s.full()
					s.settle()
				}
				s.full()
				all = decisions(s.events(), event.LimitMaps)
				if (len(all) > 0) == c.want {
					break
				}
				// On a busy machine real time adds to that of the test, and counts are expensive.
				if took := time.Since(began); took < 50*time.Millisecond || tries == 50 {
					t.Fatalf("decisions %v after %v", all, took)
				}
			}
			if !c.want {
				return
			}
			if lead, _ := all[0]["lead"].(float64); lead == 0 || all[0]["lead_bytes"] != nil {
				t.Errorf("decision %v", all[0])
			}
			if !strings.Contains(strings.Join(s.lines.all, "\n"), ", full within 4 s") {
				t.Errorf("said %q", s.lines.all)
			}
		})
	}
}
