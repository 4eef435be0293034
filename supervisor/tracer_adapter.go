package supervisor

import (
	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/trim"
)

// Hands are what a holder trims with. Their thread is started at once, so call
// it before the command begins.
func Hands() func(hold.TrimRequest) hold.TrimAnswer {
	return hands(trim.NewTracer().Do)
}

func hands(do func(trim.Piece) trim.Answer) func(hold.TrimRequest) hold.TrimAnswer {
	return func(r hold.TrimRequest) (refused hold.TrimAnswer) {
		defer func() {
			if recover() != nil { // it would end the holder
				refused = hold.TrimAnswer{Refusal: uint8(trim.Failed)}
			}
		}()
		a := do(trim.Piece{
			ID: rss.ProcID{PID: r.PID, Start: r.Start},
			Lo: r.Lo, Hi: r.Hi, Offset: r.Offset, Dev: r.Dev, Inode: r.Inode,
		})
		return hold.TrimAnswer{
			Refusal: uint8(a.Refusal), Threads: a.Threads, Advised: uint64(a.Advised),
			Stop: a.Stop, Attached: a.Attached, Dropping: a.Dropping,
		}
	}
}
