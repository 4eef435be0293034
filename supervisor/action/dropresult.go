package action

import (
	"fmt"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// told says what the drop brought and what it costs, and whose word that is.
func (a *trimDrop) told() Result {
	var left, stay rss.Bytes
	var lighter, measured, unmeasured, failed int
	var first error
	for _, d := range a.dropped {
		switch {
		case d.Err != nil:
			failed++
			if first == nil {
				first = d.Err
			}
		case !d.Measured:
			unmeasured++
		default:
			measured++
			left, stay = left+d.Before.Sub(d.After), stay+d.After
			if d.After < d.Before {
				lighter++
			}
		}
	}
	r := Result{OK: lighter+unmeasured > 0, Reason: event.ReasonDone}
	if !r.OK {
		r.Reason = event.ReasonNothing
	}
	say := func(when bool, format string, args ...any) {
		if when {
			r.Detail = join(r.Detail, fmt.Sprintf(format, args...))
		}
	}
	const again = "that the next epoch reads from disk again"
	say(lighter > 0, "%s left the page cache: %v (measured by cachestat) %s", files(lighter), left, again)
	say(lighter == 0 && measured > 0, "nothing of %s left the page cache (measured by cachestat)", files(measured))
	say(stay > 0, "%v stay there, mapped elsewhere or not written back", stay)
	say(unmeasured > 0, "%s dropped from the page cache, how much left is not measured, %s", files(unmeasured), again)
	say(failed == 1, "%v", first)
	say(failed > 1, "%v, and %d more failed", first, failed-1)
	late := len(a.files) - len(a.dropped)
	say(late > 0, "%s not dropped within %v", files(late), DropDeadline)
	say(len(a.files) == 0, "no file to drop from the page cache")
	r.Detail = join(r.Detail, a.Note)
	return r
}

func files(n int) string {
	if n == 1 {
		return "1 file"
	}
	return fmt.Sprintf("%d files", n)
}
