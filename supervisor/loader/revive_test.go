package loader

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader/torchtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

func revive(which event.Revive) func(*Control) error {
	return func(c *Control) error { return c.SetRevive(which) }
}

// TestRevive kills workers at random moments: each batch comes once, right and in its place.
func TestRevive(t *testing.T) {
	t.Parallel()
	shapes := []string{
		"--pin --dataset heavy --workers 3",
		// From here on with RSSWARDEN_ENDURANCE only.
		"--workers 3",
		"--dataset heavy --workers 3", "--loader plain --workers 3", "--sharing file_system --workers 3", "--unordered --workers 3", "--pair --workers 2",
		"--loader endless --workers 2", "--workers 1 --dataset heavy", "--context spawn --workers 2", "--context forkserver --workers 2",
		"--pin --workers 3", "--break-at 17 --workers 3", "--child fork --workers 2",
	}
	torchtest.EachCase(t, shapes[:wardentest.Few(len(shapes), 1)], nil, func(t *testing.T, s *stand, args string) {
		if s == torch113 && strings.Contains(args, "--unordered") {
			return
		}
		count := wardentest.Few(100, 10)
		args += fmt.Sprintf(" --kills %d --part %d --step 0.001", count, wardentest.Few(800, 400))
		tr := train(t, trainOptions{on: s, args: args, before: revive(event.ReviveAny)})
		r := tr.finish()
		revived, again, most := 0, 0, 0.0
		for _, said := range tr.heard(event.LoaderRevived, 0) {
			if said.New == 0 || said.Exit != -9 {
				t.Errorf("%+v", said)
			}
			if again, most = again+said.Count, max(most, said.Paused); event.Reason(said.Reason) != event.ReasonRestarted {
				revived++
			}
		}
		t.Logf("%d killed, %d of them replaced, and %d others; %d batches again, paused %.0f ms at most; %d batches, %d wrong; longest wait %.2f s", count, revived,
			len(tr.heard(event.LoaderRevived, 0))-revived, again, most*1e3, r.Batches, r.Wrong, r.Waits[1])
		if revived < count*2/3 {
			t.Errorf("%d of %d workers were replaced", revived, count)
		}
		if r.Wrong != 0 || r.Repeated != 0 {
			t.Errorf("%+v", r)
		}
		tr.notOff()
	})
}

// TestReviveRecycled kills workers while others, or the same, are being recycled.
func TestReviveRecycled(t *testing.T) {
	t.Parallel()
	torchtest.EachCase(t, []string{"--workers 3", "--workers 2 --dataset heavy --pin", "--workers 1"}, nil, func(t *testing.T, s *stand, args string) {
		if wardentest.Few(1, 0) == 0 && s != torch26 {
			return // the second case
		}
		args += fmt.Sprintf(" --kills %d --part 400 --step 0.001", wardentest.Few(100, 8))
		tr := train(t, trainOptions{on: s, args: args, before: revive(event.ReviveAny)})
		recycled := 0
		for n := 0; len(tr.heard(event.LoaderRevived, 0)) < wardentest.Few(60, 4); n++ {
			pids := tr.some()
			id, err := tr.ctl.Recycle(pids[n%len(pids)], []event.Mode{event.Swap, event.Drain}[n%2])
			wardentest.NoError(t, err)
			if s := tr.answer(id); s.What == event.LoaderRecycled {
				recycled++
			} else if !slices.Contains(passing, s.Reason) {
				t.Errorf("refused: %+v", s)
			}
		}
		r := tr.finish()
		t.Logf("%d recycled, %d replaced where they died, %d batches, %d wrong", recycled, len(tr.heard(event.LoaderRevived, 0)), r.Batches, r.Wrong)
		if r.Wrong != 0 || r.Repeated != 0 || recycled == 0 {
			t.Errorf("%+v", r)
		}
		tr.notOff()
	})
}

