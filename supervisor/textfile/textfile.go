// Package textfile keeps a file of metrics for the textfile collector of node_exporter
// (https://github.com/prometheus/node_exporter#textfile-collector): one a run, replaced
// as a whole, removed at the end. The directory is the site's, may be shared by users
// and nodes, and may be full, gone or hung: no caller waits for that.
package textfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/wake"
)

// Name is the name of a file: no two runs have the same, and it tells whether its run
// may still write it.
type Name struct {
	Job, Step, Node string // the first two empty outside Slurm
	// PID and Start are the process whose end is that of the run, in the PID namespace
	// Space of the boot Boot.
	PID   int
	Start uint64
	Space string
	Boot  string
}

// Suffix is that of the files which node_exporter reads.
const Suffix = ".prom"

// OfUser is the name of the file that all runs of a user on a node share.
func OfUser(uid int, node string) string {
	return fmt.Sprintf("%sruns_%d_%s%s", prefix, uid, clean(node, "none"), Suffix)
}

const (
	prefix    = "rsswarden_"
	tmpSuffix = ".tmp"
)

func Of(proc string, pid int, job, step, node string) Name {
	n := Name{Job: clean(job, "none"), Step: clean(step, "none"), Node: clean(node, "none"), PID: pid, Space: "none", Boot: "none"}
	n.Start, _ = proctree.StartTime(proc, pid)
	if text, err := os.Readlink(filepath.Join(proc, "self/ns/pid")); err == nil {
		n.Space = clean(strings.TrimRight(strings.TrimPrefix(text, "pid:["), "]"), "none")
	}
	if b, err := procfile.Read(filepath.Join(proc, "sys/kernel/random/boot_id"), procfile.Small); err == nil {
		first, _, _ := strings.Cut(string(b), "-") // 32 bits tell one boot of a node from another
		n.Boot = clean(first, "none")
	}
	return n
}

// clean leaves of a name what every file system takes, and what divides none.
func clean(text, empty string) string {
	const most = 64
	if text == "" {
		return empty
	}
	text = text[:min(len(text), most)]
	return strings.Map(func(r rune) rune {
		if r < 0x80 && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-') {
			return r
		}
		return '-'
	}, text)
}

func (n Name) String() string {
	return fmt.Sprintf("%s%s_%s_%s_%d_%d_%s_%s%s", prefix, n.Job, n.Step, n.Node, n.PID, n.Start, n.Space, n.Boot, Suffix)
}

// ParseName reads what [Name.String] wrote, and what the file is called while it is
// being written.
func ParseName(file string) (n Name, ok bool) {
	rest, ok := strings.CutPrefix(strings.TrimSuffix(file, tmpSuffix), prefix)
	if !ok {
		return n, false
	}
	if rest, ok = strings.CutSuffix(rest, Suffix); !ok {
		return n, false
	}
	parts := strings.Split(rest, "_")
	if len(parts) != 7 {
		return n, false
	}
	for _, p := range parts {
		if p == "" || clean(p, "") != p {
			return n, false
		}
	}
	pid, err := strconv.ParseUint(parts[3], 10, 31)
	start, err2 := strconv.ParseUint(parts[4], 10, 64)
	n = Name{Job: parts[0], Step: parts[1], Node: parts[2], PID: int(pid), Start: start, Space: parts[5], Boot: parts[6]}
	return n, err == nil && err2 == nil && pid > 0
}

// File is the file of one run. A goroutine of its own writes it.
type File struct {
	dir, path string
	name      Name
	proc      string
	replace   func(text []byte) error // Replace, outside tests
	wake      *wake.Bell
	done      chan struct{}

	mu      sync.Mutex
	next    []byte // the newest that was not written, nil for none
	closed  bool
	since   time.Time // of the call that is under way, zero for none
	trouble error     // of the last one
	told    bool      // … and was reported
}

// slow is how long the file system may take before that is reported.
const slow = 20 * time.Second

// Open keeps a file of that name in dir, which need not be there. Nothing is written
// before the first [File.Put].
func Open(dir string, name Name, proc string) *File {
	f := &File{
		dir: dir, path: filepath.Join(dir, name.String()), name: name, proc: proc,
		wake: wake.New(), done: make(chan struct{}),
	}
	f.replace = func(text []byte) error { return Replace(f.path, text) }
	go f.run()
	return f
}

// Put has the file hold a text. It waits for nothing; of several that were not written
// yet the last is.
func (f *File) Put(text []byte) {
	f.mu.Lock()
	f.next = text
	f.mu.Unlock()
	f.wake.Ring(0)
}

// Close removes the file, and closes the channel when that is done.
func (f *File) Close() <-chan struct{} {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.wake.Ring(0)
	return f.done
}

// Trouble returns why the file cannot be written, nil where it can, and whether that is
// news: it is once, until the other is.
func (f *File) Trouble() (why error, news bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	why = f.trouble
	if why == nil && !f.since.IsZero() && time.Since(f.since) >= slow {
		why = fmt.Errorf("cannot write to %s: no answer from its file system within %v", f.dir, slow)
	}
	news = (why != nil) != f.told
	f.told = why != nil
	return why, news
}

// Failed says why no file can be kept there as yet, which is known already.
func (f *File) Failed(why error) {
	f.mu.Lock()
	f.trouble, f.told = why, true
	f.mu.Unlock()
}

