package event

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

func percent(p float64) Cond { return Cond{Kind: KindPercent, Percent: p} }

func TestParseRule(t *testing.T) {
	for _, c := range []struct {
		in   string
		want Rule
		text string // what String gives
	}{
		{"85%:trim", Rule{Cond: percent(85), Action: ActionTrim}, "85%:trim"},
		{" 92.50% : recycle ", Rule{Cond: percent(92.5), Action: ActionRecycle}, "92.5%:recycle"},
		{"100%:stop", Rule{Cond: percent(100), Action: ActionStop}, "100%:stop"},
		{"slurm 95%:stop", Rule{Limit: LimitSlurm, Cond: percent(95), Action: ActionStop}, "slurm 95%:stop"},
		{"maps 80%:warn", Rule{Limit: LimitMaps, Cond: percent(80), Action: ActionWarn}, "maps 80%:warn"},
		{"free<2G:gc", Rule{Cond: Cond{Kind: KindFree, Free: 2 * rss.GiB}, Action: ActionGC}, "free<2G:gc"},
		{"free<1.5GiB:warn", Rule{Cond: Cond{Kind: KindFree, Free: 1536 * rss.MiB}, Action: ActionWarn}, "free<1536M:warn"},
		{"free<500:warn", Rule{Cond: Cond{Kind: KindFree, Free: 500 * rss.MiB}, Action: ActionWarn}, "free<500M:warn"},
		{"free<1001B:warn", Rule{Cond: Cond{Kind: KindFree, Free: 1001}, Action: ActionWarn}, "free<1001B:warn"},
		{"eta<10m:warn", Rule{Cond: Cond{Kind: KindETA, ETA: 10 * time.Minute}, Action: ActionWarn}, "eta<10m:warn"},
		{"time eta<1h0m:warn", Rule{Limit: LimitTime, Cond: Cond{Kind: KindETA, ETA: time.Hour}, Action: ActionWarn}, "time eta<1h:warn"},
		{"eta<90s:signal=SIGUSR2", Rule{Cond: Cond{Kind: KindETA, ETA: 90 * time.Second}, Action: ActionSignal, Arg: "USR2"}, "eta<1m30s:signal=USR2"},
		{"93%:signal=12@rank0", Rule{Cond: percent(93), Action: ActionSignal, Arg: "USR2@rank0"}, "93%:signal=USR2@rank0"},
		{"93%:signal=rtmin+3", Rule{Cond: percent(93), Action: ActionSignal, Arg: "RTMIN+3"}, "93%:signal=RTMIN+3"},
		{"93%:exec=/bin/notify a:b =c", Rule{Cond: percent(93), Action: ActionExec, Arg: "/bin/notify a:b =c"}, "93%:exec=/bin/notify a:b =c"},
		{"time eta<5m:signal=USR2", Rule{Limit: LimitTime, Cond: Cond{Kind: KindETA, ETA: 5 * time.Minute}, Action: ActionSignal, Arg: "USR2"}, "time eta<5m:signal=USR2"},
		{"97%:requeue", Rule{Cond: percent(97), Action: ActionRequeue}, "97%:requeue"},
		{"97%:requeue=3", Rule{Cond: percent(97), Action: ActionRequeue, Arg: "3M"}, "97%:requeue=3M"},
		{"97%:requeue= 12g", Rule{Cond: percent(97), Action: ActionRequeue, Arg: "12G"}, "97%:requeue=12G"},
		{"97%:requeue=+25.0%", Rule{Cond: percent(97), Action: ActionRequeue, Arg: "+25%"}, "97%:requeue=+25%"},
		{"97%:requeue=advice", Rule{Cond: percent(97), Action: ActionRequeue, Arg: "advice"}, "97%:requeue=advice"},
	} {
		got, err := ParseRule(c.in)
		if err != nil {
			t.Errorf("%q: %v", c.in, err)
			continue
		}
		if got != c.want {
			t.Errorf("%q = %+v, want %+v", c.in, got, c.want)
		}
		if got.String() != c.text {
			t.Errorf("%q prints as %q, want %q", c.in, got.String(), c.text)
		}
	}
}

