package screen

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// wide lists what takes two columns: the ranges of Markus Kuhn's wcwidth.c, and
// the pictures that came to Unicode since.
var wide = []struct{ from, to rune }{
	{0x1100, 0x115f}, {0x2329, 0x232a}, {0x2e80, 0x303e}, {0x3040, 0xa4cf}, {0xac00, 0xd7a3},
	{0xf900, 0xfaff}, {0xfe10, 0xfe19}, {0xfe30, 0xfe6f}, {0xff00, 0xff60}, {0xffe0, 0xffe6},
	{0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1f9ff}, {0x1fa70, 0x1faff}, {0x20000, 0x3fffd},
}

// columnsOf is how many columns a printable rune takes: 1 or 2.
func columnsOf(r rune) int {
	if r < wide[0].from {
		return 1
	}
	for _, w := range wide {
		if r >= w.from && r <= w.to {
			return 2
		}
	}
	return 1
}

// clean makes a name fit for a grid: what does not print, or is no UTF-8, is a
// question mark, and marks that join the letter before them are left out.
// Without unicode all that is not ASCII is a question mark.
func clean(s string, unicodeToo bool) string {
	plain := true
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			plain = false
			break
		}
	}
	if plain {
		return s
	}
	var b strings.Builder
	for _, r := range text.Plain(s) {
		switch {
		case unicodeToo && unicode.In(r, unicode.Mn, unicode.Me):
		case r == utf8.RuneError, !unicodeToo && r > '~':
			b.WriteByte('?')
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// textWidth is how many columns a clean text takes.
func textWidth(s string) int {
	n := 0
	for _, r := range s {
		n += columnsOf(r)
	}
	return n
}

// size gives bytes in at most five columns: "612K", "98.1M", "2.46G".
func size(b rss.Bytes) string {
	text, unit, _ := strings.Cut(b.String(), " ")
	if b == 0 {
		return "0"
	}
	return text + strings.TrimSuffix(unit, "iB")
}

// growth gives a change a second with its sign; less than 1 KiB is "0".
func growth(perSecond float64) string {
	switch {
	case perSecond >= float64(rss.KiB):
		return "+" + size(rss.Bytes(perSecond))
	case perSecond <= -float64(rss.KiB):
		return "-" + size(rss.Bytes(-perSecond))
	}
	return "0"
}

func since(now, then time.Time) string { return text.About(max(0, now.Sub(then).Seconds())) }

// count gives a number where it was counted.
func count[T int | uint64](n T) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// task gives a rank's number, "-" outside Slurm.
func task(n int) string {
	if n < 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

// numbers lists PIDs, so many of them: "12, 13 and 14", "12, 13 and 9 more".
func numbers(pids []int, shown int) string {
	var b strings.Builder
	for i, pid := range pids {
		switch {
		case i == 0:
		case i == shown-1 && len(pids) > shown:
			fmt.Fprintf(&b, " and %d more", len(pids)-i)
			return b.String()
		case i == len(pids)-1:
			b.WriteString(" and ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(pid))
	}
	return b.String()
}
