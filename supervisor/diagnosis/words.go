package diagnosis

import (
	"fmt"
	"strings"
	"time"
)

func many(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "ss"):
		return fmt.Sprintf("%d %ses", n, what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// span is how long something lasted, for people.
func span(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	}
	return fmt.Sprintf("%.1f h", d.Hours())
}

// whose names who has most of something, and how many more have some.
func whose(g *group) string {
	if g.n <= 1 {
		return fmt.Sprintf("process %d", g.most.id.PID)
	}
	return fmt.Sprintf("process %d and %d more", g.most.id.PID, g.n-1)
}
