package nodejobs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// spot is a directory that the kernel tells of: all above steps, and steps.
type spot struct {
	*dir
	node  string
	uid   int
	kids  map[string]*spot
	watch int32 // of inotify, -1 for none
	toll  *toll // of a step
}

// mostSpots bounds what is told of: users of old Slurm may make directories as they like,
// though not where a step's would be.
const mostSpots = 1 << 16

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
			name := cString(b[unix.SizeofInotifyEvent:end])
			b = b[end:]
			s := n.watches[watch]
			switch {
			case mask&unix.IN_Q_OVERFLOW != 0:
				n.again(n.root)
				calm = false
			case s == nil:
			case mask&unix.IN_IGNORED != 0:
				delete(n.watches, watch)
				if s.watch == watch {
					s.watch = -1
				}
			case mask&unix.IN_MODIFY != 0:
				n.met(s.toll)
			case mask&unix.IN_ISDIR == 0:
			case mask&unix.IN_CREATE != 0:
				n.came(s, name)
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

// cString is a name as inotify writes it, filled up with zeros.
func cString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// follow has the kernel tell of a directory, and takes in what is in it already.
func (n *notices) follow(s *spot) {
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
	}
	entries, _ := os.ReadDir(s.path)
	for _, e := range entries {
		if e.IsDir() {
			n.came(s, e.Name())
		}
	}
}

// watch asks for what happens to a file or directory of s.
func (n *notices) watch(s *spot, path string, mask uint32) error {
	watch, err := unix.InotifyAddWatch(n.inotify, path, mask)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it went, or the kernel has no such file
	}
	if err != nil {
		return fmt.Errorf("cannot be told of changes in %s: %w", path, err)
	}
	s.watch = int32(watch)
	n.watches[s.watch] = s
	return nil
}

// came takes in a directory that is new.
func (n *notices) came(s *spot, name string) {
	if s.kids[name] != nil {
		return
	}
	if len(n.watches)+len(n.events) > mostSpots {
		n.deaf++
		return
	}
	d := s.child(name)
	if d == nil || d.kind > kindStep {
		return
	}
	c := &spot{dir: d, node: s.node, uid: s.uid, watch: -1}
	switch {
	case d.kind == kindTop && d.id != "":
		c.node = d.id
	case d.kind == kindUser:
		c.uid, _ = strconv.Atoi(d.id)
	case d.kind == kindStep:
		c.toll = newToll(s, d)
	}
	if s.kids == nil {
		s.kids = map[string]*spot{}
	}
	s.kids[name] = c
	n.follow(c)
}

// went forgets a directory, and all that was below it.
func (n *notices) went(parent, s *spot) {
	delete(parent.kids, s.name)
	for _, c := range s.kids {
		n.went(s, c)
	}
	if s.watch >= 0 {
		// The kernel has forgotten it too, or does now.
		_, _ = unix.InotifyRmWatch(n.inotify, uint32(s.watch))
		delete(n.watches, s.watch)
	}
	if s.toll != nil {
		n.over(s.toll, time.Now())
	}
}

// again compares a directory and all below with what is there: the kernel had too much to
// tell, and told no more.
func (n *notices) again(s *spot) {
	for _, c := range s.kids {
		var st unix.Stat_t
		if unix.Lstat(c.path, &st) != nil || c.ino != 0 && c.ino != st.Ino {
			n.went(s, c)
			continue
		}
		n.again(c)
	}
	if s.kind == kindStep {
		n.met(s.toll)
		return
	}
	entries, _ := os.ReadDir(s.path)
	for _, e := range entries {
		if e.IsDir() {
			n.came(s, e.Name())
		}
	}
}
