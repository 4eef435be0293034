package shm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

// TestMain lets the test binary be a process with a /dev/shm of its own.
func TestMain(m *testing.M) {
	if os.Getenv("ROLE") != "" {
		if err := play(); err != nil {
			fmt.Println("error:", err)
		}
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

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
	addresses, s, ok := parseMapping([]byte("7f0000001000-7f0000003000 rw-s 00004000 00:1a 4711                       /dev/shm/torch_1 (deleted)"))
	want := Segment{Dev: unix.Mkdev(0, 0x1a), Inode: 4711, Name: "torch_1", Kind: Torch, Deleted: true, Size: 0x6000, Bound: true}
	if !ok || addresses != "7f0000001000-7f0000003000" || !reflect.DeepEqual(s, want) {
		t.Errorf("%q, %+v, %v", addresses, s, ok)
	}
	for _, line := range []string{
		"", "/dev/shm/x", "7f0-7f1 r--p 0 00:1a 1 /lib/x.so", "7f1-7f0 rw-s 0 00:1a 1 /dev/shm/x", "x-y rw-s 0 00:1a 1 /dev/shm/x",
		"7f0-7f1 rw-s ffffffffffffffff 00:1a 1 /dev/shm/x", "7f0-7f1 rw-s 0 001a 1 /dev/shm/x", "7f0-7f1 rw-s 0 00:1a  /dev/shm/x",
	} {
		if _, s, ok := parseMapping([]byte(line)); ok {
			t.Errorf("%q: %+v", line, s)
		}
	}
}

func FuzzParseMapping(f *testing.F) {
	f.Add([]byte("7f0000001000-7f0000003000 rw-s 00004000 00:1a 4711                       /dev/shm/torch_1 (deleted)"))
	f.Add([]byte("1-2 r--s 0 0:0 1 /memfd:x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		addresses, s, ok := parseMapping(b)
		if ok && (strings.ContainsAny(addresses, " /") || s.Kind == "" || !strings.Contains(string(b), s.Name)) {
			t.Errorf("%q, %+v from %q", addresses, s, b)
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

// TestSegmentsOfText: a process as a directory; only maps shows what is mapped and deleted.
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
		must(t, os.Mkdir(fs.Path("proc/"+pid+"/fd"), 0o755))
	}
	must(t, os.Symlink("/dev/shm/torch_gone_long_ago (deleted)", fs.Path("proc/8/fd/3")))
	h, err := Segments(fs.Proc, []int{8, 7, 9})
	if err != nil || len(h.Segments) != 2 || h.Cost <= 0 {
		t.Fatalf("%+v, %v", h, err)
	}
	s := h.Segments[0]
	if s.Size != 2*rss.MiB || !s.Bound || !s.Deleted || s.Kind != Torch || len(s.Holders) != 2 || s.Holders[0] != 7 {
		t.Errorf("%+v", s)
	}
	if sum := h.Sum(unix.Mkdev(0, 0x1a)); sum[Torch] != 2*rss.MiB || sum[Semaphore] != 4*rss.KiB || len(sum) != 2 {
		t.Errorf("%+v", sum)
	}
	if sum := h.Sum(99); len(sum) != 0 {
		t.Errorf("of another file system: %+v", sum)
	}
	defer func(was int) { mostRead = was }(mostRead)
	mostRead = 3
	if h, err := Segments(fs.Proc, []int{7, 8}); err != nil || len(h.Segments) != 1 {
		t.Errorf("three lines at most: %+v, %v", h, err)
	}
	if _, err := Segments(fs.Path("nowhere"), nil); err == nil {
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
	must(t, os.Symlink("/run/only-there/shm", fs.Path("proc/8/root/dev/shm")))
	var at unix.Stat_t
	must(t, unix.Stat(fs.Proc, &at))
	for _, pid := range []int{7, 8} {
		if u, err := Usage(fs.Proc, pid); err != nil || u.Mount || u.Dev != uint64(at.Dev) || u.Size == 0 || u.Used > u.Size {
			t.Errorf("process %d: %+v, %v", pid, u, err)
		}
	}
	if _, err := Usage(fs.Proc, 9); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no process: %v", err)
	}
}

// play holds 1 MiB by a descriptor, 2 MiB by a mapping alone, 3 MiB by name and
// 4 MiB in a memfd.
func play() error {
	if os.Getenv("ROLE") == "own" {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		if err := unix.Mount("none", "/dev/shm", "tmpfs", 0, "size=64m,nr_inodes=100"); err != nil {
			return err
		}
	}
	for i, name := range []string{"torch_fd", "torch_mapped", "psm_named"} {
		f, err := os.Create("/dev/shm/" + name)
		if err != nil {
			return err
		}
		size := (i + 1) << 20
		if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(size)); err != nil {
			return err
		}
		if name == "torch_mapped" {
			if _, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
				return err
			}
		}
		if name != "psm_named" {
			os.Remove(f.Name())
		}
		if name == "torch_fd" {
			held = f
		} else {
			f.Close()
		}
	}
	fd, err := unix.MemfdCreate("scratch", 0)
	if err == nil {
		err = unix.Fallocate(fd, 0, 0, 4<<20)
	}
	fmt.Println("ready")
	return err
}

var held *os.File

// other starts such a process; it ends with the test.
func other(t *testing.T) int {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can make a mount namespace")
	}
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), "ROLE=own")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	child := rsstest.StartChild(t, c)
	if line, err := child.Line(); line != "ready" {
		t.Skip("cannot mount a tmpfs: ", line, err)
	}
	return child.PID
}

func TestOwnShm(t *testing.T) {
	pid := other(t)
	u, err := Usage("/proc", pid)
	if err != nil || u.Size != 64*rss.MiB || u.Used != 6*rss.MiB || u.Inodes != 100 || u.InodesUsed != 4 || !u.Tmpfs || !u.Mount {
		t.Errorf("%+v, %v", u, err)
	}
	ours, err := Usage("/proc", os.Getpid())
	if err == nil && ours.Dev == u.Dev {
		t.Error("the same as ours")
	}
	if again, err := Usage("/proc", pid); err != nil || again.Dev != u.Dev {
		t.Errorf("not the same as before: %+v, %v", again, err)
	}

	h, err := Segments("/proc", []int{pid, pid})
	sum := h.Sum(u.Dev)
	if err != nil || len(sum) != 1 || sum[Torch] != 3*rss.MiB {
		t.Fatalf("%+v, %v", h, err)
	}
	for _, s := range h.Segments {
		want := map[string]rss.Bytes{"torch_fd": 1, "torch_mapped": 2, "scratch": 4}[s.Name] * rss.MiB
		if s.Size != want || s.Bound || !s.Deleted || len(s.Holders) != 1 {
			t.Errorf("%+v, want %v", s, want)
		}
	}
	if got := sum[Torch] + 3*rss.MiB; got != u.Used {
		t.Errorf("held and named %v, used %v", got, u.Used)
	}
	if _, err := Usage("/proc", 1<<30); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "process 1073741824") {
		t.Errorf("no process: %v", err)
	}
}

// must ends the test where there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
