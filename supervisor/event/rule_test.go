package event

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
)

// TestParseRule: how rules are read and printed, and of others what is wrong and what to write.
func TestParseRule(t *testing.T) {
	var b strings.Builder
	for _, in := range []string{
		"85%:trim", " 92.50% : recycle ", "100%:stop", "slurm 95%:stop", "maps 80%:warn", "free<2G:gc",
		"free<1.5GiB:warn", "free<500:warn", "free<1001B:warn", "eta<10m:warn", "time eta<1h0m:warn",
		"eta<90s:signal=SIGUSR2", "93%:signal=12@rank0", "93%:signal=rtmin+3", "93%:exec=/bin/notify a:b =c",
		"time eta<5m:signal=USR2", "97%:requeue", "97%:requeue=3", "97%:requeue= 12g", "97%:requeue=+25.0%",
		"97%:requeue=advice", "", "  ", "85%", ":warn", "85%:", "85%:kill", "85%:Trim", "85%:trim=now",
		"85%:trim+drop", "85%:trim + drop", "disk 85%:warn", "a b 85%:warn", "85:warn", "%:warn", "1e1%:warn",
		"-5%:warn", "NaN%:warn", "0%:warn", "100.1%:warn", "free<:warn", "free<2X:warn", "free<0:warn",
		"free < 2G:warn", "eta<10:warn", "eta<-1m:warn", "time 80%:warn", "maps free<2G:warn", "90%:signal",
		"90%:signal=USR9", "90%:signal=0", "90%:signal=32", "90%:signal=RTMIN+99", "90%:signal=KILL",
		"90%:signal=USR2@all", "90%:signal=STOP@rank0", "90%:signal=9", "90%:signal=USR2@", "90%:gc=2",
		"time eta<5m:trim", "time eta<5m:stop", "90%:exec", "90%:exec=", "90%:exec=a\x00b", "90%:requeue=",
		"90%:requeue=25%", "90%:requeue=+x%", "90%:requeue=+0%", "90%:requeue=-5%", "90%:requeue=+2000%",
		"90%:requeue=+4G", "90%:requeue=much", "90%:requeue=0", "90%:requeue=100K", "time eta<5m:requeue",
	} {
		r, err := ParseRule(in)
		var e *RuleError
		switch {
		case err == nil:
			type plain Rule
			fmt.Fprintf(&b, "%q: %+v, %s\n", in, plain(r), r)
		case errors.As(err, &e) && e.Rule == in && e.Hint != "":
			fmt.Fprintf(&b, "%q: %v\n\tpart %q, hint: %s\n", in, e, e.Part, e.Hint)
		default:
			t.Errorf("%q: %+v, %v", in, r, err)
		}
	}
	golden.Check(t, "testdata/rules.txt", b.String())
}

func FuzzParseRule(f *testing.F) {
	for _, s := range []string{"85%:trim", "slurm eta<10m:signal=USR2@rank0", "free<1.5G:exec=a b", "0.1%:requeue=x", "97%:requeue=+25%", "97%:requeue=1.5G", "time eta<1h:warn", "none", "::", "eta<1ns:stop"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRule(s)
		if err != nil {
			var e *RuleError
			if !errors.As(err, &e) || e.Hint == "" {
				t.Fatalf("%q: %v has no hint", s, err)
			}
			return
		}
		again, err := ParseRule(r.String())
		if err != nil || again != r {
			t.Fatalf("%q: %+v prints as %q, which reads as %+v, %v", s, r, r.String(), again, err)
		}
		if at, ok := r.At(rss.GiB); ok && (at > rss.GiB || r.Rearm(rss.GiB) >= at && at > 1) {
			t.Fatalf("%q: rung at %d, armed again below %d", s, at, r.Rearm(rss.GiB))
		}
	})
}

