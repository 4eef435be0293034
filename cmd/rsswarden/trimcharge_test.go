package main_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"golang.org/x/sys/unix"
)

// ownMemoryCgroup is where the test is in the memory hierarchy of cgroup v1.
func ownMemoryCgroup(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	_, home, ok := strings.Cut(string(b), ":memory:")
	if !ok {
		t.Skip("no cgroup v1 with a memory controller")
	}
	home, _, _ = strings.Cut(home, "\n")
	return filepath.Join("/sys/fs/cgroup/memory", home)
}

// memoryCgroup makes a cgroup v1 below that of the test, for the test.
func memoryCgroup(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can make a cgroup here")
	}
	dir, err := rsstest.GroupDir(ownMemoryCgroup(t))
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		until(t, "the cgroup is removed", func() bool { return os.Remove(dir) == nil })
	})
	return dir
}

// TestTrimDropLowersACharge when the last that maps the file was trimmed, not
// before.
func TestTrimDropLowersACharge(t *testing.T) {
	dir := memoryCgroup(t)
	path := mapFile(t)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil || fs.Type == unix.TMPFS_MAGIC {
		t.Skip("a file of tmpfs cannot leave the page cache")
	}
	// It was written by us, and is to be read, and charged, inside.
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	usage := func() int {
		b, err := os.ReadFile(filepath.Join(dir, "memory.usage_in_bytes"))
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	inside := []string{"/bin/sh", "-c", `echo $$ > ` + filepath.Join(dir, "cgroup.procs") + ` && exec "$@"`, "sh"}
	var both [2]*mapper
	for i := range both {
		both[i] = startMapper(t, path, "futex", nil, inside...)
	}
	before := usage()
	if before < mappedBytes {
		t.Fatalf("the cgroup is charged for %d bytes, the file is not among them", before)
	}
	var after [2]int
	for i, m := range both {
		got, _ := trims(t, nil, 0, "--drop", "--pid", m.pid())
		after[i] = usage()
		if len(got.Processes) != 1 || got.Processes[0].Freed == nil || len(got.Dropped) != 1 || got.Dropped[0].Error != "" {
			t.Fatalf("%+v", got)
		}
		d := got.Dropped[0]
		if d.After == nil {
			t.Skip("the kernel has no cachestat")
		}
		t.Logf("process %d: gave back %d MiB; of the file were %d MiB in the page cache and are %d; the charge is %d MiB, was %d",
			i+1, *got.Processes[0].Freed>>20, *d.Before>>20, *d.After>>20, after[i]>>20, before>>20)
		if left := *d.Before - *d.After; i == 0 && left > 0 || i == 1 && left < mappedBytes-1<<20 {
			t.Errorf("process %d: %d bytes left the page cache", i+1, left)
		}
	}
	if after[0] < before-8<<20 || after[1] > after[0]-mappedBytes+8<<20 {
		t.Errorf("the charge was %d and then %v", before, after)
	}
	began := time.Now()
	for _, m := range both {
		m.intact()
	}
	t.Logf("read again from disk within %v", time.Since(began))
}