func (f *File) run() {
	defer close(f.done)
	var swept time.Time
	for range f.wake.C() {
		fault.Point("textfile")
		f.mu.Lock()
		text, closed := f.next, f.closed
		f.next, f.since = nil, time.Now()
		f.mu.Unlock()
		if closed {
			Remove(f.dir, f.name)
			return
		}
		var err error
		if text != nil {
			if time.Since(swept) >= sweepEvery {
				// First: a file that was left behind may have series of ours.
				swept = time.Now()
				sweep(f.dir, f.name, f.proc, os.Geteuid(), swept)
			}
			err = f.replace(text)
		}
		f.mu.Lock()
		f.since, f.trouble = time.Time{}, err
		f.mu.Unlock()
	}
}

// Replace has a file hold a text. A reader sees the one before or this one, and
// node_exporter passes over what does not end in its suffix. The error names the
// directory alone.
func Replace(path string, text []byte) error {
	err := nodedir.WriteRenamed(unix.AT_FDCWD, path+tmpSuffix, path, 0o644, func(f *os.File) error {
		_, err := f.Write(text)
		// node_exporter is another user, whatever our umask is.
		return errors.Join(err, f.Chmod(0o644))
	})
	if err != nil {
		return fmt.Errorf("cannot write to %s: %w", filepath.Dir(path), nodedir.WithoutPath(err))
	}
	return nil
}

// mostShared is the size of a file that [Update] reads.
const mostShared = 64 << 10

// Update replaces the text of the file at path by what change makes of it. Programs of the
// user that do so at once take turns. A file of another user's is left alone. It may hang.
func Update(path string, change func(old []byte) []byte) error {
	for {
		f, err := lock(path)
		if err != nil {
			return nodedir.WithoutPath(err)
		}
		is, err := f.Stat()
		now, err2 := os.Lstat(path)
		if err == nil && (err2 != nil || !os.SameFile(is, now)) {
			f.Close()
			continue // another has replaced it meanwhile
		}
		var old []byte
		if err == nil {
			old, err = io.ReadAll(io.LimitReader(f, mostShared))
		}
		if err == nil {
			err = Replace(path, change(old))
		}
		f.Close()
		return nodedir.WithoutPath(err)
	}
}

// lock opens a file of ours, made where it is missing, and waits for its lock.
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || !info.Mode().IsRegular() || int(st.Uid) != os.Geteuid() {
			err = unix.EPERM
		}
	}
	for err == nil {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); err == nil {
			return f, nil
		}
		if errors.Is(err, unix.EINTR) {
			err = nil
		}
	}
	f.Close()
	return nil, err
}

// Remove removes the file of a run, and what was left of it half written.
func Remove(dir string, name Name) {
	path := filepath.Join(dir, name.String())
	_ = os.Remove(path + tmpSuffix)
	_ = os.Remove(path)
}

// Check says why no file can be kept in a directory, nil where one can. It may hang.
func Check(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return nodedir.WithoutPath(err)
	case !info.IsDir():
		return unix.ENOTDIR
	}
	// Permission says little: root has it in /proc too.
	tmp, err := os.CreateTemp(dir, prefix+"*"+tmpSuffix)
	if err != nil {
		return nodedir.WithoutPath(err)
	}
	return nodedir.WithoutPath(errors.Join(tmp.Close(), os.Remove(tmp.Name())))
}

// A run that is killed with all of its processes leaves its file behind, and node_exporter
// shows for ever what stood in it. The next run of the same user on the node removes it.

// sweepEvery is how often it is looked for such files.
const sweepEvery = time.Hour

// silent is the age from which on a file is left over where its process cannot be looked
// for: it was in another PID namespace or boot. It is more than the longest --interval.
const silent = 2 * time.Hour

// mostNames is how many names of a directory are looked at, in pieces of pieceNames: every
// user may be able to make files in it.
const (
	mostNames  = 1 << 20
	pieceNames = 1024
)

// sweep removes from dir the files of dead runs of the user and node. Whose process
// lives, or may live, is left alone, and so is what others own.
func sweep(dir string, me Name, proc string, uid int, now time.Time) {
	d, err := os.Open(dir)
	if err != nil {
		return // as the write will tell
	}
	defer d.Close()
	for seen := 0; seen < mostNames; {
		names, err := d.Readdirnames(pieceNames)
		for _, file := range names {
			sweepFile(dir, file, me, proc, uid, now)
		}
		if err != nil || len(names) == 0 {
			return
		}
		seen += len(names)
	}
}

func sweepFile(dir, file string, me Name, proc string, uid int, now time.Time) {
	n, ok := ParseName(file)
	if !ok || n.Node != me.Node || n == me {
		return
	}
	path := filepath.Join(dir, file)
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != uid {
		return
	}
	if n.dead(me, proc, now.Sub(info.ModTime())) {
		_ = os.Remove(path)
	}
}

// dead says that the run of a file which was written so long ago has ended.
func (n Name) dead(me Name, proc string, age time.Duration) bool {
	if n.Boot != me.Boot || n.Space != me.Space {
		return age >= silent
	}
	start, err := proctree.StartTime(proc, n.PID)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
	}
	return n.Start != 0 && start != n.Start
}
