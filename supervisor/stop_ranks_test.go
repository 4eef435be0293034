package supervisor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

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
	if s.tell.Sum.Stopped || len(s.holder.overrides) > 0 {
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
		{"its watcher has ended", func(_ *testing.T, o *rankStand) { o.fs.End(o.Self) }, true, "stop: the watcher of rank 1 has ended: its command gets TERM from here"},
		{"its watcher is a zombie", func(_ *testing.T, o *rankStand) {
			o.fs.Put(rsstest.Process{PID: o.Self, Parent: 1, Start: 5, Comm: "rsswarden", State: 'Z'})
		}, true, "stop: the watcher of rank 1 has ended"},
		{"another has its PID", func(_ *testing.T, o *rankStand) {
			o.fs.Put(rsstest.Process{PID: o.Self, Parent: 1, Start: 6, Comm: "sh"})
		}, true, "stop: the watcher of rank 1 has ended"},
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

// TestKillAgain: a command that KILL does not end, as it waits for a file server, gets it
// again and again; that leaves nothing of /proc open.
func TestKillAgain(t *testing.T) {
	_, id := sleeper(t)
	s := opened(t, nil)
	s.Proc, s.observe.Pop.Command = "/proc", id
	open := func() (n int) {
		fds, err := filepath.Glob("/proc/self/fd/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, fd := range fds {
			if to, err := os.Readlink(fd); err == nil && (to == "/proc/loadavg" || strings.HasSuffix(to, "/statm")) {
				n++
			}
		}
		return n
	}
	before := open()
	for range 20 {
		s.peers.stop = ownStop{due: 1, said: true}
		s.killOurs()
	}
	dead(t, id)
	if n := open() - before; n > 0 {
		t.Errorf("%d descriptors stay open", n)
	}
}
