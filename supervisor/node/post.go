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
// One that follows and has nothing to do rests, see [Place.Rest]: who leads is written into
// the lock, so that it can wait for that one's end.
//
// It promises that no watcher waits for another. One that cannot read or write here, or
// that finds a directory it cannot trust, leads for its own command alone.
package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
)

const (
	lockName = "lock"
	// Prefix is what the names of these directories begin with.
	Prefix = "lead."
)

// Member is one rsswarden run of the job on this node: a rank.
type Member struct {
	V       int        `json:"v"`
	Holder  rss.ProcID `json:"holder"`
	Watcher rss.ProcID `json:"watcher"`
	Command rss.ProcID `json:"command"`
	Step    string     `json:"step,omitempty"` // "0", "batch"; empty outside Slurm
	Task    int        `json:"task"`           // SLURM_PROCID, -1 outside Slurm
	// Dir is its run directory for loaders, empty where there is none.
	Dir   string    `json:"dir,omitempty"`
	Words []string  `json:"words"` // of the command line, the first few
	Since time.Time `json:"since"`
	// Ended is how its command ended, nil as long as it has not.
	Ended *Ended `json:"ended,omitempty"`
	again bool   // it was at rest, and orders may have come meanwhile
}

// Ended is how a command ended: one of the two.
type Ended struct {
	Code   int `json:"code"`
	Signal int `json:"signal,omitempty"`
}

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

