package text

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestNumbers(t *testing.T) {
	for seconds, want := range map[float64]string{
		0: "0 s", 40: "40 s", 99: "99 s", 100: "2 min", 120: "2 min", 720: "12 min", 5400: "90 min",
		7200: "2.0 h", 12600: "3.5 h", 864000: "10 d",
	} {
		if got := About(seconds); got != want {
			t.Errorf("About(%v) = %q, want %q", seconds, got, want)
		}
	}
	for _, c := range []struct {
		n         int
		one, want string
	}{
		{0, "rank", "0 ranks"}, {1, "process", "1 process"}, {2, "process", "2 processes"}, {1200, "map", "1,200 maps"},
	} {
		if got := Count(c.n, c.one); got != c.want {
			t.Errorf("Count(%d, %q) = %q, want %q", c.n, c.one, got, c.want)
		}
	}
}

func TestSpan(t *testing.T) {
	const ms, day = time.Millisecond, 24 * time.Hour
	for d, want := range map[time.Duration]string{
		0: "0 s", 400 * time.Microsecond: "0.4 ms", 7 * ms: "7 ms", 999 * ms: "999 ms", time.Second - time.Microsecond: "1 s",
		1200 * ms: "1.2 s", 3 * time.Second: "3 s", 9940 * ms: "9.9 s", 9990 * ms: "10 s", 40400 * ms: "40 s", 59600 * ms: "1 min 00 s",
		103 * time.Second: "1 min 43 s", time.Hour - 1: "1 h 00 min", 65 * time.Minute: "1 h 05 min", 3*day + 2*time.Hour: "3 d 02 h",
		-1200 * ms: "-1.2 s", math.MinInt64: "-106751 d 23 h",
	} {
		if got := Span(d); got != want {
			t.Errorf("Span(%d) = %q, want %q", d, got, want)
		}
	}
	for s, want := range map[float64]string{0.25: "250 ms", 90: "1 min 30 s", math.Inf(1): Span(1e9 * time.Second)} {
		if got := Seconds(s); got != want {
			t.Errorf("Seconds(%v) = %q, want %q", s, got, want)
		}
	}
}

func TestPercent(t *testing.T) {
	for share, want := range map[float64]string{0: "0 %", 0.414: "41 %", 0.984: "98 %", 0.992: "99.2 %", 0.9999: "99.9 %", 1: "100 %", 1.3: "130 %"} {
		if got := Percent(share); got != want {
			t.Errorf("Percent(%v) = %q, want %q", share, got, want)
		}
	}
}

func TestList(t *testing.T) {
	all := []int{12, 13, 14, 15}
	for want, got := range map[string]string{
		"": List(all[:0], All), "12": List(all[:1], All), "12 and 13": List(all[:2], 2), "12, 13 and 14": List(all[:3], 3),
		"12, 13, 14 and 15": List(all, 4), "12, 13 and 2 more": List(all, 3),
		"rank 12": Named("rank", all[:1]), "processes 12 and 13": Named("process", all[:2]),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestSimilar(t *testing.T) {
	names := []string{"limit", "at", "dry-run", "trim", "trim-private", "worker-signal", "quiet"}
	for word, want := range map[string]string{
		"limt": "limit", "limits": "limit", "Limit": "limit", "lmiit": "limit", "dry_run": "dry-run", "DRYRUN": "dry-run",
		"--limit": "limit", "worker.signal": "worker-signal", "trimm": "trim", "trim_priv": "", "At": "at", "it": "at",
		"": "", "x": "", "colour": "", "limitation": "", strings.Repeat("limit", 1000): "",
	} {
		if got := Similar(word, names); got != want {
			t.Errorf("Similar(%.20q) = %q, want %q", word, got, want)
		}
	}
}
