package wake

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/fault"
)

// Watch has the bell ring when something of mask (inotify(7)) happens to a file or a
// directory, until that is removed. All paths share one instance of inotify, which is there
// while any is watched: a user has 128 as a rule (fs.inotify.max_user_instances).
func (b *Bell) Watch(why Cause, mask uint32, path string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var err error
	first := len(b.watched) == 0
	if first {
		if b.fd, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err != nil {
			return fmt.Errorf("cannot watch changes, samples are taken instead: %w", err)
		}
		b.file = os.NewFile(uintptr(b.fd), "inotify")
	}
	watch, err := unix.InotifyAddWatch(b.fd, path, mask|unix.IN_MASK_ADD)
	if err != nil {
		if first {
			b.file.Close()
		}
		return fmt.Errorf("cannot watch %s, samples are taken instead: %w", path, err)
	}
	b.watched[int32(watch)] |= why
	if first {
		go b.listen(b.file)
	}
	return nil
}

// listen rings the bell for as long as there is anything to ring for.
func (b *Bell) listen(file *os.File) {
	buf := make([]byte, 16<<10)
	for {
		n, err := file.Read(buf)
		fault.Point("notifier")
		why, over := b.heard(buf[:max(n, 0)], err)
		b.Ring(why)
		if over {
			return
		}
	}
}

// heard returns what events are about. It drops what the kernel no longer watches, and
// closes where nothing is left. After an error, and after an overflow, anything may have
// happened.
func (b *Bell) heard(events []byte, err error) (why Cause, over bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := err != nil
	for len(events) >= unix.SizeofInotifyEvent {
		watch, mask := int32(binary.NativeEndian.Uint32(events)), binary.NativeEndian.Uint32(events[4:])
		why |= b.watched[watch]
		all = all || mask&unix.IN_Q_OVERFLOW != 0
		if mask&unix.IN_IGNORED != 0 {
			delete(b.watched, watch)
		}
		events = events[min(unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(events[12:])), len(events)):]
	}
	if all {
		for _, c := range b.watched {
			why |= c
		}
	}
	if err != nil {
		clear(b.watched)
	}
	if len(b.watched) > 0 {
		return why, false
	}
	b.file.Close()
	return why, true
}
