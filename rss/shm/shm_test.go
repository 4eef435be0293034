package shm

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

func TestNames(t *testing.T) {
	for link, want := range map[string]struct {
		name string
		kind Kind
	}{
		"/dev/shm/torch_14029_1322433885_663 (deleted)": {"torch_14029_1322433885_663", Torch},
		"/dev/shm/psm_2f1a":                             {"psm_2f1a", Python},
		"/dev/shm/pym-12-abc/pym-12-def (deleted)":      {"pym-12-abc/pym-12-def", Python},
		"/dev/shm/sem.mp-0dkqb6qj":                      {"sem.mp-0dkqb6qj", Semaphore},
		"/dev/shm/nccl-AbCdEf":                          {"nccl-AbCdEf", NCCL},
		"/dev/shm/mine":                                 {"mine", Other},
		"/memfd:torch_x (deleted)":                      {"torch_x", Memfd},
		"/srv/image/dev/shm/torch_1":                    {"torch_1", Torch},
	} {
		if name, k, ok := nameOf(link); !ok || name != want.name || k != want.kind {
			t.Errorf("%s: %q, %v, %v", link, name, k, ok)
		}
	}
	for _, link := range []string{"", "/dev/null", "socket:[1]", "/dev/shmx/a", "anon_inode:/dev/shm/x", "x /memfd:y"} {
		if name, _, ok := nameOf(link); ok {
			t.Errorf("%q: %q", link, name)
		}
	}
}

func TestParseMapping(t *testing.T) {
	m, ok := parseMapping([]byte("7f0000001000-7f0000003000 rw-s 00004000 00:1a 4711                       /dev/shm/torch_1 (deleted)"))
	want := mapping{"7f0000001000-7f0000003000", unix.Mkdev(0, 0x1a), 4711, 0x6000, "torch_1", Torch, true}
	if !ok || m != want {
		t.Errorf("%+v, %v", m, ok)
	}
	for _, line := range []string{
		"", "/dev/shm/x", "7f0-7f1 r--p 0 00:1a 1 /lib/x.so", "7f1-7f0 rw-s 0 00:1a 1 /dev/shm/x", "x-y rw-s 0 00:1a 1 /dev/shm/x",
		"7f0-7f1 rw-s ffffffffffffffff 00:1a 1 /dev/shm/x", "7f0-7f1 rw-s 0 001a 1 /dev/shm/x", "7f0-7f1 rw-s 0 00:1a  /dev/shm/x",
	} {
		if m, ok := parseMapping([]byte(line)); ok {
			t.Errorf("%q: %+v", line, m)
		}
	}
}

func FuzzParseMapping(f *testing.F) {
	f.Add([]byte("7f0000001000-7f0000003000 rw-s 00004000 00:1a 4711                       /dev/shm/torch_1 (deleted)"))
	f.Add([]byte("1-2 r 0 0:0 1 /memfd:x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, ok := parseMapping(b)
		if ok && (strings.ContainsAny(m.addresses, " /") || m.kind == "" || !strings.Contains(string(b), m.name)) {
			t.Errorf("%+v from %q", m, b)
		}
	})
}

func FuzzNames(f *testing.F) {
	f.Add("/dev/shm/sem.x (deleted)")
	f.Fuzz(func(t *testing.T, link string) {
		if name, k, ok := nameOf(link); ok && (k == "" || !strings.Contains(link, name)) {
			t.Errorf("%q, %v from %q", name, k, link)
		}
	})
}

// A process as a directory: what is mapped and gone is told by maps alone.
func TestSegmentsOfText(t *testing.T) {
	fs := rsstest.Empty(t)
	fs.Write("proc/7/maps", `400000-401000 r-xp 00000000 08:01 12 /usr/bin/python3
7f0000000000-7f0000100000 rw-s 00000000 00:1a 40 /dev/shm/torch_1 (deleted)
7f0000200000-7f0000300000 rw-s 00100000 00:1a 40 /dev/shm/torch_1 (deleted)
7f0000400000-7f0000401000 rw-s 00000000 00:1a 41 /dev/shm/sem.mp-1
7f0000500000-7f0000501000 rw-p 00000000 00:00 0
`)
	fs.Write("proc/8/maps", "7f0000000000-7f0000080000 rw-s 00000000 00:1a 40 /dev/shm/torch_1 (deleted)\n")
	for _, pid := range []string{"7", "8"} {
		if err := os.Mkdir(fs.Path("proc/"+pid+"/fd"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/dev/shm/torch_gone_long_ago (deleted)", fs.Path("proc/8/fd/3")); err != nil {
		t.Fatal(err)
	}
	h, err := Segments(fs.Proc, []int{8, 7, 9}, 0)
	if err != nil || len(h.Segments) != 2 || h.More || h.Vanished != 1 || h.Denied != 0 || h.Cost <= 0 {
		t.Fatalf("%+v, %v", h, err)
	}
	s := h.Segments[0]
	if s.Size != 2*rss.MiB || !s.Bound || !s.Deleted || s.Kind != Torch || len(s.Holders) != 2 || s.Holders[0] != 7 {
		t.Errorf("%+v", s)
	}
	if sum := h.Sum(unix.Mkdev(0, 0x1a)); sum[Torch] != (Total{1, 2 * rss.MiB}) || sum[Semaphore] != (Total{1, 4 * rss.KiB}) || len(sum) != 2 {
		t.Errorf("%+v", sum)
	}
	if sum := h.Sum(99); len(sum) != 0 {
		t.Errorf("of another file system: %+v", sum)
	}
	if h, err := Segments(fs.Proc, []int{7, 8}, 3); err != nil || !h.More || len(h.Segments) != 1 {
		t.Errorf("three lines at most: %+v, %v", h, err)
	}
	if _, err := Segments(fs.Path("nowhere"), nil, 0); err == nil {
		t.Error("no error without procfs")
	}
}

// TestUsageOfText reads the file system of a process's own root, through a link as the
// process follows it.
func TestUsageOfText(t *testing.T) {
	fs := rsstest.Empty(t)
	fs.Write("proc/7/root/dev/shm/torch_1", "x")
	fs.Write("proc/8/root/run/only-there/shm/torch_1", "x")
	fs.Write("proc/8/root/dev/null", "")
	if err := os.Symlink("/run/only-there/shm", fs.Path("proc/8/root/dev/shm")); err != nil {
		t.Fatal(err)
	}
	var at unix.Stat_t
	if err := unix.Stat(fs.Proc, &at); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{7, 8} {
		if u, err := Usage(fs.Proc, pid); err != nil || u.Mount || u.Dev != uint64(at.Dev) || u.Size == 0 || u.Used > u.Size {
			t.Errorf("process %d: %+v, %v", pid, u, err)
		}
	}
	if _, err := Usage(fs.Proc, 9); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no process: %v", err)
	}
}
