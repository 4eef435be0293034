package observe

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/rss/shm"
)

// holding has this process hold a file of that size in /dev/shm, without its name
// if deleted.
func holding(t *testing.T, name string, size rss.Bytes, deleted bool) {
	t.Helper()
	f, err := os.Create(fmt.Sprintf("/dev/shm/%s_%d", name, os.Getpid()))
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		f.Close()
		os.Remove(f.Name())
	})
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(size)); err != nil {
		t.Skip(err)
	}
	if deleted {
		os.Remove(f.Name())
	}
}

// TestSHMUsers words who holds what in the /dev/shm of this process.
func TestSHMUsers(t *testing.T) {
	if space, err := shm.Usage("/proc", os.Getpid()); err != nil || !space.Tmpfs {
		t.Skipf("no tmpfs on /dev/shm: %+v, %v", space, err)
	}
	ask := shmQuestion{proc: "/proc", pid: os.Getpid(), all: []int{os.Getpid()}}
	if got := ask.read(); !strings.HasPrefix(got, "in /dev/shm this job holds nothing of size") {
		t.Fatalf("before: %s", got)
	}
	holding(t, "torch_a", 3*rss.MiB, true)
	holding(t, "torch_b", 2*rss.MiB, false)
	holding(t, "mine", 2*rss.MiB, true)
	holding(t, "torch_c", 4096, true)
	got := ask.read()
	want := fmt.Sprintf(`^in /dev/shm this job holds torch 5\.00 MiB \(3 segments, 2 without a name, in processes %d\), [a-z ]+ 2\.00 MiB \(1 segment, 1 without a name, in processes %d\)$`, os.Getpid(), os.Getpid())
	if !regexp.MustCompile(want).MatchString(got) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	ask.pid = 1 << 22
	if got := ask.read(); got != "" {
		t.Errorf("of one that is gone %q", got)
	}

	g := rsstest.NewGroup(t, rss.GiB)
	ask.pid, ask.level = os.Getpid(), g.Dir
	if got := ask.read(); !strings.Contains(got, " of shared memory are charged to memory/rsswarden-test") && g.Version == 1 {
		t.Errorf("with a cgroup: %s", got)
	}
}

// TestMostUsers: the fullest go first, and thousands of workers are not listed.
func TestMostUsers(t *testing.T) {
	held := shm.Held{Segments: []shm.Segment{
		{Kind: shm.Torch, Dev: 1, Size: rss.MiB, Holders: []int{1, 2, 3, 4, 5, 6, 7, 8}, Deleted: true},
		{Kind: shm.Torch, Dev: 1, Size: rss.MiB, Holders: []int{8}},
		{Kind: shm.Torch, Dev: 2, Size: rss.MiB, Holders: []int{99}},
	}}
	a := shmQuestion{}
	if got, want := a.segments(&held, 1, shm.Torch), "2 segments, 1 without a name, in processes 8, 1, 2, 3, 4, 5 and 2 more"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
