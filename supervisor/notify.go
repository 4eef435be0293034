package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// This file holds what wakes the loop between two ticks.

// notifier tells when files have changed, so that it is met at once and not at
// the next tick.
type notifier struct {
	fd   int
	wake chan struct{}
}

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
		if limits[i].Level == "" {
			continue
		}
		file := filepath.Join(limits[i].Level, "memory.events")
		if _, err := os.Stat(file); err == nil && !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	if len(files) == 0 {
		return nil, nil
	}
	return newNotifier(unix.IN_MODIFY, files...)
}

func newNotifier(mask uint32, paths ...string) (*notifier, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("cannot be told of changes, looks are taken instead: %w", err)
	}
	for _, path := range paths {
		if _, err := unix.InotifyAddWatch(fd, path, mask); err != nil {
			unix.Close(fd)
			return nil, fmt.Errorf("cannot be told of changes in %s, looks are taken instead: %w", path, err)
		}
	}
	n := &notifier{fd: fd, wake: make(chan struct{}, 1)}
	go func() {
		defer unix.Close(fd)
		buf := make([]byte, 16<<10)
		for {
			if _, err := unix.Read(fd, buf); err != nil && err != unix.EINTR {
				return
			}
			n.tell()
		}
	}()
	return n, nil
}

// add has the notifier tell of another file too, until the file is removed. A nil
// notifier tells of none.
func (n *notifier) add(mask uint32, path string) error {
	if n == nil {
		return nil
	}
	if _, err := unix.InotifyAddWatch(n.fd, path, mask); err != nil {
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
