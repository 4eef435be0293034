package supervisor

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

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
