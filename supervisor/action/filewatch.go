package action

import (
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// fileStill is how long a checkpoint must stand as it is to count as written.
	fileStill = time.Second
	fileLook  = 100 * time.Millisecond
)

// FileWatch looks, on a goroutine of its own, whether a file is written anew and
// then left alone. The file system may hang; whoever asks does not. Clocks are
// not compared: a file server has another one.
type FileWatch struct {
	stat        func(string) (os.FileInfo, error)
	still, look time.Duration
	ready       atomic.Bool
	written     atomic.Bool
	stopped     chan struct{}
	over        atomic.Bool
}

// WatchFile begins to look at path, which need not exist. Stop it.
func WatchFile(path string) *FileWatch {
	f := newFileWatch(os.Stat)
	go f.run(path)
	return f
}

func newFileWatch(stat func(string) (os.FileInfo, error)) *FileWatch {
	return &FileWatch{stat: stat, still: fileStill, look: fileLook, stopped: make(chan struct{})}
}

// Ready says that it is known how the file stood at first.
func (f *FileWatch) Ready() bool { return f.ready.Load() }

// Written says that the file is another one since then, or has other contents,
// and did not change for a second.
func (f *FileWatch) Written() bool { return f.written.Load() }

// Stop ends it. It does not wait.
func (f *FileWatch) Stop() {
	if f.over.CompareAndSwap(false, true) {
		close(f.stopped)
	}
}

// fileState tells one state of a file from another. A directory has one as well:
// it changes when something in it is renamed into place.
type fileState struct {
	exists     bool
	dev, inode uint64
	size       int64
	modified   time.Time
}

func (f *FileWatch) state(path string) fileState {
	info, err := f.stat(path)
	if err != nil {
		return fileState{}
	}
	s := fileState{exists: true, size: info.Size(), modified: info.ModTime()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.dev, s.inode = st.Dev, st.Ino
	}
	return s
}

func (f *FileWatch) run(path string) {
	first := f.state(path)
	f.ready.Store(true)
	last, since := first, time.Now()
	tick := time.NewTicker(f.look)
	defer tick.Stop()
	for {
		select {
		case <-f.stopped:
			return
		case <-tick.C:
		}
		now := f.state(path)
		if now != last {
			last, since = now, time.Now()
		}
		if now != first && now.exists && time.Since(since) >= f.still {
			f.written.Store(true)
			return
		}
	}
}
