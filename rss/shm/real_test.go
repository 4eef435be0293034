package shm

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
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
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), "ROLE=own")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Skip("cannot make a mount namespace:", err)
	}
	t.Cleanup(func() { in.Close(); _ = c.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "ready\n" {
		t.Skip("cannot mount a tmpfs: ", line, err)
	}
	return c.Process.Pid
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

	h, err := Segments("/proc", []int{pid, pid}, 0)
	sum := h.Sum(u.Dev)
	if err != nil || len(sum) != 1 || sum[Torch].Files != 2 || h.Denied+h.Vanished > 0 {
		t.Fatalf("%+v, %v", h, err)
	}
	for _, s := range h.Segments {
		want := map[string]rss.Bytes{"torch_fd": 1, "torch_mapped": 2, "scratch": 4}[s.Name] * rss.MiB
		if s.Size != want || s.Bound || !s.Deleted || len(s.Holders) != 1 {
			t.Errorf("%+v, want %v", s, want)
		}
	}
	if got := sum[Torch].Size + 3*rss.MiB; got != u.Used {
		t.Errorf("held and named %v, used %v", got, u.Used)
	}
	if _, err := Usage("/proc", 1<<30); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "process 1073741824") {
		t.Errorf("no process: %v", err)
	}
}

func BenchmarkShm(b *testing.B) {
	me := os.Getpid()
	b.Run("Usage", func(b *testing.B) {
		for b.Loop() {
			if _, err := Usage("/proc", me); err != nil {
				b.Skip(err)
			}
		}
	})
	b.Run("Segments", func(b *testing.B) {
		for b.Loop() {
			if _, err := Segments("/proc", []int{me}, 0); err != nil {
				b.Fatal(err)
			}
		}
	})
}
