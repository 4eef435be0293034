package supervisor

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/leader"
)

// rankStand is one rank of job 46, whose command is a real process. All ranks of a
// test see one made-up /proc.
type rankStand struct {
	*jobStand
	id rss.ProcID // of the command
}

// newRank makes the watcher of a rank in a step that has a cgroup with 1000 MiB. It
// has neither joined nor opened.
func newRank(t *testing.T, first *rankStand, dir string, task int, step string, command rss.ProcID, rules ...string) *rankStand {
	t.Helper()
	s := newStand(t, func(o *Options) {
		inJob(t, task, dir, "SLURM_STEP_ID="+step)(o)
		o.Settings.Rules, o.Settings.Limit, o.Self = rules, 0, theHolder+task*10+9
		if first != nil {
			o.Proc, o.Sys = first.Proc, first.Sys
		}
	})
	r := &rankStand{&jobStand{stand: s}, command}
	if first != nil {
		s.fs = first.fs
	}
	s.holder.begin.Holder = theHolder + task*10
	s.holder.begin.PID, s.holder.begin.Start = command.PID, command.Start
	s.watcher.command, s.watcher.holder = command, s.holder.begin.Holder
	s.fs.Write("proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n")
	s.fs.Write("proc/sys/kernel/random/boot_id", "b\n")
	r.uses("", 0)
	r.uses(step, 10)
	for _, p := range []rsstest.Process{
		{PID: s.holder.begin.Holder, Parent: 1, Start: 4, Comm: "rsswarden"},
		{PID: s.Self, Parent: s.holder.begin.Holder, Start: 5, Comm: "rsswarden"},
		{PID: command.PID, Parent: s.holder.begin.Holder, Start: command.Start, Comm: "python", Anon: rss.MiB},
	} {
		s.fs.Put(p)
		s.fs.Write(fmt.Sprintf("proc/%d/cgroup", p.PID), fmt.Sprintf("4:memory:/slurm/uid_1/job_46/step_%s\n", step))
	}
	return r
}

// leads has a rank join, lead and open.
func (r *rankStand) leads() {
	r.t.Helper()
	if !r.join(r.holder.begin) {
		r.t.Fatal("it does not lead")
	}
	r.t.Cleanup(func() { r.pass(nil) })
	r.open(r.holder.begin)
}

// follows has a rank join that does not lead.
func (r *rankStand) follows() {
	r.t.Helper()
	if r.join(r.holder.begin) {
		r.t.Fatal("two lead")
	}
	r.t.Cleanup(func() { r.pass(nil) })
}

// meets has the leader meet so many, and learn the limits of so many steps more.
func (r *rankStand) meets(ranks, steps int) {
	r.t.Helper()
	if r.meet(); len(r.peers.others) != ranks {
		r.t.Fatalf("met %+v", r.peers.others)
	}
	r.full()
	for range steps {
		select {
		case found := <-r.peers.job.found:
			r.foundStep(found)
		case <-time.After(10 * time.Second):
			r.t.Fatal("the limits of the other step were not found")
		}
	}
	r.full()
}

// ordered is what stands for a rank to do.
func (r *rankStand) ordered() leader.Order {
	r.t.Helper()
	o, err := r.peers.post.Ordered()
	if err != nil {
		r.t.Fatal(err)
	}
	return o
}

// ended has a rank's command end by a signal while it leads.
func (r *rankStand) ended(signal int) { r.end(&hold.Exit{Signal: signal}) }

// dead waits until a process has ended.
func dead(t *testing.T, id rss.ProcID) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); lives("/proc", id); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %v lives", id)
		}
	}
}

// counter is a process that says which of TERM and WINCH it got, and lives on.
func counter(t *testing.T) (*rsstest.Child, rss.ProcID) {
	t.Helper()
	c := rsstest.StartChild(t, exec.Command("/bin/sh", "-c",
		"trap 'echo TERM' TERM; trap 'echo WINCH' WINCH; echo ready; while kill -0 $PPID; do sleep 0.05; done"))
	t.Cleanup(func() { _ = unix.Kill(c.PID, unix.SIGKILL) })
	if line, err := c.Line(); line != "ready" {
		t.Fatal(line, err)
	}
	start, err := proctree.StartTime("/proc", c.PID)
	if err != nil {
		t.Fatal(err)
	}
	return c, rss.ProcID{PID: c.PID, Start: start}
}

// terms is how often it got TERM since it was last asked. Of signals that wait the
// one with the lower number is met first, and that is TERM.
func terms(t *testing.T, c *rsstest.Child) (n int) {
	t.Helper()
	if err := unix.Kill(c.PID, unix.SIGWINCH); err != nil {
		t.Fatal(err)
	}
	for {
		switch line, err := c.Line(); line {
		case "TERM":
			n++
		case "WINCH":
			return n
		default:
			t.Fatal(line, err)
		}
	}
}

