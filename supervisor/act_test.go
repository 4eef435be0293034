package supervisor

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// training is an opened stand with a trainer of 100 MiB and two workers, that
// have so much mapped from files.
func training(t *testing.T, anon, file1, file2 rss.Bytes) (*stand, rss.ProcID) {
	t.Helper()
	s := newStand(t, withLoader(t))
	id := s.trainer(anon, worker1, worker2)
	s.put(theCommand, theHolder, 10*rss.MiB, 0)
	s.put(worker1, id.PID, anon, file1)
	s.put(worker2, id.PID, anon, file2)
	s.open(s.holder.begin)
	if all := s.observe.Workers.Recyclable(event.AccountingRSS); len(all) != 2 {
		t.Fatalf("%+v, want two workers", all)
	}
	return s, id
}

func TestCanTrim(t *testing.T) {
	s, _ := training(t, 20*rss.MiB, 132*rss.MiB, 40*rss.MiB)
	if h := s.can(event.ActionTrim, &event.Limit{Accounting: event.AccountingRSS}); !h.OK || h.Gain != 108*rss.MiB {
		t.Errorf("rss: %+v, want what lies above the floor, 108 MiB", h)
	}
	s.Settings.Trim = settings.TrimOff
	if h := s.can(event.ActionTrim, s.user()); h.OK || h.Reason != event.ReasonUnsupported {
		t.Errorf("--trim off: %+v", h)
	}
	small, _ := training(t, 20*rss.MiB, 30*rss.MiB, 30*rss.MiB)
	if h := small.can(event.ActionTrim, small.user()); h.OK || h.Reason != event.ReasonNothing {
		t.Errorf("libraries alone: %+v", h)
	}
	none := opened(t, withLoader(t))
	if h := none.can(event.ActionTrim, none.user()); h.OK || h.Reason != event.ReasonNoWorker {
		t.Errorf("no hello: %+v", h)
	}
	if h := none.acts.Can(event.Rule{Action: event.ActionRequeue}, none.user()); h.OK || h.Reason != event.ReasonUnsupported {
		t.Errorf("requeue: %+v", h)
	}
}

// TestWhatWorks: what doctor and limits say of each limit is what a run decides, where there
// are workers that can be trimmed, recycled and collected.
func TestWhatWorks(t *testing.T) {
	s, _ := training(t, 20*rss.MiB, 132*rss.MiB, 40*rss.MiB)
	acts := []event.Action{event.ActionTrim, event.ActionRecycle, event.ActionGC}
	for _, name := range event.Limits {
		var rules []event.Rule
		for _, a := range acts {
			rules = append(rules, event.Rule{Limit: name, Action: a})
		}
		for _, acc := range []event.Accounting{event.AccountingRSS, event.AccountingPSS, event.AccountingNoShared, event.AccountingCgroup, event.AccountingVirtual, ""} {
			l := event.Limit{Name: name, Accounting: acc, Used: 900 * rss.MiB, Limit: 1000 * rss.MiB}
			says := phrase.WhatWorks([]event.Limit{l}, rules, nil)[0]
			for _, a := range acts {
				h, told := s.can(a, &l), slices.Contains(says.Helps, a)
				if told == (h.Reason == event.ReasonNoHelp) || told && a == event.ActionTrim && !h.OK {
					t.Errorf("%s, %q: %s is said to help: %v, a run says %+v", name, acc, a, told, h)
				}
				if h.Detail != "" && h.Reason == event.ReasonNoHelp && !strings.Contains(says.Says, h.Detail) {
					t.Errorf("%s, %q: %q, a run says %q", name, acc, says.Says, h.Detail)
				}
			}
		}
	}
}

func TestTrimIsAccountedFor(t *testing.T) {
	s, id := training(t, 100*rss.MiB, 400*rss.MiB, 180*rss.MiB) // 890 of 1000 MiB: the trim rung
	s.does(event.ActionTrim)
	s.fs.End(worker2) // by itself, for instance at the epoch's end
	s.put(worker1, id.PID, 100*rss.MiB, 50*rss.MiB)
	s.log(id, `"what":"trimmed","id":1,"worker":5000011,"before":419430400,"after":52428800`)
	s.put(theCommand, theHolder, 300*rss.MiB, 0) // while others grow
	s.full()
	if s.acts.InFlight() != nil || s.acts.Ladder.InFlight() != 0 {
		t.Fatal("the trim is still in flight")
	}
	o := named(s.events(), event.NameOutcome)
	if len(o) != 1 || o[0]["ok"] != true {
		t.Fatalf("outcomes %v", o)
	}
	mib := func(field string) rss.Bytes { return rss.Bytes(o[0][field].(float64)) / rss.MiB }
	if mib("before_bytes") != 890 || mib("after_bytes") != 550 || mib("freed_bytes") != 350 {
		t.Errorf("before %d, after %d, freed %d MiB; want 890, 550 and the 350 that the living worker gave back",
			mib("before_bytes"), mib("after_bytes"), mib("freed_bytes"))
	}
	if trims := s.tell.Sum.Saved.Sum(event.ActionTrim); trims.Worked != 1 || s.tell.Sum.Saved.Helped != 1 || trims.Freed != 350*rss.MiB {
		t.Errorf("summary %+v", s.tell.Sum)
	}
}

