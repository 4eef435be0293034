package supervisor

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
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
	"github.com/rsswarden/rsswarden/supervisor/workers"
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

// stoppable is a stand with the rules "80%:trim" and "95%:stop" whose command
// is a real process.
func stoppable(t *testing.T) (*stand, *exec.Cmd) {
	t.Helper()
	cmd, _ := rsstest.Sleeper(t)
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

// family is a tree of processes that said hello or not.
func family(s *stand, hello ...int) {
	s.read()
	var all []event.Trainer
	for _, pid := range hello {
		if p := s.view.Sample.Find(pid); p != nil {
			all = append(all, event.Trainer{ID: p.ID})
		}
	}
	s.observe.Workers.SetTrainers(all)
}

// catches lets a process of the made-up tree catch signals: the digits of SigCgt.
func (s *stand) catches(pid int, set string) {
	name := filepath.Join("proc", itoa(pid), "status")
	s.fs.Write(name, s.fs.Read(name)+"SigCgt:\t"+set+"\n")
}

const usr2 = "0000000000000800"

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
	// A fork helper forks while the trainer goes on.
	s.log(id, fmt.Sprintf(`"what":"iter","n":1,"kind":"map","persistent":true,"num_workers":1,"start":"fork","can_recycle":true,"workers":[%d],"helper":%d`, worker1, worker2))
	s.full()
	if h := s.can(event.ActionRecycle, s.user()); !h.OK {
		t.Errorf("with a fork helper: %+v", h)
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

// TestExecIsTold the decision with its limit, on standard input and in variables. What a
// limit has none of is empty, whatever we were started with.
func TestExecIsTold(t *testing.T) {
	t.Setenv("RSSWARDEN_LIMIT_BYTES", "12")
	for name, c := range map[string]struct {
		on      string
		in      []any // fields of the decision
		reading []any // … and of its reading
		env     []string
		outcome []any
	}{
		"memory": {"5%", []any{"v", 1.0, "event", "decision", "id", 1.0, "limit", "user", "action", "exec", "used_bytes", 104857600.0, "limit_bytes", 1048576000.0},
			[]any{"accounting", "rss", "enforcer", "rsswarden's rules alone"},
			[]string{"RSSWARDEN_EVENT=decision", "RSSWARDEN_DECISION=1", "RSSWARDEN_ACTION=exec", "RSSWARDEN_LIMIT_NAME=user", "RSSWARDEN_COUNTED=rss",
				"RSSWARDEN_ENFORCER=rsswarden's rules alone", "RSSWARDEN_USED_BYTES=104857600", "RSSWARDEN_LIMIT_BYTES=1048576000",
				"RSSWARDEN_THRESHOLD_BYTES=52428800", "RSSWARDEN_ETA_S=", "RSSWARDEN_PID=5000001",
				"RSSWARDEN_USED=", "RSSWARDEN_LIMIT_COUNT=", "RSSWARDEN_THRESHOLD=", "RSSWARDEN_LIMIT_PID="},
			[]any{"ok", true, "exit", 0.0, "decision", 1.0, "before_bytes", 104857600.0, "after_bytes", 31457280.0, "freed_bytes", 0.0}},
		"a count": {"maps 50%", []any{"used", 700.0, "limit_count", 1000.0, "threshold", 500.0, "used_bytes", nil}, []any{"pid", float64(theCommand)},
			[]string{"RSSWARDEN_LIMIT_NAME=maps", "RSSWARDEN_USED=700", "RSSWARDEN_LIMIT_COUNT=1000", "RSSWARDEN_THRESHOLD=500", "RSSWARDEN_LIMIT_PID=5000001",
				"RSSWARDEN_PID=5000001", "RSSWARDEN_USED_BYTES=", "RSSWARDEN_LIMIT_BYTES=", "RSSWARDEN_THRESHOLD_BYTES=", "RSSWARDEN_COUNTED="},
			[]any{"ok", true, "exit", 0.0, "before_bytes", nil, "after_bytes", nil}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			rule := c.on + ":exec=cat >" + dir + "/in; env >" + dir + "/env; echo done"
			s := newStand(t, func(o *Options) { o.Settings.Rules = mustRules(rule) })
			s.fs.Write("proc/sys/vm/max_map_count", "1000\n")
			s.mappings(theCommand, 700)
			s.open(s.holder.begin)
			s.settle()
			s.full()
			s.put(theCommand, theHolder, 30*rss.MiB, 0)
			s.full()
			s.acts.Ran(yields(t, s.acts.Ended(), time.Minute))
			var in map[string]any
			wardentest.NoError(t, json.Unmarshal(wardentest.ReadFile(t, dir+"/in"), &in))
			wardentest.Has(t, in, c.in...)
			reading, _ := in["reading"].(map[string]any)
			wardentest.Has(t, reading, c.reading...)
			env := "\n" + wardentest.Read(dir+"/env")
			for _, v := range append(c.env, "RSSWARDEN_RULE="+rule) {
				if name, _, _ := strings.Cut(v, "="); strings.Count(env, "\n"+v+"\n") != 1 || strings.Count(env, "\n"+name+"=") != 1 {
					t.Errorf("not once %s in\n%s", v, env)
				}
			}
			all := s.events()
			wardentest.Has(t, only(t, all, event.NameDecision), "reading", nil, "seq", in["seq"])
			wardentest.Has(t, only(t, all, event.NameOutcome), c.outcome...)
			s.told("exec: done\n", "exit status 0")
			if ran := s.tell.Sum.Saved.Sum(event.ActionExec); ran.Worked != 1 || s.tell.Sum.Saved.Helped != 0 || len(ran.Reasons) != 0 {
				t.Errorf("summary %+v", s.tell.Sum)
			}
		})
	}
}

// TestDryRun: a line says once what would be done, and nothing is.
func TestDryRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ran")
	for rule, would := range map[string]string{"exec=echo ran >" + file: "exec=echo", "gc": "gc", "signal=USR2": "signal=USR2"} {
		s := newStand(t, withLoader(t), func(o *Options) {
			o.Settings.Rules, o.Settings.DryRun = mustRules("5%:"+rule), true
		})
		s.catches(s.trainer(100*rss.MiB, worker1).PID, usr2)
		s.open(s.holder.begin)
		s.full()
		s.times(1, "would "+would)
		if s.does(""); s.acts.Waiting() != 0 || wardentest.Read(file) != "" {
			t.Errorf("%s was done", rule)
		}
	}
}

