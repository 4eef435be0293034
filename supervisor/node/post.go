// Package node has the watchers of one job on one node find each other: one of
// them leads, watches all that a limit counts and acts, the others follow.
//
// They meet in a directory on node-local storage that only this user can enter,
// named after job and node. Who holds the lock on the file "lock" in it leads;
// the kernel gives the lock up when its holder ends, however it ends, and the
// next one waiting has it at once. Each watcher writes who it is to a file of its own. What
// only another rank's watcher may do, such as stopping its command or tracing its
// processes, the leader asks for by files too: "order", written in place so that only its
// reader is woken, and "answer". "fired" holds what the next leader must know to do nothing
// twice.
//
// It promises that no watcher waits for another. One that cannot read or write here, or
// that finds a directory it cannot trust, leads for its own command alone.
package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/nodedir"
)

const (
	lockName = "lock"
	// Prefix is what the names of these directories begin with.
	Prefix = "lead."
)

// post is the directory in which watchers meet, and this one's place in it. Its
// methods are for one goroutine, but for [post.Wait].
type post struct {
	dir  directory
	proc string
	mine string // name of our own file

	known map[string]*known // of other members, by the name of their files

	mu     sync.Mutex
	lock   *os.File   // open file that has the lock, nil while we do not lead
	old    []*os.File // those that lost their name meanwhile
	killed bool       // who had it before us ended without a word
	ended  bool
}

