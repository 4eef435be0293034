package loader

import (
	"errors"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// trimArgs are trainings that touch all of the file in every epoch.
var trimArgs = []string{
	"--workers 2", "--loader plain --workers 2", "--loader endless --workers 1",
	"--workers 0", "--dataset stream --workers 2",
}

// TestTrimRequest asks all processes that load to trim: each answers, and has
// less mapped; the data are as they were.
func TestTrimRequest(t *testing.T) {
	eachTorch(t, func(t *testing.T, on *stand) {
		for i, args := range trimArgs {
			if !on.turn(i, len(trimArgs)) {
				continue
			}
			t.Run(args, func(t *testing.T) {
				t.Parallel()
				a := []string{"--epochs", "1", "--step", "0.001"}
				if strings.Contains(args, "stream") {
					a = append(a, "--dataset", "stream")
				}
				want := bareOn(t, on, a...)
				tr := train(t, trainOptions{on: on, args: append(a, append(strings.Fields(args), "--until", "@stop")...)})
				var freed rss.Bytes
				for n := 0; n < 4; {
					tr.until("somebody to ask", func() bool {
						for _, tn := range tr.ctl.Trainers() {
							if len(tn.Loaders) > 0 {
								return true
							}
						}
						return false
					})
					id, asked, err := tr.ctl.Trim()
					if errors.Is(err, ErrNobody) {
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					answers := 0
					// A worker whose epoch is over does not answer.
					tr.until("answers", func() bool {
						answers = 0
						ended := false
						for _, s := range tr.said {
							ended = ended || s.What == event.LoaderEnded
							if s.Request == id && s.What == event.LoaderTrimmed {
								answers++
								freed += s.Freed
								if s.Freed != s.Before.Sub(s.After) || s.Before == 0 || s.Count != 1 {
									t.Errorf("%+v", s)
								}
							}
						}
						return answers == len(asked) || ended
					})
					n++
				}
				r := tr.finish()
				if freed < rss.MiB {
					t.Errorf("%v freed", freed)
				}
				if r.Wrong != 0 || r.Checksum != want.Checksum || r.Errors != 0 {
					t.Errorf("got %+v, bare %+v", r, want)
				}
			})
		}
	})
}

// TestBudget holds the workers to a budget: no record finds much more mapped,
// data and random draws are as without.
func TestBudget(t *testing.T) {
	needTorch(t)
	for _, args := range []string{"--workers 2", "--workers 0", "--loader plain --dataset stream --workers 2"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			a := append(strings.Fields(args), "--epochs", "3", "--step", "0", "--batch", "256")
			want := bare(t, a...)
			tr := train(t, trainOptions{args: a})
			tr.until("hello", func() bool { return len(tr.said) > 0 })
			budget := 96 * rss.MiB
			if err := tr.ctl.SetBudget(budget); err != nil {
				t.Fatal(err)
			}
			r := tr.finish()
			if r.Checksum != want.Checksum || r.Draws != want.Draws || r.Main != want.Main || r.Wrong != 0 {
				t.Errorf("got %+v, bare %+v", r, want)
			}
			// What cannot be trimmed may lie above the budget; then a little more
			// may come on top. In the first epoch a batch may have been under way
			// when the budget came. Within one record a page fault or two map a
			// folio each.
			limit := budget
			for _, s := range tr.said {
				limit = max(limit, s.After+16*rss.MiB)
			}
			if most := rss.Bytes(r.Late); most > limit+8*rss.MiB {
				t.Errorf("%v were mapped, bare %v", most, rss.Bytes(want.Mapped))
			}
			if rss.Bytes(want.Mapped) < limit+8*rss.MiB {
				t.Errorf("bare only %v were mapped: nothing to hold", rss.Bytes(want.Mapped))
			}
			trims, lines := 0, 0
			for _, s := range tr.said {
				if s.What == event.LoaderTrimmed {
					trims += s.Count
					lines++
				}
			}
			if trims == 0 {
				t.Errorf("no trim was reported: %+v", tr.said)
			}
			t.Logf("mapped %v, bare %v; %d trims in %d lines", rss.Bytes(r.Late), rss.Bytes(want.Mapped), trims, lines)
		})
	}
}
