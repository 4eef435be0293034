package record

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestPlantedFiles: a pipe or a device in the place of any file of a record keeps no
// reader waiting, and is not read.
func TestPlantedFiles(t *testing.T) {
	whole := t.TempDir()
	fill(t, whole, 1<<20, 50, 2, nil)
	plants := map[string]func(path string) error{
		"a pipe":           func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a link to a pipe": func(path string) error { return unix.Symlink(pipeBeside(t), path) },
		"a device":         func(path string) error { return unix.Symlink("/dev/zero", path) },
		"a directory":      func(path string) error { return unix.Mkdir(path, 0o700) },
	}
	for what, plant := range plants {
		for _, file := range []string{dataFile, lockFile, liveName, "journal"} {
			dir := copyRecord(t, whole)
			path := filepath.Join(dir, file)
			_ = os.Remove(path)
			if err := plant(path); err != nil {
				t.Fatal(err)
			}
			type answer struct {
				run *Run
				err error
			}
			read := make(chan answer, 1)
			go func() {
				if file == "journal" {
					run, err := ReadJournal(path)
					read <- answer{run, err}
					return
				}
				held(dirAt(t, dir))
				run, err := Read(context.Background(), dir, child)
				read <- answer{run, err}
			}()
			select {
			case a := <-read:
				if refused := file == dataFile || file == "journal"; (a.err != nil) != refused {
					t.Errorf("%s for %s: %v", what, file, a.err)
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("%s for %s: the reader waits", what, file)
			}
		}
	}
}

func pipeBeside(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
