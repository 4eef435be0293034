package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/cadence"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
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
			s := opened(t, func(o *Options) { o.Settings.Interval = time.Hour; o.Settings.Limit = 32 * rss.GiB })
			press(s, 0)
			wardentest.NoError(t, s.observe.WatchLimits([]event.Limit{{Name: event.LimitUser}, {Level: t.TempDir()}, {Level: dir}, {Level: dir}}))
			before := s.view.Sample.Seq
			go func() {
				for i := range 30 {
					press(s, i)
					time.Sleep(10 * time.Millisecond)
				}
				s.holder.messages <- hold.Exit{}
			}()
			s.loop()
			if n := s.view.Sample.Seq - before; n < 2 || n > 20 {
				t.Errorf("%d looks in full for 30 times in 300 ms", n)
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
