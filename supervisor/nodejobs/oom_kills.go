package nodejobs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/rss/procfile"
)

// stepSeen is what is known of a watched step.
type stepSeen struct {
	path, job, step string // its directory, and the IDs
	jobPath, node   string
	jobIno          uint64
	uid             int
	since           time.Time
	by              Source // of kills that no counter counts
	limit           rss.Bytes
	used            rss.Bytes // the charge as it was last read, 0 for never
}

// oomCounter is what the kernel reported of the OOM killer in one step.
type oomCounter struct {
	stepSeen
	of *watchedDir

	event   int       // an eventfd of v1, -1 for none
	armed   bool      // … or inotify is: the kernel reports a kill
	count   uint64    // of the eventfd
	heardAt time.Time // last
	base    uint64    // kills by the step's counters from before
	kills   uint64    // since, as far as they were read
	before  uint64    // the node's count when all was well last

	gone, waits bool
	again       time.Time
	tries       int
	queued      bool // in news
}

func newOOMCounter(job *watchedDir, d *dir) *oomCounter {
	return &oomCounter{event: -1, stepSeen: stepSeen{
		path: d.path, job: job.id, step: d.id, jobPath: job.path, jobIno: job.ino, node: job.node, uid: job.uid,
		since: time.Now(), limit: cgroup.Unlimited,
	}}
}

func (n *notices) register(s *watchedDir) {
	t := s.ooms
	t.before = n.kills
	if n.first {
		t.base, _ = n.killsOf(t)
	}
	t.of = s
	var err error
	switch {
	case n.version == 2:
		if err = n.armV2(t); !t.armed {
			n.soon(t, retries[0]*time.Millisecond)
		}
	case len(n.events) >= n.most:
		err = fmt.Errorf("cannot watch more than %d steps with so few descriptors", n.most)
	case errors.Is(n.refused, fs.ErrPermission) || errors.Is(n.refused, unix.EROFS):
		// cgroup.event_control is root's: not asked for again and again.
	default:
		t.event, err = n.control(t.path)
		if t.armed = err == nil; t.armed {
			n.events[int32(t.event)] = t
		}
	}
	if !t.armed {
		n.deaf++
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.refused = err
	}
}

// armV2 has inotify watch memory.events. The file comes when the controller is given to
// what is in the directory above, which may be after the step's directory, and no
// notice says when.
func (n *notices) armV2(t *oomCounter) error {
	err := n.watch(t.of, filepath.Join(t.path, "memory.events"), unix.IN_MODIFY)
	t.armed = t.of.watch >= 0
	return err
}

// control connects an eventfd to memory.oom_control of a directory of v1
// (Documentation/admin-guide/cgroup-v1/memory.rst, 10. OOM Control): before each kill for
// the limit of this directory or of one above, and once when the directory is gone.
func (n *notices) control(dir string) (fd int, err error) {
	name := filepath.Join(dir, "cgroup.event_control")
	control, err := unix.Open(name, unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1, fmt.Errorf("cannot watch OOM kills by %s: %w", name, err)
	}
	defer unix.Close(control)
	// Wanted for as long as it takes to ask.
	of, err := unix.Open(filepath.Join(dir, "memory.oom_control"), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1, fmt.Errorf("cannot watch OOM kills by %s: %w", name, err)
	}
	defer unix.Close(of)
	fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil {
		if err = n.addToEpoll(fd); err == nil {
			if _, err = unix.Write(control, fmt.Appendf(nil, "%d %d", fd, of)); err == nil {
				return fd, nil
			}
		}
		unix.Close(fd)
	}
	return -1, fmt.Errorf("cannot watch OOM kills by %s: %w", name, err)
}

// heard takes in what an eventfd of v1 says.
func (n *notices) heard(t *oomCounter) {
	var b [8]byte
	if _, err := unix.Read(t.event, b[:]); err != nil {
		return
	}
	t.count += binary.NativeEndian.Uint64(b[:])
	var st unix.Stat_t
	if unix.Lstat(t.path, &st) != nil {
		// One of the count is that the directory is gone, which is reported afterwards.
		if t.count > 1 {
			t.heardAt = time.Now()
		}
		n.soon(t, 0)
		return
	}
	t.heardAt, t.tries = time.Now(), 0
	n.size(t)
	n.soon(t, 0)
}

// met takes in that memory.events of v2 has changed.
func (n *notices) met(t *oomCounter) {
	t.heardAt, t.tries = time.Now(), 0
	n.soon(t, 0)
}

// over takes in that a step is gone.
func (n *notices) over(t *oomCounter, now time.Time) {
	t.gone, t.tries = true, 0
	if !t.armed {
		n.deaf--
	}
	switch {
	case n.kills == t.before: // no process was killed on the whole node
		n.forget(t)
	case t.armed:
		n.soon(t, 0)
	default:
		if now.Sub(n.rose) < justNow {
			t.by = ByEnd
			n.tell(t)
		}
		n.forget(t)
	}
}

