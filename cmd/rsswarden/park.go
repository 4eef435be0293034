package main

import (
	"strings"

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

// resume is a parked holder that has woken up. It ends as the command ends.
func resume(p process) int {
	s, err := settings.Decode(hold.Setup())
	opt := holdOptions(p, &s)
	if opt.Setup = hold.Setup(); err == nil {
		opt.Trim = tracer(&s)
	}
	end(hold.Resume(opt), &s)
	return exitCannotRun // not reached
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
