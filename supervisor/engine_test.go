package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/cadence"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestStartIsTheFirstEvent: also where a rung is crossed and a part of ours
// fails before the first look.
func TestStartIsTheFirstEvent(t *testing.T) {
	s := newStand(t, func(o *Options) {
		o.Settings.Interval = 2 * time.Millisecond
		o.Settings.Dir = "/nonexistent"
		o.Settings.Warnings = []string{"something was amiss"}
	})
	s.put(theCommand, theHolder, 950*rss.MiB, 0)
	s.open(s.holder.begin)
	all := s.events()
	if len(all) == 0 || all[0]["event"] != "start" {
		t.Fatalf("the first event is %v, want start", all[0])
	}
	for name, want := range map[event.Name]int{event.NameStart: 1, event.NameDecision: 1, event.NameOutcome: 2} {
		if got := len(named(all, name)); got != want {
			t.Errorf("%d events %s, want %d", got, name, want)
		}
	}
	if got := named(all, event.NameFault); len(got) < 2 {
		t.Errorf("faults %v, want the loader's and the holder's", got)
	}
	if first := s.lines.all[0]; first[:8] != "watching" {
		t.Errorf("the first line is %q", first)
	}
}

// TestAboveTheLimitLooksStayFew: use may be above --limit for hours.
func TestAboveTheLimitLooksStayFew(t *testing.T) {
	s := opened(t)
	s.put(theCommand, theHolder, 1500*rss.MiB, 0)
	s.later(time.Second)
	s.tick()
	seq := s.view.Sample.Seq
	s.tick()
	if s.view.Sample.Seq != seq {
		t.Error("a look in full although nothing grew")
	}
	s.later(10 * time.Minute) // the rate fades
	s.tick()
	if p := s.pause(s.now()); p < 10*time.Millisecond {
		t.Errorf("pause %v while nothing grows", p)
	}
	s.put(theCommand, theHolder, 1600*rss.MiB, 0)
	seq = s.view.Sample.Seq
	s.later(s.pause(s.now()))
	s.tick()
	if s.view.Sample.Seq != seq+1 {
		t.Error("no look in full although it grew by 100 MiB")
	}
}

func TestWithoutInotifyLoadersAreLookedFor(t *testing.T) {
	s := opened(t, withLoader(t), func(o *Options) { o.Settings.Limit = 32 * rss.GiB })
	if p := s.pause(s.now()); p <= cadence.LoaderPause {
		t.Errorf("pause %v with inotify", p)
	}
	s.observe.Hears = false
	s.pace.Again()
	if p := s.pause(s.now()); p > cadence.LoaderPause {
		t.Errorf("pause %v without, want at most %v", p, cadence.LoaderPause)
	}
}

// inSlurm puts the command into a batch step that slurmstepd kills above 2000
// MiB of summed RSS.
func inSlurm(t *testing.T, end time.Time) func(*Options) {
	conf := filepath.Join(t.TempDir(), "slurm.conf")
	text := "JobAcctGatherType=jobacct_gather/linux\nJobAcctGatherParams=OverMemoryKill\nJobAcctGatherFrequency=task=30\n" +
		"TaskPlugin=task/none\nProctrackType=proctrack/cgroup\nSelectTypeParameters=CR_Core_Memory\n"
	wardentest.NoError(t, os.WriteFile(conf, []byte(text), 0o644))
	env := map[string]string{
		"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1", "SLURM_MEM_PER_NODE": "2000", "SLURM_CONF": conf, "SLURM_JOB_END_TIME": fmt.Sprint(end.Unix()),
	}
	return with(env)
}

// TestFastTickKeepsLimitsApart: the ladder may hold another limit for binding,
// by its forecast, than the fast tick reads.
func TestFastTickKeepsLimitsApart(t *testing.T) {
	s := opened(t, inSlurm(t, time.Now().Add(time.Hour)))
	s.put(theHolder, 1, rss.MiB, 0)
	s.put(theCommand, theHolder, 700*rss.MiB, 0)
	s.full()
	var slurmLimit event.Limit
	for _, l := range s.view.Limits {
		if l.Name == event.LimitSlurm {
			slurmLimit = l
		}
	}
	if slurmLimit.Limit != 2000*rss.MiB {
		t.Fatalf("readings %+v: no limit of slurm's", s.view.Limits)
	}
	for i := range s.view.Limits {
		s.view.Limits[i].Binding = s.view.Limits[i].Name == event.LimitSlurm // as by a forecast
	}
	s.put(theCommand, theHolder, 720*rss.MiB, 0)
	s.tick()
	for _, l := range s.view.Limits {
		switch l.Name {
		case event.LimitUser:
			if l.Used != 720*rss.MiB {
				t.Errorf("user: used %v, want what the fast tick read", l.Used)
			}
		case event.LimitSlurm:
			if l.Used != slurmLimit.Used {
				t.Errorf("slurm: used %v, want %v as of the last full look", l.Used, slurmLimit.Used)
			}
		}
	}
}

