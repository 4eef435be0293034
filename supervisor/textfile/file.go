package textfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"golang.org/x/sys/unix"
)

// File is the file of one run. A goroutine of its own writes it.
type File struct {
	dir, path string
	name      Name
	proc      string
	replace   func(text []byte) error // write, outside tests
	wake      chan struct{}
	done      chan struct{}

	mu      sync.Mutex
	next    []byte // the newest that was not written, nil for none
	closed  bool
	since   time.Time // of the call that is under way, zero for none
	trouble error     // of the last one
	told    bool      // … and somebody knows
}

// slow is how long the file system may take before that is told.
const slow = 20 * time.Second

// Open keeps a file of that name in dir, which need not be there. Nothing is written
// before the first [File.Put].
func Open(dir string, name Name, proc string) *File {
	f := &File{
		dir: dir, path: filepath.Join(dir, name.String()), name: name, proc: proc,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	f.replace = f.write
	go f.run()
	return f
}

// Put has the file hold a text. It waits for nothing; of several that were not written
// yet the last is.
func (f *File) Put(text []byte) {
	f.mu.Lock()
	f.next = text
	f.mu.Unlock()
	f.nudge()
}

// Close removes the file, and closes the channel when that is done.
func (f *File) Close() <-chan struct{} {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.nudge()
	return f.done
}

func (f *File) nudge() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
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
	for range f.wake {
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

func (f *File) write(text []byte) error { return Replace(f.path, text) }

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
		return fmt.Errorf("cannot write to %s: %w", filepath.Dir(path), bare(err))
	}
	return nil
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
		return bare(err)
	case !info.IsDir():
		return unix.ENOTDIR
	}
	// Permission says little: root has it in /proc too.
	tmp, err := os.CreateTemp(dir, prefix+"*"+tmpSuffix)
	if err != nil {
		return bare(err)
	}
	return bare(errors.Join(tmp.Close(), os.Remove(tmp.Name())))
}

// bare is an error without the names of files: they differ from run to run.
func bare(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}
