package tell

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

// Tell tells what the parts of the watcher have to say.
func (f *Fan) Tell(now time.Duration, news view.News) {
	for _, n := range news {
		switch n := n.(type) {
		case view.Fault:
			f.Fault(now, n.Part, n.Err)
		case view.Line:
			f.line(now, &n)
		case view.Cured:
			f.Cured(now, n.Cure, n.Text)
		case event.Found:
			f.Put(event.NameLimit, func(h event.Head) any { n.Head = h; return n })
		case event.LoaderSaid:
			f.Status.said(&n)
			f.Put(event.NameLoader, func(h event.Head) any { n.Head = h; return n })
		default:
			panic(fmt.Sprintf("internal error: no way to tell of a %T", n))
		}
	}
}

func (l *Log) line(now time.Duration, n *view.Line) {
	switch {
	case n.Once != "" && !l.Once(n.Once, n.Key):
	case n.Kind != "":
		l.Say(now, n.Kind, n.Text)
	case n.Warn:
		l.Warn(n.Text)
	default:
		l.Info(n.Text)
	}
}

// Loaders tells of what loaders said, and sums it up.
func (f *Fan) Loaders(now time.Duration, said []loader.Said, news view.News) {
	f.Tell(now, news)
	for i := range said {
		f.Sum.Loader(now, &said[i])
		if s := &said[i]; s.What == event.LoaderRecycled && s.New != 0 {
			f.Status.Replaced(s.Worker, s.New)
		}
	}
}

// Budget tells once that n workers keep to each of mapped pages.
func (f *Fan) Budget(each rss.Bytes, n int) {
	if n > 0 && f.Once("budget", "") {
		f.Info(fmt.Sprintf("%s up to %s of mapped pages each", holders(n), each.Typed()))
	}
}

// holders is "1 worker holds", "3 workers hold".
func holders(n int) string {
	if n == 1 {
		return "1 worker holds"
	}
	return text.Count(n, "worker") + " hold"
}

// SHMUsers tells who holds what in /dev/shm, if that is known now.
func (f *Fan) SHMUsers(now time.Duration, line string) {
	if line != "" {
		f.Say(now, "/dev/shm line", line)
	}
}

// Cured tells of a cure: an event each time, a line once.
func (f *Fan) Cured(now time.Duration, c event.Cure, line string) {
	f.Put(event.NameCure, func(h event.Head) any { c.Head = h; return c })
	if f.Once("cure", line) {
		f.Say(now, "remedy line", line)
	}
}

// Signal tells of a signal that reached the holder. perSecond is by how much a limit is
// approached.
func (f *Fan) Signal(now time.Duration, e event.Signal, limits []event.Limit, perSecond func(*event.Limit) float64) {
	if !f.signals.fresh(now, e) {
		return
	}
	if e.Sender > 0 { // nothing makes the read wait; proc_pid_comm(5)
		e.Comm = firstLine(filepath.Join(f.Run.Proc, strconv.Itoa(e.Sender), "comm"))
	}
	if slices.Contains(endSignals, e.Signal) {
		f.Sum.asked, f.Sum.askedAt = e.Signal, now
	}
	if e.Signal == "SIGTERM" && strings.HasPrefix(e.Comm, "slurmstepd") {
		f.Sum.Term(now, limits, perSecond)
	}
	f.Put(event.NameSignal, func(h event.Head) any { e.Head = h; return e })
}