func TestSignals(t *testing.T) {
	for in, want := range map[string]syscall.Signal{
		"USR1": 10, "SIGUSR1": 10, "usr2": 12, "sigterm": 15, "1": 1, "64": 64, "RTMIN": 34, "SIGRTMIN+0": 34,
		"RTMAX": 64, "RTMAX-1": 63, "34": 34, "POLL": 29, "IOT": 6,
	} {
		got, err := ParseSignal(in)
		if err != nil || got != want {
			t.Errorf("ParseSignal(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for n := 1; n <= 64; n++ {
		if n == 32 || n == 33 {
			continue
		}
		sig := syscall.Signal(n)
		if got, err := ParseSignal(SignalName(sig)); err != nil || got != sig {
			t.Errorf("signal %d is called %q, which reads as %d, %v", n, SignalName(sig), got, err)
		}
	}
	if _, err := ParseSignal("USR9"); err == nil || err.Error() != `"USR9": unknown signal` {
		t.Errorf("ParseSignal(USR9): %v", err)
	}
	if got := SignalName(99); got != "99" {
		t.Errorf("SignalName(99) = %q", got)
	}
	for in, want := range map[string]bool{"90%:signal=USR2@rank0": true, "90%:signal=USR2": false} {
		if sig, rank0, ok := rule(t, in).Signal(); sig != syscall.SIGUSR2 || rank0 != want || !ok {
			t.Errorf("%q sends %v, rank0 %v, %v", in, sig, rank0, ok)
		}
	}
	if _, _, ok := (Rule{Action: ActionWarn}).Signal(); ok {
		t.Error("a warning has a signal")
	}
}

func rule(t *testing.T, text string) Rule {
	t.Helper()
	r, err := ParseRule(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestWorth: of a recycle one worker's part is enough, which is less where the limit is small; of
// a trim as much as is left for certain, where much more may be wanted.
func TestWorth(t *testing.T) {
	for _, c := range []struct {
		rule                    string
		used, most, limit, want rss.Bytes // in MiB
	}{
		{"85%:gc", 97280, 102380, 102400, 768},
		{"85%:trim", 97280, 102380, 102400, 20},
		{"85%:recycle", 97280, 102380, 102400, 16},
		{"85%:recycle", 0, 0, 1 << 20, 16},
		{"85%:recycle", 0, 0, 3200, 16},
		{"85%:recycle", 0, 0, 2000, 10},
		{"85%:recycle", 0, 0, 400, 2},
		{"85%:trim", 7000, 7000, 8000, 30}, // 5 % of what is wanted, down to 80 %
		{"85%:trim", 7600, 7600, 8000, 60},
		{"85%:trim", 7960, 7960, 8000, 40},
		{"85%:trim", 7600, 7990, 8000, 16}, // no better value is known
		{"85%:trim", 7999, 7999, 8000, 16},
	} {
		l := Limit{Used: c.used * rss.MiB, UsedMax: c.most * rss.MiB, Limit: c.limit * rss.MiB}
		if got := rule(t, c.rule).Worth(&l); got != c.want*rss.MiB {
			t.Errorf("%s at %v, %v at most, of %v: %v, want %d MiB", c.rule, l.Used, l.UsedMax, l.Limit, got, c.want)
		}
	}
}

func TestMore(t *testing.T) {
	for text, want := range map[string]More{
		"97%:requeue": {Share: 0.25}, "97%:requeue=+25%": {Share: 0.25}, "97%:requeue=+7.5%": {Share: 0.075},
		"free<1G:requeue=12G": {Size: 12 * rss.GiB}, "97%:requeue=600": {Size: 600 * rss.MiB}, "slurm 97%:requeue=advice": {Advice: true},
	} {
		if got, ok := rule(t, text).More(); got != want || !ok {
			t.Errorf("%s: %+v, %v; want %+v", text, got, ok, want)
		}
	}
	if m, ok := rule(t, "97%:stop").More(); ok {
		t.Errorf("stop: %+v", m)
	}
}

// TestActionRows: every action has the words that its kind needs.
func TestActionRows(t *testing.T) {
	commands := map[string]Action{}
	for _, a := range RecordedActions {
		r := a.Row()
		switch {
		case r.says == "" || !strings.HasPrefix(r.form, string(a)):
			t.Errorf("%s: its form is %q, its sentence %q", a, r.form, r.says)
		case strings.Contains(r.form, "=") != (r.arg != nil):
			t.Errorf("%s: its form is %q, and what reads its argument is there: %v", a, r.form, r.arg != nil)
		case !a.Acts() && (a.Frees() || r.Ends):
			t.Errorf("%s is of two kinds: %+v", a, r)
		case !r.former && r.Thing == "":
			t.Errorf("%s: nothing to count of it", a)
		case a.Acts() && !r.former && r.Did == "":
			t.Errorf("%s: no word for it in the past tense", a)
		case a.Asks() && r.DidTo == nil:
			t.Errorf("%s: no words for the asked process", a)
		case (r.Command == "") != (r.Asked == ""):
			t.Errorf("%s by hand: %q, %q", a, r.Command, r.Asked)
		case (r.Trims || r.Single || r.Unmaps || r.BacksOff || r.worth != nil) && !a.Frees():
			t.Errorf("%s frees nothing: %+v", a, r)
		case r.Command != "" && commands[r.Command] != "":
			t.Errorf("%s and %s are one command", a, commands[r.Command])
		}
		commands[r.Command] = a
	}
	for a, want := range map[Action]bool{
		ActionWarn: true, ActionTrim: true, ActionRecycle: true, ActionStop: true, ActionGC: true, ActionSignal: true,
		ActionExec: true, ActionRequeue: true, "explode": false, ActionTrimDrop: false,
	} {
		if slices.Contains(Actions, a) != want || slices.Contains(RecordedActions, a) != (want || a == ActionTrimDrop) {
			t.Errorf("%s: rules have %v, records %v", a, Actions, RecordedActions)
		}
	}
	if a := Action("of tomorrow"); a.Asks() || a.Frees() || !a.Acts() || a.Severity() != len(RecordedActions) {
		t.Errorf("an action of a newer version: %+v", a.Row())
	}
}

// TestWordsForPeople: the words for an action that was not tried name the signal, and no program,
// which may be long; where a detail says all, it stands in the place of the reason.
func TestWordsForPeople(t *testing.T) {
	skipped := func(text string) string { r := rule(t, text); return r.Action.Skipped(r.Arg) }
	for _, c := range [][2]string{
		{skipped("90%:recycle"), "recycle skipped"},
		{skipped("90%:signal=USR2@rank0"), "signal=USR2@rank0 skipped"},
		{skipped("90%:exec=/bin/true"), "exec skipped"},
		{skipped("90%:requeue=12G"), "requeue skipped"},
		{ActionTrim.Why(ReasonNoHelp), "mapped pages do not count in this limit"},
		{ActionSignal.Why(ReasonNoHelp), "it does not lower this limit"},
		{ActionRecycle.Why(ReasonNoWorker), "no DataLoader or pool workers found"},
		{ReasonUnsupported.With("not in a Slurm job"), "not in a Slurm job"},
		{ReasonNoWorker.With("process 7: conda"), "no DataLoader or pool workers found (process 7: conda)"},
		{ReasonTimeout.With(""), "no answer in time"},
	} {
		if c[0] != c[1] {
			t.Errorf("got %q, want %q", c[0], c[1])
		}
	}
}

// TestLimitRows: every limit has the words that its kind needs.
func TestLimitRows(t *testing.T) {
	for _, n := range Limits {
		r := n.Row()
		counted := n.Thing() != ""
		switch {
		case n.Says() == "":
			t.Errorf("%s: no sentence", n)
		case counted != (n.Cure() != ""), counted == (n.Memory() || n == LimitTime):
			t.Errorf("%s: what runs out is %q, the cure %q", n, n.Thing(), n.Cure())
		case counted && (r.Use == "" || r.Alert == ""):
			t.Errorf("%s: no word for its use, or no name of an alert", n)
		case (r.Kills || r.Ladder || r.OfJob) && !n.Memory():
			t.Errorf("%s is not on memory: %+v", n, r)
		case r.Kills && r.Spares:
			t.Errorf("%s kills and spares", n)
		}
	}
	if n := LimitName("of tomorrow"); n.Memory() || n.Counts() || n.Row().Kills || !n.Row().Amount {
		t.Errorf("a limit of a newer version: %+v", n.Row())
	}
}

// TestLimitsOfOneProcess: which of them there are, and what they compare.
func TestLimitsOfOneProcess(t *testing.T) {
	p := &rss.Proc{ID: rss.ProcID{PID: 7}, Role: rss.RoleTrainer, Virtual: 3 * rss.GiB, Locked: rss.MiB, Pinned: 2 * rss.MiB}
	none := &rss.ResourceLimits{AddressSpace: math.MaxUint64, LockedMemory: math.MaxUint64}
	some := &rss.ResourceLimits{AddressSpace: 4 * rss.GiB, LockedMemory: 8 * rss.MiB}
	if _, ok := addressSpace(p, none); ok {
		t.Error("an unlimited address space is limited")
	}
	if _, ok := lockedMemory(p, none); ok {
		t.Error("unlimited locked memory is limited")
	}
	if l, ok := addressSpace(p, some); !ok || l.Ratio() != 0.75 || l.PID != 7 || l.Role != rss.RoleTrainer {
		t.Errorf("%+v, %v", l, ok)
	}
	if l, ok := lockedMemory(p, some); !ok || l.Used != 2*rss.MiB || l.UsedSource != "VmPin of /proc/PID/status" {
		t.Errorf("%+v, %v", l, ok)
	}
	if _, ok := lockedMemory(&rss.Proc{}, some); ok {
		t.Error("who locks nothing is limited")
	}
}

// TestCountsAreNoBytes: what a reader takes for bytes is bytes, and nothing else.
func TestCountsAreNoBytes(t *testing.T) {
	maps := Limit{Name: LimitMaps, Scope: ScopeProcess, PID: 12, Used: 60000, UsedMax: 60000, Limit: 65530}
	size := Limit{Name: LimitCgroup, Used: 3 * rss.GiB, UsedMax: 3 * rss.GiB, Limit: 4 * rss.GiB}
	if b, err := json.Marshal(Found{Head: Head{V: 1, Event: NameLimit}, Limit: size}); err != nil ||
		!strings.Contains(string(b), `"used_bytes":3221225472,"used_max_bytes":3221225472,"limit_bytes":4294967296`) {
		t.Errorf("a size is %s (%v)", b, err)
	}
	for _, v := range []any{
		maps,
		Found{Head: Head{V: 1, Seq: 3, Event: NameLimit}, Limit: maps},
		Decision{Head: Head{V: 1, Seq: 3}, ID: 7, Limit: LimitMaps, Used: 60000, LimitSize: 65530, Threshold: 52424},
		Sample{Limits: []Limit{maps}},
	} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if text := string(b); strings.Contains(text, "_bytes") || !strings.Contains(text, `"used":60000`) || !strings.Contains(text, `"limit_count":65530`) {
			t.Errorf("%T is %s", v, text)
		}
		back := reflect.New(reflect.TypeOf(v))
		if err := json.Unmarshal(b, back.Interface()); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(back.Elem().Interface(), v) {
			t.Errorf("%s is read back as %+v", b, back.Elem().Interface())
		}
	}
}
