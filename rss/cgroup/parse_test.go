package cgroup

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss"
)

func TestParseLimit(t *testing.T) {
	for in, want := range map[string]rss.Bytes{
		"max\n":                 Unlimited,
		"9223372036854771712\n": Unlimited, // 4 KiB pages
		"9223372036854710272\n": Unlimited, // 64 KiB pages
		"9223372036854775807\n": Unlimited, // before Linux 3.19
		"0\n":                   0,
		"1024":                  1024,
		"734003200\n":           700 * rss.MiB,
	} {
		if got, err := parseLimit([]byte(in)); err != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "\n", "-1", "maximum", "1 2", "1k", "99999999999999999999"} {
		if got, err := parseLimit([]byte(in)); err == nil {
			t.Errorf("%q: got %d", in, got)
		}
	}
}

func TestParseStat(t *testing.T) {
	v1 := "cache 5\ntotal_cache 95\ntotal_unevictable 3\ntotal_rss 10\ntotal_active_file 20\ntotal_inactive_file 30\ntotal_shmem 40\ntotal_mapped_file 50\n" +
		"total_dirty 6\ntotal_writeback 7\ntotal_pgmajfault 8\nanon 99\nhierarchical_memory_limit 100\nhierarchical_memsw_limit 9223372036854771712"
	got, err := parseStat([]byte(v1), 1)
	want := Stat{Anon: 10, Cache: 95, Unevictable: 3, ActiveFile: 20, InactiveFile: 30, Shmem: 40, FileMapped: 50, FileDirty: 6, Writeback: 7, PgMajFault: 8, LeastMax: 100, LeastSwap: Unlimited}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(err, d)
	}
	v2 := "anon 10\nanon_thp 4\nfile 1\nunevictable 2\nkernel 11\nshmem 40\nfile_mapped 50\nfile_dirty 6\nfile_writeback 7\nswapcached 9\ninactive_file 30\nactive_file 20\nslab_reclaimable 60\ntotal_rss 99\npgmajfault 8\nunheard_of 1\n"
	got, err = parseStat([]byte(v2), 2)
	want = Stat{Anon: 10, AnonTHP: 4, Cache: 1, Unevictable: 2, ActiveFile: 20, InactiveFile: 30, Shmem: 40, FileMapped: 50, FileDirty: 6, Writeback: 7, PgMajFault: 8, SlabReclaimable: 60, Kernel: 11, SwapCached: 9}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(err, d)
	}
	for _, in := range []string{"", "anon", "anon x\n", "anon -1\n", "nothing_known 1\n", "anon 1 2\n"} {
		if s, err := parseStat([]byte(in), 2); err == nil {
			t.Errorf("%q: got %+v", in, s)
		}
	}
}

// What reclaim can take back kills nothing; all else does.
func TestUnreclaimable(t *testing.T) {
	for _, c := range []struct {
		name    string
		charged rss.Bytes
		stat    Stat
		want    rss.Bytes
		working rss.Bytes
	}{
		{"anon alone", 100, Stat{Anon: 100}, 100, 100},
		{"clean cache", 100, Stat{Anon: 10, ActiveFile: 40, InactiveFile: 50}, 10, 50},
		{"dirty and under writeback", 100, Stat{Anon: 10, ActiveFile: 40, InactiveFile: 50, FileDirty: 20, Writeback: 5}, 10, 50},
		{"tmpfs is in no file list", 100, Stat{Anon: 10, Shmem: 90}, 100, 100},
		{"reclaimable slab", 100, Stat{Anon: 10, SlabReclaimable: 60}, 40, 100},
		{"more dirty than file cache", 100, Stat{Anon: 90, ActiveFile: 5, FileDirty: 50}, 95, 100},
		{"stat ahead of usage", 50, Stat{ActiveFile: 40, InactiveFile: 50}, 0, 0},
	} {
		got := sum(c.charged, c.stat)
		if got.Unreclaimable != c.want || got.WorkingSet != c.working || got.Reclaimable+got.Unreclaimable != c.charged {
			t.Errorf("%s: %+v, want %d and working set %d", c.name, got, c.want, c.working)
		}
	}
}

