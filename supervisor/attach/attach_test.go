package attach

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

func message(t *testing.T, p *Process) hold.Message {
	t.Helper()
	select {
	case m := <-p.Messages():
		return m
	case <-time.After(time.Minute):
		t.Fatal("no message within a minute")
		return nil
	}
}

func exits(t *testing.T, p *Process) {
	t.Helper()
	if _, ok := message(t, p).(hold.Exit); !ok {
		t.Fatal("the end was not told")
	}
}

func TestFollow(t *testing.T) {
	c, id := rsstest.Sleeper(t)
	p := Follow("/proc", id)
	if b := p.Begin(); b.PID != id.PID || b.Start != id.Start || b.Holder != 0 {
		t.Errorf("%+v", b)
	}
	select {
	case m := <-p.Messages():
		t.Fatalf("it lives, and Leave was not called: %#v", m)
	case <-time.After(10 * time.Millisecond):
	}
	if p.Ended() {
		t.Error("it lives")
	}
	p.Leave()
	p.Leave() // the second call says nothing
	if m := message(t, p); m != (hold.Gone{}) {
		t.Fatalf("%#v", m)
	}
	c.Process.Kill() // and is not waited for: a zombie has ended
	wardentest.Until(t, "the end is seen", p.Ended)
	exits(t, p)
	exits(t, Follow("/proc", id))
	c.Wait()
	exits(t, Follow("/proc", id))
}

// TestFollowAll: known processes may have ended while others live.
func TestFollowAll(t *testing.T) {
	wait := make(chan struct{})
	p := FollowAll(rss.ProcID{PID: 7}, func() bool { return false }, func() { <-wait })
	if p.Ended() {
		t.Error("others live")
	}
	close(wait)
	exits(t, p)
	if !p.Ended() {
		t.Error("the last has ended")
	}
}

func TestCannotDo(t *testing.T) {
	p := FollowAll(rss.ProcID{PID: 7}, nil, func() {})
	if err := errors.Join(p.Subreaper(true), p.Override(1), p.Unstick()); err != nil {
		t.Error(err)
	}
	if err := p.Trim(hold.TrimRequest{}); err == nil || !strings.HasPrefix(err.Error(), "cannot trim by ptrace") {
		t.Errorf("trim: %v", err)
	}
}

// TestStart: scontrol gets the job's SLURM_CONF, and no other program does.
func TestStart(t *testing.T) {
	p := Process{Conf: "/etc/slurm.conf"}
	for name, want := range map[string]bool{"scontrol": true, "sh": false} {
		cmd := exec.Command("/bin/true")
		cmd.Args[0] = name
		if err := p.Start(cmd); err != nil {
			t.Skip(err)
		}
		_ = cmd.Wait()
		if got := slices.Contains(cmd.Env, "SLURM_CONF=/etc/slurm.conf"); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
