package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"golang.org/x/sys/unix"
)

// TestNoDescriptorLeft: what cannot be read for want of one is neither absent, nor no
// limit, nor empty, and is read when there is one again.
func TestNoDescriptorLeft(t *testing.T) {
	for version, files := range map[int]map[string]string{
		1: {
			"memory.limit_in_bytes": "1000", "memory.memsw.limit_in_bytes": "2000", "memory.soft_limit_in_bytes": "500", "memory.swappiness": "0",
			"memory.use_hierarchy": "1", "memory.failcnt": "3", "memory.oom_control": "oom_kill 0", "cgroup.procs": "1", "below/memory.oom_control": "oom_kill 2", "below/cgroup.procs": "2",
		},
		2: {"memory.max": "1000", "memory.swap.max": "2000", "memory.high": "900", "memory.events": "oom_kill 2", "cgroup.procs": "1", "below/cgroup.procs": "2"},
	} {
		dir := t.TempDir()
		for name, text := range files {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		l := &Level{Version: version, Dir: dir}
		t.Cleanup(l.Close)
		if _, err := l.Max(); err != nil { // its descriptor is kept
			t.Fatal(err)
		}
		rsstest.WithoutDescriptors(t, func() {
			_, limits := l.Limits()
			_, events := l.Events()
			_, procs := l.Procs()
			for what, err := range map[string]error{"limits": limits, "events": events, "processes": procs} {
				if !errors.Is(err, unix.EMFILE) {
					t.Errorf("v%d: %s: %v", version, what, err)
				}
			}
		})
		lim, err := l.Limits()
		if err != nil || lim.Max != 1000 || lim.Swap != 2000 || lim.Swappable != (version == 2) {
			t.Errorf("v%d: then %+v, %v", version, lim, err)
		}
		if e, err := l.Events(); err != nil || e.OOMKill != 2 {
			t.Errorf("v%d: then %+v, %v", version, e, err)
		}
		if pids, err := l.Procs(); err != nil || len(pids) != 2 {
			t.Errorf("v%d: then %v, %v", version, pids, err)
		}
	}
}

// TestNoDescriptorOnTheWay: a part is not the whole.
func TestNoDescriptorOnTheWay(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	rsstest.WithoutDescriptors(t, func() {
		if err := walk(dir, func(string) {}); !errors.Is(err, unix.EMFILE) {
			t.Errorf("got %v", err)
		}
	})
}