// TestStopOfAnotherRanksStep: a stop of a step that only other ranks are in is an
// order to them, and KILL to what has not ended; ours goes on, whatever its end.
func TestStopOfAnotherRanksStep(t *testing.T) {
	dir := runtimeDir(t)
	ours, oursID := sleeper(t)
	deaf := catcher(t)
	s := newRank(t, nil, dir, 0, "0", oursID, "90%:stop")
	s.leads()
	other := newRank(t, s, dir, 1, "1", deaf, "90%:stop")
	other.follows()
	s.meets(1, 1)
	s.uses("1", 950)
	s.full()
	if want := "stopping step 46.1 with TERM"; !strings.Contains(s.stderr(), want) {
		t.Fatalf("%q is not in\n%s", want, s.stderr())
	}
	if o := other.ordered(); !o.Stop || o.StopStatus != 137 || o.Grace != time.Minute {
		t.Errorf("ordered %+v", o)
	}
	if s.sum.stopped || len(s.holder.overrides) > 0 {
		t.Errorf("ours counts as stopped: %v", s.holder.overrides)
	}
	s.later(2 * time.Minute)
	s.full()
	dead(t, deaf)
	s.fs.End(deaf.PID)
	s.uses("1", 10)
	s.full()
	s.full()
	if want := "stopped step 46.1, freed"; !strings.Contains(s.stderr(), want) {
		t.Errorf("%q is not in\n%s", want, s.stderr())
	}
	if !running(ours) {
		t.Error("ours was ended")
	}
}

// TestStopOfOurStepAlone: where ranks of another step go on, the end of our command
// is by rsswarden all the same.
func TestStopOfOurStepAlone(t *testing.T) {
	dir := runtimeDir(t)
	ours, oursID := sleeper(t)
	theirs, theirsID := sleeper(t)
	s := newRank(t, nil, dir, 0, "0", oursID, "90%:stop")
	s.leads()
	other := newRank(t, s, dir, 1, "1", theirsID, "90%:stop")
	other.follows()
	s.meets(1, 1)
	s.uses("0", 950)
	s.full()
	if got := endedBy(t, ours); got != unix.SIGTERM {
		t.Errorf("ours was ended by %v", got)
	}
	if !slices.Equal(s.holder.overrides, []int{137}) {
		t.Errorf("the holder is to end with %v", s.holder.overrides)
	}
	if o := other.ordered(); o.Stop || !running(theirs) {
		t.Errorf("the other step was stopped: %+v", o)
	}
	s.ended(15)
	if last := s.events(); last[len(last)-1]["by"] != "rsswarden" || last[len(last)-1]["code"] != 137.0 {
		t.Errorf("%v", last[len(last)-1])
	}
}

// TestEndBesideStopOfOthers: a stop of other ranks is not told as done when our
// command ends before they do.
func TestEndBesideStopOfOthers(t *testing.T) {
	dir := runtimeDir(t)
	_, oursID := sleeper(t)
	deaf := catcher(t)
	s := newRank(t, nil, dir, 0, "0", oursID, "90%:stop")
	s.leads()
	newRank(t, s, dir, 1, "1", deaf, "90%:stop").follows()
	s.meets(1, 1)
	s.uses("1", 950)
	s.full()
	s.ended(9)
	all := s.events()
	if o := named(all, event.NameOutcome); len(o) != 1 || o[0]["ok"] != false || o[0]["reason"] != string(event.ReasonVanished) {
		t.Errorf("outcomes %v", o)
	}
	if last := all[len(all)-1]; last["by"] != "command" || last["signal"] != "SIGKILL" {
		t.Errorf("%v", last)
	}
}

// TestStopWithoutAnOrder: a rank whose watcher cannot be asked gets its TERM from the
// leader, and one whose watcher can only from that.
func TestStopWithoutAnOrder(t *testing.T) {
	for _, c := range []struct {
		name   string
		breaks func(t *testing.T, other *rankStand)
		direct bool
		says   string
	}{
		{"it can be asked", func(*testing.T, *rankStand) {}, false, ""},
		{"its watcher has ended", func(_ *testing.T, o *rankStand) { o.fs.End(o.Self) }, true, "stop: the watcher of task 1 has ended: its command gets TERM from here"},
		{"its watcher is a zombie", func(_ *testing.T, o *rankStand) {
			o.fs.Put(rsstest.Process{PID: o.Self, Parent: 1, Start: 5, Comm: "rsswarden", State: 'Z'})
		}, true, "stop: the watcher of task 1 has ended"},
		{"another has its PID", func(_ *testing.T, o *rankStand) {
			o.fs.Put(rsstest.Process{PID: o.Self, Parent: 1, Start: 6, Comm: "sh"})
		}, true, "stop: the watcher of task 1 has ended"},
		{"no file for orders", func(t *testing.T, o *rankStand) {
			if err := os.Remove(o.peers.post.Orders()); err != nil {
				t.Fatal(err)
			}
		}, true, "no such file or directory: its command gets TERM from here"},
		{"no room for orders", func(t *testing.T, o *rankStand) { // O_TRUNC succeeds, the write fails
			if err := os.Remove(o.peers.post.Orders()); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mknod(o.peers.post.Orders(), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 7))); err != nil {
				t.Skip("only root can make a device that is full:", err)
			}
		}, true, "cannot write order."}, // ENOSPC, EACCES where no device may be used
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := runtimeDir(t)
			_, oursID := sleeper(t)
			theirs, theirsID := sleeper(t)
			s := newRank(t, nil, dir, 0, "0", oursID, "90%:stop")
			s.leads()
			other := newRank(t, s, dir, 1, "0", theirsID, "90%:stop")
			other.follows()
			s.meets(1, 0)
			c.breaks(t, other)
			s.uses("0", 950)
			s.full()
			switch {
			case !c.direct:
				if !running(theirs) || !other.ordered().Stop {
					t.Error("it was not asked alone")
				}
			case endedBy(t, theirs) != unix.SIGTERM:
				t.Error("it got no TERM")
			}
			if !strings.Contains(s.stderr(), c.says) || c.says == "" && strings.Contains(s.stderr(), "stop: ") {
				t.Errorf("want %q in\n%s", c.says, s.stderr())
			}
			if s.flight == nil {
				t.Error("nobody sees to the KILL")
			}
		})
	}
}
