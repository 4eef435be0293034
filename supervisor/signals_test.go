package supervisor

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
)

// TestSignalsAreTold, those too that came with the command's end.
func TestSignalsAreTold(t *testing.T) {
	s := opened(t)
	const sender = 4711
	s.fs.Write(fmt.Sprintf("proc/%d/comm", sender), "slurmstepd\n")
	done := make(chan struct{})
	s.holder.messages <- hold.Signal{Signal: int(unix.SIGCONT), Sender: sender}
	s.holder.messages <- hold.Signal{Signal: int(unix.SIGTERM), Sender: sender, Forwarded: true}
	s.holder.messages <- hold.Signal{Signal: int(unix.SIGTERM), Sender: sender, Forwarded: true} // told already
	s.holder.messages <- hold.Signal{Signal: 34, Forwarded: true}
	s.holder.messages <- hold.Exit{Signal: int(unix.SIGTERM)}
	go func() {
		s.loop()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("the watcher goes on")
	}
	all := s.events()
	got := named(all, event.NameSignal)
	if len(got) != 3 {
		t.Fatalf("signals %v", got)
	}
	for i, want := range []struct {
		signal, comm string
		sender       any
		forwarded    bool
	}{
		{"SIGCONT", "slurmstepd", 4711.0, false},
		{"SIGTERM", "slurmstepd", 4711.0, true},
		{"SIG34", "", nil, true},
	} {
		comm, _ := got[i]["comm"].(string)
		if g := got[i]; g["signal"] != want.signal || g["sender"] != want.sender || comm != want.comm || g["forwarded"] != want.forwarded {
			t.Errorf("signal %d: %v, want %+v", i, g, want)
		}
	}
	has(t, all[len(all)-1], "event", "exit", "signal", "SIGTERM")
}
