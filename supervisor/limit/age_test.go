package limit_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
)

// TestAgeOfPSS: a sum says how old the oldest reading is that it rests on, in
// the sample event too.
func TestAgeOfPSS(t *testing.T) {
	pss := strings.Replace(linuxKill, "OverMemoryKill", "OverMemoryKill,UsePss", 1)
	s := newStand(t, rsstest.Unpack(t, "torch"), inJob, pss, func(c *limit.Config) {
		c.User, c.Accounting = rss.GiB, event.AccountingPSS
	})
	read := func(sample *rss.Sample, want float64) {
		t.Helper()
		limits := s.set.Read(sample)
		for _, name := range []event.LimitName{event.LimitUser, event.LimitSlurm} {
			l := get(t, limits, name)
			if l.Accounting != event.AccountingPSS || l.Age != want {
				t.Errorf("%s, compared in %s: %v s old, want %v", name, l.Accounting, l.Age, want)
			}
			b, err := json.Marshal(l)
			if err != nil || strings.Contains(string(b), `"age_s":`) != (want > 0) {
				t.Errorf("%s, %v", b, err)
			}
		}
	}
	sample := s.sample()
	sample.Mono = 90 * time.Second
	read(sample, 0) // nothing was read
	for i, at := range []time.Duration{80 * time.Second, 50 * time.Second} {
		sample.Procs[i].PSS = &rss.PSS{PSS: rss.MiB, RSS: sample.Procs[i].RSS, At: at}
	}
	read(sample, 40)
}

func TestNoAgeWithoutPSS(t *testing.T) {
	s := newStand(t, rsstest.Unpack(t, "torch"), inJob, linuxKill, nil)
	sample := s.sample()
	sample.Mono = 90 * time.Second
	sample.Procs[0].PSS = &rss.PSS{PSS: rss.MiB, RSS: sample.Procs[0].RSS}
	if l := get(t, s.set.Read(sample), event.LimitSlurm); l.Accounting != event.AccountingRSS || l.Age != 0 {
		t.Errorf("compared in %s, %v s old", l.Accounting, l.Age)
	}
}