func TestLoopEndsWithTheCommand(t *testing.T) {
	for name, test := range map[string]struct {
		end           func(*fakeHolder)
		code, outcome any
	}{
		"exit":             {func(h *fakeHolder) { h.messages <- hold.Exit{Code: 3} }, 3.0, "failed"},
		"holder gone":      {func(h *fakeHolder) { h.messages <- hold.Gone{} }, nil, "unknown"},
		"gone with a word": {func(h *fakeHolder) { h.messages <- hold.Exit{Code: 4}; h.messages <- hold.Gone{} }, 4.0, "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			s := opened(t)
			test.end(s.holder)
			s.loop()
			wardentest.Has(t, s.last(event.NameExit), "code", test.code, "outcome", test.outcome)
		})
	}
}

// TestNewsDoNotPutLooksOff: inotify may report changes more often than the watcher
// pauses.
func TestNewsDoNotPutLooksOff(t *testing.T) {
	s := opened(t, withLoader(t), func(o *Options) { o.Settings.Interval = 20 * time.Millisecond })
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-stop:
				return
			default:
				s.bell.Ring(loaderNews)
				time.Sleep(time.Microsecond)
			}
		}
	}()
	ended := make(chan uint64)
	go func() {
		s.loop()
		ended <- s.view.Sample.Seq
	}()
	time.AfterFunc(300*time.Millisecond, func() { s.holder.messages <- hold.Exit{} })
	if seq := <-ended; seq < 3 {
		t.Errorf("%d looks in full within 15 intervals", seq)
	}
}

// TestPressedLooks: what the kernel tells of a limit, or of a stall, causes a full look at
// once; many of them cause no more than the loop's budget, and only what a look reads decides:
// neither that others of the node wait for memory, nor that some did a while ago.
//
// C2: pressure with memory free. C3: pressure that a kernel tells wrongly.
// C4: pressure that stays high after it was relieved.
func TestPressedLooks(t *testing.T) {
	dir := t.TempDir()
	for name, press := range map[string]func(*stand, int){
		"a limit": func(_ *stand, n int) {
			_ = os.WriteFile(filepath.Join(dir, "memory.events"), fmt.Appendf(nil, "max %d\n", n), 0o600)
		},
		"a stall": func(s *stand, _ int) { s.bell.Ring(stalled) },
	} {
		t.Run(name, func(t *testing.T) {
			var s *stand
			for tries := 1; ; tries++ {
				s = opened(t, func(o *Options) { o.Settings.Interval = time.Hour; o.Settings.Limit = 32 * rss.GiB })
				press(s, 0)
				wardentest.NoError(t, s.observe.WatchLimits([]event.Limit{{Name: event.LimitUser}, {Level: t.TempDir()}, {Level: dir}, {Level: dir}}))
				before, began := s.view.Sample.Seq, time.Now()
				go func() {
					for i := range 30 {
						press(s, i)
						time.Sleep(10 * time.Millisecond)
					}
					s.holder.messages <- hold.Exit{}
				}()
				s.loop()
				took, n := time.Since(began), s.view.Sample.Seq-before
				if n < 2 && (tries < 5 || (s.pace.Full.Cost() > time.Millisecond || took > 330*time.Millisecond) && tries < 50) {
					continue // on a busy machine looks are late, and expensive ones are few
				}
				if n < 2 || n > max(20, uint64(took/(15*time.Millisecond))) {
					t.Errorf("%d looks in full in %v", n, took)
				}
				break
			}
			if d := named(s.events(), event.NameDecision); len(d) != 0 {
				t.Errorf("decided %v at 100 MiB of 32 GiB", d)
			}
		})
	}
}

// TestSiteRulesAreForAllJobs: that a limit of theirs is not there is not told.
func TestSiteRulesAreForAllJobs(t *testing.T) {
	for origin, want := range map[string]bool{"flag": true, "site": false, "site (locked)": false} {
		s := opened(t, func(o *Options) {
			o.Settings.Rules, o.Settings.Origins = mustRules("throttle 80%:trim"), []event.Setting{{Name: "at", Origin: origin}}
		})
		if told := strings.Contains(s.stderr(), `rule "throttle 80%:trim" does not fire`); told != want {
			t.Errorf("rules of %s: told %v, want %v", origin, told, want)
		}
	}
}