// TestExecHoldsNothingUp: while it runs the ladder goes on, and at the end it is
// ended, and said before the last event.
func TestExecHoldsNothingUp(t *testing.T) {
	s := newStand(t, withLoader(t), func(o *Options) {
		o.Settings.Rules = mustRules("30%:trim", "5%:exec=sleep 1000", "6%:exec=echo two", "7%:exec=echo three")
	})
	id := s.trainer(20*rss.MiB, worker1)
	s.put(worker1, id.PID, 20*rss.MiB, 100*rss.MiB)
	s.open(s.holder.begin)
	for range 3 {
		s.full()
	}
	s.does("")
	s.put(worker1, id.PID, 20*rss.MiB, 400*rss.MiB)
	s.later(time.Minute)
	s.full()
	s.does(event.ActionTrim)
	s.end(&hold.Exit{})
	all := s.events()
	wardentest.Has(t, all[len(all)-1], "event", "exit")
	reasons := map[string]any{}
	decision := map[float64]string{}
	for _, d := range named(all, event.NameDecision) {
		decision[d["id"].(float64)] = d["rule"].(string)
	}
	for _, o := range named(all, event.NameOutcome) {
		reasons[decision[o["decision"].(float64)]] = o["reason"]
	}
	for rule, want := range map[string]event.Reason{
		"5%:exec=sleep 1000": event.ReasonVanished, "6%:exec=echo two": event.ReasonVanished, "7%:exec=echo three": event.ReasonBusy,
	} {
		if reasons[rule] != string(want) {
			t.Errorf("%s: %v, want %s", rule, reasons[rule], want)
		}
	}
}