func TestParseEvents(t *testing.T) {
	got, err := parseEvents([]byte("low 0\nhigh 7\nmax 12\noom 1\noom_kill 3\noom_group_kill 1\n"))
	if err != nil || got != (Events{OOMKill: 3, Hit: 12, High: 7}) {
		t.Errorf("v2: %+v, %v", got, err)
	}
	got, err = parseEvents([]byte("oom_kill_disable 0\nunder_oom 1\noom_kill 2\n"))
	if err != nil || got != (Events{OOMKill: 2, UnderOOM: true}) {
		t.Errorf("v1: %+v, %v", got, err)
	}
	for _, in := range []string{"", "oom_kill", "oom_kill x", "a 1 2"} {
		if _, err := parseEvents([]byte(in)); err == nil {
			t.Errorf("%q: no error", in)
		}
	}
}

func TestParseGroups(t *testing.T) {
	got, err := parseGroups([]byte("0::/user.slice\n7:memory,hugetlb:/batch:1/job (deleted)\n1:name=systemd:/\n"))
	if err != nil || len(got) != 3 {
		t.Fatal(got, err)
	}
	if g := got[0]; g.path != "/batch:1/job" || !slices.Contains(g.controllers, "memory") || g.unified() {
		t.Errorf("memory comes first: %+v", g)
	}
	if g := got[1]; !g.unified() {
		t.Errorf("then %+v", g)
	}
	if g := got[2]; slices.Contains(g.controllers, "memory") || g.unified() {
		t.Errorf("systemd: %+v", g)
	}
	for _, in := range []string{"0:", "0::relative", "x"} {
		if g, err := parseGroups([]byte(in)); err == nil {
			t.Errorf("%q: got %+v", in, g)
		}
	}
}

func TestParseMounts(t *testing.T) {
	got, err := parseMounts([]byte(`35 31 0:32 /a\040b /sys/fs/cgroup/mem\011ory\134x rw shared:1 master:2 - cgroup cgroup rw,memory
36 31 0:33 / /sys/fs/cgroup/unified rw - cgroup2 none rw
37 31 0:34 / /data rw - ext4 /dev/sda rw
cut off
`))
	want := []mount{
		{root: "/a b", point: "/sys/fs/cgroup/mem\tory\\x", version: 1, controllers: []string{"rw", "memory"}},
		{root: "/", point: "/sys/fs/cgroup/unified", version: 2},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(mount{})); d != "" || err != nil {
		t.Error(err, d)
	}
	if got, err := parseMounts([]byte("nothing here\n")); err == nil {
		t.Errorf("got %+v", got)
	}
}

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		root, name string
		unnamed    int
		want       string
		ok         bool
	}{
		{"/", "/a/b", 0, "/a/b", true},
		{"/", "/", 0, "/", true},
		{"/docker/x", "/docker/x", 0, "/", true},
		{"/docker/x", "/docker/x/job", 0, "/job", true},
		{"/docker/x", "/docker/xy", 0, "", false},
		{"/docker/x", "/", 0, "", false},
		// In a cgroup namespace, by a mount from outside …
		{"/../..", "/", 2, "/", true},
		{"/../..", "/a", 2, "/a", true},
		{"/../..", "/../a", 1, "/a", true},
		{"/../..", "/../../a", 0, "/a", true},
		{"/../../x", "/../../x/y", 0, "/y", true},
		{"/../x", "/", 0, "", false},
		{"/../x", "/a", 0, "", false},
		{"/..", "/..a", 1, "/..a", true},
		// … and a process that is outside of what the mount shows.
		{"/", "/..", 0, "", false},
		{"/", "/../other", 0, "", false},
		{"/..", "/../../other", 0, "", false},
		{"/docker/x", "/../other", 0, "", false},
	} {
		if unnamed, got, ok := within(c.root, c.name); unnamed != c.unnamed || got != c.want || ok != c.ok {
			t.Errorf("%s below %s: %d, %q, %v", c.name, c.root, unnamed, got, ok)
		}
	}
}