// TestExhausted is the verdict where something else than memory ran out, or could
// have.
func TestExhausted(t *testing.T) {
	maps := func(s *stand, percent int) {
		s.mappings(theCommand, 10*percent)
		s.recount()
	}
	sharing := func(sent, maxSent, n, most int) *event.Sharing {
		return &event.Sharing{Method: "forkserver", Strategy: "file_descriptor", Workers: 2, Tensors: 4000,
			Maps: 5000, MaxMaps: 65530, FDs: n, MaxFDs: most, HardFDs: most, Sent: sent, MaxSent: maxSent}
	}
	told := func(s *stand, x *event.Sharing) {
		s.tell.Sum.Loader(s.now(), &loader.Said{LoaderSaid: event.LoaderSaid{What: event.LoaderPickling, PID: theCommand, Sharing: x}})
	}
	for _, c := range []struct {
		name  string
		set   func(*stand)
		exit  hold.Exit
		want  event.RunOutcome
		words []string
	}{
		{"97 % and it went well", func(s *stand) { maps(s, 97) }, hold.Exit{}, event.RunOK, nil},
		{"97 % and it failed", func(s *stand) { maps(s, 97) }, hold.Exit{Code: 1}, event.RunExhausted, []string{"ran out of memory mappings", " 97 %  970 of 1,000, memory mappings"}},
		{"97 %, and a signal ended it", func(s *stand) { maps(s, 97) }, hold.Exit{Signal: 15}, event.RunCancelled, nil},
		{"97 % an hour before", func(s *stand) { maps(s, 97); maps(s, 5); s.later(time.Hour); s.full() }, hold.Exit{Code: 1}, event.RunFailed, nil},
		{"90 % all the time, and it failed", func(s *stand) { maps(s, 90); s.later(time.Minute); s.recount() }, hold.Exit{Code: 1}, event.RunFailed, nil},
		{"too much for the fork server", func(s *stand) { told(s, sharing(500, 253, 4000, 65536)) }, hold.Exit{Code: 1}, event.RunExhausted,
			[]string{"500 of 253, file descriptors", `set_start_method("fork")`}},
		{"too much for the fork server, it went well", func(s *stand) { told(s, sharing(500, 253, 4000, 65536)) }, hold.Exit{}, event.RunOK, nil},
		{"too much, and ten minutes of training after", func(s *stand) { told(s, sharing(500, 253, 4000, 65536)); s.later(10 * time.Minute); s.full() },
			hold.Exit{Code: 1}, event.RunFailed, nil},
		{"just fits", func(s *stand) { told(s, sharing(253, 253, 4000, 65536)) }, hold.Exit{Code: 1}, event.RunFailed, nil},
		{"too many descriptors", func(s *stand) { told(s, sharing(0, 0, 8000, 1024)) }, hold.Exit{Signal: 6}, event.RunExhausted,
			[]string{"8,000 of 1,024, file descriptors", "next raise ulimit -n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStand(t)
			s.fs.Write("proc/sys/vm/max_map_count", "1000\n")
			s.mappings(theCommand, 10)
			s.open(s.holder.begin)
			s.settle()
			c.set(s)
			s.end(&c.exit)
			wardentest.Has(t, only(t, s.events(), event.NameExit), "outcome", string(c.want))
			s.told(c.words...)
		})
	}
}

