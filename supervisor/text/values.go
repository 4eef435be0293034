package text

import (
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// Span is a length of time to two units at most: "0.4 ms", "7 ms", "1.2 s", "40 s",
// "2 min 03 s", "1 h 05 min", "3 d 02 h".
func Span(d time.Duration) string {
	switch s := d.Round(time.Second); {
	case d == 0:
		return "0 s"
	case d < 0:
		return "-" + Span(-max(d, -math.MaxInt64))
	case d < time.Millisecond:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1e3)
	case d < time.Second-time.Millisecond/2:
		return fmt.Sprintf("%.0f ms", d.Seconds()*1e3)
	case d < 10*time.Second-50*time.Millisecond:
		return decimal(d.Seconds()) + " s"
	case s < time.Minute:
		return fmt.Sprintf("%d s", s/time.Second)
	case s < time.Hour:
		return fmt.Sprintf("%d min %02d s", s/time.Minute, s%time.Minute/time.Second)
	case s < 24*time.Hour:
		return fmt.Sprintf("%d h %02d min", s/time.Hour, s%time.Hour/time.Minute)
	default:
		return fmt.Sprintf("%d d %02d h", s/(24*time.Hour), s%(24*time.Hour)/time.Hour)
	}
}

// Seconds is [Span] of a number of seconds, as events have them.
func Seconds(s float64) string {
	return Span(time.Duration(max(-1e9, min(s, 1e9)) * float64(time.Second)))
}

// About gives seconds that are an estimate or an age, to one unit: "40 s", "12 min", "3.5 h", "10 d".
func About(seconds float64) string {
	switch {
	case seconds < 100:
		return fmt.Sprintf("%.0f s", seconds)
	case seconds < 100*60:
		return fmt.Sprintf("%.0f min", seconds/60)
	case seconds < 100*3600:
		return fmt.Sprintf("%.1f h", seconds/3600)
	}
	return fmt.Sprintf("%.0f d", seconds/86400)
}

// Count counts things: "1 process", "3 processes", "1,200 maps".
func Count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return Digits(uint64(n)) + " " + plural(one)
}

func plural(one string) string {
	if strings.HasSuffix(one, "s") || strings.HasSuffix(one, "ch") {
		one += "e"
	}
	return one + "s"
}

// Times is "once", "3 times".
func Times(n int) string {
	if n == 1 {
		return "once"
	}
	return Count(n, "time")
}

// Digits gives a number with its digits in threes: "65,530".
func Digits(v uint64) string {
	s := strconv.FormatUint(v, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Percent writes a share, and tells what is nearly full from what is full.
func Percent(share float64) string {
	if share >= 0.985 && share < 1 {
		return decimal(min(100*share, 99.9)) + " %"
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

// List names things: "12", "12 and 13", "12, 13 and 14". Of more than most it names
// one less than that, and counts the others: "12, 13 and 9 more".
func List[T any](all []T, most int) string {
	var b strings.Builder
	for i, one := range all {
		switch {
		case i == most-1 && len(all) > most:
			fmt.Fprintf(&b, " and %d more", len(all)-i)
			return b.String()
		case i == 0:
		case i == len(all)-1:
			b.WriteString(" and ")
		default:
			b.WriteString(", ")
		}
		fmt.Fprint(&b, one)
	}
	return b.String()
}

// All is the most of a [List] that names each.
const All = math.MaxInt

// Named is one and what it names: "rank 2", "ranks 2 and 3".
func Named[T any](one string, all []T) string {
	if len(all) != 1 {
		one = plural(one)
	}
	return one + " " + List(all, All)
}

// decimal has one digit behind the point where it is not 0.
func decimal(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") }

// Similar returns the one of names that was perhaps meant by
// word: dashes, case and underscores do not count, and a slip or two in the
// letters is forgiven. It is empty where nothing comes near.
func Similar(word string, names []string) string {
	word = bare(word)
	best, least := "", 3
	if len(word) < 5 {
		least = 2 // in short words two slips make another word
	}
	for _, name := range names {
		if d := distance(word, bare(name)); d < least {
			best, least = name, d
		}
	}
	return best
}

func bare(s string) string {
	if len(s) > 64 {
		s = s[:64] // longer than any name; what follows only costs time
	}
	return strings.NewReplacer("-", "", "_", "", ".", "", " ", "").Replace(strings.ToLower(s))
}

// distance counts the letters to insert, delete, change, or swap with their
// neighbour to make b of a.
func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			same := 1
			if a[i-1] == b[j-1] {
				same = 0
			}
			next[j] = min(last[j]+1, next[j-1]+1, last[j-1]+same)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, last = last, next
	}
	return last[len(b)]
}

// Build says what this program was built from and by: "commit 56a2c97f0a1b, go1.26.8,
// linux/amd64". Without a commit, as from an archive of the source, that is left out.
func Build() string {
	built := fmt.Sprintf("%s, %s/%s", runtime.Version(), runtime.GOOS, runtime.GOARCH)
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return built
	}
	commit, changed := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = " with changes"
		}
	}
	if commit == "" {
		return built
	}
	return "commit " + commit + changed + ", " + built
}
