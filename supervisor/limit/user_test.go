package limit_test

import (
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

func TestUserLimit(t *testing.T) {
	v1 := func() rsstest.Tree { return rsstest.Unpack(t, "torch", "slurm-v1") }
	for _, c := range []struct {
		name   string
		fs     rsstest.Tree
		conf   string
		env    map[string]string
		change func(*limit.Config)
		want   event.Accounting
		limit  rss.Bytes
	}{
		{"auto under a cgroup", v1(), cgroupRAM, inJob, func(c *limit.Config) { c.User = rss.GiB }, event.AccountingCgroup, rss.GiB},
		{"auto under slurmstepd", v1(), linuxKill, inJob, func(c *limit.Config) { c.User = rss.GiB }, event.AccountingRSS, rss.GiB},
		{"auto without any", rsstest.Unpack(t, "torch"), "", nil, func(c *limit.Config) { c.User = rss.GiB }, event.AccountingRSS, rss.GiB},
		{"asked", v1(), cgroupRAM, inJob, func(c *limit.Config) {
			c.User = rss.GiB
			c.Accounting = event.AccountingNoShared
		}, event.AccountingNoShared, rss.GiB},
		{"a share", v1(), cgroupRAM, inJob, func(c *limit.Config) { c.UserShare = 0.5 }, event.AccountingCgroup, 350 * rss.MiB},
		{"cgroup without one", rsstest.Unpack(t, "torch"), "", nil, func(c *limit.Config) {
			c.User = rss.GiB
			c.Accounting = event.AccountingCgroup
		}, event.AccountingRSS, rss.GiB},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStand(t, c.fs, c.env, c.conf, c.change)
			l := get(t, s.read(), event.LimitUser)
			if l.Accounting != c.want || l.Limit != c.limit || l.Used == 0 {
				t.Errorf("got %+v", l)
			}
		})
	}
	t.Run("pss is an interval", func(t *testing.T) {
		s := newStand(t, rsstest.Unpack(t, "torch"), nil, "", func(c *limit.Config) {
			c.User, c.Accounting = rss.GiB, event.AccountingPSS
		})
		if !s.set.NeedsPSS() {
			t.Error("needs PSS")
		}
		sample := s.sample()
		l := get(t, s.set.Read(sample), event.LimitUser)
		if l.Used != 0 || l.UsedMax != total(sample.Procs) {
			t.Errorf("never read: %v to %v", l.Used, l.UsedMax)
		}
		var want rss.Bytes
		for i := range sample.Procs {
			p, err := s.tree.PSS(sample.Procs[i].ID)
			wardentest.NoError(t, err)
			sample.Procs[i].PSS = &p
			want += p.PSS
		}
		l = get(t, s.set.Read(sample), event.LimitUser)
		if l.Used < want-rss.MiB || l.Used > want || l.UsedMax < l.Used || l.UsedMax >= total(sample.Procs) {
			t.Errorf("read: %v to %v, want %v", l.Used, l.UsedMax, want)
		}
	})
}