func TestParseRuleErrors(t *testing.T) {
	for _, c := range []struct{ in, part, why string }{
		{"", "", "the rule is empty"},
		{"  ", "  ", "the rule is empty"},
		{"85%", "", "it has no action"},
		{":warn", "", "it has no condition"},
		{"85%:", "", "no action"},
		{"85%:kill", "kill", "unknown action"},
		{"85%:Trim", "Trim", "unknown action"},
		{"85%:trim=now", "trim=now", "this action takes no value"},
		{"85%:trim+drop", "trim+drop", "this action was removed"},
		{"85%:trim + drop", "trim + drop", "unknown action"},
		{"disk 85%:warn", "disk", "unknown limit"},
		{"a b 85%:warn", "a b 85%", "too many words"},
		{"85:warn", "85", "not a condition"},
		{"%:warn", "%", "not a percentage"},
		{"1e1%:warn", "1e1%", "not a percentage"},
		{"-5%:warn", "-5%", "not a percentage"},
		{"NaN%:warn", "NaN%", "not a percentage"},
		{"0%:warn", "0%", "out of range"},
		{"100.1%:warn", "100.1%", "out of range"},
		{"free<:warn", "free<", "not a size"},
		{"free<2X:warn", "free<2X", "not a size"},
		{"free<0:warn", "free<0", "the size is 0"},
		{"free < 2G:warn", "free < 2G", "too many words"},
		{"eta<10:warn", "eta<10", "not a duration"},
		{"eta<-1m:warn", "eta<-1m", "the duration is not above 0"},
		{"time 80%:warn", "80%", "the time limit has no size"},
		{"maps free<2G:warn", "free<2G", "maps is counted, not sized"},
		{"90%:signal", "signal", "no signal"},
		{"90%:signal=USR9", "signal=USR9", "unknown signal"},
		{"90%:signal=0", "signal=0", "no signal has the number 0"},
		{"90%:signal=32", "signal=32", "no signal has the number 32"},
		{"90%:signal=RTMIN+99", "signal=RTMIN+99", "unknown signal"},
		{"90%:signal=KILL", "signal=KILL", "no process can catch this signal"},
		{"90%:signal=USR2@all", "signal=USR2@all", "unknown receiver"},
		{"90%:signal=STOP@rank0", "signal=STOP@rank0", "no process can catch this signal"},
		{"90%:signal=9", "signal=9", "no process can catch this signal"},
		{"90%:signal=USR2@", "signal=USR2@", "unknown receiver"},
		{"90%:gc=2", "gc=2", "this action takes no value"},
		{"time eta<5m:trim", "trim", "it gives the job no more time"},
		{"time eta<5m:stop", "stop", "it gives the job no more time"},
		{"90%:exec", "exec", "no command"},
		{"90%:exec=", "exec=", "no command"},
		{"90%:exec=a\x00b", "exec=a\x00b", "the command has a NUL byte in it"},
		{"90%:requeue=", "requeue=", "nothing behind the ="},
		{"90%:requeue=25%", "requeue=25%", "a percentage of what?"},
		{"90%:requeue=+x%", "requeue=+x%", "not a percentage"},
		{"90%:requeue=+0%", "requeue=+0%", "it is no more than now"},
		{"90%:requeue=-5%", "requeue=-5%", "not a percentage"},
		{"90%:requeue=+2000%", "requeue=+2000%", "out of range"},
		{"90%:requeue=+4G", "requeue=+4G", "neither a size nor a percentage"},
		{"90%:requeue=much", "requeue=much", "neither a size nor a percentage"},
		{"90%:requeue=0", "requeue=0", "the size is below 1 MiB"},
		{"90%:requeue=100K", "requeue=100K", "the size is below 1 MiB"},
		{"time eta<5m:requeue", "requeue", "it gives the job no more time"},
	} {
		r, err := ParseRule(c.in)
		var e *RuleError
		if !errors.As(err, &e) {
			t.Errorf("%q = %+v, %v; want a *RuleError", c.in, r, err)
			continue
		}
		if e.Rule != c.in || e.Part != c.part || e.Why != c.why || e.Hint == "" {
			t.Errorf("%q: part %q, why %q, hint %q; want %q, %q", c.in, e.Part, e.Why, e.Hint, c.part, c.why)
		}
		if c.in != "" && !strings.HasPrefix(e.Error(), "cannot read rule ") {
			t.Errorf("%q: error %q", c.in, e)
		}
	}
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
		r, err := ParseRule(in)
		if err != nil {
			t.Fatal(err)
		}
		if sig, rank0, ok := r.Signal(); sig != syscall.SIGUSR2 || rank0 != want || !ok {
			t.Errorf("%q sends %v, rank0 %v, %v", in, sig, rank0, ok)
		}
	}
	if _, _, ok := (Rule{Action: ActionWarn}).Signal(); ok {
		t.Error("a warning has a signal")
	}
}

// TestMinRecycle: what is worth a recycle is less where the limit is small.
func TestMinRecycle(t *testing.T) {
	for limit, want := range map[rss.Bytes]rss.Bytes{400 * rss.MiB: 2 * rss.MiB, 2000 * rss.MiB: 10 * rss.MiB, 3200 * rss.MiB: 16 * rss.MiB, rss.TiB: 16 * rss.MiB} {
		if got := MinRecycle(&Limit{Limit: limit}); got != want {
			t.Errorf("of %v: %v, want %v", limit, got, want)
		}
	}
}

// TestWorthOfATrim: what is wanted may be much more than what is left, and of a trim as
// much is enough as that is.
func TestWorthOfATrim(t *testing.T) {
	r, err := ParseRule("85%:trim")
	if err != nil {
		t.Fatal(err)
	}
	const size = 8000 * rss.MiB
	for _, c := range []struct{ used, most, want rss.Bytes }{ // in MiB
		{7000, 7000, 30}, // 5 % of what is wanted, down to 80 %
		{7600, 7600, 60},
		{7960, 7960, 40},
		{7600, 7990, 16}, // no better value is known
		{7999, 7999, 16},
	} {
		l := Limit{Limit: size, Used: c.used * rss.MiB, UsedMax: c.most * rss.MiB}
		if got := r.Worth(&l); got != c.want*rss.MiB {
			t.Errorf("at %v, %v at most: %v, want %d MiB", l.Used, l.UsedMax, got, c.want)
		}
	}
}

func TestMore(t *testing.T) {
	for _, c := range []struct {
		rule string
		want More
	}{
		{"97%:requeue", More{Share: 0.25}},
		{"97%:requeue=+25%", More{Share: 0.25}},
		{"97%:requeue=+7.5%", More{Share: 0.075}},
		{"free<1G:requeue=12G", More{Size: 12 * rss.GiB}},
		{"97%:requeue=600", More{Size: 600 * rss.MiB}},
		{"slurm 97%:requeue=advice", More{Advice: true}},
	} {
		r, err := ParseRule(c.rule)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := r.More(); got != c.want || !ok {
			t.Errorf("%s: %+v, %v; want %+v", c.rule, got, ok, c.want)
		}
	}
	if r, _ := ParseRule("97%:stop"); r.Arg != "" {
		t.Error(r)
	} else if m, ok := r.More(); ok {
		t.Errorf("stop: %+v", m)
	}
}
