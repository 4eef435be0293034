package supervisor

import (
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/trim"
)

// TestHandsPanic: a bug in a trim is a refusal, and not the holder's end.
func TestHandsPanic(t *testing.T) {
	do := hands(func(trim.Piece) trim.Answer { panic("a bug") })
	if got, want := do(hold.TrimRequest{PID: 1}), (hold.TrimAnswer{Refusal: uint8(trim.Failed)}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
