package text

import (
	"fmt"
	"strconv"
	"strings"
)

// About gives seconds as people say them: "40 s", "12 min", "3.5 h", "10 d".
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
	switch {
	case n == 1:
		return "1 " + one
	case strings.HasSuffix(one, "s"):
		one += "e"
	}
	return Digits(uint64(n)) + " " + one + "s"
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