func TestCanCollect(t *testing.T) {
	s, _ := training(t, 20*rss.MiB, 30*rss.MiB, 30*rss.MiB)
	for _, l := range []event.Limit{
		{Name: event.LimitSlurm, Accounting: event.AccountingRSS}, {Name: event.LimitSlurm, Accounting: event.AccountingNoShared},
		{Name: event.LimitCgroup, Accounting: event.AccountingCgroup}, {Name: event.LimitNode}, {Name: event.LimitUser, Accounting: event.AccountingPSS},
	} {
		if h := s.can(event.ActionGC, &l); !h.OK {
			t.Errorf("%s by %q: %+v", l.Name, l.Accounting, h)
		}
	}
	for _, l := range []event.Limit{{Name: event.LimitSHM}, {Name: event.LimitMaps}, {Name: event.LimitSlurm, Accounting: event.AccountingVirtual}} {
		if h := s.can(event.ActionGC, &l); h.OK || h.Reason != event.ReasonNoHelp {
			t.Errorf("%s by %q: %+v", l.Name, l.Accounting, h)
		}
	}
	none := opened(t, withLoader(t))
	if h := none.can(event.ActionGC, none.user()); h.OK || h.Reason != event.ReasonNoWorker {
		t.Errorf("no hello: %+v", h)
	}
	without := opened(t)
	if h := without.can(event.ActionGC, without.user()); h.OK || h.Reason != event.ReasonUnsupported {
		t.Errorf("no loader: %+v", h)
	}
}

// TestCollectIsMeasured by what trainer and workers have before and after.
func TestCollectIsMeasured(t *testing.T) {
	s := newStand(t, withLoader(t), func(o *Options) {
		o.Settings.Rules = mustRules("80%:gc", "95%:stop")
	})
	id := s.trainer(500*rss.MiB, worker1)
	s.put(worker1, id.PID, 300*rss.MiB, 10*rss.MiB) // 910 of 1000 MiB
	s.open(s.holder.begin)
	if s.acts.InFlight() == nil || s.acts.InFlight().Decision.Action != event.ActionGC || len(s.acts.InFlight().Acted.Procs) != 2 {
		t.Fatalf("in flight %+v, want gc of trainer and worker", s.acts.InFlight())
	}
	s.put(worker1, id.PID, 250*rss.MiB, 10*rss.MiB)
	s.trainerHas(id, 200*rss.MiB)
	s.log(id, `"what":"collected","id":1,"worker":5000011,"before":314572800,"after":262144000`)
	s.log(id, `"what":"collected","id":1,"worker":`+itoa(id.PID)+`,"before":524288000,"after":209715200,"pause_ms":80`)
	s.full()
	wardentest.Has(t, only(t, s.events(), event.NameOutcome), "ok", true, "freed_bytes", float64(350*rss.MiB), "paused_s", 0.08)
	if s.tell.Sum.Saved.Sum(event.ActionGC).Worked != 1 || s.tell.Sum.Saved.Helped != 1 || !strings.Contains(s.stderr(), "collected garbage, freed 350 MiB, paused 0.08 s") {
		t.Errorf("summary %+v\n%s", s.tell.Sum, s.stderr())
	}
}

// goTo fails the test where a signal= rule goes to other processes than these, or to none
// for another reason.
func (s *stand) goTo(rule string, want []int, reason event.Reason, detail string) event.Feasibility {
	s.t.Helper()
	to, h := s.acts.Receivers(mustRules(rule)[0], nil)
	var got []int
	for _, p := range to {
		got = append(got, p.ID.PID)
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("goes to %v, want %v", got, want)
	}
	if h.OK != (len(want) > 0) || h.Reason != reason || !strings.Contains(h.Detail, detail) {
		s.t.Errorf("%+v, want %q, … %s …", h, reason, detail)
	}
	return h
}