func TestLongPauseWaitsWhereNothingGrows(t *testing.T) {
	s := newStand(t, withLoader(t), func(o *Options) { o.Settings.Limit = 100 * rss.GiB })
	id := s.trainer(30*rss.GiB, worker1)
	s.put(worker1, id.PID, 64*rss.GiB, 0)
	s.open(s.holder.begin)
	// 94 of 100 GiB; the fork would take 285 ms.
	if h := s.can(event.ActionRecycle, s.user()); h.OK || h.Reason != event.ReasonPause {
		t.Errorf("nothing grows: %+v", h)
	}
	s.acts.End(true)
	s.rate(s.user()).Add(s.now(), s.user().Used)
	s.later(time.Second)
	s.rate(s.user()).Add(s.now(), s.user().Used+rss.GiB)
	if h := s.can(event.ActionRecycle, s.user()); !h.OK || h.Gain != 34*rss.GiB {
		t.Errorf("growing by 1 GiB a second: %+v", h)
	}
	s.later(time.Hour) // the rate fades
	s.view.Now = s.now()
	if h := s.can(event.ActionRecycle, s.user()); h.OK || h.Reason != event.ReasonPause {
		t.Errorf("an hour after the growth: %+v", h)
	}
}

// TestPickleIsForecast: a worker that is not forked is sent the data set within the
// trainer's call, and the next one takes as long as the last.
func TestPickleIsForecast(t *testing.T) {
	s := newStand(t, withLoader(t), func(o *Options) { o.Settings.Limit = 100 * rss.GiB })
	id := s.trainer(rss.GiB, worker1, worker2)
	const iter = `"what":"iter","n":1,"kind":%q,"persistent":true,"num_workers":2,"start":"forkserver","start_by":"default","start_ms":%d,"sent":524288000,"can_recycle":true,"workers":[%d,%d]`
	s.log(id, fmt.Sprintf(iter, "map", 1900, worker1, worker2))
	s.put(worker1, id.PID, 64*rss.GiB, 0)
	s.put(worker2, id.PID, 30*rss.GiB, 0)
	s.open(s.holder.begin)
	s.full()
	refused := func(l event.Limit) bool {
		t.Helper()
		h := s.can(event.ActionRecycle, &l)
		if (h.Reason == event.ReasonResend) == h.OK || !h.OK && !strings.Contains(h.Detail, "1.9 s") {
			t.Errorf("a start took 1.9 s: %+v", h)
		}
		return !h.OK
	}
	near, far := *s.user(), *s.user()
	near.Used, far.Used = 96*rss.GiB, 94*rss.GiB
	if !refused(far) || refused(near) {
		t.Error("refused near the limit, or not where it is far")
	}
	soon := far
	for eta, want := range map[float64]bool{20: false, 600: true} {
		if soon.ETA = &eta; refused(soon) != want {
			t.Errorf("with %v s left", eta)
		}
	}
	s.rate(s.user()).Add(s.now(), s.user().Used)
	s.later(time.Second)
	s.rate(s.user()).Add(s.now(), s.user().Used+rss.GiB)
	if !refused(far) {
		t.Error("not refused for the rate of a moment")
	}
	s.log(id, fmt.Sprintf(`"what":"started","n":1,"id":7,"worker":%d,"new":%d,"mode":"swap","pause_ms":150`, worker2, worker3))
	s.full()
	if h := s.can(event.ActionRecycle, &far); !h.OK {
		t.Errorf("the last start took 150 ms: %+v", h)
	}
	// Those of an iterable data set are replaced between two epochs.
	s.log(id, fmt.Sprintf(iter, "iterable", 1900, worker1, worker2))
	s.full()
	if h := s.can(event.ActionRecycle, &far); !h.OK {
		t.Errorf("between two epochs: %+v", h)
	}
}

