package supervisor

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/hold"
)

// sleeper is a process that lasts until the test ends it.
func sleeper(t *testing.T) (*exec.Cmd, rss.ProcID) {
	t.Helper()
	c := exec.Command("/bin/sleep", "1000")
	if err := c.Start(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	start, err := proctree.StartTime("/proc", c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return c, rss.ProcID{PID: c.Process.Pid, Start: start}
}

func exits(t *testing.T, f *Follower) {
	t.Helper()
	if _, ok := message(t, f).(hold.Exit); !ok {
		t.Fatal("the end was not told")
	}
}

// message is the next that a follower has.
func message(t *testing.T, f *Follower) hold.Message {
	t.Helper()
	return yields(t, f.Messages(), time.Minute)
}

func TestFollow(t *testing.T) {
	c, id := sleeper(t)
	f := Follow("/proc", id)
	if b := f.Begin(); b.PID != id.PID || b.Start != id.Start || b.Holder != 0 {
		t.Errorf("%+v", b)
	}
	select {
	case m := <-f.Messages():
		t.Fatalf("it lives, and nobody left: %#v", m)
	case <-time.After(10 * time.Millisecond):
	}
	if f.Ended() {
		t.Error("it lives")
	}
	f.Leave()
	f.Leave() // is told once
	if m := message(t, f); m != (hold.Gone{}) {
		t.Fatalf("%#v", m)
	}
	c.Process.Kill() // and is not waited for: a zombie has ended
	for deadline := time.Now().Add(time.Minute); !f.Ended(); {
		if time.Now().After(deadline) {
			t.Fatal("the end was not seen")
		}
	}
	exits(t, f)
	exits(t, Follow("/proc", id))
	c.Wait()
	exits(t, Follow("/proc", id))
}

// TestFollowNotTheSame: the PID was given to another process since.
func TestFollowNotTheSame(t *testing.T) {
	_, id := sleeper(t)
	exits(t, Follow("/proc", rss.ProcID{PID: id.PID, Start: id.Start - 1}))
}

// TestEndingWithoutPidfd is how it goes before Linux 5.3.
func TestEndingWithoutPidfd(t *testing.T) {
	c, id := sleeper(t)
	e := &ending{proc: "/proc", id: id, fd: -1}
	if e.wait(time.Millisecond) {
		t.Fatal("it lives")
	}
	c.Process.Kill()
	if !e.wait(time.Minute) {
		t.Error("the end was not seen")
	}
}

// TestEndingKeepsNoDescriptor: a job is followed for days.
func TestEndingKeepsNoDescriptor(t *testing.T) {
	count := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		n := 0
		for _, name := range names {
			// Tests before this one may close other descriptors meanwhile.
			if to, _ := os.Readlink("/proc/self/fd/" + name.Name()); to == "anon_inode:[pidfd]" {
				n++
			}
		}
		return n
	}
	c, id := sleeper(t)
	before := count()
	for range 20 {
		e := expect("/proc", id)
		e.wait(time.Microsecond)
		e.close()
	}
	c.Process.Kill()
	expect("/proc", id).wait(time.Minute)
	if after := count(); after > before {
		t.Errorf("%d descriptors, were %d", after, before)
	}
}
