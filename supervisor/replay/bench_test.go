package replay_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/replay"
)

// BenchmarkDay replays a day of 16 processes at a sample each second, with
// another limit: the dearest that a user can ask for.
func BenchmarkDay(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	r := record.NewBuilder(record.Meta{ID: "day"})
	r.Limit(event.Limit{Name: event.LimitSlurm, Scope: event.ScopeStep, Accounting: event.AccountingRSS})
	r.Limit(event.Limit{Name: event.LimitCgroup, Scope: event.ScopeStep, Accounting: event.AccountingCgroup, Level: "/job"})
	for i := range 16 {
		p := record.Proc{ID: rss.ProcID{PID: 100 + i}, Role: rss.RoleWorker}
		if i == 0 {
			p.Role = rss.RoleTrainer
		}
		r.Proc(p)
	}
	for now := time.Duration(0); now < 24*time.Hour; now += time.Second {
		s := record.Sample{At: now}
		var used, anon rss.Bytes
		for i := range 16 {
			age := (now.Seconds()) / 3600
			u := record.Usage{Proc: i, Anon: 200*rss.MiB + rss.Bytes(rng.IntN(256))*rss.KiB, File: rss.Bytes(age*20) * rss.MiB}
			used, anon = used+u.RSS(), anon+u.Anon
			s.Procs = append(s.Procs, u)
		}
		s.Limits = []record.Reading{{Used: used, UsedMax: used, Size: 16 * rss.GiB, ETA: -1, Binding: true}, {Limit: 1, Used: anon, UsedMax: anon, Size: 16 * rss.GiB, ETA: -1}}
		r.Sample(&s)
	}
	run := r.Run()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := replay.Replay(run, replay.Options{Limit: 8 * rss.GiB}); err != nil {
			b.Fatal(err)
		}
	}
}