func TestParseProcs(t *testing.T) {
	got, err := parseProcs([]byte("12\n0\n7\n\n"))
	if err != nil || !cmp.Equal(got, []int{12, 7}) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := parseProcs([]byte("12\n-7\n")); err == nil {
		t.Error("no error")
	}
}

func FuzzParseLimit(f *testing.F) {
	f.Add([]byte("max"))
	f.Add([]byte("9223372036854771712\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, err := parseLimit(b); err == nil && n >= noLimit && n != Unlimited {
			t.Errorf("%d from %q", n, b)
		}
	})
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("total_rss 1\nanon 2"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, version := range []int{1, 2} {
			s, err := parseStat(b, version)
			if err != nil {
				continue
			}
			if m := sum(1<<40, s); m.Unreclaimable > m.Charged || m.WorkingSet > m.Charged {
				t.Errorf("%+v from %q", m, b)
			}
		}
	})
}

func FuzzParseEvents(f *testing.F) {
	f.Add([]byte("oom_kill 1\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if e, err := parseEvents(b); err == nil && e.OOMKill > 0 && !strings.Contains(string(b), "oom_kill") {
			t.Errorf("%+v from %q", e, b)
		}
	})
}

func FuzzParseGroups(f *testing.F) {
	f.Add([]byte("4:memory:/a\n0::/b"))
	f.Fuzz(func(t *testing.T, b []byte) {
		groups, _ := parseGroups(b)
		for _, g := range groups {
			if !strings.HasPrefix(g.path, "/") {
				t.Errorf("%+v from %q", g, b)
			}
			if _, below, ok := within("/x", g.path); ok && !strings.HasPrefix(below, "/") {
				t.Errorf("%q from %q", below, b)
			}
		}
	})
}

func FuzzParseMounts(f *testing.F) {
	f.Add([]byte(`35 31 0:32 / /a\040b rw - cgroup cgroup rw,memory`))
	f.Fuzz(func(t *testing.T, b []byte) {
		mounts, _ := parseMounts(b)
		for _, m := range mounts {
			if m.version != 1 && m.version != 2 {
				t.Errorf("%+v from %q", m, b)
			}
		}
	})
}

func FuzzParseProcs(f *testing.F) {
	f.Add([]byte("1\n2\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		pids, _ := parseProcs(b)
		for _, pid := range pids {
			if pid <= 0 {
				t.Errorf("%d from %q", pid, b)
			}
		}
	})
}

// TestPagesOnNoList: at the limit reclaim takes pages from the lists to look at
// them, and they are page cache still.
func TestPagesOnNoList(t *testing.T) {
	const mib = rss.MiB
	for name, c := range map[string]struct {
		s    Stat
		want rss.Bytes
	}{
		"all on lists":         {Stat{Cache: 100 * mib, ActiveFile: 40 * mib, InactiveFile: 60 * mib}, 100 * mib},
		"half looked at":       {Stat{Cache: 100 * mib, ActiveFile: 40 * mib, InactiveFile: 10 * mib}, 100 * mib},
		"shared memory":        {Stat{Cache: 100 * mib, Shmem: 30 * mib, InactiveFile: 70 * mib}, 70 * mib},
		"locked":               {Stat{Cache: 100 * mib, Unevictable: 30 * mib, InactiveFile: 70 * mib}, 70 * mib},
		"in the swap cache":    {Stat{Cache: 100 * mib, SwapCached: 30 * mib, InactiveFile: 70 * mib}, 70 * mib},
		"locked anonymous too": {Stat{Cache: 100 * mib, Unevictable: 90 * mib, InactiveFile: 100 * mib}, 100 * mib},
		"not told":             {Stat{InactiveFile: 70 * mib}, 70 * mib},
		"more than charged":    {Stat{Cache: 900 * mib}, 200 * mib},
	} {
		if got := sum(200*mib, c.s); got.Reclaimable != c.want || got.Unreclaimable != 200*mib-c.want {
			t.Errorf("%s: %+v, want %v reclaimable", name, got, c.want)
		}
	}
}