// TestCancelledBySlurmd: a job whose two steps have 517 of 400 MiB together is cancelled by
// slurmd from 26.05.3 on. The last lines say so, and advise what survives.
func TestCancelledBySlurmd(t *testing.T) {
	const stepd, task, other = 600, 4801, 4802
	conf := filepath.Join(t.TempDir(), "slurm.conf")
	text := "JobAcctGatherType=jobacct_gather/linux\nJobAcctGatherParams=OverMemoryKill\nSelectTypeParameters=CR_Core_Memory\nTaskPlugin=task/none\nSLURM_VERSION=26.05.5\n"
	wardentest.NoError(t, os.WriteFile(conf, []byte(text), 0o600))
	for _, c := range []struct {
		name    string
		other   rss.Bytes // of step 0
		left    int       // seconds to the job's end
		sender  string
		outcome event.RunOutcome
		says    string
	}{
		{"over the job's memory", 252, 3600, "slurmstepd", event.RunSlurmKill, "next #SBATCH --mem=832M (rough guess: 1.5 × peak)"},
		{"scancel, with room", 52, 3600, "slurmstepd", event.RunCancelled, "✖ cancelled: SIGTERM (SIGTERM)"},
		{"the job's end", 252, 3, "slurmstepd", event.RunTimeout, "✖ Slurm time limit reached (SIGTERM)"},
		{"a signal of a user's", 252, 3600, "kill", event.RunCancelled, "✖ cancelled: SIGTERM, memory at 129 % of slurm"},
	} {
		t.Run(c.name, func(t *testing.T) {
			env := map[string]string{
				"SLURM_JOB_ID": "2", "SLURM_STEP_ID": "-5", "SLURM_MEM_PER_NODE": "400", "SLURM_CONF": conf,
				"SLURM_JOB_END_TIME": fmt.Sprint(time.Now().Unix() + int64(c.left)),
			}
			s := newStand(t, with(env), func(o *Options) { o.Settings.Limit, o.Settings.Rules = 0, nil })
			s.fs.Put(rsstest.Process{PID: stepd, Parent: 1, Comm: "slurmstepd", Start: 3})
			s.fs.Put(rsstest.Process{PID: theHolder, Parent: stepd, Comm: "rsswarden", Start: 5, Anon: 5 * rss.MiB})
			s.put(theCommand, theHolder, 260*rss.MiB, 0)
			s.fs.Put(rsstest.Process{PID: task, Parent: stepd + 1, Comm: "sh", Start: 20, Anon: rss.MiB / 2})
			s.fs.Put(rsstest.Process{PID: stepd + 1, Parent: 1, Comm: "slurmstepd", Start: 4})
			s.fs.Put(rsstest.Process{PID: other, Parent: task, Comm: "hog", Start: 21, Anon: c.other * rss.MiB})
			const dir = "/slurm/uid_0/job_2/step_"
			s.fs.Write("proc/self/mountinfo", "41 31 0:37 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n")
			s.fs.Write(fmt.Sprintf("proc/%d/cgroup", theHolder), "7:freezer:"+dir+"batch\n")
			s.fs.Write("sys/fs/cgroup/freezer"+dir+"batch/cgroup.procs", fmt.Sprintf("%d\n%d\n", theHolder, theCommand))
			s.fs.Write("sys/fs/cgroup/freezer"+dir+"0/cgroup.procs", fmt.Sprintf("%d\n%d\n", task, other))
			s.fs.Write("proc/4711/comm", c.sender+"\n")
			s.open(s.holder.begin)
			s.later(10 * time.Second)
			s.full()
			s.full()
			s.tellSignal(hold.Signal{Signal: int(unix.SIGTERM), Sender: 4711, Forwarded: true})
			s.end(&hold.Exit{Signal: int(unix.SIGTERM)})
			wardentest.Has(t, s.last(event.NameExit), "outcome", string(c.outcome))
			s.told(c.says)
		})
	}
}

// TestSignalsAreTold, those too that came with the command's end.
func TestSignalsAreTold(t *testing.T) {
	s := opened(t)
	const sender = 4711
	s.fs.Write(fmt.Sprintf("proc/%d/comm", sender), "slurmstepd\n")
	s.holder.messages <- hold.Signal{Signal: int(unix.SIGCONT), Sender: sender}
	s.holder.messages <- hold.Signal{Signal: int(unix.SIGTERM), Sender: sender, Forwarded: true}
	s.holder.messages <- hold.Signal{Signal: int(unix.SIGTERM), Sender: sender, Forwarded: true} // told already
	s.holder.messages <- hold.Signal{Signal: 34, Forwarded: true}
	s.holder.messages <- hold.Exit{Signal: int(unix.SIGTERM)}
	s.loop()
	all := s.events()
	got := named(all, event.NameSignal)
	if len(got) != 3 {
		t.Fatalf("signals %v", got)
	}
	wardentest.Has(t, got[0], "signal", "SIGCONT", "comm", "slurmstepd", "sender", 4711.0, "forwarded", false)
	wardentest.Has(t, got[1], "signal", "SIGTERM", "comm", "slurmstepd", "sender", 4711.0, "forwarded", true)
	wardentest.Has(t, got[2], "signal", "SIG34", "comm", nil, "sender", nil, "forwarded", true)
	wardentest.Has(t, all[len(all)-1], "event", "exit", "signal", "SIGTERM")
}

