package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/trim"
)

// TestCanTrimDrop over the limits and what they count.
func TestCanTrimDrop(t *testing.T) {
	s := opened(t, func(o *Options) { o.Settings.Trim, o.Settings.Events = TrimPtrace, "" })
	s.put(worker1, theCommand, 0, 132*rss.MiB)
	s.put(worker2, theCommand, 0, 232*rss.MiB)
	s.read()
	for pid, pss := range map[int]rss.Bytes{worker1: 132, worker2: 232} {
		s.last.Find(pid).PSS = &rss.PSS{PSS: pss * rss.MiB, RSS: pss * rss.MiB}
	}
	for _, c := range []struct {
		name       event.LimitName
		accounting event.Accounting
		charged    rss.Bytes // used are 900 MiB
		gain       rss.Bytes // 0: no help
	}{
		{event.LimitThrottle, event.AccountingCgroup, 900 * rss.MiB, 200 * rss.MiB}, // one file, of both perhaps
		{event.LimitCgroup, event.AccountingCgroup, 900 * rss.MiB, 0},               // where memory.stat cannot be read
		{event.LimitCgroup, event.AccountingCgroup, 999 * rss.MiB, 0},
		{event.LimitSlurm, event.AccountingCgroup, 900 * rss.MiB, 200 * rss.MiB},
		{event.LimitSlurm, event.AccountingCgroup, 999 * rss.MiB, 0}, // anonymous memory
		{event.LimitSlurm, event.AccountingCgroup, 0, 0},
		{event.LimitSlurm, event.AccountingRSS, 0, 300 * rss.MiB},
		{event.LimitSlurm, event.AccountingNoShared, 0, 0},
		{event.LimitSlurm, event.AccountingVirtual, 0, 0},
		{event.LimitUser, event.AccountingRSS, 0, 300 * rss.MiB},
		{event.LimitUser, event.AccountingPSS, 0, 300 * rss.MiB},
		{event.LimitUser, event.AccountingCgroup, 900 * rss.MiB, 0},
		{event.LimitNode, "", 0, 0},
		{event.LimitSHM, "", 0, 0},
	} {
		l := &event.Limit{Name: c.name, Accounting: c.accounting, Charged: c.charged, Used: 900 * rss.MiB}
		h := s.canTrimDrop(l)
		switch {
		case c.gain == 0 && (h.OK || h.Reason != event.ReasonNoHelp || h.Detail != "clean pages of files do not count here: the kernel takes them back by itself"):
			t.Errorf("%+v: %+v, want that it cannot help", c, h)
		case c.gain != 0 && (!h.OK || h.Gain != c.gain || h.More != charges(l)):
			t.Errorf("%+v: %+v", c, h)
		}
	}
	throttle := &event.Limit{Name: event.LimitThrottle, Accounting: event.AccountingCgroup}
	s.dropper.busy, s.dropper.at = true, "/data/x"
	if h := s.canTrimDrop(throttle); h.OK || h.Reason != event.ReasonTimeout || h.Detail != "/data/x is not done with yet" {
		t.Errorf("while a file hangs: %+v", h)
	}
	s.dropper.busy, s.Settings.Trim = false, TrimOff
	if h, trim := s.canTrimDrop(throttle), s.canTrim(s.user()); h.OK || h.Reason != trim.Reason || h.Detail != trim.Detail {
		t.Errorf("--trim off: %+v, want what trim says: %+v", h, trim)
	}
}

// throttled is a tracedStand, not opened yet, in a cgroup whose memory.high is
// 1000 MiB, of which so much is charged. Both processes map /data; the page cache
// gives back what left says, and the charge falls by it.
func throttled(t *testing.T, change func(*Options)) *stand {
	s := newStand(t, func(o *Options) {
		tracing(TrimPtrace)(o)
		o.Settings.Limit, o.Settings.Rules = 0, []string{"throttle 80%:trim+drop"}
		if change != nil {
			change(o)
		}
	})
	s.fs.Write("proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n")
	s.fs.Write(fmt.Sprintf("proc/%d/cgroup", theHolder), "0::/job\n")
	s.fs.Write("sys/fs/cgroup/job/memory.high", fmt.Sprintln(uint64(1000*rss.MiB)))
	s.fs.Write("sys/fs/cgroup/job/memory.max", "max\n")
	s.fs.Write("sys/fs/cgroup/job/memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n")
	s.charge(900 * rss.MiB)
	s.put(worker1, theCommand, 0, 100*rss.MiB)
	s.put(worker2, theCommand, 0, 150*rss.MiB)
	s.tracer.read = func(a planAsk) plan {
		p := plan{Planned: action.Planned{ID: a.id, Pieces: []rss.Bytes{50 * rss.MiB}}}
		p.pieces = append(p.pieces, trim.Sized{Piece: trim.Piece{ID: a.id, Lo: address(a.id.PID, 0)}, Resident: 50 * rss.MiB})
		return p
	}
	s.dropper.find = func(ids []rss.ProcID) []action.File { return []action.File{{Path: "/data", Mappers: ids}} }
	s.dropper.drop = func(action.File) action.Dropped {
		s.charge(300 * rss.MiB)
		return action.Dropped{Before: 600 * rss.MiB, Measured: true}
	}
	return s
}

