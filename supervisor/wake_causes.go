package supervisor

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wake"
)

// What the bell rings for.
const (
	loaderNews wake.Cause = 1 << iota // something was put into a run directory
	rankNews                          // a rank came or went, or answers
	limitMet                          // a limit of cgroup v2 has slowed a process, was met, or had one killed
	stalled                           // tasks of the node wait for memory
	actionDue                         // the action in flight goes on
)

// newsMask is what happens to files that are renamed into place, or written.
const newsMask = unix.IN_MOVED_TO | unix.IN_CREATE | unix.IN_MODIFY

// rung does what the bell has rung for, and says whether that was anything.
func (w *watcher) rung(why wake.Cause) (done bool) {
	full := false
	if why&rankNews != 0 {
		done, full = true, w.answers() && w.advance() || w.meet()
	}
	if why&actionDue != 0 && w.advance() {
		full = true
	}
	if why&loaderNews != 0 && (w.poll(true) || len(w.said) > 0) {
		full = true
	}
	if full {
		w.full()
		return true
	}
	return why&(limitMet|stalled) != 0 && w.hinted() || done
}

// hinted takes a full look because the kernel says that memory is short, where that is
// worth one.
func (w *watcher) hinted() bool {
	if !w.pace.Hint(w.now()) {
		return false
	}
	w.full()
	return true
}

// hearPressed has the bell ring when the kernel says that a limit was met: it does so in
// memory.events of each level of cgroup v2, every 10 ms at most.
func hearPressed(bell *wake.Bell, l *event.Limit) error {
	if l.Level == "" {
		return nil
	}
	file := filepath.Join(l.Level, "memory.events")
	if _, err := os.Stat(file); err != nil {
		return nil
	}
	return bell.Watch(limitMet, unix.IN_MODIFY, file)
}