// TestReviveTried: a torch that is not known is tried while the training goes on. Its workers are replaced
// where they die from then on, and not where the trial found that to go wrong.
func TestReviveTried(t *testing.T) {
	t.Parallel()
	torchtest.EachCase(t, []string{"--workers 2 --dataset heavy --pin", "--workers 2"}, nil, func(t *testing.T, s *stand, args string) {
		m := mutants()[slices.IndexFunc(mutants(), func(m mutant) bool { return m.Name == "_send_idx" })]
		site := mutate(t, s, m)
		for _, unrevived := range []string{"", "batches were lost"} {
			if unrevived != "" {
				// After its error torch itself waits for ever for the rest of a long message.
				args = strings.ReplaceAll(args, "--dataset heavy ", "")
			}
			tr := train(t, trainOptions{on: s, args: args + " --part 400 --step 0.001", env: []string{"PYTHONPATH=" + site}, before: revive(event.ReviveAny)})
			tr.have(2)
			wardentest.NoError(t, tr.ctl.Tried(tr.ctl.Trainers()[0].Key, Verdict{What: VerdictOK, Unrevived: unrevived}))
			revives := func() bool {
				return slices.ContainsFunc(tr.ctl.Trainers()[0].Loaders, func(l Loader) bool { return l.Revives })
			}
			if unrevived != "" {
				tr.recycle(1, event.Swap) // the verdict has come
				if revives() {
					t.Error("it says that dead workers are replaced")
				}
				wardentest.NoError(t, unix.Kill(tr.some()[0], unix.SIGKILL))
				tr.endsAsBare("ConnectionResetError", "ConnectionRefusedError", "EOFError")
				continue
			}
			tr.until("workers to be replaced where they die", revives)
			for n := 0; len(tr.heard(event.LoaderRevived, 0)) < wardentest.Few(20, 3); n++ {
				pids := tr.some()
				pid := pids[n%len(pids)]
				if err := unix.Kill(pid, unix.SIGKILL); !errors.Is(err, unix.ESRCH) { // it was restarted with another
					wardentest.NoError(t, err)
				}
				// Where an epoch had no more work for it, only the next one has others.
				tr.until("another worker", func() bool { return !slices.Contains(tr.workers(), pid) })
			}
			if r := tr.finish(); r.Wrong != 0 || r.Repeated != 0 {
				t.Errorf("%+v", r)
			}
			tr.notOff()
		}
	})
}

// endsAsBare waits for the end of a training whose worker was killed: torch ended it, by its
// error for that or, over an iterable dataset, by that of what the worker was to send.
func (tr *training) endsAsBare(errors ...string) {
	tr.t.Helper()
	tr.until("its end", func() bool {
		select {
		case <-tr.done:
			return true
		default:
			return false
		}
	})
	text := tr.stderr.String()
	says := slices.ContainsFunc(append(errors, "RuntimeError: DataLoader worker (pid"), func(e string) bool { return strings.Contains(text, e) })
	if tr.err == nil || !says || len(tr.heard(event.LoaderRevived, 0)) > 0 {
		tr.t.Errorf("%v\n%s", tr.err, text)
	}
}

// TestReviveFails has replacing a dead worker fail: the training ends with torch's own error.
func TestReviveFails(t *testing.T) {
	t.Parallel()
	torch113.Need(t)
	for _, in := range []string{"revive.Life._replace", "birth.start", "revive._live", "revive.Given.keep"}[:wardentest.Few(4, 1)] {
		t.Run(in, func(t *testing.T) {
			t.Parallel()
			tr := train(t, trainOptions{args: "--kills 1", before: revive(event.ReviveAny), hook: fault{"raise", in}.put(t)})
			tr.endsAsBare()
			if off := tr.heard(event.LoaderOff, 0); len(off) != 1 || !strings.Contains(off[0].Reason, "injected into "+in) {
				t.Errorf("off: %+v", off)
			}
		})
	}
}

// TestReviveSparesOthers: what is no OOM kill, or of no map-style data set, is torch's.
func TestReviveSparesOthers(t *testing.T) {
	t.Parallel()
	torch113.Need(t)
	for _, c := range []struct {
		args  string
		which event.Revive
	}{{"--kills 1", event.ReviveOOM}, {"--kills 1 --dataset stream", event.ReviveAny}}[:wardentest.Few(2, 1)] {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			tr := train(t, trainOptions{args: c.args, before: revive(c.which)})
			tr.endsAsBare("ConnectionResetError", "ConnectionRefusedError", "EOFError")
			tr.notOff()
		})
	}
}

// TestReviveOOM has the kernel's OOM killer take workers in a full cgroup, which are the first
// to go: each batch comes once, right and in its place.
func TestReviveOOM(t *testing.T) {
	t.Parallel()
	wardentest.NeedRoot(t, "a memory cgroup takes root")
	torchtest.Each(t, func(t *testing.T, s *stand) {
		for n := range wardentest.Few(20, 1) {
			if wardentest.Few(1, 0) == 0 && s != torch113 {
				return
			}
			tr := train(t, trainOptions{on: s, args: "--workers 2 --dataset hoard --init preferred --part 400 --epochs 4 --slow 0.002", ends: true, before: revive(event.ReviveOOM)})
			rsstest.NewGroup(t, 700*rss.MiB).Join(tr.pid)
			r := tr.finish()
			revived := tr.heard(event.LoaderRevived, 0)
			t.Logf("training %d: %d kills, %d batches, %d wrong", n, len(revived), r.Batches, r.Wrong)
			if r.Wrong != 0 || r.Repeated != 0 || len(revived) == 0 {
				t.Errorf("%+v, %d revived", r, len(revived))
			}
			for _, said := range revived {
				if said.Exit != -9 || said.Reason != "SIGKILL, and the kernel counts an OOM kill" && event.Reason(said.Reason) != event.ReasonRestarted {
					t.Errorf("%+v", said)
				}
			}
			tr.notOff()
		}
	})
}
