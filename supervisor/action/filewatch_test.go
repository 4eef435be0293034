package action

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

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
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name          string
		before, after func(path string)
	}{
		{"made", func(string) {}, func(path string) { write(path, "1") }},
		{"written over", func(path string) { write(path, "old") }, func(path string) { write(path, "newer") }},
		{"renamed into place, as long as the one before", func(path string) { write(path, "old") }, func(path string) {
			write(path+".new", "new")
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
		}},
		{"a directory into which one is renamed", func(path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
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
			f.still = time.Hour // no look may come so late that it seems to stand still
		}
		f.run("x")
		<-done
		if f.Written() {
			t.Errorf("a file that %s counts as written", name)
		}
	}
}

// TestFileWatchHangs: whoever asks is answered while the file system is not.
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
