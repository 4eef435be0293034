package tell

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/metrics"
	"github.com/rsswarden/rsswarden/supervisor/view"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestEnd: the exit event and the summary of the same end.
func TestEnd(t *testing.T) {
	size := event.Limit{Name: event.LimitUser, Accounting: event.AccountingRSS, Used: 500 * rss.MiB, Limit: rss.GiB}
	seven, status, interrupt := 7, 137, 130
	kill := "SIGKILL"
	for name, c := range map[string]struct {
		sum    Summary
		end    Ending
		by     string
		code   *int
		signal *string
		want   event.RunOutcome
		advice bool
	}{
		"by itself":        {end: Ending{Said: true, Code: 7}, by: "command", code: &seven, want: event.RunFailed},
		"by a signal":      {end: Ending{Said: true, Signal: 9}, by: "command", signal: &kill, want: event.RunKilled},
		"by an order":      {end: Ending{Said: true, Code: 130}, by: "command", code: &interrupt, want: event.RunCancelled},
		"well":             {end: Ending{Said: true}, by: "command", code: new(int), want: event.RunOK, advice: true},
		"stopped":          {sum: Summary{Stopped: true}, end: Ending{Said: true, Signal: 15, StopStatus: 137}, by: "rsswarden", code: &status, want: event.RunStopped, advice: true},
		"the holder ended": {by: "command", want: event.RunUnknown},
		"others' ended":    {end: Ending{Said: true, Attached: "process 7 has ended"}, by: "command", want: event.RunUnknown},
		"others' runs on":  {end: Ending{Attached: "process 7 runs on"}, by: "detached", want: event.RunUnknown},
		"several ranks":    {sum: Summary{Ranks: 2}, end: Ending{Said: true, Node: "n1"}, by: "command", code: new(int), want: event.RunOK, advice: true},
		"hidden processes": {sum: Summary{treeSeen: treeSeen{unread: 3}}, end: Ending{Said: true}, by: "command", code: new(int), want: event.RunOK},
		"in the queue":     {end: Ending{Said: true, Requeued: &Requeued{From: rss.GiB, To: 2 * rss.GiB}}, by: "command", code: new(int), want: event.RunRequeued, advice: true},
	} {
		s, e := c.sum, c.end
		s.Watched, s.nearest, s.looks = true, &size, 2
		e.Took = time.Second
		out, brief := s.End(&e)
		if out.By != c.by || !same(out.Code, c.code) || !same(out.Signal, c.signal) || (out.Next.Size != 0) != c.advice || out.Outcome != c.want {
			t.Errorf("%s: %+v", name, out)
		}
		if brief.Outcome != out.Outcome || brief.Peak == nil || brief.Peak.Used != size.Used {
			t.Errorf("%s: %+v", name, brief)
		}
	}
}

func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// TestWhatRanOut is what a failure may be laid to, by what was read when.
func TestWhatRanOut(t *testing.T) {
	of := func(name event.LimitName, percent rss.Bytes, age float64) event.Limit {
		return event.Limit{Name: name, Scope: event.ScopeProcess, Used: percent * 10, UsedMax: percent * 10, Limit: 1000, Age: age, PID: 7}
	}
	shared := func(name event.LimitName, percent rss.Bytes) event.Limit {
		return event.Limit{Name: name, Scope: event.ScopeNode, Used: percent * 10, UsedMax: percent * 10, Limit: 1000}
	}
	type reading struct {
		at float64 // seconds
		l  event.Limit
	}
	other := func(l event.Limit) event.Limit {
		l.PID++
		return l
	}
	for _, c := range []struct {
		name     string
		readings []reading
		last     float64
		want     rss.Bytes // used; 0 for none
		pace     float64   // of the process that is nearest, a second
	}{
		{"never near", []reading{{1, of(event.LimitFDs, 94, 0)}}, 1, 0, 0},
		{"at the end", []reading{{1, of(event.LimitFDs, 10, 0)}, {2, of(event.LimitFDs, 96, 0)}}, 2, 960, 0},
		{"a process that ended just before", []reading{{10, of(event.LimitFDs, 99, 0)}, {11, of(event.LimitFDs, 5, 0)}}, 20, 990, 0},
		{"a training that takes long to end", []reading{{10, of(event.LimitFDs, 96, 0)}, {11, of(event.LimitFDs, 5, 0)}}, 35, 960, 0},
		{"a process that ended a minute before", []reading{{10, of(event.LimitFDs, 99, 0)}, {11, of(event.LimitFDs, 5, 0)}}, 70, 0, 0},
		{"an hour before, and again", []reading{{10, of(event.LimitFDs, 99, 0)}, {3590, of(event.LimitFDs, 97, 0)}}, 3600, 970, 0},
		{"the fullest of the last", []reading{{10, of(event.LimitFDs, 99, 0)}, {50, of(event.LimitFDs, 96, 0)}, {52, of(event.LimitFDs, 97, 0)}}, 60, 970, 0},
		{"on its way", []reading{{1, of(event.LimitMaps, 60, 0)}, {2, of(event.LimitMaps, 80, 0)}}, 2, 800, 0},
		{"another is on its way", []reading{{1, of(event.LimitMaps, 60, 0)}, {2, other(of(event.LimitMaps, 79, 0))}}, 2, 790, 100},
		{"another is on its way, slowly", []reading{{1, of(event.LimitMaps, 60, 0)}, {2, other(of(event.LimitMaps, 79, 0))}}, 2, 0, 10},
		{"slowly on its way", []reading{{1, of(event.LimitMaps, 60, 0)}, {2, of(event.LimitMaps, 62, 0)}}, 2, 0, 0},
		{"it was on its way", []reading{{1, of(event.LimitMaps, 60, 0)}, {2, of(event.LimitMaps, 80, 0)}, {9, of(event.LimitMaps, 80, 0)}}, 20, 0, 0},
		{"counted long ago", []reading{{100, of(event.LimitFDs, 99, 90)}}, 100, 0, 0},
		{"a /dev/shm that others fill", []reading{{1, shared(event.LimitSHM, 96)}, {2, shared(event.LimitSHM, 97)}}, 2, 0, 0},
		{"a /dev/shm that fills", []reading{{1, shared(event.LimitSHM, 60)}, {2, shared(event.LimitSHM, 83)}}, 2, 830, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s Summary
			for _, r := range c.readings {
				s.Peak(&rss.Sample{Mono: seconds(r.at)}, []event.Limit{r.l}, func(*event.Limit) float64 { return c.pace })
			}
			name := c.readings[0].l.Name
			l, ok := s.tails[name].ranOut(seconds(c.last))
			if ok != (c.want > 0) || ok && l.Used != c.want {
				t.Errorf("%v %v, want %v", l.Used, ok, c.want)
			}
		})
	}
}

