package rsstest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// Group is a real memory cgroup made for a test.
type Group struct {
	Dir     string
	Version int
	t       testing.TB
}

// NewGroup makes a memory cgroup with this limit below the root that can be
// seen, and removes it at the end of the test, once it is empty. It skips the
// test where that is not allowed.
func NewGroup(t testing.TB, limit rss.Bytes) Group {
	t.Helper()
	g := Group{t: t, Version: 1}
	top := "/sys/fs/cgroup/memory"
	if _, err := os.Stat(filepath.Join(top, "memory.usage_in_bytes")); err != nil {
		top, g.Version = "/sys/fs/cgroup", 2
	}
	g.Dir = filepath.Join(top, fmt.Sprintf("rsswarden-test-%d-%d", os.Getpid(), time.Now().UnixNano()))
	if err := os.Mkdir(g.Dir, 0o755); err != nil {
		t.Skip("cannot make a cgroup:", err)
	}
	g.removeAtEnd()
	g.Limit(limit)
	return g
}

// GroupDir makes a cgroup below another. All may read it, unlike what [os.MkdirTemp]
// makes: who counts the kills of a level looks into each below.
func GroupDir(parent string) (string, error) {
	dir, err := os.MkdirTemp(parent, "rsswarden-test-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	return dir, err
}

// Sub makes a group below g, without a limit of its own.
func (g Group) Sub(name string) Group {
	g.t.Helper()
	if g.Version == 2 {
		if err := os.WriteFile(filepath.Join(g.Dir, "cgroup.subtree_control"), []byte("+memory"), 0); err != nil {
			g.t.Skip("cannot enable the memory controller:", err)
		}
	}
	sub := Group{Dir: filepath.Join(g.Dir, name), Version: g.Version, t: g.t}
	if err := os.Mkdir(sub.Dir, 0o755); err != nil {
		g.t.Skip("cannot make a cgroup:", err)
	}
	sub.removeAtEnd()
	return sub
}

// Limit sets the group's memory limit.
func (g Group) Limit(limit rss.Bytes) {
	g.t.Helper()
	file := map[int]string{1: "memory.limit_in_bytes", 2: "memory.max"}[g.Version]
	if err := os.WriteFile(filepath.Join(g.Dir, file), []byte(strconv.FormatUint(uint64(limit), 10)), 0); err != nil {
		g.t.Skip("cannot set a memory limit:", err)
	}
}

// Join moves a process into the group.
func (g Group) Join(pid int) {
	g.t.Helper()
	if err := os.WriteFile(filepath.Join(g.Dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
		g.t.Fatal(err)
	}
}

// removeAtEnd removes the directory as soon as its last process is gone, which
// may be a little after it was reaped.
func (g Group) removeAtEnd() {
	g.t.Cleanup(func() {
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			err := os.Remove(g.Dir)
			if err == nil || os.IsNotExist(err) {
				return
			}
			if time.Now().After(deadline) {
				g.t.Errorf("%s is left behind: %v", g.Dir, err)
				return
			}
		}
	})
}
