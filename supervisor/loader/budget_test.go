package loader

import (
	"slices"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestBudgetShapes holds loaders of every shape to a budget: those without
// workers, over iterable datasets, through a copy of torch's iterator, and, with
// --trim-private alone, those that map their file as pyarrow does.
func TestBudgetShapes(t *testing.T) {
	const budget = 64 * rss.MiB
	eachTorch(t, func(t *testing.T, on *stand) {
		for i, c := range []struct {
			args    string
			private bool // as with --trim-private
			held    bool
		}{
			{"--copy", false, true},
			{"--workers 0 --private", true, true},
			{"--private --copy", true, true},
			{"--private", false, false},
			// From here on with RSSWARDEN_ENDURANCE only.
			{"--copy --stream", false, true},
			{"--workers 0", false, true},
			{"--workers 0 --stream", false, true},
			{"--stream --workers 2", false, true},
			{"--private --stream --workers 2", true, true},
		}[:endurance(4, 9)] {
			if !on.turn(i, 4) {
				continue
			}
			t.Run(c.args, func(t *testing.T) {
				t.Parallel()
				tr := train(t, trainOptions{on: on, script: "testdata/mapped.py", args: append(strings.Fields(c.args), "--until", "@stop")})
				tr.until("hello", func() bool { return len(tr.said) > 0 })
				if err := tr.ctl.SetPrivate(c.private); err != nil {
					t.Fatal(err)
				}
				if err := tr.ctl.SetBudget(budget); err != nil {
					t.Fatal(err)
				}
				seen := tr.seen()
				tr.until("an epoch under the budget", func() bool { return tr.seen() > seen+1 })
				r := tr.finish()
				if r.Wrong != 0 {
					t.Errorf("%+v", r)
				}
				// What cannot be trimmed may lie above the budget; see TestBudget.
				limit, trims := rss.Bytes(budget), 0
				for _, s := range tr.said {
					limit = max(limit, s.After+16*rss.MiB)
					trims += s.Count
				}
				if most := rss.Bytes(r.Late); c.held != (most <= limit+8*rss.MiB) {
					t.Errorf("%v were mapped in the last epoch, budget %v, with what cannot be trimmed %v", most, budget, limit)
				}
				if c.held != (trims > 0) {
					t.Errorf("%d trims were reported", trims)
				}
				if i := slices.IndexFunc(tr.said, func(s Said) bool { return s.What == event.LoaderOff || s.What == event.LoaderRefused }); i >= 0 {
					t.Errorf("%+v", tr.said[i])
				}
				t.Logf("%v mapped at most, %v in the last epoch; %d trims", rss.Bytes(r.Mapped), rss.Bytes(r.Late), trims)
			})
		}
	})
}
