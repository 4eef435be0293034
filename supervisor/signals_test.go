package supervisor

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestSignalsAreTold, those too that came with the command's end.
func TestSignalsAreTold(t *testing.T) {
	s := opened(t)
	const sender = 4711
	s.fs.Write(fmt.Sprintf("proc/%d/comm", sender), "slurmstepd\n")
	s.holder.messages <- hold.Signal{Signal: int(unix.SIGCONT), Sender: sender}
	s.holder.messages <- hold.Signal{Signal: int(unix.SIGTERM), Sender: sender, Forwarded: true}
	s.holder.messages <- hold.Signal{Signal: int(unix.SIGTERM), Sender: sender, Forwarded: true} // told already
	s.holder.messages <- hold.Signal{Signal: 34, Forwarded: true}
	s.holder.messages <- hold.Exit{Signal: int(unix.SIGTERM)}
	s.loop()
	all := s.events()
	got := named(all, event.NameSignal)
	if len(got) != 3 {
		t.Fatalf("signals %v", got)
	}
	wardentest.Has(t, got[0], "signal", "SIGCONT", "comm", "slurmstepd", "sender", 4711.0, "forwarded", false)
	wardentest.Has(t, got[1], "signal", "SIGTERM", "comm", "slurmstepd", "sender", 4711.0, "forwarded", true)
	wardentest.Has(t, got[2], "signal", "SIG34", "comm", nil, "sender", nil, "forwarded", true)
	wardentest.Has(t, all[len(all)-1], "event", "exit", "signal", "SIGTERM")
}
