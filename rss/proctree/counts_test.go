package proctree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

// pieces gives out one piece after the other, as reads of a file do.
func pieces(all ...string) func([]byte) (int, error) {
	return func(b []byte) (int, error) {
		if len(all) == 0 {
			return 0, nil
		}
		n := copy(b, all[0])
		if all = all[1:]; n == 0 {
			return 0, syscall.EINTR
		}
		return n, nil
	}
}

func TestCountLines(t *testing.T) {
	const line = "7f0000000000-7f0000001000 r--p 00000000 00:00 0 \n"
	const gate = "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n"
	for _, c := range []struct {
		reads []string
		want  int
	}{
		{nil, 0},
		{[]string{line}, 1},
		{[]string{line + line, line}, 3},
		{[]string{line, "", line}, 2}, // interrupted
		{[]string{line + gate}, 1},
		{[]string{line, gate}, 1},
		{[]string{gate, line}, 2}, // a file of that name: only the last is the kernel's
		{[]string{strings.Repeat(line, 50), strings.Repeat(line, 50) + gate}, 100},
	} {
		if n, err := countLines(pieces(c.reads...), make([]byte, 4096)); err != nil || n != c.want {
			t.Errorf("%d reads: %d, %v, want %d", len(c.reads), n, err, c.want)
		}
	}
	if _, err := countLines(func([]byte) (int, error) { return 0, syscall.ESRCH }, make([]byte, 64)); !Vanished(err) {
		t.Errorf("of a process that ends: %v", err)
	}
}

// dirent is a struct linux_dirent64.
func dirent(name string) string {
	b := make([]byte, (19+len(name)+1+7)/8*8)
	binary.NativeEndian.PutUint16(b[16:], uint16(len(b)))
	copy(b[19:], name)
	return string(b)
}

func TestCountEntries(t *testing.T) {
	for _, c := range []struct {
		reads []string
		want  int
	}{
		{nil, 0},
		{[]string{dirent(".") + dirent("..")}, 0},
		{[]string{dirent(".") + dirent("..") + dirent("0") + dirent("1"), dirent("1048575")}, 3},
	} {
		if n, err := countEntries(pieces(c.reads...), make([]byte, 4096)); err != nil || n != c.want {
			t.Errorf("%d reads: %d, %v, want %d", len(c.reads), n, err, c.want)
		}
	}
	for _, bad := range []string{strings.Repeat("\x00", 40), strings.Repeat("\xff", 40)} {
		if n, err := countEntries(pieces(bad), make([]byte, 4096)); !errors.Is(err, errMalformed) {
			t.Errorf("%q: %d, %v", bad, n, err)
		}
	}
}

// readsOf reads b as read(2) does, which has no error at the end.
func readsOf(b []byte) func([]byte) (int, error) {
	r := bytes.NewReader(b)
	return func(p []byte) (int, error) {
		n, err := r.Read(p)
		if err == io.EOF {
			err = nil
		}
		return n, err
	}
}

func FuzzCountEntries(f *testing.F) {
	f.Add([]byte(dirent(".") + dirent("3")))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, err := countEntries(readsOf(b), make([]byte, 64)); err == nil && n > len(b)/20 {
			t.Errorf("%d entries in %d bytes", n, len(b))
		}
	})
}

func FuzzCountLines(f *testing.F) {
	f.Add([]byte("a\nb [vsyscall]\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := countLines(readsOf(b), make([]byte, 64))
		if all := bytes.Count(b, []byte{'\n'}); err != nil || n != all && n != all-1 {
			t.Errorf("%d of %d lines, %v", n, all, err)
		}
	})
}

// TestCountsOfThisProcess: as many more are counted as were made.
func TestCountsOfThisProcess(t *testing.T) {
	c := NewCounter("/proc")
	defer c.Close()
	me := rss.ProcID{PID: os.Getpid()}
	start, err := StartTime("/proc", me.PID)
	if err != nil {
		t.Fatal(err)
	}
	me.Start = start
	const many = 5000
	for _, kind := range []struct {
		name  string
		count func(rss.ProcID) (Count, error)
		make  func(int) (func(), error)
		most  int
	}{
		// Go's runtime and the tests beside this one map and open a few.
		{"maps", c.Maps, rsstest.MapMany, many + 50},
		{"descriptors", c.Descriptors, rsstest.OpenMany, many + 50},
	} {
		before, err := kind.count(me)
		if err != nil || before.N == 0 {
			t.Fatalf("%s: %+v, %v", kind.name, before, err)
		}
		undo, err := kind.make(many)
		if err != nil {
			t.Skip(err)
		}
		after, err := kind.count(me)
		undo()
		if n := after.N - before.N; err != nil || n < many-50 || n > kind.most || after.Cost <= 0 {
			t.Errorf("%s: %d, then %+v, %v", kind.name, before.N, after, err)
		}
		if _, err := kind.count(rss.ProcID{PID: me.PID, Start: 1}); !errors.Is(err, errGone) {
			t.Errorf("%s of a process that had the PID before: %v", kind.name, err)
		}
		if _, err := kind.count(rss.ProcID{PID: 1 << 30}); !Vanished(err) {
			t.Errorf("%s of no process: %v", kind.name, err)
		}
	}
}

// TestDescriptorsBothWays: what st_size says is what the directory holds.
func TestDescriptorsBothWays(t *testing.T) {
	c := NewCounter("/proc")
	defer c.Close()
	me := rss.ProcID{PID: os.Getpid()}
	fast, err := c.Descriptors(me)
	if err != nil {
		t.Fatal(err)
	}
	c.f.real = false // so that st_size is not believed
	slow, err := c.Descriptors(me)
	if d := slow.N - fast.N; err != nil || d < -3 || d > 3 { // the directory's own is one more
		t.Errorf("%d by st_size, %d by the directory, %v", fast.N, slow.N, err)
	}
}

func TestCountLimits(t *testing.T) {
	fs := rsstest.Empty(t)
	if _, err := MapLimit(fs.Proc); !Vanished(err) {
		t.Errorf("no file: %v", err)
	}
	for text, want := range map[string]uint64{"65530\n": 65530, "2147483642": 2147483642, "": 0, "many\n": 0} {
		fs.Write("proc/sys/vm/max_map_count", text)
		if n, err := MapLimit(fs.Proc); n != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
}

func BenchmarkCounts(b *testing.B) {
	c := NewCounter("/proc")
	defer c.Close()
	me := rss.ProcID{PID: os.Getpid()}
	for _, n := range []int{0, 30000} {
		undo, err := rsstest.MapMany(n)
		if err != nil {
			b.Skip(err)
		}
		b.Run(fmt.Sprintf("maps%d", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := c.Maps(me); err != nil {
					b.Fatal(err)
				}
			}
		})
		undo()
	}
	b.Run("descriptors", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.Descriptors(me); err != nil {
				b.Fatal(err)
			}
		}
	})
}
