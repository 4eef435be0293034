package action

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// queue plays the watcher for a requeue.
type queue struct {
	said  []string // what was asked for, in order
	deaf  bool     // no process catches the signal
	ended *Result
}

func (q *queue) Ask() Result {
	q.said = append(q.said, "ask")
	if q.deaf {
		return Result{Reason: event.ReasonNotCaught, Detail: "USR1, process 12"}
	}
	return Result{OK: true, Reason: event.ReasonDone}
}
func (q *queue) Start() { q.said = append(q.said, "start") }
func (q *queue) Ended() (Result, bool) {
	if q.ended == nil {
		return Result{}, false
	}
	return *q.ended, true
}

func alive() *rss.Sample { return &rss.Sample{Procs: []rss.Proc{{ID: rss.ProcID{PID: 12}}}} }

func TestRequeue(t *testing.T) {
	at := func(s float64, procs *rss.Sample) World {
		return World{Now: time.Duration(s * float64(time.Second)), Sample: procs}
	}
	unwritten := func() *FileWatch { f := newFileWatch(nil); f.ready.Store(true); return f }
	for _, c := range []struct {
		name  string
		c     Checkpoint
		deaf  bool
		steps func(a *Requeuing, c *Checkpoint) // until it is started
		said  string
		saved string
	}{
		{"no checkpoint is wanted", Checkpoint{}, false, func(*Requeuing, *Checkpoint) {}, "start", ""},
		{"no process catches the signal", Checkpoint{Wanted: true, Timeout: time.Minute}, true, func(a *Requeuing, _ *Checkpoint) {
			a.Step(at(1, alive()))
		}, "ask start", "no checkpoint: the process does not catch this signal; USR1, process 12"},
		{"the file is written", Checkpoint{Wanted: true, Timeout: time.Minute, File: unwritten()}, false, func(a *Requeuing, c *Checkpoint) {
			a.Step(at(1, alive()))
			a.Step(at(2, alive()))
			c.File.written.Store(true)
			a.Step(at(4.5, alive()))
		}, "ask start", "the checkpoint was written after 3.5 s"},
		{"the command ends", Checkpoint{Wanted: true, Timeout: time.Minute}, false, func(a *Requeuing, _ *Checkpoint) {
			a.Step(at(1, alive()))
			a.Step(at(3, &rss.Sample{}))
		}, "ask start", "the command ended after 2.0 s"},
		{"the command ends", Checkpoint{Wanted: true, Timeout: time.Minute}, false, func(a *Requeuing, _ *Checkpoint) {
			a.Step(at(1, alive()))
			a.Over("the command ended")
			a.Over("and once more")
		}, "ask start", "the command ended"},
		{"no end is seen", Checkpoint{Wanted: true, Timeout: time.Minute, File: unwritten()}, false, func(a *Requeuing, _ *Checkpoint) {
			a.Step(at(1, alive()))
			a.Step(at(60.9, alive()))
			a.Step(at(61, alive()))
		}, "ask start", "no end of a checkpoint was seen within 1m0s"},
		{"the limit comes near", Checkpoint{Wanted: true, Timeout: time.Minute, Near: func() bool { return true }}, false, func(a *Requeuing, _ *Checkpoint) {
			a.Step(at(1, alive()))
		}, "ask start", "the limit came too near after 0.0 s of waiting for the checkpoint"},
		{"the file system hangs", Checkpoint{Wanted: true, Timeout: 5 * time.Second, File: newFileWatch(nil)}, false, func(a *Requeuing, _ *Checkpoint) {
			a.Step(at(0.9, alive()))
			if !a.Waits() || a.asked {
				panic("asked before the file was looked at")
			}
			a.Step(at(1, alive()))
			a.Step(at(6, alive()))
		}, "ask start", "no end of a checkpoint was seen within 5s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := &queue{deaf: c.deaf}
			a := Requeue(q, c.c, 0)
			c.steps(a, &a.checkpoint)
			if a.Waits() || strings.Join(q.said, " ") != c.said {
				t.Fatalf("waits %v, asked for %q, want %s", a.Waits(), q.said, c.said)
			}
			if _, done := a.Step(at(100, alive())); done {
				t.Fatal("done before the job was in the queue")
			}
			if a.Wakes() <= 100*time.Second {
				t.Errorf("looks again at %v", a.Wakes())
			}
			q.ended = &Result{OK: true, Reason: event.ReasonDone, Detail: "with 375 MiB"}
			r, done := a.Step(at(101, alive()))
			want := strings.TrimSuffix("with 375 MiB; "+c.saved, "; ")
			if !done || !r.OK || r.Detail != want || strings.Join(q.said, " ") != c.said {
				t.Errorf("%+v, %v, want %q; asked for %q", r, done, want, q.said)
			}
		})
	}
}

