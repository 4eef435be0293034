package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// This file lays an end to a data set of many tensors that was sent to workers
// which are not forked. Descriptors run out a tenth of a second after that begins:
// no count gets near in time, but the loader hook says before what it takes.

// lookSent is such a warning of the hook's. Sharing is never nil.
type lookSent struct {
	*event.LoaderSaid
	at time.Duration
}

// sentHolds is for how long after it a failure is laid to it: the workers import
// torch before they take what was sent.
const sentHolds = 2 * time.Minute

// warned takes in a warning: the last of one that takes too much, else the last.
func (k *look) warned(at time.Duration, s *event.LoaderSaid) {
	if s.What != event.LoaderPickling || s.Sharing == nil {
		return
	}
	n := &lookSent{s, at}
	if old := k.sent; old == nil || old.PID == s.PID || n.tooMuch() != "" || old.tooMuch() == "" {
		k.sent = n
	}
}

// tooMuch is what there would not be enough of, empty where all suffices. What
// goes in one message goes after all is open, and of two limits the lower one is
// met first.
func (s *lookSent) tooMuch() event.Cause {
	n := s.Sharing
	maps, fds := n.MaxMaps > 0 && n.Maps > n.MaxMaps, n.MaxFDs > 0 && n.FDs > n.MaxFDs
	switch {
	case maps && (!fds || n.MaxMaps < n.MaxFDs):
		return event.CauseMaps
	case fds, n.MaxSent > 0 && n.Sent > n.MaxSent:
		return event.CauseFDs
	}
	return ""
}

// takes is what the sending takes of what there is not enough of; of what is
// nearest where all suffices.
func (s *lookSent) takes() string {
	n := s.Sharing
	least := ""
	if n.More {
		least = "at least "
	}
	need, most, what := n.FDs, n.MaxFDs, "descriptors of the %s that RLIMIT_NOFILE allows"
	cause := s.tooMuch()
	switch {
	case cause == event.CauseFDs && n.FDs <= n.MaxFDs:
		need, most, what = n.Sent, n.MaxSent, "descriptors in one message, of the %s that Linux takes"
	case cause == event.CauseMaps, cause == "" && float64(n.Maps)*float64(n.MaxFDs) > float64(n.FDs)*float64(n.MaxMaps):
		need, most, what = n.Maps, n.MaxMaps, "memory mappings of the %s that vm.max_map_count allows"
	}
	return "takes " + least + digits(need) + " " + fmt.Sprintf(what, digits(most))
}

func digits(n int) string { return values.Digits(uint64(max(n, 0))) }

// sending words the warning.
func (q *inquest) sending(s *lookSent) string {
	n := s.Sharing
	more := ""
	if n.More {
		more = " or more"
	}
	return fmt.Sprintf("to send the %s%s tensors of a data set from %s to %s started by %s (sharing strategy %s) %s",
		digits(n.Tensors), more, q.named(s.PID), values.Count(n.Workers, "worker"), clean(n.Method), clean(n.Strategy), s.takes())
}

// named is a process by its PID, with its name where the record has it.
func (q *inquest) named(pid int) string {
	for i := range q.run.Procs {
		if q.run.Procs[i].ID.PID == pid {
			return q.process(count{proc: i})
		}
	}
	return fmt.Sprintf("process %d", pid)
}

// sentTooMuch says that a failure may be laid to a warning.
func (q *inquest) sentTooMuch() bool {
	return q.sent != nil && q.end-q.sent.at <= sentHolds && q.sent.tooMuch() != ""
}

// bySending tells of it.
func (q *inquest) bySending(d death) finding {
	f := finding{cause: q.sent.tooMuch(), certainty: Inferred, limit: -1}
	what, name := "memory mappings", event.LimitMaps
	if f.cause == event.CauseFDs {
		what, name = "descriptors", event.LimitFDs
	}
	f.limit = q.limitNamed(name)
	f.text = fmt.Sprintf("out of %s: %s, begun %s; the command ended with %s%s", what, q.sending(q.sent), q.when(q.sent.at), d, q.instead())
	return f
}

// instead is what to write instead, for the end of a sentence; empty where
// nothing says that tensors were sent.
func (q *inquest) instead() string {
	const method = "set_start_method("
	if t := q.grown.of(event.FindingSpawn); t != nil {
		for _, a := range t.Advice {
			if strings.Contains(a, method) {
				return "; instead: " + clean(a)
			}
		}
	}
	if q.sent == nil {
		return ""
	}
	return "; instead: " + method + `"fork")`
}

// sentLine is the warning as evidence, empty where there was none near the end.
func (q *inquest) sentLine() string {
	if q.sent == nil || q.end-q.sent.at > sentHolds {
		return ""
	}
	return fmt.Sprintf("%s: told by the loader hook: %s", q.stamp(q.sent.at), q.sending(q.sent))
}