// justNow is for how long a kill and the end of a step, or that its limit was met, may
// have to do with each other.
const justNow = 500 * time.Millisecond

// retries are the pauses after which counters are read again: the kernel reports an OOM
// before it kills.
var retries = []time.Duration{1, 2, 5, 10, 20, 50, 100, 300, 500}

func (n *notices) soon(t *oomCounter, after time.Duration) {
	t.again = time.Now().Add(after)
	if !t.waits {
		t.waits = true
		n.due = append(n.due, t)
	}
}

// read reads the counters of a step that the kernel reported.
func (n *notices) read(t *oomCounter, now time.Time) {
	if n.version == 2 && !t.armed && !t.gone {
		if err := n.armV2(t); err != nil {
			n.refused = err
		}
		switch {
		case t.armed:
			n.deaf--
			t.tries = 0
		case t.tries < len(retries):
			n.soon(t, retries[t.tries]*time.Millisecond)
			t.tries++
			return
		default:
			return
		}
	}
	kills, ok := n.killsOf(t)
	switch {
	case ok && kills > t.base+t.kills:
		t.kills, t.by, t.count = kills-t.base, ByCounter, 0
		n.readKills()
		t.before = n.kills
		n.size(t)
		n.tell(t)
		return
	case t.gone && (n.version == 2 || t.count > 1):
		// It ran out of memory, and nothing can be read any more.
		if now.Sub(t.heardAt) < justNow+time.Second {
			t.by = ByNotice
			n.tell(t)
		}
		n.forget(t)
		return
	}
	// v2 tells after the kill.
	if n.version == 1 && t.tries < len(retries) {
		n.soon(t, retries[t.tries]*time.Millisecond)
		t.tries++
		return
	}
	switch {
	case t.gone:
		n.forget(t)
	case t.count > 0:
		// The counter went with the task that had it, or no process was killed.
		t.by, t.count = ByNotice, 0
		n.tell(t)
	}
}

// tell has the next look take in what is known of a step.
func (n *notices) tell(t *oomCounter) {
	if !t.queued {
		t.queued = true
		n.news = append(n.news, t)
	}
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// forget gives back what a step that is gone has.
func (n *notices) forget(t *oomCounter) {
	if t.event >= 0 {
		delete(n.events, int32(t.event))
		unix.Close(t.event)
		t.event = -1
	}
	if t.waits {
		t.waits = false
		n.due = slices.DeleteFunc(n.due, func(o *oomCounter) bool { return o == t })
	}
}

// size keeps what a step is charged and may be, as the last that will be known of it.
func (n *notices) size(t *oomCounter) {
	level := cgroup.Level{Version: n.version, Dir: t.path}
	defer level.Close()
	if used, err := level.Usage(); err == nil {
		t.used = used
	}
	t.limit = cgroup.Unlimited
	dirs := []string{t.path, t.jobPath}
	if n.version == 2 {
		dirs = append(dirs, filepath.Join(t.path, "user"))
	}
	for _, dir := range dirs {
		l := cgroup.Level{Version: n.version, Dir: dir}
		if limit, err := l.Max(); err == nil {
			t.limit = min(t.limit, limit)
		}
		l.Close()
	}
}

// killsOf reads the counters of a step and, where they count what was there alone, of
// what is below it.
func (n *notices) killsOf(t *oomCounter) (kills uint64, ok bool) {
	file := killsFile(n.version)
	if n.version == 2 && cgroup.CountsBelow(t.path) {
		return killsIn(filepath.Join(t.path, file))
	}
	left := 64
	var walk func(dir string, depth int) uint64
	walk = func(dir string, depth int) uint64 {
		sum, _ := killsIn(filepath.Join(dir, file))
		entries, err := os.ReadDir(dir)
		if depth == 0 {
			ok = err == nil
		}
		for _, e := range entries {
			if e.IsDir() && depth < 4 && left > 0 {
				left--
				sum += walk(filepath.Join(dir, e.Name()), depth+1)
			}
		}
		return sum
	}
	return walk(t.path, 0), ok
}

func killsIn(name string) (uint64, bool) {
	text, err := procfile.Read(name, procfile.Small)
	if err != nil {
		return 0, false
	}
	return oomKill(text)
}

// killsFile has the counter "oom_kill N" of a cgroup.
func killsFile(version int) string {
	if version == 1 {
		return "memory.oom_control"
	}
	return "memory.events"
}

// oomKill finds the line "oom_kill N".
func oomKill(text []byte) (kills uint64, ok bool) {
	for line := range bytes.Lines(text) {
		if value, found := bytes.CutPrefix(line, []byte("oom_kill ")); found {
			kills, err := strconv.ParseUint(string(bytes.TrimSuffix(value, []byte("\n"))), 10, 64)
			return kills, err == nil
		}
	}
	return 0, false
}