func TestReceivers(t *testing.T) {
	role := func(s *stand, pid int, role rss.Role) { s.view.Sample.Find(pid).Role = role }
	for _, c := range []struct {
		name   string
		rule   string
		set    func(*stand)
		want   []int
		reason event.Reason
		detail string
	}{
		{"the command alone", "90%:signal=USR2", func(s *stand) { s.catches(theCommand, usr2); family(s) }, []int{theCommand}, "", ""},
		{"without a handler", "90%:signal=USR2", func(s *stand) { s.catches(theCommand, "0000000000000400"); family(s) }, nil,
			event.ReasonNotCaught, "USR2, process 5000001"},
		{"a container's runtime, which would pass it on", "90%:signal=USR2", func(s *stand) {
			s.catches(theCommand, usr2)
			s.catches(worker2, usr2)
			s.put(worker3, worker1, rss.MiB, 0)
			family(s)
			s.view.Sample.Find(theCommand).Comm, s.view.Sample.Find(worker1).Comm = "starter", "appinit"
		}, []int{worker2}, "", "not to process 5000013, without a handler for USR2"},
		{"a program of its name, which runs nothing", "90%:signal=USR2", func(s *stand) {
			s.fs.End(worker1)
			s.fs.End(worker2)
			s.catches(theCommand, usr2)
			family(s)
			s.view.Sample.Find(theCommand).Comm = "starter"
		}, []int{theCommand}, "", ""},
		{"status without SigCgt", "90%:signal=USR2", func(s *stand) { family(s) }, nil, event.ReasonNotCaught, ""},
		{"every trainer", "90%:signal=USR2", func(s *stand) {
			for _, pid := range []int{theCommand, worker1, worker2} {
				s.catches(pid, usr2)
			}
			family(s, theCommand, worker1, worker2)
			role(s, worker1, rss.RoleTrainer)
			role(s, worker2, rss.RoleTrainer)
			role(s, theCommand, rss.RoleAgent)
		}, []int{worker1, worker2}, "", ""},
		{"one of them deaf", "90%:signal=USR2", func(s *stand) {
			s.catches(worker2, usr2)
			family(s, worker1, worker2)
			role(s, worker1, rss.RoleTrainer)
			role(s, worker2, rss.RoleTrainer)
		}, []int{worker2}, "", "not to process 5000011, without a handler for USR2"},
		{"no worker that said hello", "90%:signal=USR2", func(s *stand) {
			s.catches(worker1, usr2)
			s.catches(theCommand, usr2)
			family(s, theCommand, worker1)
			role(s, worker1, rss.RoleWorker)
		}, []int{theCommand}, "", ""},
		{"the uppermost where none has a loader", "90%:signal=USR2", func(s *stand) {
			s.catches(worker1, usr2)
			s.put(worker3, worker1, rss.MiB, 0)
			s.catches(worker3, usr2)
			family(s, worker1, worker3)
		}, []int{worker1}, "", ""},
		{"an agent alone", "90%:signal=TERM", func(s *stand) {
			s.catches(theCommand, "0000000000004000")
			family(s, theCommand)
			role(s, theCommand, rss.RoleAgent)
		}, nil, event.ReasonNoTrainer, "only starts ranks"},
		{"the command has ended", "90%:signal=USR2", func(s *stand) { s.fs.End(theCommand); s.read() }, nil, event.ReasonVanished, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStand(t)
			s.put(theCommand, theHolder, 10*rss.MiB, 0)
			s.put(worker1, theCommand, 10*rss.MiB, 0)
			s.put(worker2, theCommand, 10*rss.MiB, 0)
			s.open(s.holder.begin)
			c.set(s)
			s.goTo(c.rule, c.want, c.reason, c.detail)
		})
	}
}

