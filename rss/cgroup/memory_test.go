package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
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
	want := Stat{Anon: 10, Cache: 95, Unevictable: 3, ActiveFile: 20, InactiveFile: 30, Shmem: 40, PgMajFault: 8, LeastMax: 100, LeastSwap: Unlimited}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(err, d)
	}
	v2 := "anon 10\nanon_thp 4\nfile 1\nunevictable 2\nkernel 11\nshmem 40\nfile_mapped 50\nfile_dirty 6\nfile_writeback 7\nswapcached 9\ninactive_file 30\nactive_file 20\nslab_reclaimable 60\ntotal_rss 99\npgmajfault 8\nunheard_of 1\n"
	got, err = parseStat([]byte(v2), 2)
	want = Stat{Anon: 10, AnonTHP: 4, Cache: 1, Unevictable: 2, ActiveFile: 20, InactiveFile: 30, Shmem: 40, PgMajFault: 8, SlabReclaimable: 60, Kernel: 11, SwapCached: 9}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(err, d)
	}
	for _, in := range []string{"", "anon", "anon x\n", "anon -1\n", "nothing_known 1\n", "anon 1 2\n"} {
		if s, err := parseStat([]byte(in), 2); err == nil {
			t.Errorf("%q: got %+v", in, s)
		}
	}
}

// TestUnreclaimable: what reclaim can take back kills nothing; all else does. At the limit
// reclaim takes pages from the lists to look at them, and they are page cache still.
func TestUnreclaimable(t *testing.T) {
	for _, c := range []struct {
		name          string
		charged       rss.Bytes
		stat          Stat
		want, working rss.Bytes
	}{
		{"anon alone", 100, Stat{Anon: 100}, 100, 100},
		{"page cache, dirty or not", 100, Stat{Anon: 10, ActiveFile: 40, InactiveFile: 50}, 10, 50},
		{"tmpfs is in no file list", 100, Stat{Anon: 10, Shmem: 90}, 100, 100},
		{"reclaimable slab", 100, Stat{Anon: 10, SlabReclaimable: 60}, 40, 100},
		{"stat ahead of usage", 50, Stat{ActiveFile: 40, InactiveFile: 50}, 0, 0},
		{"all on lists", 200, Stat{Cache: 100, ActiveFile: 40, InactiveFile: 60}, 100, 140},
		{"half looked at", 200, Stat{Cache: 100, ActiveFile: 40, InactiveFile: 10}, 100, 190},
		{"shared memory", 200, Stat{Cache: 100, Shmem: 30, InactiveFile: 70}, 130, 130},
		{"locked", 200, Stat{Cache: 100, Unevictable: 30, InactiveFile: 70}, 130, 130},
		{"in the swap cache", 200, Stat{Cache: 100, SwapCached: 30, InactiveFile: 70}, 130, 130},
		{"locked anonymous too", 200, Stat{Cache: 100, Unevictable: 90, InactiveFile: 100}, 100, 100},
		{"no sum of page cache", 200, Stat{InactiveFile: 70}, 130, 130},
		{"more than charged", 200, Stat{Cache: 900}, 0, 200},
	} {
		got := sum(c.charged, c.stat)
		if got.Unreclaimable != c.want || got.WorkingSet != c.working || got.Reclaimable+got.Unreclaimable != c.charged {
			t.Errorf("%s: %+v, want %d and working set %d", c.name, got, c.want, c.working)
		}
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

func TestMemoryV1(t *testing.T) {
	p := open(t, rsstest.Unpack(t, "torch", "slurm-v1"), rsstest.Trainer)
	job := p.Levels[2]
	m, err := job.Memory()
	must(t, err)
	if m.Anon < 200*rss.MiB || m.Unreclaimable < m.Anon || m.Unreclaimable > m.Charged-m.InactiveFile || m.LeastMax != 700*rss.MiB || m.LeastSwap != Unlimited {
		t.Errorf("got %+v", m)
	}
	root := p.Levels[len(p.Levels)-1]
	if m, err := root.Memory(); err != nil || m.LeastMax != Unlimited {
		t.Errorf("root: %+v, %v", m, err)
	}
	pids, err := job.Procs()
	if err != nil || !cmp.Equal(pids, []int{4100, 4101, 4102, 4103, 4104, 4105, 4106}) {
		t.Errorf("processes %v, %v", pids, err)
	}
}

func TestMemoryV2(t *testing.T) {
	p := open(t, rsstest.Unpack(t, "torch", "slurm-v2"), rsstest.Trainer)
	user := p.Levels[1]
	lim, err := user.Limits()
	want := Limits{Max: 770 * rss.MiB, High: 700 * rss.MiB, Swap: 0, Swappable: true}
	if err != nil || lim != want {
		t.Errorf("limits %+v, %v", lim, err)
	}
	m, err := user.Memory()
	if err != nil || m.Unreclaimable != m.Charged-(410+9+6)*rss.MiB || m.WorkingSet != m.Charged-410*rss.MiB {
		t.Errorf("got %+v, %v", m, err)
	}
}

// fakeGroup is a v1 cgroup in a temporary tree, all numbers in MiB.
type fakeGroup struct{ charged, anon, file, kernel, hits int }

func (g fakeGroup) write(t *testing.T, dir string) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o755))
	for name, text := range map[string]string{
		"memory.usage_in_bytes":      fmt.Sprint(g.charged << 20),
		"memory.kmem.usage_in_bytes": fmt.Sprint(g.kernel << 20),
		"memory.failcnt":             fmt.Sprint(g.hits),
		"memory.oom_control":         "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
		"memory.stat": fmt.Sprintf("total_rss %d\ntotal_cache %d\ntotal_inactive_file %d\n",
			g.anon<<20, g.file<<20, g.file<<20),
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
}

