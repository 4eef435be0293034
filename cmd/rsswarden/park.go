package main

import (
	"encoding/json"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/settings"
)

// asWatcher is a run that has started its command and goes on as its watcher: in the fork of a
// parked holder (see hold.Start).
type asWatcher struct {
	link     *hold.Link
	settings settings.Settings
}

func (*asWatcher) Error() string { return "the command runs" }

// asHolder is a run whose command was started at once, and whose holder has woken up before
// there were settings.
type asHolder struct{ settings settings.Settings }

func (*asHolder) Error() string { return "the command runs" }

// resume is a parked holder that has woken up. It ends as the command ends.
func resume(p process, setup json.RawMessage) int {
	s, err := settings.Decode(setup)
	opt := holdOptions(p, &s)
	if opt.Setup = setup; err == nil {
		opt.Trim = tracer(&s)
	}
	end(hold.Resume(opt), &s)
	return exitCannotRun // not reached
}

// resumeAlone is resume where there are no settings: the command runs on without a watcher, but
// for one that is there.
func resumeAlone(p process, why error) {
	var s settings.Settings
	s.Dir = hold.RunDir()
	opt := holdOptions(p, &s)
	opt.Watcher = nil
	// The runtime ends a process whose write to descriptor 2 itself fails with EPIPE.
	if fd, err := unix.FcntlInt(2, unix.F_DUPFD_CLOEXEC, 10); err == nil && why != nil && !hold.BySite() {
		os.Stderr = os.NewFile(uintptr(fd), "/dev/stderr")
		within(200*time.Millisecond, func() bool { opt.Log("the command runs unwatched: " + why.Error()); return true })
	}
	end(hold.Resume(opt), &s)
}

// served says that a part of this program lies on a file server, which may hang when a parked
// holder wakes up.
func served() bool {
	maps, err := procfile.Read("/proc/self/maps", procfile.Table)
	if err != nil {
		return true
	}
	var files []string
	for line := range strings.Lines(string(maps)) {
		if at := strings.IndexByte(line, '/'); at >= 0 {
			files = append(files, strings.TrimSuffix(line[at:], "\n"))
		}
	}
	return !isLocal(files...)
}