func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock{started: time.Now()}
		time.Sleep(time.Hour)
		if got := c.now(); got != time.Hour {
			t.Errorf("before the loop %v, want all of it", got)
		}
		c.sleep(time.Second)
		time.Sleep(time.Second + asleep)
		if got, want := c.now(), time.Hour+time.Second+asleep; got != want || c.gap != 0 {
			t.Errorf("a little late: %v, gap %v, want %v and none", got, c.gap, want)
		}
		c.sleep(time.Second)
		time.Sleep(8 * time.Hour) // SIGSTOP
		want := time.Hour + time.Second + asleep + time.Second
		if got := c.now(); got != want {
			t.Errorf("after SIGCONT %v, want %v", got, want)
		}
		if want := 8*time.Hour - time.Second; c.gap != want {
			t.Errorf("gap %v, want %v", c.gap, want)
		}
		time.Sleep(asleep)
		if got := c.now(); got != want+asleep {
			t.Errorf("later %v, want %v", got, want+asleep)
		}
	})
}

// TestSlowLookIsNoGap: a look that takes seconds on a thrashing node ran all the
// time, and time does not go back in it.
func TestSlowLookIsNoGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock{started: time.Now()}
		c.sleep(time.Second)
		time.Sleep(time.Second)
		last := c.now()
		for range 20 {
			time.Sleep(asleep * 9 / 10)
			now := c.now()
			if now != last+asleep*9/10 {
				t.Fatalf("%v after %v", now, last)
			}
			last = now
		}
		if c.gap != 0 {
			t.Errorf("gap %v", c.gap)
		}
	})
}

// stoppedFor is what SIGSTOP and SIGCONT to the watcher do.
func (s *stand) stoppedFor(d time.Duration) {
	s.sleep(time.Second)
	s.later(d)
}

// TestDeadlinesWaitWhileStopped: `scontrol suspend` stops the loader's workers
// as it stops us. A request is not overdue after it: no answer was possible.
func TestDeadlinesWaitWhileStopped(t *testing.T) {
	s := opened(t, withLoader(t))
	id := s.trainer(100*rss.MiB, worker1)
	s.put(worker1, id.PID, 10*rss.MiB, 800*rss.MiB)
	s.full()
	s.full()
	if s.acts.InFlight() == nil {
		t.Fatalf("no action in flight at %v of 1000 MiB", s.user().Used)
	}
	asked := s.acts.InFlight().Decision.ID
	s.stoppedFor(8 * time.Hour)
	s.full()
	if s.acts.InFlight() == nil || s.acts.InFlight().Decision.ID != asked {
		t.Errorf("given up after SIGCONT: %v", named(s.events(), event.NameOutcome))
	}
	s.told("no samples for")
	for range 10 {
		s.later(asleep)
		s.full()
		s.sleep(time.Second)
	}
	if s.acts.InFlight() != nil && s.acts.InFlight().Decision.ID == asked {
		t.Error("a request that is not answered is waited for without end")
	}
}

// TestNoRateOverAGap: growth between two distant looks gives no rate: how long it took is
// unknown.
func TestNoRateOverAGap(t *testing.T) {
	s := opened(t, func(o *Options) { o.Settings.Limit = 64 * rss.GiB })
	s.stoppedFor(time.Hour)
	s.put(theCommand, theHolder, 20*rss.GiB, 0)
	s.tick()
	s.full()
	if got := s.rate(s.user()).PerSecond(s.now()); got != 0 {
		t.Errorf("rate %v/s", rss.Bytes(got))
	}
	if p := s.pause(s.now()); p < 900*time.Millisecond {
		t.Errorf("pause %v after a gap with 20 GiB more, far below every rung", p)
	}
}

// TestStoppedIsNotHurriedAfter: what is stopped cannot grow, however near its
// rung it stands.
func TestStoppedIsNotHurriedAfter(t *testing.T) {
	s := opened(t, func(o *Options) { o.Settings.Limit = 130 * rss.MiB })
	if p := s.pause(s.now()); p >= cadence.StoppedPause/2 {
		t.Fatalf("pause %v near a rung", p)
	}
	stat := "proc/5000001/stat"
	s.fs.Replace(stat, ") S ", ") T ")
	for range 20 {
		s.full()
	}
	if p := s.pause(s.now()); p < cadence.StoppedPause*9/10 {
		t.Errorf("pause %v of a stopped command, want %v", p, cadence.StoppedPause)
	}
	s.fs.Replace(stat, ") T ", ") S ")
	s.put(theCommand, theHolder, 101*rss.MiB, 0)
	s.later(cadence.StoppedPause)
	s.tick()
	s.full()
	if p := s.pause(s.now()); p >= cadence.StoppedPause/2 {
		t.Errorf("pause %v after SIGCONT", p)
	}
}