// quickWatch is a FileWatch with short times.
func quickWatch(t *testing.T, stat func(string) (os.FileInfo, error)) *FileWatch {
	f := newFileWatch(stat)
	f.still, f.look = 20*time.Millisecond, time.Millisecond
	t.Cleanup(f.Stop)
	return f
}

// eventually polls for a condition for up to a minute.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not %s within a minute", what)
		}
	}
}

func TestFileWatch(t *testing.T) {
	write := func(path, text string) {
		wardentest.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	for _, c := range []struct {
		name          string
		before, after func(path string)
	}{
		{"made", func(string) {}, func(path string) { write(path, "1") }},
		{"written over", func(path string) { write(path, "old") }, func(path string) { write(path, "newer") }},
		{"renamed into place, as long as the one before", func(path string) { write(path, "old") }, func(path string) {
			write(path+".new", "new")
			wardentest.NoError(t, os.Rename(path+".new", path))
		}},
		{"a directory into which one is renamed", func(path string) {
			wardentest.NoError(t, os.Mkdir(path, 0o700))
		}, func(path string) { write(filepath.Join(path, "model.pt"), "1") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "checkpoint")
			c.before(path)
			f := quickWatch(t, os.Stat)
			go f.run(path)
			eventually(t, "ready", f.Ready)
			if f.Written() {
				t.Fatal("written before it was")
			}
			c.after(path)
			eventually(t, "written", f.Written)
		})
	}
}

// scriptedInfo is a file of that size.
type scriptedInfo struct {
	os.FileInfo
	size int64
}

func (i scriptedInfo) Size() int64        { return i.size }
func (i scriptedInfo) ModTime() time.Time { return time.Time{} }
func (i scriptedInfo) Sys() any           { return nil }

// TestFileWatchStillWritten: a file that grows at each look is not done; nor is one
// that is removed first, or one that stays as it was.
func TestFileWatchStillWritten(t *testing.T) {
	const looks = 200
	for name, stat := range map[string]func(n int) (os.FileInfo, error){
		"grows": func(n int) (os.FileInfo, error) { return scriptedInfo{size: int64(n)}, nil },
		"stays": func(int) (os.FileInfo, error) { return scriptedInfo{size: 7}, nil },
		"goes": func(n int) (os.FileInfo, error) {
			if n > 0 {
				return nil, os.ErrNotExist
			}
			return scriptedInfo{size: 7}, nil
		},
	} {
		n, done := 0, make(chan struct{})
		var f *FileWatch
		f = quickWatch(t, func(string) (os.FileInfo, error) {
			if n++; n == looks {
				close(done)
				f.Stop()
			}
			return stat(n - 1)
		})
		f.still = 0
		if name == "grows" {
			f.still = time.Hour // no look may come so late that the file seems unchanged
		}
		f.run("x")
		<-done
		if f.Written() {
			t.Errorf("a file that %s counts as written", name)
		}
	}
}

// TestFileWatchHangs: a call returns while the file system hangs.
func TestFileWatchHangs(t *testing.T) {
	gate := make(chan struct{})
	defer close(gate)
	f := quickWatch(t, func(string) (os.FileInfo, error) { <-gate; return nil, os.ErrNotExist })
	go f.run("x")
	if f.Ready() || f.Written() {
		t.Error("ready without an answer")
	}
	f.Stop()
	f.Stop()
}
