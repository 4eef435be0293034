package supervisor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/fault"
)

// This file holds what wakes the loop between two ticks.

// notifier tells when files have changed, so that it is met at once and not at
// the next tick.
type notifier struct {
	fd   int      // inotify's
	file *os.File // … by which it is waited for without a thread: the user's tasks may be few
	wake chan struct{}

	mu      sync.Mutex
	watched map[int32]bool // nil once all that was watched is gone, and with it fd
}

// errNoneLeft says that all that a notifier told of has been removed.
var errNoneLeft = errors.New("all that was watched is gone")

// newsMask is what happens to files that are renamed into place, or written.
const newsMask = unix.IN_MOVED_TO | unix.IN_CREATE | unix.IN_MODIFY

// newNews is told when something was put into the run directory.
func newNews(dir string) (*notifier, error) {
	return newNotifier(newsMask, dir)
}

// newPressed is told when a limit of cgroup v2 has slowed somebody down, was
// met, or had somebody killed: the kernel says so in memory.events of each
// level, every 10 ms at most. It returns nil where no limit has that file.
func newPressed(limits []event.Limit) (*notifier, error) {
	var files []string
	for i := range limits {
		if file := pressedFile(&limits[i]); file != "" && !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	if len(files) == 0 {
		return nil, nil
	}
	return newNotifier(unix.IN_MODIFY, files...)
}

// pressedFile is memory.events of the level of a limit, empty where it has none.
func pressedFile(l *event.Limit) string {
	if l.Level == "" {
		return ""
	}
	file := filepath.Join(l.Level, "memory.events")
	if _, err := os.Stat(file); err != nil {
		return ""
	}
	return file
}

// hearPressed has the kernel tell of a limit too that was set while the job ran.
func (w *watcher) hearPressed(l *event.Limit) {
	file := pressedFile(l)
	if file == "" {
		return
	}
	err := errNoneLeft
	if w.pressed != nil {
		err = w.pressed.add(unix.IN_MODIFY, file)
	}
	if errors.Is(err, errNoneLeft) {
		w.pressed, err = newPressed([]event.Limit{*l})
	}
	if err != nil {
		w.fault("inotify", err)
	}
}

func newNotifier(mask uint32, paths ...string) (*notifier, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("cannot be told of changes, looks are taken instead: %w", err)
	}
	n := &notifier{fd: fd, file: os.NewFile(uintptr(fd), "inotify"), wake: make(chan struct{}, 1), watched: map[int32]bool{}}
	for _, path := range paths {
		if err := n.add(mask, path); err != nil {
			n.file.Close()
			return nil, err
		}
	}
	go n.listen()
	return n, nil
}

// listen wakes the loop for as long as there is anything to tell of.
func (n *notifier) listen() {
	buf := make([]byte, 16<<10)
	for {
		got, err := n.file.Read(buf)
		fault.Point("notifier")
		n.tell()
		if n.forget(buf[:max(got, 0)]) || err != nil {
			return
		}
	}
}

// forget drops what the kernel no longer watches, and closes where nothing is left:
// a user has 128 instances as a rule (fs.inotify.max_user_instances).
func (n *notifier) forget(events []byte) (over bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(events) >= unix.SizeofInotifyEvent {
		watch, mask := int32(binary.NativeEndian.Uint32(events)), binary.NativeEndian.Uint32(events[4:])
		if mask&unix.IN_IGNORED != 0 {
			delete(n.watched, watch)
		}
		events = events[min(unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(events[12:])), len(events)):]
	}
	if len(n.watched) > 0 {
		return false
	}
	n.watched = nil
	n.file.Close()
	return true
}

// add has the notifier tell of another file too, until the file is removed. A nil
// notifier tells of none.
func (n *notifier) add(mask uint32, path string) error {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	err := errNoneLeft
	if n.watched != nil {
		var watch int
		if watch, err = unix.InotifyAddWatch(n.fd, path, mask); err == nil {
			n.watched[int32(watch)] = true
		}
	}
	if err != nil {
		return fmt.Errorf("cannot be told of changes in %s, looks are taken instead: %w", path, err)
	}
	return nil
}

// tell wakes the loop. What it was told and has not looked at yet counts once.
func (n *notifier) tell() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// woken is the channel to wait on; nil, which never yields, without a notifier.
func (n *notifier) woken() <-chan struct{} {
	if n == nil {
		return nil
	}
	return n.wake
}
