package loader

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestPlantedTemporary: whatever a training script puts where the watcher writes, the
// watcher neither waits for it nor writes through it.
func TestPlantedTemporary(t *testing.T) {
	for what, plant := range map[string]func(path, victim string) error{
		"a pipe":      func(path, _ string) error { return syscall.Mkfifo(path, 0o600) },
		"a link":      func(path, victim string) error { return os.Symlink(victim, path) },
		"a hard link": func(path, victim string) error { return os.Link(victim, path) },
		"a directory": func(path, _ string) error { return errJoin(os.Mkdir(path, 0o700), os.WriteFile(path+"/x", nil, 0o600)) },
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			path, victim := filepath.Join(dir, "ctl.1.2"), filepath.Join(dir, "victim")
			if err := errJoin(os.WriteFile(victim, []byte("mine"), 0o600), plant(path+".tmp", victim)); err != nil {
				t.Fatal(err)
			}
			wrote := make(chan error, 1)
			go func() { wrote <- replaceFile(path, []byte("new")) }()
			select {
			case err := <-wrote:
				b, read := os.ReadFile(path)
				if what == "a directory" {
					if err == nil || !errors.Is(read, fs.ErrNotExist) {
						t.Errorf("%v, %q", err, b)
					}
				} else if err != nil || string(b) != "new" {
					t.Errorf("%v, %q", err, b)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("the watcher waits")
			}
			if b, err := os.ReadFile(victim); err != nil || string(b) != "mine" {
				t.Errorf("the file behind it: %q, %v", b, err)
			}
		})
	}
}