func (s *stand) charge(b rss.Bytes) {
	s.fs.Write("sys/fs/cgroup/job/memory.current", fmt.Sprintln(uint64(b)))
	s.fs.Write("sys/fs/cgroup/job/memory.stat", fmt.Sprintf("anon %d\nfile %d\n", 100*rss.MiB, b-100*rss.MiB))
}

// drops waits for the dropper's answer and takes it in.
func (s *stand) drops() {
	s.t.Helper()
	select {
	case a := <-s.dropper.arrived():
		s.foundOrDropped(a)
		s.step(s.advance())
	case <-time.After(time.Minute):
		s.t.Fatal("the dropper has not answered")
	}
}

// TestTrimDropOfACharge trims all that map a file, though the charge has fallen
// meanwhile, and then drops it.
func TestTrimDropOfACharge(t *testing.T) {
	s := throttled(t, nil)
	s.open(s.holder.begin)
	if s.flight == nil || s.flight.decision.Action != event.ActionTrimDrop {
		t.Fatalf("in flight %+v, limits %+v", s.flight, s.readings)
	}
	s.drops() // the files
	var pids []int
	for range 2 {
		s.plans()
		r := s.wanted()
		pids = append(pids, r.PID)
		s.charge(500 * rss.MiB)
		s.full()
		s.charge(900 * rss.MiB)
		s.gives(r, 50*rss.MiB, time.Millisecond)
	}
	s.drops()
	if s.flight != nil || !slices.Equal(pids, []int{worker2, worker1}) {
		t.Fatalf("in flight %+v after trims of %v", s.flight, pids)
	}
	o := named(s.events(), event.NameOutcome)
	const want = "2 processes gave back 150 MiB of mapped pages, stopped for 1.0 ms at most; " +
		"1 file left the page cache: 600 MiB (measured by cachestat) that the next epoch reads from disk again"
	if len(o) != 1 || o[0]["ok"] != true || o[0]["freed_bytes"] != float64(600*rss.MiB) || o[0]["detail"] != want {
		t.Errorf("outcomes %v", o)
	}
	if s.sum.drops != 1 || s.sum.trims != 0 || s.sum.freed != 600*rss.MiB || !strings.Contains(s.sum.deeds(), "trimmed and dropped files from the page cache once") {
		t.Errorf("summary %+v: %s", s.sum, s.sum.deeds())
	}
	if !strings.Contains(s.stderr(), "page cache included; limit from job/memory.high): processes trimmed and their files dropped, freed 600 MiB") ||
		!strings.Contains(s.stderr(), "reads from disk again)") {
		t.Errorf("said:\n%s", s.stderr())
	}
}

// TestTrimDropOfSummedRSS says that the drop adds nothing.
func TestTrimDropOfSummedRSS(t *testing.T) {
	s := throttled(t, func(o *Options) {
		o.Settings.Limit, o.Settings.Rules = 300*rss.MiB, []string{"user 80%:trim+drop"}
	})
	s.open(s.holder.begin)
	s.drops()
	for range 2 {
		s.plans()
		s.gives(s.wanted(), 50*rss.MiB, time.Millisecond)
	}
	s.drops()
	if s.flight != nil {
		t.Fatalf("in flight %+v", s.flight)
	}
	o := named(s.events(), event.NameOutcome)
	if len(o) != 1 || o[0]["freed_bytes"] != float64(150*rss.MiB) || !strings.HasSuffix(o[0]["detail"].(string), "from disk again; the drop does not lower summed RSS") {
		t.Errorf("outcomes %v", o)
	}
}

