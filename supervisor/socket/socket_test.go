package socket

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

func open(t *testing.T, path string) *os.File {
	t.Helper()
	dir, err := os.Open(path)
	wardentest.NoError(t, err)
	t.Cleanup(func() { dir.Close() })
	return dir
}

// TestTalk: both ends of a socket, in a directory whose path no address has room for.
func TestTalk(t *testing.T) {
	path := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	wardentest.NoError(t, os.Mkdir(path, 0o700))
	dir := open(t, path)
	var l *Listener
	for _, mask := range []int{0, 0o777, 0o277} {
		old := unix.Umask(mask)
		var err error
		l, err = Listen(dir, "s", 4)
		unix.Umask(old)
		wardentest.NoError(t, err)
		if info, err := os.Lstat(filepath.Join(path, "s")); err != nil || info.Mode() != os.ModeSocket|0o600 {
			t.Fatalf("umask %#o: %v, %v", mask, info, err)
		}
	}
	got := make(chan string)
	go func() {
		c, err := l.Accept()
		if err != nil {
			got <- err.Error()
			return
		}
		b, _ := io.ReadAll(c)
		c.Close()
		got <- string(b)
	}()
	c, err := Dial(dir, "s")
	wardentest.NoError(t, err)
	defer c.Close()
	if pid, uid, err := Peer(c); err != nil || pid != os.Getpid() || uid != os.Geteuid() {
		t.Errorf("%d of user %d listens, %v", pid, uid, err)
	}
	if _, err := c.WriteString("said"); err != nil || HungUp(c) {
		t.Errorf("%v, hung up %v", err, HungUp(c))
	}
	Finish(c)
	if g := <-got; g != "said" {
		t.Errorf("heard %q", g)
	}
	if !HungUp(c) {
		t.Error("the other end is gone")
	}
	l.Close()
	if _, err := Dial(dir, "s"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("dial after close: %v", err)
	}
	if _, err := l.Accept(); err == nil {
		t.Error("accepts after close")
	}
}

// TestNames: a socket that was left is replaced, one of another's stays, and what
// is no socket is not removed.
func TestNames(t *testing.T) {
	path := t.TempDir()
	dir := open(t, path)
	first, err := Listen(dir, "s", 1)
	wardentest.NoError(t, err)
	second, err := Listen(dir, "s", 1)
	wardentest.NoError(t, err)
	first.Close()
	c, err := Dial(dir, "s")
	if err != nil {
		t.Fatalf("the second's socket went with the first: %v", err)
	}
	c.Close()
	// One place in the backlog is taken, and with it the next one (listen(2)).
	if c, err = Dial(dir, "s"); err == nil {
		defer c.Close()
		_, err = Dial(dir, "s")
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Errorf("dial of a listener that accepts no connection: %v", err)
	}
	second.Close()

	file := filepath.Join(path, "file")
	wardentest.NoError(t, os.WriteFile(file, []byte("mine"), 0o600))
	wardentest.NoError(t, os.Symlink(file, filepath.Join(path, "link")))
	wardentest.NoError(t, os.Mkdir(filepath.Join(path, "directory"), 0o700))
	for _, name := range []string{"file", "link", "directory"} {
		if l, err := Listen(dir, name, 1); err == nil {
			l.Close()
			t.Errorf("listens in place of a %s", name)
		}
	}
	if b, err := os.ReadFile(filepath.Join(path, "link")); err != nil || string(b) != "mine" {
		t.Errorf("behind the link: %q, %v", b, err)
	}
}
