package action

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/probe"
)

// Requeuer carries the parts of a requeue out, none of which may block.
type Requeuer interface {
	// Ask asks the trainer for a checkpoint.
	Ask() Result
	// PutBack begins to put the job back into the queue, by a process that goes on
	// whatever becomes of this one, and Ended tells how that came out.
	PutBack()
	Ended() (Result, bool)
}

// Checkpoint says what a requeue waits for first.
type Checkpoint struct {
	Wanted  bool       // a signal asks for one
	File    *fileWatch // what it is written to, nil where it was not said
	Timeout time.Duration
	// Near says that the limit is so near that nothing can be waited for.
	Near func() bool
}

// What a requeue looks at how often.
const (
	requeueLook = 50 * time.Millisecond
	// fileReady is how long the first look at the checkpoint's file may take: its
	// file system may hang.
	fileReady = time.Second
)

// Requeue has a checkpoint written, waits for its end, and puts the job back into
// the queue. It has ended when Slurm has the job back, or will not take it.
func Requeue(r Requeuer, c Checkpoint, now time.Duration) *Requeuing {
	a := &Requeuing{requeuer: r, checkpoint: c, began: now}
	if !c.Wanted {
		a.put("")
	}
	return a
}

// Requeuing is a requeue under way.
type Requeuing struct {
	requeuer   Requeuer
	checkpoint Checkpoint
	began      time.Duration // … and when the signal was sent, from then on
	asked      bool
	started    bool // … to put the job back; until then the checkpoint is waited for
	next       time.Duration
	saved      string // what came of the checkpoint, for people
}

func (a *Requeuing) Wakes() time.Duration { return a.next }

func (a *Requeuing) put(saved string) {
	a.started, a.saved = true, saved
	a.requeuer.PutBack()
}

// Step looks whether the checkpoint has been written, and then whether the job
// is in the queue.
func (a *Requeuing) Step(w World) (Result, bool) {
	a.next = w.Now + requeueLook
	if !a.started {
		if a.wait(w); !a.started {
			return Result{}, false
		}
	}
	r, done := a.requeuer.Ended()
	if done {
		r.Detail = join(r.Detail, a.saved)
	}
	return r, done
}

func (a *Requeuing) wait(w World) {
	c := &a.checkpoint
	if c.File != nil {
		c.File.look(w.Now)
	}
	if !a.asked {
		if c.File != nil && c.File.first == nil && w.Now-a.began < fileReady {
			return // else a write could come before the first look
		}
		if r := a.requeuer.Ask(); !r.OK {
			a.put("no checkpoint: " + join(string(r.Reason), r.Detail))
			return
		}
		a.asked, a.began = true, w.Now
	}
	took := w.Now - a.began
	after := fmt.Sprintf(" after %.1f s", took.Seconds())
	switch {
	case c.File != nil && c.File.written:
		a.put("the checkpoint was written" + after)
	case w.Sample != nil && len(w.Sample.Procs) == 0:
		a.put("the command ended" + after)
	case took >= c.Timeout:
		a.put(fmt.Sprintf("no end of a checkpoint was seen within %v", c.Timeout))
	case c.Near != nil && c.Near():
		a.put("the limit came too near" + after + " of waiting for the checkpoint")
	}
}

const (
	// fileStill is how long a checkpoint must be unchanged to count as written.
	fileStill = time.Second
	fileLook  = 100 * time.Millisecond
)

// fileWatch looks whether a file is written again and then left alone: whether it is another
// one, or has other contents, and did not change for a second. A probe reads its state: the
// file system may hang. Clocks are not compared: a file server has another one.
type fileWatch struct {
	*probe.Reader[string, fileState]
	path    string
	first   *fileState // nil until it is known
	last    fileState
	since   time.Duration // when it became that
	next    time.Duration // when to look again
	written bool
}

// watchFile looks at path, which need not exist.
func watchFile(path string) *fileWatch {
	return &fileWatch{path: path, Reader: probe.New(nil, stateOf)}
}

// look takes in what was read, and has it read again.
func (f *fileWatch) look(now time.Duration) {
	if s, ok := f.Take(); ok {
		if f.first == nil {
			f.first = &s
		}
		if s != f.last {
			f.last, f.since = s, now
		}
		f.written = f.written || s.exists && s != *f.first && now-f.since >= fileStill
	}
	if now >= f.next && f.Ask(f.path, false) {
		f.next = now + fileLook
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

func stateOf(path string) fileState {
	info, err := os.Stat(path)
	if err != nil {
		return fileState{}
	}
	s := fileState{exists: true, size: info.Size(), modified: info.ModTime()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.dev, s.inode = st.Dev, st.Ino
	}
	return s
}
