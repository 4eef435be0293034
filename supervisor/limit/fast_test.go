package limit_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
)

const container = "sys/fs/cgroup/"

func TestFastCgroup(t *testing.T) {
	fs := rsstest.Unpack(t, "torch", "namespaced-v2")
	s := newStand(t, fs, nil, "", nil)
	base := s.read()[0]
	now := time.Second
	// cached is what of page cache is inactive; the rest of it stays.
	cached := func(old, inactive rss.Bytes) {
		const rest = 439463936 - 429916160
		fs.Replace(container+"memory.stat", fmt.Sprintf("\ninactive_file %d\n", uint64(old)), fmt.Sprintf("\ninactive_file %d\n", uint64(inactive)))
		fs.Replace(container+"memory.stat", fmt.Sprintf("\nfile %d\n", uint64(old+rest)), fmt.Sprintf("\nfile %d\n", uint64(inactive+rest)))
	}
	set := func(usage rss.Bytes) { fs.Write(container+"memory.current", fmt.Sprintf("%12d\n", uint64(usage))) }
	threshold := base.Used + 50*rss.MiB

	t.Run("below the threshold one counter is read", func(t *testing.T) {
		cached(429916160, 440401920)
		set(base.Charged + 20*rss.MiB)
		now += 2 * time.Millisecond
		f, ok := s.set.Fast(now, threshold, nil)
		if !ok || f.Used == f.UsedMax || f.Used != base.Used+20*rss.MiB || f.UsedMax != base.Charged+20*rss.MiB {
			t.Errorf("%v: %+v", ok, f)
		}
	})
	t.Run("above the threshold memory.stat is read at once", func(t *testing.T) {
		set(base.Charged + 60*rss.MiB)
		f, ok := s.set.Fast(now, threshold, nil)
		if !ok || f.Used != f.UsedMax || f.Used != base.Used+50*rss.MiB || f.UsedMax != f.Used {
			t.Errorf("%v: used %v, base %v, %+v", ok, f.Used, base.Used, f)
		}
	})
	t.Run("at the limit not twice within 50 ms", func(t *testing.T) {
		set(base.Limit)
		now += 10 * time.Millisecond
		f, ok := s.set.Fast(now, 2*base.Limit, nil)
		if !ok || f.Used == f.UsedMax {
			t.Errorf("%v: %+v", ok, f)
		}
	})
	t.Run("at the limit cache may turn into anon unseen", func(t *testing.T) {
		set(base.Limit)
		cached(440401920, 1048576)
		now += 100 * time.Millisecond
		f, ok := s.set.Fast(now, base.Limit, nil)
		if !ok || f.Used != f.UsedMax || f.Ratio() < 0.9 {
			t.Errorf("%v: %+v", ok, f)
		}
	})
	t.Run("gone", func(t *testing.T) {
		fs.Write(container+"memory.current", "\n")
		if f, ok := s.set.Fast(now, 0, nil); ok {
			t.Errorf("%+v", f)
		}
	})
}

func TestFastSums(t *testing.T) {
	for _, c := range []struct {
		acc             event.Accounting
		grown, grownMax int // MiB after the tree grew by 10
		shrunk          int // MiB after it shrank by 10
	}{
		{event.AccountingRSS, 10, 10, -10},
		{event.AccountingNoShared, 0, 10, -10},
	} {
		t.Run(string(c.acc), func(t *testing.T) {
			s := newStand(t, rsstest.Unpack(t, "torch"), nil, "", func(cfg *limit.Config) {
				cfg.User, cfg.Accounting = rss.GiB, c.acc
			})
			sample := s.sample()
			base := s.set.Read(sample)[0]
			sum := total(sample.Procs)
			at := func(n rss.Bytes) event.Limit {
				f, ok := s.set.Fast(time.Second, 0, func() (rss.Bytes, error) { return n, nil })
				if !ok {
					t.Fatal("no reading")
				}
				return f
			}
			mib := func(a, b rss.Bytes) int { return (int(a) - int(b)) / int(rss.MiB) }
			f := at(sum + 10*rss.MiB)
			if g, m := mib(f.Used, base.Used), mib(f.UsedMax, base.UsedMax); g != c.grown || m != c.grownMax {
				t.Errorf("grown by %d to %d MiB", g, m)
			}
			if g := mib(at(sum-10*rss.MiB).Used, base.Used); g != c.shrunk {
				t.Errorf("shrunk by %d MiB", g)
			}
			if _, ok := s.set.Fast(0, 0, func() (rss.Bytes, error) { return 0, errors.New("no") }); ok {
				t.Error("a failed sum")
			}
		})
	}
}

// What slurmstepd sums of its tasks' cgroups moves with the tree's RSS until the
// next full look.
func TestFastTasks(t *testing.T) {
	conf := strings.Replace(linuxKill, "gather/linux", "gather/cgroup", 1)
	fs := rsstest.Unpack(t, "torch", "slurm-v1")
	for _, level := range []string{"", "/step_batch", "/step_batch/task_0"} {
		fs.Write("sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7"+level+"/memory.limit_in_bytes", "9223372036854771712\n")
	}
	s := newStand(t, fs, inJob, conf, nil)
	sample := s.sample()
	limits := s.set.Read(sample)
	base := get(t, limits, event.LimitSlurm)
	if !base.Binding {
		t.Fatalf("binding: %+v", limits[0])
	}
	grown := total(sample.Procs) + 10*rss.MiB
	f, ok := s.set.Fast(time.Second, 0, func() (rss.Bytes, error) { return grown, nil })
	if !ok || f.Used != base.Used+10*rss.MiB {
		t.Errorf("%v: %+v, was %v", ok, f, base.Used)
	}
}

func TestFastNode(t *testing.T) {
	fs := rsstest.Unpack(t, "torch")
	s := newStand(t, fs, nil, "", nil)
	base := s.read()[0]
	fs.Write("proc/meminfo", fmt.Sprintf("MemTotal: %d kB\nMemAvailable: 1024 kB\n", base.Limit/rss.KiB))
	f, ok := s.set.Fast(0, 0, nil)
	if !ok || f.Used != f.UsedMax || f.Name != event.LimitNode || f.Used != base.Limit-rss.MiB {
		t.Errorf("%v: %+v", ok, f)
	}
	fs.Write("proc/meminfo", "")
	if _, ok := s.set.Fast(0, 0, nil); ok {
		t.Error("without meminfo")
	}
}
