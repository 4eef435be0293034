package tell

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

func TestSignalsAreToldAgain(t *testing.T) {
	var s signals
	winch := event.Signal{Signal: "SIGWINCH"}
	told := 0
	for i := range 100 {
		if s.fresh(time.Duration(i)*50*time.Millisecond, winch) {
			told++
		}
	}
	if told != 5 {
		t.Errorf("told %d times in 5 s", told)
	}
	for i := range 10 * mostSignals {
		if !s.fresh(time.Hour, event.Signal{Signal: "SIGUSR1", Sender: i}) {
			t.Fatalf("the one of sender %d was not told", i)
		}
	}
	if len(s) > mostSignals {
		t.Errorf("%d are remembered", len(s))
	}
}
