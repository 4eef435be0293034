package tell

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

func viewOf(limits ...event.Limit) *view.View { return &view.View{Limits: limits} }

// TestLimits: a new or moved limit is reported; one that moves a little by itself is not.
func TestLimits(t *testing.T) {
	cgroup := func(level string, size rss.Bytes) event.Limit {
		return event.Limit{Name: event.LimitCgroup, Level: level, Limit: size}
	}
	maps := func(pid int) event.Limit { return event.Limit{Name: event.LimitMaps, PID: pid, Limit: 100} }
	s := newStand(t)
	before, after := viewOf(cgroup("/a", 1000), cgroup("/b", 1000)), viewOf(cgroup("/a", 600), cgroup("/b", 1001), cgroup("/c", 5), maps(7))
	if found := s.Limits.Tell(0, before, after); len(found) != 2 || found[0].Level != "/c" || found[1].Name != event.LimitMaps {
		t.Errorf("found %+v", found)
	}
	for _, later := range []*view.View{viewOf(), viewOf(maps(7)), viewOf(maps(8))} { // it is not read for a while, and nearest in another
		if found := s.Limits.Tell(0, after, later); len(found) != 0 {
			t.Errorf("found %+v", found)
		}
		after = later
	}
	all := s.events()
	if len(all) != 3 || all[0]["level"] != "/a" || all[0]["limit_bytes"] != 600.0 || all[1]["level"] != "/c" || all[2]["limit"] != "maps" {
		t.Errorf("told of %v", all)
	}
	if s.said.count("limit 5 B, 0 % used: cgroup /c of a process") != 1 || s.said.count("limit cgroup is now 600 B, was 1000 B") != 1 {
		t.Errorf("%q", s.said.all)
	}
}

// TestLateLimit: a limit that Slurm enforces and that scontrol told of after the first lines
// is introduced once it leaves the least room, and only then.
func TestLateLimit(t *testing.T) {
	s := newStand(t)
	limits := func(step, job rss.Bytes) *view.View {
		slurm := func(scope event.Scope, enforcer string, used rss.Bytes) event.Limit {
			return event.Limit{Name: event.LimitSlurm, Scope: scope, Enforcer: enforcer, Accounting: event.AccountingRSS, Limit: 2150 * rss.MiB, Used: used}
		}
		v := viewOf(slurm(event.ScopeStep, "slurmstepd", step))
		if job > 0 {
			v.Limits = append(v.Limits, slurm(event.ScopeJob, "slurmd", job))
		}
		return v
	}
	const first, late = "limit 2150 MiB, 2 % used: slurm, Slurm kills at summed RSS", "limit 2150 MiB, 50 % used: slurm, Slurm cancels the job at summed RSS, all steps of the job on this node"
	before := limits(43*rss.MiB, 0)
	s.Limits.room(before)
	for i, v := range []*view.View{limits(43*rss.MiB+5, 43*rss.MiB), limits(99*rss.MiB, 1075*rss.MiB), limits(99*rss.MiB, 1080*rss.MiB), limits(99*rss.MiB, 99*rss.MiB), limits(99*rss.MiB, 1080*rss.MiB)} {
		s.Limits.Tell(time.Duration(i)*time.Second, before, v)
		if before = v; s.said.count(first) != 1 || s.said.count(late) != min(i, 1) {
			t.Errorf("%d: %q", i, s.said.all)
		}
	}
}

// TestJobEndMoves: the end that the start event has is not told again, one that was moved
// is, and one that has come is not.
func TestJobEndMoves(t *testing.T) {
	s := newStand(t)
	at := func(left float64) *view.View { return viewOf(event.Limit{Name: event.LimitTime, ETA: &left}) }
	for i, c := range []struct {
		was, is float64
		told    int
	}{{600, 600, 0}, {600, 604, 0}, {604, 660, 1}, {660, 60, 2}, {60, 0, 2}} {
		s.Limits.Tell(time.Duration(i)*time.Minute, at(c.was), at(c.is))
		if n := s.said.count("the job ends "); n != c.told {
			t.Errorf("%d: told %d times, want %d", i, n, c.told)
		}
	}
}
