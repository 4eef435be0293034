package nodejobs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// notices has the kernel tell which jobs and steps come and go, and in which of them the
// OOM killer is at work, as it happens: a step that ends at once takes its counters
// with it, and then no look finds them. inotify reports directories, and on v2
// memory.events; on v1 an eventfd in cgroup.event_control reports each step, for root
// only. A step without a notification is counted, and read at each look as without.
//
// A goroutine of its own reads: a look at a thousand jobs takes longer than some of them
// have left.
type notices struct {
	version int
	proc    string
	inotify int
	epoll   int
	stop    int // an eventfd
	wake    chan struct{}
	done    chan struct{}

	mu      sync.Mutex
	root    *watchedDir
	watches map[int32]*watchedDir
	events  map[int32]*oomCounter // by eventfd
	most    int                   // eventfds
	first   bool                  // what is found now was there before we came
	due     []*oomCounter         // to be read again
	news    []*oomCounter
	refused error // why something is not told
	deaf    int   // steps that the kernel reports nothing of, and directories that it never will

	moves

	// kills is the node's count at the last reading of any reader, rose is when it was
	// found to have risen.
	kills uint64
	rose  time.Time
}

// ofDirs are the inotify events of a directory.
const ofDirs = unix.IN_CREATE | unix.IN_DELETE | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW

// share is the part of all descriptors that eventfds may take.
const share = 8

// listen starts to follow a hierarchy.
func listen(t *tree, proc, node string, most int, kills uint64) (*notices, error) {
	n := &notices{
		version: t.version, proc: proc, most: most, kills: kills, inotify: -1, epoll: -1, stop: -1,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
		watches: map[int32]*watchedDir{}, events: map[int32]*oomCounter{}, moves: moves{moved: map[string]bool{}, all: true},
	}
	var errs [3]error
	n.inotify, errs[0] = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	n.epoll, errs[1] = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	n.stop, errs[2] = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	err := errors.Join(errs[:]...)
	if err == nil {
		err = errors.Join(n.addToEpoll(n.inotify), n.addToEpoll(n.stop))
	}
	if err != nil {
		n.free()
		return nil, fmt.Errorf("cannot watch OOM kills: %w", err)
	}
	n.root = &watchedDir{dir: &dir{path: t.root.path, name: t.root.name, kind: t.root.kind}, node: node, uid: -1, watch: -1}
	n.first = true
	n.follow(n.root)
	n.first = false
	go n.listen()
	return n, nil
}

func (n *notices) addToEpoll(fd int) error {
	return unix.EpollCtl(n.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

// listen takes in what the kernel tells until close.
func (n *notices) listen() {
	defer close(n.done)
	events := make([]unix.EpollEvent, 64)
	buf := make([]byte, 16<<10)
	for pause := time.Duration(0); ; time.Sleep(pause) {
		got, err := unix.EpollWait(n.epoll, events, n.timeout())
		if err != nil && err != unix.EINTR {
			n.refuse(fmt.Errorf("cannot watch OOM kills any more: %w", err))
			return
		}
		n.mu.Lock()
		over, calm := n.take(events[:max(got, 0)], buf)
		n.mu.Unlock()
		if over {
			return
		}
		// Where page cache fills a job up to its limit the kernel reports it a hundred
		// times a second: the queue may fill up a little.
		switch {
		case !calm:
			pause = 0
		case pause == 0:
			pause = shortest
		default:
			pause = min(2*pause, longest)
		}
	}
}

// Pauses between two readings of what proved to be no kill.
const (
	shortest = 5 * time.Millisecond
	longest  = 200 * time.Millisecond
)

// timeout is for how many milliseconds there is nothing to be done.
func (n *notices) timeout() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.due) == 0 {
		return -1
	}
	first := n.due[0].again
	for _, t := range n.due[1:] {
		if t.again.Before(first) {
			first = t.again
		}
	}
	return max(0, int(time.Until(first)/time.Millisecond)+1)
}

// take takes in what came. calm says that it was of no consequence: a limit of v2 was met
// and no process was killed.
func (n *notices) take(events []unix.EpollEvent, buf []byte) (over, calm bool) {
	// A kill comes before the end of its step.
	for _, e := range events {
		if t := n.events[e.Fd]; t != nil {
			n.heard(t)
		}
	}
	tolled := len(n.news)
	calm = true
	for _, e := range events {
		switch int(e.Fd) {
		case n.stop:
			return true, false
		case n.inotify:
			if !n.drain(buf) {
				calm = false
			}
		default:
			calm = false
		}
	}
	now := time.Now()
	due := n.due
	n.due = nil
	for _, t := range due {
		if t.again.After(now) {
			n.due = append(n.due, t)
			continue
		}
		t.waits = false
		n.read(t, now)
	}
	return false, calm && len(n.news) == tolled && len(events) > 0
}