// joinAny makes the directory NAME under the first of the parents that is fit, or
// opens the one that is there, and writes who we are. Who lives is read in proc,
// "/proc" outside tests.
func joinAny(proc string, parents []string, name string, me Member) (*post, error) {
	var errs []error
	for _, parent := range parents {
		p, err := joinIn(proc, parent, name, me)
		if err == nil {
			return p, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("cannot join the watchers of %s: %w", name, errors.Join(errs...))
}

// All is the directory of everything that this user's runs have under parent.
func All(parent string) string {
	return filepath.Join(parent, "rsswarden-"+strconv.Itoa(os.Geteuid()))
}

func joinIn(proc, parent, name string, me Member) (*post, error) {
	parent, err := nodedir.Resolve(parent)
	if err != nil {
		return nil, err
	}
	if err := nodedir.CheckLocal(parent); err != nil {
		return nil, err
	}
	for range 100 {
		var p *post
		if p, err = open(proc, All(parent), name); err == nil {
			p.mine = nodedir.FileOf("rank", me.Holder)
			// A member that is seen can get orders, so their file comes first.
			if err = p.openOrders(); err == nil {
				if err = p.Put(me); err == nil {
					return p, nil
				}
				_ = p.dir.remove(p.box("order"))
			}
			p.dir.Close()
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break // else the last one has just left, and removed the directory
		}
	}
	return nil, err
}

func open(proc, all, name string) (*post, error) {
	path := filepath.Join(all, Prefix+name)
	for _, dir := range []string{all, path} {
		if err := nodedir.Make(dir); err != nil {
			return nil, err
		}
	}
	dir, err := openDirectory(path)
	if err != nil {
		return nil, err
	}
	return &post{dir: dir, proc: proc, known: map[string]*known{}}, nil
}

func (p *post) TryLead() (bool, error) {
	err := p.take(unix.LOCK_EX | unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// Wait returns when the lead has fallen to us, or cannot. Only one call at a
// time, from a goroutine of its own: it holds a thread for as long.
func (p *post) Wait() error { return p.take(unix.LOCK_EX) }

// take locks the file that has the lock's name, which may be another than the one
// that was opened: who leaves last removes it.
func (p *post) take(how int) error {
	for range 1000 {
		fd, err := unix.Openat(p.dir.fd(), lockName, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return fmt.Errorf("cannot open %s: %w", p.dir.path(lockName), err)
		}
		f := os.NewFile(uintptr(fd), lockName)
		for {
			err = unix.Flock(fd, how)
			if err != unix.EINTR {
				break
			}
		}
		if err != nil {
			f.Close()
			return fmt.Errorf("cannot lock %s: %w", p.dir.path(lockName), err)
		}
		if !p.isCurrent(fd) {
			f.Close()
			continue
		}
		p.mu.Lock()
		ended := p.ended
		if !ended {
			p.lock, p.killed = f, marked(f)
		}
		p.mu.Unlock()
		if ended {
			p.giveUp(f)
			return fs.ErrClosed
		}
		return nil
	}
	return fmt.Errorf("cannot lock %s: it is replaced all the time", p.dir.path(lockName))
}

// marked says that who led before did not leave in order, and marks the lock for who
// leads next to see the same of us.
func marked(lock *os.File) bool {
	info, err := lock.Stat()
	_, _ = lock.WriteString("x")
	return err == nil && info.Size() > 0
}

// Killed says that who led before us has ended without a word.
func (p *post) Killed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}

func (p *post) isCurrent(fd int) bool {
	var has, is unix.Stat_t
	return unix.Fstat(fd, &has) == nil &&
		unix.Fstatat(p.dir.fd(), lockName, &is, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		has.Ino == is.Ino && has.Dev == is.Dev
}

func (p *post) Leads() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lock != nil
}

// End says how our command ended, and leaves; the leader removes what it said.
func (p *post) End(me Member, how Ended) {
	me.Ended = &how
	if p.Leads() || p.Put(me) != nil {
		p.Leave()
		return
	}
	p.leave(p.box("order"), p.box("answer"))
}

// Leave gives the lead up, if we have it, and our place. Who leaves last removes
// the directory. The directory stays open for who still uses it.
func (p *post) Leave() { p.leave(p.mine, p.box("order"), p.box("answer")) }

func (p *post) leave(files ...string) {
	p.mu.Lock()
	lock, old := p.lock, p.old
	p.lock, p.old, p.ended = nil, nil, true
	p.mu.Unlock()
	for _, name := range files {
		_ = p.dir.remove(name)
	}
	if lock == nil {
		// Where another leads, or waits for it, the rest is for that one to remove.
		_ = p.take(unix.LOCK_EX | unix.LOCK_NB)
		return
	}
	_ = lock.Truncate(0)
	p.giveUp(lock)
	for _, f := range old {
		f.Close()
	}
}

// giveUp lets go of the lock, and of all the rest where no other member is left.
func (p *post) giveUp(lock *os.File) {
	if p.empty() {
		_ = p.dir.remove(lockName)
		if unix.Rmdir(p.dir.Name()) == nil {
			_ = os.Remove(filepath.Dir(p.dir.Name())) // where nothing else is in it
		}
	}
	lock.Close()
}

// empty says that no other member is here, and removes what those that were have left.
func (p *post) empty() bool {
	names, err := p.dir.names()
	if err != nil {
		return false
	}
	for _, name := range names {
		id, ok := nodedir.ProcOf(name, "rank")
		if !ok {
			id, ok = nodedir.ProcOf(name, "order") // of a member that is about to join
		}
		if ok && name != p.mine && p.lives(id) {
			return false
		}
	}
	for _, name := range names {
		if name != lockName {
			_ = p.dir.remove(name)
		}
	}
	return true
}

// sweepAll removes what watchers that were killed have left of directories without a member,
// and in which nothing has changed for so long: who lives in another PID namespace cannot be
// seen from here.
func sweepAll(proc, parent string, age time.Duration) {
	all := All(parent)
	if nodedir.CheckOwn(all) != nil {
		return
	}
	entries, err := os.ReadDir(all)
	if err != nil {
		return
	}
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), Prefix)
		if !ok || !e.IsDir() {
			continue
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) >= age {
			sweep(proc, all, name)
		}
	}
}

func sweep(proc, all, name string) {
	path := filepath.Join(all, Prefix+name)
	if nodedir.CheckOwn(path) != nil {
		return
	}
	dir, err := openDirectory(path)
	if err != nil {
		return
	}
	p := &post{dir: dir, proc: proc, known: map[string]*known{}}
	defer p.dir.Close()
	if led, err := p.TryLead(); err == nil && led {
		p.Leave()
	}
}