type known struct {
	Member
	inode uint64
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
			if !me.again || !p.dir.has(p.box("order")) {
				err = p.openOrders()
			}
			if err == nil {
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
		f, fd, err := p.openLock()
		if err != nil {
			return err
		}
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
			p.lock, p.killed = f, p.marked(f)
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

// openLock opens the file that has the lock's name now.
func (p *post) openLock() (f *os.File, fd int, err error) {
	fd, err = unix.Openat(p.dir.fd(), lockName, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, -1, fmt.Errorf("cannot open %s: %w", p.dir.path(lockName), err)
	}
	return os.NewFile(uintptr(fd), lockName), fd, nil
}

// marked says that who led before did not leave in order, and marks the lock for who
// leads next to see the same of us.
func (p *post) marked(lock *os.File) bool {
	info, err := lock.Stat()
	me := rss.ProcID{PID: os.Getpid()}
	me.Start, _ = proctree.StartTime(p.proc, me.PID)
	signLock(lock, me)
	return err == nil && info.Size() > 0
}

// signLock writes into the lock who has it; from then on it is not empty until that one has
// left in order.
func signLock(lock *os.File, me rss.ProcID) {
	fd := int(lock.Fd())
	_ = unix.Ftruncate(fd, 0)
	_, _ = unix.Pwrite(fd, fmt.Appendf(nil, "%d %d\n", me.PID, me.Start), 0)
}

// readLeader reads that, zero where it is not there.
func readLeader(lock int) (who rss.ProcID) {
	buf := make([]byte, 64)
	n, err := unix.Pread(lock, buf, 0)
	if err != nil && err != io.EOF {
		return who
	}
	if _, err := fmt.Sscanf(string(buf[:max(n, 0)]), "%d %d\n", &who.PID, &who.Start); err != nil {
		return rss.ProcID{}
	}
	return who
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

// directory is the one in which watchers meet; its name is its path.
type directory struct{ *os.File }

func openDirectory(path string) (directory, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return directory{}, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return directory{os.NewFile(uintptr(fd), path)}, nil
}

func (d directory) fd() int { return int(d.Fd()) }

func (d directory) path(name string) string { return filepath.Join(d.Name(), name) }

// mostBytes bounds what is read of a file here.
const mostBytes = 64 << 10

var errMalformed = syscall.EBADMSG

// write renames a file with v into place.
func (d directory) write(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", d.path(name), err)
	}
	err = nodedir.WriteRenamed(d.fd(), name+".tmp", name, 0o600, func(f *os.File) error {
		_, err := f.Write(data)
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", d.path(name), err)
	}
	return nil
}

func (d directory) read(name string, v any) error {
	f, err := nodedir.OpenRegular(d.File, name)
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", d.path(name), nodedir.WithoutPath(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, mostBytes+1))
	if err == nil && len(data) > mostBytes {
		err = errMalformed
	}
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", d.path(name), err)
	}
	return nil
}

func (d directory) remove(name string) error { return unix.Unlinkat(d.fd(), name, 0) }

// most is how many files a directory is read for.
const most = 16 << 10

func (d directory) names() ([]string, error) {
	f, err := os.Open(nodedir.FDPath(d.File))
	if err != nil {
		return nil, fmt.Errorf("cannot list %s: %w", d.Name(), err)
	}
	defer f.Close()
	names, err := f.Readdirnames(most)
	if err != nil && len(names) == 0 && !strings.Contains(err.Error(), "EOF") {
		return nil, fmt.Errorf("cannot list %s: %w", d.Name(), err)
	}
	return names, nil
}

func (d directory) has(name string) bool {
	var st unix.Stat_t
	return !errors.Is(unix.Fstatat(d.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW), unix.ENOENT)
}

func (p *post) Put(me Member) error {
	me.V = 1
	return p.dir.write(p.mine, me)
}

// Members returns the other members that live, by rank and PID, and those that have left
// since the last call, as they were last known. The leader removes the file of one that has
// ended, and reads it before, for it says how its command ended. One that lives is here also
// where its file was removed: see [post.Renew].
func (p *post) Members() (others, left []Member, err error) {
	names, err := p.dir.names()
	if err != nil {
		return nil, nil, err
	}
	here := map[string]bool{}
	for _, name := range names {
		id, ok := nodedir.ProcOf(name, "rank")
		if !ok || name == p.mine {
			continue
		}
		if !p.lives(id) {
			_, _ = p.member(name, id)
			if p.Leads() {
				_ = p.dir.remove(name)
			}
			continue
		}
		m, err := p.member(name, id)
		if err != nil {
			continue // it has just left, or is no file of ours
		}
		here[name] = true
		others = append(others, m.Member)
	}
	for name, m := range p.known {
		if here[name] {
			continue
		}
		if m.Ended == nil && p.lives(m.Holder) {
			others = append(others, m.Member)
		} else {
			left = append(left, m.Member)
			delete(p.known, name)
		}
	}
	order := func(a, b Member) int {
		if a.Task != b.Task {
			return a.Task - b.Task
		}
		return a.Holder.PID - b.Holder.PID
	}
	slices.SortFunc(others, order)
	slices.SortFunc(left, order)
	return others, left, nil
}

// member reads a file that was renamed into place: another content is another
// inode.
func (p *post) member(name string, id rss.ProcID) (*known, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(p.dir.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, err
	}
	if m := p.known[name]; m != nil && m.inode == st.Ino {
		return m, nil
	}
	m := &known{inode: st.Ino}
	if err := p.dir.read(name, &m.Member); err != nil {
		return nil, err
	}
	if m.Holder != id || m.Command.PID <= 0 || m.Watcher.PID <= 0 {
		return nil, errMalformed
	}
	p.known[name] = m
	return m, nil
}

func (p *post) lives(id rss.ProcID) bool {
	start, err := proctree.StartTime(p.proc, id.PID)
	if err != nil {
		return !proctree.Vanished(err)
	}
	return start == id.Start
}

// Renew keeps our place for as long as the job takes. What cleans /tmp removes what
// was not touched for days, so all of ours is touched; and what was removed or
// broken nevertheless is put back. It says whether our file for orders is another
// one now.
func (p *post) Renew(me Member) (reopened bool, err error) {
	var is Member
	if p.dir.read(p.mine, &is) != nil || is.Holder != me.Holder || is.Watcher != me.Watcher || is.Command != me.Command {
		err = p.Put(me)
	}
	if !p.dir.has(p.box("order")) {
		e := p.openOrders()
		reopened, err = e == nil, errors.Join(err, e)
	}
	if p.Leads() {
		err = errors.Join(err, p.keepLock())
	}
	for _, name := range []string{p.mine, p.box("order"), lockName} {
		_ = unix.UtimesNanoAt(p.dir.fd(), name, nil, unix.AT_SYMLINK_NOFOLLOW)
	}
	_ = unix.UtimesNanoAt(unix.AT_FDCWD, p.dir.Name(), nil, unix.AT_SYMLINK_NOFOLLOW)
	return reopened, err
}

// keepLock locks a new file where the one that we have locked has lost its name:
// a new member would lead beside us. The old one stays locked for those who wait.
func (p *post) keepLock() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lock == nil || p.isCurrent(int(p.lock.Fd())) {
		return nil
	}
	f, fd, err := p.openLock()
	if err != nil {
		return err
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return fmt.Errorf("cannot lock %s again, which was removed: %w", p.dir.path(lockName), err)
	}
	p.marked(f)
	p.old = append(p.old, p.lock)
	p.lock = f
	return nil
}