// TestReceiversByEnvironment: attached, no process can say hello, and the environment tells
// which train.
func TestReceiversByEnvironment(t *testing.T) {
	const term = "0000000000004000"
	for _, c := range []struct {
		name   string
		rule   string
		ranks  int // of torchrun
		known  bool
		want   []int
		reason event.Reason
		detail string
	}{
		{"ranks of torchrun, which catches TERM itself", "90%:signal=TERM", 2, true, []int{worker1, worker2}, "", ""},
		{"rank 0 of them", "90%:signal=TERM@rank0", 2, true, []int{worker1}, "", ""},
		{"no rank 0", "90%:signal=TERM@rank0", 0, true, nil, event.ReasonNoRank0, "no RANK, LOCAL_RANK or SLURM_PROCID"},
		{"no ranks", "90%:signal=TERM", 0, true, []int{theCommand}, "", ""},
		{"none of them catches it", "90%:signal=USR2", 2, true, nil, event.ReasonNotCaught, "USR2, processes 5000011 and 5000012"},
		{"nothing was read yet", "90%:signal=TERM", 2, false, nil, event.ReasonNoTrainer, "not known yet"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStand(t, attachedTo(""))
			for i, pid := range []int{theCommand, worker1, worker2} {
				if pid != theCommand {
					s.put(pid, theCommand, 10*rss.MiB, 0)
				}
				environ := "A=b\x00"
				if i > 0 && i <= c.ranks {
					environ = fmt.Sprintf("LOCAL_RANK=%d\x00RANK=%d\x00", i-1, i-1)
				}
				s.fs.Write(filepath.Join("proc", itoa(pid), "environ"), environ)
				s.catches(pid, term)
			}
			if s.open(s.holder.begin); c.known {
				s.known()
			} else {
				s.observe.Workers = workers.New(workers.Options{Proc: s.Proc})
				s.observe.Workers.Update(&s.view.Sample, nil)
			}
			if h := s.goTo(c.rule, c.want, c.reason, c.detail); h.Later == c.known {
				t.Errorf("%+v: later", h)
			}
			if c.ranks > 0 && c.known {
				s.fs.End(worker1)
				s.fs.End(worker2)
				s.read()
				if to, h := s.acts.Receivers(mustRules(c.rule)[0], nil); len(to) > 0 || !strings.Contains(h.Detail, "the command only starts ranks, and there is none now") {
					t.Errorf("between two sets of ranks: %+v", h)
				}
			}
		})
	}
}

// TestSignalIsSentOnceACrossing to a real process, and the ladder goes on.
func TestSignalIsSentOnceACrossing(t *testing.T) {
	s := newStand(t, func(o *Options) { o.Settings.Rules = mustRules("80%:trim", "93%:signal=TERM") })
	command, id := counter(t)
	s.fs.End(theCommand)
	s.holder.begin.PID, s.holder.begin.Start, s.observe.Pop.Command = id.PID, id.Start, id
	size := func(mib rss.Bytes) {
		s.fs.Put(rsstest.Process{PID: id.PID, Start: id.Start, Parent: theHolder, Comm: "sh", Anon: mib * rss.MiB})
		s.catches(id.PID, "0000000000004000")
	}
	size(500)
	s.open(s.holder.begin)
	for range 2 {
		for range 5 {
			size(950)
			s.full()
			s.later(time.Minute)
		}
		if n := terms(t, command); n != 1 {
			t.Errorf("%d times TERM", n)
		}
		size(500)
		s.full()
	}
	s.does("")
	sent := slices.DeleteFunc(named(s.events(), event.NameOutcome), func(o map[string]any) bool { return o["ok"] != true })
	for _, o := range sent {
		wardentest.Has(t, o, "detail", "process "+itoa(id.PID), "freed_bytes", 0.0)
	}
	if len(sent) != 2 {
		t.Errorf("%d outcomes", len(sent))
	}
	s.told("TERM sent to process " + itoa(id.PID))
}

func TestSignalWithoutReceiverIsSaid(t *testing.T) {
	s := opened(t, func(o *Options) { o.Settings.Rules = mustRules("5%:signal=USR2") })
	s.full()
	s.times(1, "signal=USR2 skipped: the process has no handler for this signal (USR2, process 5000001)")
	wardentest.Has(t, only(t, s.events(), event.NameOutcome), "reason", string(event.ReasonNotCaught), "ok", false)
}
