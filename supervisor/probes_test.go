package supervisor

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/shm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/observe"
	"github.com/rsswarden/rsswarden/supervisor/probe/probetest"
	"golang.org/x/sys/unix"
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
