package limit_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
)

// On a real kernel: a process in a limited cgroup, page cache at the limit,
// then its own memory, then the OOM killer.
func TestRealLimit(t *testing.T) {
	g := rsstest.NewGroup(t, 96*rss.MiB)
	leaf := g.Sub("task_0")
	e := rsstest.StartEater(t)
	leaf.Join(e.PID)

	set, _ := limit.Find(context.Background(), limit.Config{Proc: "/proc", Sys: "/sys", PID: e.PID, User: rss.GiB})
	defer set.Close()
	tree := proctree.New("/proc")
	defer tree.Close()
	began := time.Now()
	read := func() event.Limit {
		procs, gaps, err := tree.Tree(rss.ProcID{PID: e.PID})
		if err != nil || len(procs) != 1 {
			t.Fatal(procs, err)
		}
		for _, l := range set.Read(&rss.Sample{At: time.Now(), Mono: time.Since(began), Procs: procs, Gaps: gaps}) {
			if l.Name == event.LimitCgroup && l.Level == g.Dir {
				return l
			}
		}
		t.Fatal("the cgroup's limit is not among them")
		return event.Limit{}
	}
	if l := read(); l.Limit != 96*rss.MiB || l.Scope != event.ScopeCgroup || l.Accounting != event.AccountingCgroup {
		t.Errorf("got %+v", l)
	}

	dir := t.TempDir()
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err == nil && s.Type != unix.TMPFS_MAGIC {
		e.File(200*rss.MiB, filepath.Join(dir, "data"))
		l := read()
		if l.Charged.Of(l.Limit) < 0.9 || l.Ratio() > 0.5 || !strings.Contains(l.Note, "kills nothing") {
			t.Errorf("page cache at the limit: %+v", l)
		}
	}

	before := read()
	e.Anon(40 * rss.MiB)
	f, ok := set.Fast(time.Since(began)+time.Second, 1, nil)
	if !ok || !f.Exact || f.Limit.Level != g.Dir || f.Limit.Used < before.Used+38*rss.MiB {
		t.Errorf("fast: %v, %+v, before %+v", ok, f, before)
	}
	if l := read(); l.Used < before.Used+38*rss.MiB || l.Used > l.Charged {
		t.Errorf("got %+v, before %+v", l, before)
	}

	g.Limit(90 * rss.MiB)
	if l := read(); l.Limit > 90*rss.MiB || l.Limit < 89*rss.MiB {
		t.Errorf("the limit shrank: %+v", l)
	}
	if e.Anon(200 * rss.MiB) {
		t.Skip("240 MiB fit under a limit of 90 MiB: there is swap")
	}
	for _, k := range set.OOMKills() {
		if k.OOMKill == 0 {
			t.Errorf("%+v", k)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	set, _ := limit.Find(context.Background(), limit.Config{Proc: "/proc", Sys: "/sys", PID: syscall.Getpid()})
	defer set.Close()
	tree := proctree.New("/proc")
	defer tree.Close()
	procs, _, err := tree.Tree(rss.ProcID{PID: syscall.Getpid()})
	if err != nil {
		b.Fatal(err)
	}
	sample := &rss.Sample{Procs: procs}
	b.ReportAllocs()
	for b.Loop() {
		set.Read(sample)
	}
}

// TestFollow: the limits of cgroups that the tree moves to are among those that are
// read, and go with the processes. What a cgroup does not count is known.
func TestFollow(t *testing.T) {
	first, second := rsstest.NewGroup(t, 900*rss.MiB), rsstest.NewGroup(t, 96*rss.MiB)
	inner := second.Sub("inner")
	e := rsstest.StartEater(t)
	first.Join(e.PID)

	set, _ := limit.Find(context.Background(), limit.Config{Proc: "/proc", Sys: "/sys", PID: e.PID})
	defer set.Close()
	tree := proctree.New("/proc")
	defer tree.Close()
	began := time.Now()
	var sample rss.Sample
	read := func() map[string]event.Limit {
		procs, _, err := tree.Tree(rss.ProcID{PID: e.PID})
		if err != nil {
			t.Fatal(err)
		}
		sample = rss.Sample{At: time.Now(), Mono: time.Since(began), Procs: procs}
		levels := map[string]event.Limit{}
		for _, l := range set.Read(&sample) {
			levels[l.Level] = l
		}
		return levels
	}
	has := func(what string, want ...rsstest.Group) map[string]event.Limit {
		t.Helper()
		got := read()
		for _, g := range []rsstest.Group{first, second} {
			if _, ok := got[g.Dir]; ok != slices.ContainsFunc(want, func(w rsstest.Group) bool { return w.Dir == g.Dir }) {
				t.Errorf("%s: limit of %s: %v", what, g.Dir, ok)
			}
		}
		return got
	}
	has("at first", first)
	inner.Join(e.PID)
	e.Anon(40 * rss.MiB)
	got := has("moved", first, second)
	if l := got[second.Dir]; l.Used < 40*rss.MiB || l.Limit != 96*rss.MiB || !l.Binding {
		t.Errorf("%+v", l)
	}
	a, b := got[first.Dir], got[second.Dir]
	if out := set.Outside(&a, &sample); out < 40*rss.MiB {
		t.Errorf("the first does not count %v", out)
	}
	if out := set.Outside(&b, &sample); out != 0 {
		t.Errorf("the second does not count %v", out)
	}
	first.Join(e.PID)
	has("moved back", first)
	inner.Join(e.PID)
	has("once more", first, second)
	before := set.NodeKills()
	if e.Anon(200 * rss.MiB) {
		t.Skip("nothing was killed: there is swap")
	}
	var kills uint64
	for _, k := range set.OOMKills() {
		if k.Leaf {
			kills += k.OOMKill
		}
	}
	if kills != 1 || set.NodeKills() == before {
		t.Errorf("%d kills, %d on the node", kills, set.NodeKills()-before)
	}
}
