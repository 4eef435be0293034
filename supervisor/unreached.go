package supervisor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/leader"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// This file tells of a training that the loader hook does not reach: in a container
// that cleans the environment, hides our directories or has PID numbers of its own,
// or behind a script that sets PYTHONPATH anew. All else goes on there, and so nobody
// would notice that its workers are neither trimmed nor replaced.

// torchLeast is the least that a process with PyTorch has; whoever has less is not
// looked into.
const torchLeast = 48 * rss.MiB

// seldom is how long a process without PyTorch is left alone at most: a large program
// may import it late.
const seldom = time.Minute

// unreached is what is known of the processes without a hook.
type unreached struct {
	*probe.Reader[reachAsk, reachAnswer] // nil where no loader is expected
	seen                                 map[rankKey]*unreachedOf
	why                                  string // of the first that was told of, in short
}

type unreachedOf struct {
	since time.Duration // when it was first met
	next  time.Duration // when it is to be looked into (again)
	final bool
	told  bool
}

// reach has processes looked into that may train and said no hello, and tells of
// those that cannot. One is asked about again, ever more seldom, for as long as it
// has not loaded PyTorch.
func (w *watcher) reach() {
	if w.loader == nil || w.Attached != nil {
		return
	}
	u, now := &w.unreached, w.now()
	if u.Reader == nil {
		u.Reader = newReachReader(w.Proc)
	}
	if a, ok := u.Take(); ok {
		if e := u.seen[a.key]; e != nil {
			e.final, e.told = len(a.obstacles) == 0 || a.torch, a.torch
		}
		if a.torch {
			w.tellUnreached(a)
		}
	}
	alive := make(map[rankKey]*unreachedOf, len(u.seen))
	for i := range w.last.Procs {
		p := &w.last.Procs[i]
		key := rankKey{p.ID, p.Comm}
		e := u.seen[key]
		if e != nil {
			alive[key] = e // also while it waits for a disk: it was told of
		}
		if p.RSS < torchLeast || p.Role == rss.RoleWorker || p.State == 'Z' || p.State == 'D' {
			continue
		}
		if e == nil {
			e = &unreachedOf{since: now, next: now}
			alive[key] = e
		}
		if e.final || u.Busy() || now < e.next {
			continue
		}
		if e.final = w.excused(p); e.final {
			continue
		}
		u.Ask(reachAsk{key, w.Settings.Dir}, false)
		e.next = now + min((now-e.since)/2+time.Second, seldom)
	}
	u.seen = alive
}

// excused says that a process, or one above it, said hello or was told of, or that
// none was to be expected: what it descends from has no rsswarden before it.
func (w *watcher) excused(p *rss.Proc) bool {
	for range 64 { // a tree is not that deep
		if p == nil || w.workers.hello(p.ID) {
			return true
		}
		if e := w.unreached.seen[rankKey{p.ID, p.Comm}]; e != nil && e.told {
			return true // which forked it
		}
		if p.ID == w.command || slices.ContainsFunc(w.peers.others, func(o leader.Member) bool { return o.Command == p.ID }) {
			return false
		}
		p = w.last.Find(p.Parent)
	}
	return true
}

// tellUnreached tells of one: once for each cause, whatever number of ranks it meets.
func (w *watcher) tellUnreached(a reachAnswer) {
	why, line := unreachedWords(a.key, a.obstacles, w.Settings.Trim)
	if w.unreached.why == "" {
		w.unreached.why = fmt.Sprintf("process %d: %s", a.key.id.PID, why)
	}
	w.tell.Put(event.NameLoader, func(h event.Head) any {
		return event.LoaderSaid{Head: h, What: event.LoaderUnreached, PID: a.key.id.PID, Reason: why}
	})
	if w.tell.Once("unreached", why) {
		w.tell.Warn(line)
	}
}

// unreachedWords are what keeps the hook out, and the line that says so with the cure.
func unreachedWords(key rankKey, list []obstacle, trim TrimMode) (why, line string) {
	var what, cures []string
	for _, o := range list {
		what, cures = append(what, o.what), append(cures, o.cure)
	}
	why = strings.Join(what, "; ")
	follows, more := "Its workers are neither trimmed nor replaced", "; --trim auto trims them without the hook"
	if trim.Ptrace() {
		follows, more = "Its workers are trimmed by ptrace alone, and not replaced", ""
	}
	return why, fmt.Sprintf("the loader hook does not reach process %d (%s), which has loaded PyTorch: %s. %s; to change that %s%s",
		key.id.PID, text.Cut(text.Plain(key.comm), 16), why, follows, strings.Join(cures, ", and "), more)
}

// noHello says why nobody can be asked for anything though loaders are talked to.
func (w *watcher) noHello() string {
	const text = "no PyTorch loader said hello"
	if w.unreached.why == "" {
		return text
	}
	return text + " (" + w.unreached.why + ")"
}
