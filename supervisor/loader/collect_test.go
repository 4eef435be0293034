package loader

import (
	"slices"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader/torchtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestCollect asks processes whose heap holds free blocks between live ones, or
// reference cycles around arrays, to collect: memory goes back to the system,
// what lives is as it was, and Python's own collector as the program left it.
func TestCollect(t *testing.T) {
	t.Parallel()
	type kase struct {
		args  string
		least rss.Bytes // given back by the process that holds something
	}
	torchtest.EachCase(t, []kase{
		{"--case fragments --where worker", 70 * rss.MiB},
		{"--case cycles --where trainer", 100 * rss.MiB},
		// From here on with RSSWARDEN_ENDURANCE only.
		{"--case fragments --where trainer", 70 * rss.MiB},
		{"--case fragments --where trainer --workers 0", 70 * rss.MiB},
		{"--case cycles --where worker", 100 * rss.MiB},
	}[:wardentest.Few(5, 2)], func(c kase) string { return c.args }, func(t *testing.T, on *stand, c kase) {
		tr := train(t, trainOptions{on: on, script: "heap.py", args: c.args})
		tr.until("an epoch", func() bool { return tr.seen() > 0 })
		trainer := tr.ctl.Trainers()[0].ID.PID
		want := append(tr.workers(), trainer)
		holder := trainer
		if strings.HasSuffix(c.args, "worker") {
			holder = want[0]
		}
		id, asked, err := tr.ctl.GC()
		if err != nil || !slices.Equal(asked, want) {
			t.Fatalf("asked %v, %v; want %v", asked, err, want)
		}
		answers := map[int]Said{}
		tr.until("answers", func() bool {
			for _, s := range tr.heard(event.LoaderCollected, id) {
				answers[s.Worker] = s
			}
			return len(answers) == len(asked)
		})
		for pid, s := range answers {
			if !s.Last || s.Paused <= 0 || s.Before == 0 || s.Freed != s.Before.Sub(s.After) || s.PID != pid {
				t.Errorf("%+v", s)
			}
		}
		if s := answers[holder]; s.Freed < c.least || s.Reason != "" {
			t.Errorf("%v of %v given back, want at least %v: %s", s.Freed, s.Before, c.least, s.Reason)
		} else {
			t.Logf("anonymous RSS %v to %v in %.1f ms", s.Before, s.After, s.Paused*1e3)
		}
		// Again: little is left to give back, and it answers under a number of its own.
		again, _, err := tr.ctl.GC(holder)
		if err != nil || again <= id {
			t.Fatalf("%d after %d, %v", again, id, err)
		}
		tr.until("an answer", func() bool { return len(tr.heard(event.LoaderCollected, again)) > 0 })
		if r := tr.finish(); r.Wrong != 0 || r.Epochs == 0 {
			t.Errorf("%+v", r)
		}
		ignored := strings.Count(tr.stderr.String(), "ValueError: a finalizer of the program")
		// A worker forked from the trainer may collect its copy of the knot too.
		if cycles := strings.Contains(c.args, "cycles"); cycles != (ignored >= 1) {
			t.Errorf("%d finalizers were reported by Python:\n%s", ignored, tr.stderr.String())
		}
		tr.notOff()
	})
}
