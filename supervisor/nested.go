package supervisor

import (
	"fmt"

	"github.com/rsswarden/rsswarden/rss"
)

// holderName is what the kernel calls the process of `rsswarden run` that holds a
// command.
const holderName = "rsswarden"

// mostAbove bounds how far up it is looked for: deeper than any scheduler and launcher
// stand.
const mostAbove = 32

// outerRun is the nearest `rsswarden run` that the holder of this run is a descendant
// of, 0 for none or where the way up cannot be read.
func outerRun(one func(pid int) (rss.Proc, error), holder int) int {
	p, err := one(holder)
	for range mostAbove {
		if err != nil || p.Parent == 0 {
			return 0
		}
		if p, err = one(p.Parent); err == nil && p.Comm == holderName {
			return p.ID.PID
		}
	}
	return 0
}

// nested says that two runs watch one command, and which does what.
func nested(outer int, s *Settings) string {
	text := fmt.Sprintf("this run is within rsswarden run %d: both watch the command, and each acts by its own rules", outer)
	if s.Dir != "" {
		text += "; its PyTorch loaders answer to this one alone"
	}
	return text + "; one is enough: leave one out, or set RSSWARDEN=off for this one"
}
