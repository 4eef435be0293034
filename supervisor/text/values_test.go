package text

import (
	"math"
	"strings"
	"testing"
	"time"
)

// check wants a text of each value.
func check[V comparable](t *testing.T, name string, text func(V) string, cases map[V]string) {
	t.Helper()
	for v, want := range cases {
		if got := text(v); got != want {
			t.Errorf("%s(%.20v) = %q, want %q", name, v, got, want)
		}
	}
}

func TestNumbers(t *testing.T) {
	const ms, day = time.Millisecond, 24 * time.Hour
	check(t, "About", About, map[float64]string{
		0: "0 s", 40: "40 s", 99: "99 s", 100: "2 min", 120: "2 min", 720: "12 min", 5400: "90 min",
		7200: "2.0 h", 12600: "3.5 h", 864000: "10 d",
	})
	check(t, "Count of processes", func(n int) string { return Count(n, "process") }, map[int]string{
		0: "0 processes", 1: "1 process", 2: "2 processes", 1200: "1,200 processes",
	})
	check(t, "Span", Span, map[time.Duration]string{
		0: "0 s", 400 * time.Microsecond: "0.4 ms", 7 * ms: "7 ms", 999 * ms: "999 ms", time.Second - time.Microsecond: "1 s",
		1200 * ms: "1.2 s", 3 * time.Second: "3 s", 9940 * ms: "9.9 s", 9990 * ms: "10 s", 40400 * ms: "40 s", 59600 * ms: "1 min 00 s",
		103 * time.Second: "1 min 43 s", time.Hour - 1: "1 h 00 min", 65 * time.Minute: "1 h 05 min", 3*day + 2*time.Hour: "3 d 02 h",
		-1200 * ms: "-1.2 s", math.MinInt64: "-106751 d 23 h",
	})
	check(t, "Seconds", Seconds, map[float64]string{0.25: "250 ms", 90: "1 min 30 s", math.Inf(1): Span(1e9 * time.Second)})
	check(t, "Percent", Percent, map[float64]string{
		0: "0 %", 0.414: "41 %", 0.984: "98 %", 0.992: "99.2 %", 0.9999: "99.9 %", 1: "100 %", 1.3: "130 %",
	})
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
	check(t, "Similar", func(word string) string { return Similar(word, names) }, map[string]string{
		"limt": "limit", "limits": "limit", "Limit": "limit", "lmiit": "limit", "dry_run": "dry-run", "DRYRUN": "dry-run",
		"--limit": "limit", "worker.signal": "worker-signal", "trimm": "trim", "trim_priv": "", "At": "at", "it": "at",
		"": "", "x": "", "colour": "", "limitation": "", strings.Repeat("limit", 1000): "",
	})
}