// changes returns what moved since the last call.
func (n *notices) changes() moves {
	if n == nil {
		return moves{all: true}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.moves
	// What waits to be read is not in it yet.
	waits, err := unix.IoctlGetInt(n.inotify, unix.TIOCINQ)
	m.all = m.all || m.unwatched || err != nil || waits > 0
	n.moves = moves{moved: map[string]bool{}, unwatched: m.unwatched}
	return m
}

func (n *notices) readKills() {
	if kills, ok := killsIn(filepath.Join(n.proc, "vmstat")); ok {
		n.counted(kills)
	}
}

func (n *notices) counted(kills uint64) {
	if kills > n.kills {
		n.kills, n.rose = kills, time.Now()
	}
}

// refuse keeps why something is not told.
func (n *notices) refuse(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refused = err
	n.deaf++
	n.unwatched = true
}

func (n *notices) close() {
	if n == nil {
		return
	}
	_, _ = unix.Write(n.stop, []byte{1, 0, 0, 0, 0, 0, 0, 1})
	<-n.done
	for fd := range n.events {
		unix.Close(int(fd))
	}
	n.free()
}

func (n *notices) free() {
	for _, fd := range []int{n.inotify, n.epoll, n.stop} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// watchedDir is a directory that inotify watches: all above steps, and steps.
type watchedDir struct {
	*dir
	node  string
	uid   int
	kids  map[string]*watchedDir
	watch int32       // of inotify, -1 for none
	ooms  *oomCounter // of a step
}

// maxWatched bounds what is watched: users of old Slurm may make directories as they like,
// though not where a step's would be.
const maxWatched = 1 << 16

// drain takes in what inotify tells. calm is false where a directory came or went.
func (n *notices) drain(buf []byte) (calm bool) {
	calm = true
	risen := false // the node's count was looked at since a step went
	for {
		got, err := unix.Read(n.inotify, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || got <= 0 {
			return calm
		}
		for b := buf[:got]; len(b) >= unix.SizeofInotifyEvent; {
			watch, mask := int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:])
			end := min(unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(b[12:])), len(b))
			name := unix.ByteSliceToString(b[unix.SizeofInotifyEvent:end]) // it is filled up with zeros
			b = b[end:]
			s := n.watches[watch]
			switch {
			case mask&unix.IN_Q_OVERFLOW != 0:
				n.again(n.root)
				n.all = true
				calm = false
			case s == nil:
			case mask&unix.IN_IGNORED != 0:
				delete(n.watches, watch)
				if s.watch == watch {
					s.watch = -1
				}
			case mask&unix.IN_MODIFY != 0:
				n.met(s.ooms)
			case mask&unix.IN_ISDIR == 0:
			case mask&unix.IN_CREATE != 0:
				n.addDir(s, name)
				calm = false
			case mask&unix.IN_DELETE != 0:
				if c := s.kids[name]; c != nil {
					if !risen {
						n.readKills()
						risen = true
					}
					n.went(s, c)
				}
				calm = false
			}
		}
	}
}

// follow watches a directory, and takes in what is in it already.
func (n *notices) follow(s *watchedDir) {
	if s.kind == kindStep {
		n.register(s)
		return
	}
	var st unix.Stat_t
	if unix.Lstat(s.path, &st) != nil {
		return // it went
	}
	s.ino = st.Ino
	// Watched first, then listed: what comes in between is seen twice, and taken once.
	if err := n.watch(s, s.path, ofDirs); err != nil {
		n.refused = err
		n.deaf++
		n.unwatched = true
	}
	n.comeIn(s)
}

func (n *notices) comeIn(s *watchedDir) {
	entries, _ := os.ReadDir(s.path)
	for _, e := range entries {
		if e.IsDir() {
			n.addDir(s, e.Name())
		}
	}
}

func (n *notices) watch(s *watchedDir, path string, mask uint32) error {
	watch, err := unix.InotifyAddWatch(n.inotify, path, mask)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it went, or the kernel has no such file
	}
	if err != nil {
		return fmt.Errorf("cannot watch %s: %w", path, err)
	}
	s.watch = int32(watch)
	n.watches[s.watch] = s
	return nil
}

func (n *notices) addDir(s *watchedDir, name string) {
	if s.kids[name] != nil {
		return
	}
	n.moved[s.path] = true
	if len(n.watches)+len(n.events) > maxWatched {
		n.deaf++
		n.unwatched = true
		return
	}
	d := s.child(name)
	if d == nil || d.kind > kindStep {
		return
	}
	c := &watchedDir{dir: d, node: s.node, uid: s.uid, watch: -1}
	switch {
	case d.kind == kindTop && d.id != "":
		c.node = d.id
	case d.kind == kindUser:
		c.uid, _ = strconv.Atoi(d.id)
	case d.kind == kindStep:
		c.ooms = newOOMCounter(s, d)
	}
	if s.kids == nil {
		s.kids = map[string]*watchedDir{}
	}
	s.kids[name] = c
	n.moved[c.path] = true
	n.follow(c)
}

// went forgets a directory, and all that was below it.
func (n *notices) went(parent, s *watchedDir) {
	delete(parent.kids, s.name)
	n.moved[parent.path], n.moved[s.path] = true, true
	for _, c := range s.kids {
		n.went(s, c)
	}
	if s.watch >= 0 {
		// The kernel has forgotten it too, or does now.
		_, _ = unix.InotifyRmWatch(n.inotify, uint32(s.watch))
		delete(n.watches, s.watch)
	}
	if s.ooms != nil {
		n.over(s.ooms, time.Now())
	}
}

// again compares a directory and all below with what is there: the kernel had too much to
// tell, and told no more.
func (n *notices) again(s *watchedDir) {
	for _, c := range s.kids {
		var st unix.Stat_t
		if unix.Lstat(c.path, &st) != nil || c.ino != 0 && c.ino != st.Ino {
			n.went(s, c)
			continue
		}
		n.again(c)
	}
	if s.kind == kindStep {
		n.met(s.ooms)
		return
	}
	n.comeIn(s)
}
