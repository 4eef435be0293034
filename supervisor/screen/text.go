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
