package supervisor

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
)

// execRule opens a stand with such a rule and waits for the outcome of its command.
func execRule(t *testing.T, rule string) *stand {
	t.Helper()
	s := opened(t, func(o *Options) { o.Settings.Rules = mustRules(rule) })
	select {
	case r := <-s.acts.Ended():
		s.acts.Ran(r)
	case <-time.After(time.Minute):
		t.Fatal("the command did not end within a minute")
	}
	return s
}

// TestExecIsTold the decision with its limit, on standard input and in variables.
func TestExecIsTold(t *testing.T) {
	dir := t.TempDir()
	s := execRule(t, "5%:exec=cat >"+dir+"/in; env >"+dir+"/env; echo done")
	b, err := os.ReadFile(filepath.Join(dir, "in"))
	if err != nil {
		t.Fatal(err)
	}
	var d event.Decision
	if err := json.Unmarshal(b, &d); err != nil || !strings.HasSuffix(string(b), "}\n") {
		t.Fatalf("%q: %v", b, err)
	}
	if d.V != event.Version || d.Event != event.NameDecision || d.ID != 1 || d.Limit != event.LimitUser || d.Action != event.ActionExec ||
		d.Used != 100*rss.MiB || d.LimitSize != 1000*rss.MiB || d.Reading == nil || d.Reading.Accounting != event.AccountingRSS || d.Reading.Enforcer == "" {
		t.Errorf("standard input %s", b)
	}
	env, err := os.ReadFile(filepath.Join(dir, "env"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"RSSWARDEN_EVENT=decision", "RSSWARDEN_DECISION=1", "RSSWARDEN_RULE=5%:exec=cat", "RSSWARDEN_ACTION=exec", "RSSWARDEN_LIMIT_NAME=user",
		"RSSWARDEN_COUNTED=rss", "RSSWARDEN_ENFORCER=", "RSSWARDEN_USED_BYTES=104857600", "RSSWARDEN_LIMIT_BYTES=1048576000",
		"RSSWARDEN_THRESHOLD_BYTES=52428800", "RSSWARDEN_ETA_S=", "RSSWARDEN_PID=5000001", "PATH=",
	} {
		if !strings.Contains("\n"+string(env), "\n"+want) {
			t.Errorf("no %s in its environment:\n%s", want, env)
		}
	}
	all := s.events()
	decisions, outcomes := named(all, event.NameDecision), named(all, event.NameOutcome)
	if len(decisions) != 1 || decisions[0]["reading"] != nil || decisions[0]["seq"] != float64(d.Seq) {
		t.Errorf("decisions %v; the command got %d", decisions, d.Seq)
	}
	if len(outcomes) != 1 || outcomes[0]["ok"] != true || outcomes[0]["exit"] != 0.0 || outcomes[0]["decision"] != 1.0 {
		t.Errorf("outcomes %v", outcomes)
	}
	if !strings.Contains(s.stderr(), "exec: done\n") || !strings.Contains(s.stderr(), "%: exit status 0") && !strings.Contains(s.stderr(), "exit status 0") {
		t.Errorf("said:\n%s", s.stderr())
	}
	if ran := s.tell.Sum.Saved.Sum(event.ActionExec); ran.Worked != 1 || s.tell.Sum.Saved.Helped != 0 || len(ran.Reasons) != 0 {
		t.Errorf("summary %+v", s.tell.Sum)
	}
}

// TestExecAfter: the fields after were read when the command had ended.
func TestExecAfter(t *testing.T) {
	s := opened(t, func(o *Options) { o.Settings.Rules = mustRules("5%:exec=true") })
	s.put(theCommand, theHolder, 30*rss.MiB, 0)
	s.full()
	s.acts.Ran(<-s.acts.Ended())
	o := named(s.events(), event.NameOutcome)
	if len(o) != 1 || o[0]["before_bytes"] != float64(100*rss.MiB) || o[0]["after_bytes"] != float64(30*rss.MiB) || o[0]["freed_bytes"] != 0.0 {
		t.Errorf("outcomes %v, want 100 MiB before, 30 MiB after and nothing freed", o)
	}
}

func TestExecThatFails(t *testing.T) {
	s := execRule(t, "5%:exec=exit 3")
	o := named(s.events(), event.NameOutcome)
	if len(o) != 1 || o[0]["ok"] != false || o[0]["exit"] != 3.0 || o[0]["reason"] != string(event.ReasonStatus) {
		t.Errorf("outcomes %v", o)
	}
	if s.tell.Sum.Saved.Sum(event.ActionExec).Reasons[event.ReasonStatus] != 1 || s.acts.Ladder.InFlight() != 0 {
		t.Errorf("summary %+v", s.tell.Sum)
	}
}

// TestExecHoldsNothingUp: while it runs the ladder goes on, and at the end it is
// ended, and said before the last event.
func TestExecHoldsNothingUp(t *testing.T) {
	s := newStand(t, func(o *Options) {
		withLoader(t)(o)
		o.Settings.Rules = mustRules("30%:trim", "5%:exec=sleep 1000", "6%:exec=echo two", "7%:exec=echo three")
	})
	id := s.trainer(20*rss.MiB, worker1)
	s.put(worker1, id.PID, 20*rss.MiB, 100*rss.MiB)
	s.open(s.holder.begin)
	for range 3 {
		s.full()
	}
	if s.acts.InFlight() != nil {
		t.Fatalf("in flight %+v", s.acts.InFlight())
	}
	s.put(worker1, id.PID, 20*rss.MiB, 400*rss.MiB)
	s.later(time.Minute)
	s.full()
	if s.acts.InFlight() == nil || s.acts.InFlight().Decision.Action != event.ActionTrim {
		t.Fatalf("in flight %+v, want a trim while the command runs", s.acts.InFlight())
	}
	s.end(&hold.Exit{})
	all := s.events()
	if all[len(all)-1]["event"] != "exit" {
		t.Errorf("last event %v", all[len(all)-1])
	}
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

func TestDryRunOfExec(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ran")
	s := opened(t, func(o *Options) { o.Settings.Rules, o.Settings.DryRun = mustRules("5%:exec=touch "+file), true })
	s.end(&hold.Exit{})
	if _, err := os.Stat(file); err == nil {
		t.Error("it was run")
	}
	if !strings.Contains(s.stderr(), "would exec=touch ") {
		t.Errorf("said:\n%s", s.stderr())
	}
}

func TestDryRunOfGC(t *testing.T) {
	s := newStand(t, func(o *Options) {
		withLoader(t)(o)
		o.Settings.Rules, o.Settings.DryRun = mustRules("5%:gc"), true
	})
	s.trainer(100*rss.MiB, worker1)
	s.open(s.holder.begin)
	s.full()
	if n := strings.Count(s.stderr(), "would gc (dry run)"); n != 1 || s.acts.InFlight() != nil {
		t.Errorf("said %d times:\n%s", n, s.stderr())
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
	without := opened(t, nil)
	if h := without.can(event.ActionGC, without.user()); h.OK || h.Reason != event.ReasonUnsupported {
		t.Errorf("no loader: %+v", h)
	}
}

// TestCollectIsMeasured by what trainer and workers have before and after.
func TestCollectIsMeasured(t *testing.T) {
	s := newStand(t, func(o *Options) {
		withLoader(t)(o)
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
	o := named(s.events(), event.NameOutcome)
	if len(o) != 1 || o[0]["ok"] != true || o[0]["freed_bytes"] != float64(350*rss.MiB) || o[0]["paused_s"] != 0.08 {
		t.Fatalf("outcomes %v, want 350 MiB freed in a pause of 80 ms", o)
	}
	if s.tell.Sum.Saved.Sum(event.ActionGC).Worked != 1 || s.tell.Sum.Saved.Helped != 1 || !strings.Contains(s.stderr(), "collected garbage, freed 350 MiB, paused 0.08 s") {
		t.Errorf("summary %+v\n%s", s.tell.Sum, s.stderr())
	}
}
