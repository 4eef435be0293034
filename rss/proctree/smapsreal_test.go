package proctree

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

// smapsChild is the variable by which the test binary knows that it is to map
// the file of that name, and say so.
const smapsChild = "PROCTREE_TEST_MAP"

func init() {
	file := os.Getenv(smapsChild)
	if file == "" {
		return
	}
	f, err := os.Open(file)
	if err == nil {
		var st os.FileInfo
		st, err = f.Stat()
		if err == nil {
			_, err = unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
		}
	}
	fmt.Println("mapped", err)
	io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// mapper starts a child with a file of 64 MiB mapped.
func mapper(t *testing.T) *rsstest.Child {
	t.Helper()
	file := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(file, make([]byte, 64<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), smapsChild+"="+file)
	child := rsstest.StartChild(t, c)
	t.Cleanup(func() { c.Process.Kill() }) // it may have been stopped
	if line, err := child.Line(); err != nil || line != "mapped <nil>" {
		t.Fatal(line, err)
	}
	return child
}

// wait waits for a change of a child's state without reaping it.
func wait(t *testing.T, pid, what int) {
	t.Helper()
	var si unix.Siginfo
	if err := unix.Waitid(unix.P_PID, pid, &si, what|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
}

// Both files tell the same of a child that stands still, and about the same of
// ourselves.
func TestRealPSSInPieces(t *testing.T) {
	c := mapper(t)
	pid := c.PID
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	wait(t, pid, unix.WSTOPPED)
	r := New("/proc")
	defer r.Close()
	for _, who := range []struct {
		pid   int
		slack rss.Bytes
	}{{pid, 0}, {os.Getpid(), 8 * rss.MiB}} {
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", who.pid))
		if err != nil {
			t.Fatal(err)
		}
		cut := rss.Bytes(strings.Count(string(maps), "\n")) * rss.KiB
		start, err := StartTime("/proc", who.pid)
		if err != nil {
			t.Fatal(err)
		}
		id := rss.ProcID{PID: who.pid, Start: start}
		// What else maps the binary moves the child's PSS: it is read before and
		// after.
		before, err1 := r.PSS(id)
		pieces, err2 := r.PSSInPieces(id)
		after, err3 := r.PSS(id)
		if err1 != nil || err2 != nil || err3 != nil {
			t.Fatal(err1, err2, err3)
		}
		low, high := min(before.PSS, after.PSS).Sub(cut+who.slack), max(before.PSS, after.PSS)+who.slack
		if pieces.PSS < low || pieces.PSS > high {
			t.Errorf("PSS of %d: %v in pieces, want %v to %v", who.pid, pieces.PSS, low, high)
		}
		low, high = min(before.RSS, after.RSS).Sub(who.slack), max(before.RSS, after.RSS)+who.slack
		if pieces.RSS < low || pieces.RSS > high {
			t.Errorf("RSS of %d: %v in pieces, want %v to %v", who.pid, pieces.RSS, low, high)
		}
		if !before.Split || !after.Split {
			t.Fatal("Linux 5.3 and later split PSS") // CI's do
		}
		if low, high = min(before.File, after.File).Sub(cut+who.slack), max(before.File, after.File)+cut+who.slack; pieces.File < low || pieces.File > high {
			t.Errorf("of files of %d: %v in pieces, want %v to %v", who.pid, pieces.File, low, high)
		}
		if low, high = min(before.Anon, after.Anon).Sub(cut+who.slack), max(before.Anon, after.Anon)+cut+who.slack; pieces.Anon < low || pieces.Anon > high {
			t.Errorf("anonymous of %d: %v in pieces, want %v to %v", who.pid, pieces.Anon, low, high)
		}
		if low, high = min(before.Mapped, after.Mapped).Sub(who.slack), max(before.Mapped, after.Mapped)+who.slack; pieces.Mapped < low || pieces.Mapped > high {
			t.Errorf("mapped by %d: %v in pieces, want %v to %v", who.pid, pieces.Mapped, low, high)
		}
		if who.pid == pid && (before.File < 64*rss.MiB || before.Mapped < 64*rss.MiB) {
			t.Errorf("of files %v of %v, and the file alone, which nobody else maps, has 64 MiB", before.File, before.Mapped)
		}
		if who.pid == pid && pieces.RSS < 64*rss.MiB {
			t.Errorf("%v, and the file alone has 64 MiB", pieces.RSS)
		}
		if pieces.Held == 0 || pieces.Held > pieces.Cost || before.Held != before.Cost {
			t.Errorf("held for %v of %v in pieces, %v of %v in one", pieces.Held, pieces.Cost, before.Held, before.Cost)
		}
	}
}

// One read never walks two mappings.
func TestRealSmapsRecordsAreLonger(t *testing.T) {
	b, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(b)) {
		if word, _, _ := strings.Cut(line, " "); !strings.HasSuffix(word, ":") {
			if n != 0 && n <= piece {
				t.Errorf("a record of %d bytes, and %d are read at once", n, piece)
			}
			n = 0
		}
		n += len(line)
	}
	if n <= piece {
		t.Errorf("a record of %d bytes, and %d are read at once", n, piece)
	}
}

// ending does something after the first piece.
type ending struct {
	*os.File
	then func()
}

func (e *ending) Read(b []byte) (int, error) {
	n, err := e.File.Read(b)
	if e.then != nil {
		e.then()
		e.then = nil
	}
	return n, err
}

// A process that ends meanwhile leaves a file that ends early, without an
// error while it is a zombie.
func TestRealSmapsEndsEarly(t *testing.T) {
	for _, reap := range []bool{false, true} {
		c := mapper(t)
		f, err := os.Open(fmt.Sprintf("/proc/%d/smaps", c.PID))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		p, err := sumSmaps(&ending{f, func() {
			unix.Kill(c.PID, unix.SIGKILL)
			wait(t, c.PID, unix.WEXITED)
			if reap {
				c.End()
			}
		}})
		if p != (rss.PSS{}) || !Vanished(err) {
			t.Errorf("reaped %v: %+v, %v; want that it is gone", reap, p, err)
		}
	}
}
