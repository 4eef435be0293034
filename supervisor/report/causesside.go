package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// This file holds the sentences on what is no memory that processes hold
// together: /dev/shm, mappings, descriptors, tasks, address space.

// noSHM tells of a full /dev/shm.
func (q *inquest) noSHM(b brink, d death) finding {
	return finding{
		cause: event.CauseSHM, certainty: Inferred, limit: b.i,
		text: fmt.Sprintf("/dev/shm was full: %v of %v was used %s; the command ended with %s",
			rss.Bytes(b.used), rss.Bytes(b.size), q.when(b.at), d),
	}
}

// outOf tells of a process that ran out of what is counted.
func (q *inquest) outOf(cause event.Cause, c count, d death) finding {
	what, where := "memory mappings", "vm.max_map_count"
	name := event.LimitMaps
	if cause == event.CauseFDs {
		what, where, name = "descriptors", "RLIMIT_NOFILE", event.LimitFDs
	}
	f := finding{cause: cause, certainty: Inferred, limit: q.limitNamed(name)}
	f.text = fmt.Sprintf("out of %s: %s had %s of the %s that %s allows it %s", what, q.process(c), values.Digits(c.v), values.Digits(c.size), where, q.when(c.at))
	if c.rate > 0 {
		f.text += fmt.Sprintf(", and got %s more a second, at which none was left soon after", values.Digits(uint64(c.rate)))
	}
	f.text += fmt.Sprintf("; the command ended with %s%s", d, q.instead())
	return f
}

// limitNamed is the last limit of a name, -1 where there is none.
func (q *inquest) limitNamed(name event.LimitName) int {
	for i := len(q.limits) - 1; i >= 0; i-- {
		if q.limits[i].Name == name {
			return i
		}
	}
	return -1
}

// process names the process of a count.
func (q *inquest) process(c count) string {
	if c.proc < 0 {
		return "a process"
	}
	p := &q.run.Procs[c.proc]
	return fmt.Sprintf("process %d (%s)", p.ID.PID, clean(p.Comm))
}

// noTasks tells of a fork, or a thread, that was refused.
func (q *inquest) noTasks(b brink, d death) finding {
	return q.usedUp(event.CauseTasks, "tasks", "fork(2) and a new thread fail with EAGAIN then", b, d)
}

// noAddresses tells of a process that had no room left for another mapping.
func (q *inquest) noAddresses(b brink, d death) finding {
	return q.usedUp(event.CauseAS, "address space", "malloc(3) and mmap(2) fail with ENOMEM then, in Python with MemoryError", b, d)
}

func (q *inquest) usedUp(cause event.Cause, what, then string, b brink, d death) finding {
	f := finding{cause: cause, certainty: Inferred, limit: b.i}
	f.text = fmt.Sprintf("out of %s: %s %s", what, fill(b.Name, rss.Bytes(b.used), rss.Bytes(b.size)), q.when(b.at))
	if b.LimitSource != "" {
		f.text += ", limit from " + clean(b.Place())
	}
	if b.rate > 0 {
		f.text += fmt.Sprintf(", and grew by %s a second, at which it was full soon after", b.Name.Amount(rss.Bytes(b.rate)))
	}
	f.text += fmt.Sprintf("; %s; the command ended with %s; instead: %s", then, d, b.Name.Cure())
	return f
}

// bearing are the findings that bear a cause out.
var bearing = map[event.Cause][]event.Finding{
	event.CauseSHM:  {event.FindingPrefetch, event.FindingShmManagers},
	event.CauseMaps: {event.FindingSpawn},
	event.CauseFDs:  {event.FindingSpawn},
}

// foundLines are those of them that were told: who holds /dev/shm, what took the
// mappings.
func (q *inquest) foundLines(cause event.Cause) (out []string) {
	for i := range q.grown.found {
		t := &q.grown.found[i]
		if len(t.Evidence) > 0 && slices.Contains(bearing[cause], t.Finding) {
			out = append(out, fmt.Sprintf("%s: %s, %s: %s", q.stamp(t.at), t.Finding, clean(string(t.Confidence)), clean(strings.Join(t.Evidence, "; "))))
		}
	}
	return out
}