// TestBehind: the charge shows that memory.stat is out of date; the levels below have the
// current values.
func TestBehind(t *testing.T) {
	for name, c := range map[string]struct {
		job, step fakeGroup
		want      rss.Bytes // unreclaimable, MiB
	}{
		"of now":                       {fakeGroup{500, 300, 199, 1, 0}, fakeGroup{490, 290, 199, 1, 0}, 301},
		"page cache is missing":        {fakeGroup{500, 300, 0, 1, 0}, fakeGroup{490, 290, 199, 1, 0}, 301},
		"page cache went, memory came": {fakeGroup{500, 100, 300, 1, 0}, fakeGroup{490, 290, 199, 1, 0}, 291},
		"all is missing":               {fakeGroup{500, 0, 0, 1, 0}, fakeGroup{500, 499, 0, 1, 0}, 500},
		"page cache went":              {fakeGroup{200, 0, 300, 1, 0}, fakeGroup{200, 199, 0, 1, 0}, 200},
		"no level below knows":         {fakeGroup{500, 300, 0, 1, 0}, fakeGroup{0, 0, 0, 0, 0}, 500},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "job")
			c.job.write(t, dir)
			c.step.write(t, filepath.Join(dir, "step_0"))
			l := Level{Version: 1, Dir: dir}
			defer l.Close()
			m, err := l.Memory()
			if err != nil || m.Unreclaimable != c.want*rss.MiB || m.Reclaimable+m.Unreclaimable != m.Charged {
				t.Errorf("%v, %+v, want %v MiB", err, m, c.want)
			}
		})
	}
}

// TestStandsStill: page cache made room for memory, the sum is the same, and
// memory.stat says nothing of it. The limit was hit.
func TestStandsStill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "job")
	job := fakeGroup{charged: 500, anon: 100, file: 399, kernel: 1}
	job.write(t, dir)
	step := filepath.Join(dir, "step_0")
	job.write(t, step)
	l := Level{Version: 1, Dir: dir}
	defer l.Close()
	want := func(mib rss.Bytes) {
		t.Helper()
		m, err := l.Memory()
		if err != nil || m.Unreclaimable != mib*rss.MiB {
			t.Fatalf("%v, %+v, want %v MiB", err, m, mib)
		}
	}
	want(101)
	want(101)
	fakeGroup{charged: 500, anon: 400, file: 99, kernel: 1}.write(t, step)
	want(101) // nothing shows that
	job.hits = 5
	job.write(t, dir)
	want(401)
}

// TestHalfway: page cache made room for memory, and memory.stat has a part of that, until
// the kernel sums up all.
func TestHalfway(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "job")
	step := filepath.Join(dir, "step_0")
	l := Level{Version: 1, Dir: dir}
	defer l.Close()
	for i, c := range []struct {
		job, step fakeGroup
		want      rss.Bytes // unreclaimable, MiB
	}{
		{fakeGroup{500, 100, 399, 1, 0}, fakeGroup{500, 100, 399, 1, 0}, 101},
		{fakeGroup{500, 150, 349, 1, 5}, fakeGroup{500, 400, 99, 1, 0}, 401},
		{fakeGroup{500, 150, 349, 1, 5}, fakeGroup{500, 400, 99, 1, 0}, 401}, // and no more is hit
		{fakeGroup{500, 400, 99, 1, 5}, fakeGroup{500, 400, 99, 1, 0}, 401},
		{fakeGroup{500, 300, 199, 1, 5}, fakeGroup{500, 100, 399, 1, 0}, 101}, // and the reverse
		{fakeGroup{500, 300, 199, 1, 5}, fakeGroup{500, 100, 399, 1, 0}, 101},
	} {
		c.job.write(t, dir)
		c.step.write(t, step)
		if m, err := l.Memory(); err != nil || m.Unreclaimable != c.want*rss.MiB || m.Reclaimable+m.Unreclaimable != m.Charged {
			t.Errorf("reading %d: %v, %+v, want %v MiB", i, err, m, c.want)
		}
	}
}