// TestDecisionWithoutReadingFreesTheLadder: it would wait for five minutes.
func TestDecisionWithoutReadingFreesTheLadder(t *testing.T) {
	s := opened(t)
	rule, err := event.ParseRule("50%:trim")
	wardentest.NoError(t, err)
	s.acts.Ladder = policy.New([]event.Rule{rule}, 1)
	res := s.judge(event.Limit{Name: event.LimitUser, Used: 9, Limit: 10})
	if len(res.Decisions) != 1 || s.acts.Ladder.InFlight() == 0 {
		t.Fatalf("decisions %v", res.Decisions)
	}
	s.view.Limits = nil
	s.acts.Decide(res.Decisions[0])
	if s.acts.Ladder.InFlight() != 0 || s.acts.InFlight() != nil {
		t.Error("the ladder waits for an outcome that never comes")
	}
}

// stoppable is a stand with the rules "80%:trim" and "95%:stop" whose command
// is a real process.
func stoppable(t *testing.T) (*stand, *exec.Cmd) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Skip("cannot start sleep:", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	s := newStand(t, withLoader(t), func(o *Options) { o.Settings.Rules = mustRules("80%:trim", "95%:stop") })
	s.fs.End(theCommand)
	const start = 10 // in the made-up /proc: before this process, which plays a trainer
	s.holder.begin.PID, s.holder.begin.Start = cmd.Process.Pid, start
	s.observe.Pop.Command = rss.ProcID{PID: cmd.Process.Pid, Start: start}
	s.size(100 * rss.MiB)
	return s, cmd
}

// size lets the command of a stoppable stand have so much.
func (s *stand) size(anon rss.Bytes) {
	s.fs.Put(rsstest.Process{PID: s.observe.Pop.Command.PID, Start: s.observe.Pop.Command.Start, Parent: theHolder, Comm: "sleep", Anon: anon})
}

// TestStopThatCannotBe: a command that ended by itself keeps its status, and
// the ladder is free at once.
func TestStopThatCannotBe(t *testing.T) {
	for name, prepare := range map[string]func(*stand, *exec.Cmd){
		"a zombie": func(s *stand, _ *exec.Cmd) {
			s.fs.Put(rsstest.Process{PID: s.observe.Pop.Command.PID, Start: s.observe.Pop.Command.Start, Parent: theHolder, Comm: "sleep", State: 'Z'})
			s.put(worker1, s.observe.Pop.Command.PID, 960*rss.MiB, 0)
		},
		"gone": func(s *stand, cmd *exec.Cmd) {
			_ = cmd.Process.Kill() // waited for below
			_ = cmd.Wait()
			s.size(960 * rss.MiB) // as it was read a moment ago
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, cmd := stoppable(t)
			s.open(s.holder.begin)
			prepare(s, cmd)
			s.full()
			if len(s.holder.overrides) != 0 || s.tell.Sum.Stopped {
				t.Errorf("the holder was told %v", s.holder.overrides)
			}
			if s.acts.Ladder.Stopped() || s.acts.Ladder.InFlight() != 0 || s.acts.InFlight() != nil {
				t.Error("the ladder waits")
			}
			wardentest.Has(t, s.last(event.NameOutcome), "reason", string(event.ReasonVanished))
		})
	}
}

// TestRuleThatCanNeverFireIsNoCrossing: it is not told as one whose action was skipped.
func TestRuleThatCanNeverFireIsNoCrossing(t *testing.T) {
	s := opened(t, func(o *Options) { o.Settings.Rules = append(o.Settings.Rules, mustRules("free<500G:warn")...) })
	s.told("can never be free")
	s.end(&hold.Exit{})
	wardentest.Has(t, s.last(event.NameExit), "helped", "no")
}

func TestWarningOfTheJobsEnd(t *testing.T) {
	s := opened(t, inSlurm(t, time.Now().Add(time.Hour)))
	eta := 240.0
	s.acts.Decide(event.Decision{ID: 1, Rule: "time eta<5m:warn", On: event.LimitID{Name: event.LimitTime}, Limit: event.LimitTime, Action: event.ActionWarn, ETA: &eta})
	s.told("the job's time ends in 4 min")
}

// TestHookThatSwitchedItselfOff: it is reported once for each reason.
func TestHookThatSwitchedItselfOff(t *testing.T) {
	s := newStand(t, withLoader(t))
	id := s.trainer(100*rss.MiB, worker1)
	s.open(s.holder.begin)
	for range 2 {
		s.log(id, `"what":"off","why":"its own reason"`)
		s.poll(true)
	}
	s.times(1, "switched itself off; training goes on: its own reason")
}