func seconds(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }

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

// TestRunNumber: the first process of two containers has the same PID.
func TestRunNumber(t *testing.T) {
	dir := t.TempDir()
	of := func(namespace string) int {
		link := filepath.Join(dir, namespace)
		wardentest.NoError(t, os.Symlink(namespace, link))
		return runNumber(link, 7)
	}
	if n := of("pid:[4026531836]"); n != 7 {
		t.Errorf("on the node itself %d, want its PID", n)
	}
	if n := runNumber(filepath.Join(dir, "none"), 7); n != 7 {
		t.Errorf("where that cannot be read %d, want its PID", n)
	}
	if a, b := of("pid:[4026532001]"), of("pid:[4026532002]"); a == b || a <= 0 || b <= 0 {
		t.Errorf("in two containers %d and %d", a, b)
	}
}

// TestRunTime: a watcher that is started again goes on with the time of the run,
// whatever the clock was set to since.
func TestRunTime(t *testing.T) {
	r, since := &Run{}, time.Now()
	for _, set := range []time.Duration{0, time.Hour, -time.Hour} {
		r.Begun, r.BegunMono = time.Now().Add(set-90*time.Second), Monotonic()-90*time.Second
		if at := r.Took(since); at < 90*time.Second || at > 100*time.Second {
			t.Errorf("after the clock was set by %v the run has lasted %v, want 90 s", set, at)
		}
	}
	r.Begun, r.BegunMono = time.Now().Add(time.Hour), 0
	if at := r.Took(since); at < 0 {
		t.Errorf("the run has lasted %v", at)
	}
}

// TestPlace: what a run is known by.
func TestPlace(t *testing.T) {
	env := func(vars ...string) func(string) (string, bool) {
		return func(name string) (value string, ok bool) {
			i := slices.IndexFunc(vars, func(v string) bool { return strings.HasPrefix(v, name+"=") })
			if i < 0 {
				return "", false
			}
			return strings.CutPrefix(vars[i], name+"=")
		}
	}
	host := slurm.NodeName(env())
	array := env("SLURM_JOB_ID=48", "SLURM_ARRAY_JOB_ID=46", "SLURM_ARRAY_TASK_ID=2", "SLURM_STEP_ID=0", "SLURMD_NODENAME=n1")
	for name, c := range map[string]struct {
		lookup   func(string) (string, bool)
		holder   int    // 0 where this watcher has attached
		attached string // … to that job
		want     metrics.Place
	}{
		"outside Slurm":        {env(), 7, "", metrics.Place{Node: host}},
		"batch script":         {env("SLURM_JOB_ID=46", "SLURMD_NODENAME=n1"), 7, "", metrics.Place{JobID: "46", Step: "batch", Node: "n1"}},
		"array task":           {array, 7, "", metrics.Place{JobID: "48", Step: "0", Node: "n1"}},
		"attached to a PID":    {array, 0, "", metrics.Place{JobID: "48", Step: "0", Node: "n1"}},
		"… outside Slurm":      {env(), 0, "", metrics.Place{Node: host}},
		"attached to a job":    {array, 0, "48", metrics.Place{JobID: "48", Node: "n1"}},
		"attached to a step":   {array, 0, "48.batch", metrics.Place{JobID: "48", Step: "batch", Node: "n1"}},
		"attached, no environ": {env(), 0, "48.0", metrics.Place{JobID: "48", Step: "0", Node: host}},
	} {
		r := Run{ID: name, Lookup: c.lookup, Node: slurm.NodeName(c.lookup), Job: JobOf(c.lookup), Holder: c.holder}
		c.want.Run = r.Label()
		if diff := cmp.Diff(c.want, r.Place(c.attached)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	label := func(id string) string { r := Run{ID: id}; return r.Label() }
	if a, b := label("20261122T120000Z-46.0.0-n1-7"), label("20261122T120001Z-46.0.0-n1-7"); a == b || len(a) != 8 {
		t.Errorf("two lives of a job are %q and %q", a, b)
	}
}
