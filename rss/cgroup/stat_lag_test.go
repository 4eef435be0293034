package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

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