// TestOther: what memory.stat never counts is no reason to read more for longer
// than it can be behind.
func TestOther(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "job")
	job := fakeGroup{charged: 500, anon: 300, file: 99, kernel: 1}
	job.write(t, dir)
	l := Level{Version: 1, Dir: dir}
	defer l.Close()
	m, err := l.Memory()
	if err != nil || !l.behind(m) {
		t.Fatalf("%v, %+v", err, m)
	}
	l.lag.since = time.Now().Add(-lagAtMost)
	if m, err = l.Memory(); err != nil || l.behind(m) || m.Unreclaimable != 401*rss.MiB {
		t.Errorf("%v, %+v, %+v", err, m, l.lag)
	}
	job.charged = 400 // it went, and is not missed in what follows
	job.write(t, dir)
	if m, err = l.Memory(); err != nil || !l.behind(m) || m.Unreclaimable != 301*rss.MiB {
		t.Errorf("%v, %+v, %+v", err, m, l.lag)
	}
}

func TestParseEvents(t *testing.T) {
	got, err := parseEvents([]byte("low 0\nhigh 7\nmax 12\noom 1\noom_kill 3\noom_group_kill 1\n"))
	if err != nil || got != (Events{OOMKill: 3, Hit: 12, High: 7, OOM: 1}) {
		t.Errorf("v2: %+v, %v", got, err)
	}
	got, err = parseEvents([]byte("oom_kill_disable 0\nunder_oom 1\noom_kill 2\n"))
	if err != nil || got != (Events{OOMKill: 2}) {
		t.Errorf("v1: %+v, %v", got, err)
	}
	for _, in := range []string{"", "oom_kill", "oom_kill x", "a 1 2"} {
		if _, err := parseEvents([]byte(in)); err == nil {
			t.Errorf("%q: no error", in)
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

func FuzzParseEvents(f *testing.F) {
	f.Add([]byte("oom_kill 1\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if e, err := parseEvents(b); err == nil && e.OOMKill > 0 && !strings.Contains(string(b), "oom_kill") {
			t.Errorf("%+v from %q", e, b)
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

// v1 counts an OOM kill where the victim was, v2 up to the root since Linux 5.2.
func TestEvents(t *testing.T) {
	fs := rsstest.Unpack(t, "torch", "slurm-v1")
	dir := "sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7/"
	fs.Replace(dir+"step_batch/task_0/memory.oom_control", "oom_kill 0", "oom_kill 2")
	fs.Write(dir+"memory.failcnt", "759\n")
	e, err := open(t, fs, rsstest.Trainer).Levels[2].Events()
	if err != nil || e != (Events{OOMKill: 2, Hit: 759}) {
		t.Errorf("v1: %+v, %v", e, err)
	}
	fs = rsstest.Unpack(t, "torch", "slurm-v2")
	dir = "sys/fs/cgroup/system.slice/n1_slurmstepd.scope/job_7/"
	fs.Write(dir+"memory.events", "low 0\nhigh 5\nmax 6\noom 1\noom_kill 1\n")
	e, err = open(t, fs, rsstest.Trainer).Levels[3].Events()
	if err != nil || e != (Events{OOMKill: 1, Hit: 6, High: 5, OOM: 1}) {
		t.Errorf("v2: %+v, %v", e, err)
	}
	// Before Linux 5.2 it counted where the victim was, and had no memory.events.local.
	fs.Write(dir+"memory.events", "low 0\nhigh 5\nmax 6\noom 1\noom_kill 0\n")
	fs.Write(dir+"step_batch/memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 3\n")
	e, err = open(t, fs, rsstest.Trainer).Levels[3].Events()
	if err != nil || e != (Events{OOMKill: 3, Hit: 6, High: 5, OOM: 1}) {
		t.Errorf("v2 before Linux 5.2: %+v, %v", e, err)
	}
	fs.Write(dir+"memory.events.local", "low 0\nhigh 5\nmax 6\noom 1\noom_kill 0\n")
	e, err = open(t, fs, rsstest.Trainer).Levels[3].Events()
	if err != nil || e.OOMKill != 0 {
		t.Errorf("v2 since Linux 5.2: %+v, %v", e, err)
	}
}