func TestTrimDropDryRun(t *testing.T) {
	s := throttled(t, func(o *Options) { o.Settings.DryRun = true })
	s.open(s.holder.begin)
	if s.flight != nil || s.dropper.busy || !strings.Contains(s.stderr(), "would trim+drop (dry run)") {
		t.Errorf("in flight %+v, said:\n%s", s.flight, s.stderr())
	}
	if o := named(s.events(), event.NameOutcome); len(o) != 1 || o[0]["reason"] != string(event.ReasonDryRun) {
		t.Errorf("outcomes %v", o)
	}
}

// TestTrimDropThatHangs keeps nothing up for longer than its deadline, and is
// not tried again before the file system has answered.
func TestTrimDropThatHangs(t *testing.T) {
	s := throttled(t, nil)
	release := make(chan struct{})
	s.dropper.drop = func(action.File) action.Dropped {
		<-release
		return action.Dropped{}
	}
	s.open(s.holder.begin)
	s.drops()
	for range 2 {
		s.plans()
		s.gives(s.wanted(), 50*rss.MiB, time.Millisecond)
	}
	s.later(action.DropDeadline)
	s.full()
	if s.flight != nil {
		t.Fatalf("in flight %+v", s.flight)
	}
	s.later(time.Hour)
	s.put(worker1, theCommand, 0, 200*rss.MiB)
	s.full()
	if h := s.canTrimDrop(&event.Limit{Name: event.LimitThrottle, Accounting: event.AccountingCgroup}); s.flight != nil || h.Detail != "/data is not done with yet" {
		t.Errorf("in flight %+v, %+v", s.flight, h)
	}
	close(release)
	s.drops()
	s.full()
	if s.flight == nil || s.came.dropped != nil {
		t.Errorf("in flight %+v: it can be tried again", s.flight)
	}
	if o := named(s.events(), event.NameOutcome); len(o) == 0 || !strings.HasSuffix(o[0]["detail"].(string), "1 file not dropped within 30s") {
		t.Errorf("outcomes %v", o)
	}
}

// TestLoopServesTheDropper runs the loop itself.
func TestLoopServesTheDropper(t *testing.T) {
	s := throttled(t, nil)
	s.holder.wants = make(chan hold.TrimRequest)
	dropped := make(chan struct{})
	s.dropper.drop = func(action.File) action.Dropped {
		close(dropped)
		return action.Dropped{Before: 1, Measured: true}
	}
	s.open(s.holder.begin)
	done := make(chan struct{})
	go func() {
		s.loop()
		close(done)
	}()
	for range 2 {
		s.holder.trimmed <- hold.TrimAnswer{ID: (<-s.holder.wants).ID}
	}
	<-dropped
	s.holder.exited <- hold.Exit{}
	<-done
}

// TestFindFiles by what processes map: those of 4 MiB and more, each once.
func TestFindFiles(t *testing.T) {
	s := newStand(t, nil)
	for pid, text := range map[int]string{
		worker1: "10000000-10800000 r--s 00000000 fd:01 7 /data/a\n20000000-20200000 r--s 00000000 fd:01 8 /data/pieces\n30000000-30200000 r--s 00400000 fd:01 8 /data/pieces\n",
		worker2: "10000000-10800000 r--s 00000000 fd:01 7 /data/a\n11000000-13000000 r--s 00000000 fd:02 7 /data/b\n" +
			"20000000-20100000 r--s 00000000 fd:01 9 /data/small\n30000000-31000000 r--p 00000000 fd:01 10 /lib/x.so\n40000000-41000000 rw-s 00000000 fd:01 11 /data/written\n50000000-51000000 r--s 00000000 00:05 12 /dev/shm/x\n",
	} {
		s.put(pid, theCommand, 0, 0)
		s.fs.Write(fmt.Sprintf("proc/%d/maps", pid), text)
	}
	one, two := rss.ProcID{PID: worker1, Start: 1 << 40}, rss.ProcID{PID: worker2, Start: 1 << 40}
	files := s.findFiles([]rss.ProcID{one, two, {PID: worker3, Start: 1}})
	var got []string
	for _, f := range files {
		got = append(got, fmt.Sprint(f.Path, len(f.Mappers)))
	}
	if want := []string{"/data/b1", "/data/a2", "/data/pieces1"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestDropFile drops a real one.
func TestDropFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newStand(t, nil)
	d := s.dropFile(action.File{Path: path, Dev: 1, Inode: 1, Mappers: []rss.ProcID{{PID: worker1}}})
	if d.Err == nil || !strings.Contains(d.Err.Error(), "another file is there now") {
		t.Errorf("%+v", d)
	}
}
