package action

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// result tells what was done. Where nothing was, the reason is that of the first
// who was refused, else why.
func (a *trace) result(why event.Reason) Result {
	r := Result{OK: len(a.trimmed) > 0, Reason: event.ReasonDone, Stopped: a.stopped}
	if !r.OK {
		r.Reason = why
		if len(a.refused) > 0 {
			r.Reason = a.refused[0].Refused.Reason
		}
	}
	if n := len(a.trimmed); n > 0 {
		plural := "es"
		if n == 1 {
			plural = ""
		}
		r.Detail = fmt.Sprintf("%d process%s gave back %v of mapped pages, stopped for %.1f ms at most", n, plural, a.freed, a.stopped.Seconds()*1e3)
	}
	var reasons []string
	for _, t := range a.refused {
		text := join(string(t.Refused.Reason), t.Refused.Detail)
		if !slices.Contains(reasons, text) {
			reasons = append(reasons, text)
		}
	}
	if n := len(a.refused); n > 0 {
		r.Detail = join(r.Detail, fmt.Sprintf("%d refused (%s)", n, strings.Join(reasons, ", ")))
	}
	return r
}
