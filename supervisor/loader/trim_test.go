package loader

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader/torchtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// trimArgs are trainings that touch all of the file in every epoch.
var trimArgs = []string{
	"--dataset stream --workers 2",
	// From here on with RSSWARDEN_ENDURANCE only.
	"--workers 0",
	"--loader endless --workers 1", "--workers 2", "--loader plain --workers 2",
}

// TestTrimRequest asks all processes that load to trim: each answers, and has
// less mapped; the data are as they were.
func TestTrimRequest(t *testing.T) {
	t.Parallel()
	torchtest.EachCase(t, trimArgs[:wardentest.Few(5, 1)], nil, func(t *testing.T, on *stand, args string) {
		a := "--epochs 1 --step 0.001"
		if strings.Contains(args, "stream") {
			a += " --dataset stream"
		}
		want := bareOn(t, on, a)
		tr := train(t, trainOptions{on: on, args: a + " " + args})
		var freed rss.Bytes
		for n := 0; n < 4; {
			tr.until("a process to ask", func() bool {
				return slices.ContainsFunc(tr.ctl.Trainers(), func(one Trainer) bool { return len(one.Loaders) > 0 })
			})
			id, asked, err := tr.ctl.Trim()
			if errors.Is(err, ErrNoProcess) {
				continue
			}
			wardentest.NoError(t, err)
			// A worker whose epoch is over does not answer.
			tr.until("answers", func() bool {
				return len(tr.heard(event.LoaderTrimmed, id)) == len(asked) || len(tr.heard(event.LoaderEnded, 0)) > 0
			})
			for _, s := range tr.heard(event.LoaderTrimmed, id) {
				freed += s.Freed
				if s.Freed != s.Before.Sub(s.After) || s.Before == 0 || s.Count != 1 {
					t.Errorf("%+v", s)
				}
			}
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

// TestBudget holds the workers to a budget: no record finds much more mapped,
// data and random draws are as without.
func TestBudget(t *testing.T) {
	t.Parallel()
	torch113.Need(t)
	for _, args := range []string{"--workers 2", "--loader plain --dataset stream --workers 2", "--workers 0"}[:wardentest.Few(3, 1)] {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			args += " --epochs 3 --step 0 --batch 256"
			want := bareOn(t, torch113, args)
			tr := train(t, trainOptions{args: args, ends: true})
			tr.until("hello", func() bool { return len(tr.said) > 0 })
			budget := 96 * rss.MiB
			wardentest.NoError(t, tr.ctl.SetBudget(budget))
			r := tr.finish()
			if r.Checksum != want.Checksum || r.Draws != want.Draws || r.Main != want.Main || r.Wrong != 0 {
				t.Errorf("got %+v, bare %+v", r, want)
			}
			limit, trims := tr.trimmedTo(budget)
			if most := rss.Bytes(r.Late); most > limit+8*rss.MiB {
				t.Errorf("%v were mapped, bare %v", most, rss.Bytes(want.Mapped))
			}
			if rss.Bytes(want.Mapped) < limit+8*rss.MiB {
				t.Errorf("bare only %v were mapped: nothing to hold", rss.Bytes(want.Mapped))
			}
			if trims == 0 {
				t.Errorf("no trim was reported: %+v", tr.said)
			}
			t.Logf("mapped %v, bare %v; %d trims", rss.Bytes(r.Late), rss.Bytes(want.Mapped), trims)
		})
	}
}

// trimmedTo is what may be mapped with a budget, and how many trims were reported. What cannot
// be trimmed may lie above the budget; then a little more may come on top. In the first epoch a
// batch may have been under way when the budget came. Within one record a page fault or two map
// a folio each.
func (tr *training) trimmedTo(budget rss.Bytes) (limit rss.Bytes, trims int) {
	limit = budget
	for _, s := range tr.said {
		limit = max(limit, s.After+16*rss.MiB)
		trims += s.Count
	}
	return limit, trims
}

// TestBudgetShapes holds loaders of every shape to a budget: those without
// workers, over iterable datasets, through a copy of torch's iterator, and, with
// --trim-private alone, those that map their file as pyarrow does.
func TestBudgetShapes(t *testing.T) {
	t.Parallel()
	const budget = 64 * rss.MiB
	type kase struct {
		args    string
		private bool // as with --trim-private
		held    bool
	}
	torchtest.EachCase(t, []kase{
		{"--copy", false, true},
		// From here on with RSSWARDEN_ENDURANCE only.
		{"--workers 0 --private", true, true},
		{"--private --copy", true, true},
		{"--private", false, false},
		{"--copy --stream", false, true},
		{"--workers 0", false, true},
		{"--workers 0 --stream", false, true},
		{"--stream --workers 2", false, true},
		{"--private --stream --workers 2", true, true},
	}[:wardentest.Few(9, 1)], func(c kase) string { return c.args }, func(t *testing.T, on *stand, c kase) {
		tr := train(t, trainOptions{on: on, script: "mapped.py", args: c.args})
		tr.until("hello", func() bool { return len(tr.said) > 0 })
		wardentest.NoError(t, tr.ctl.SetPrivate(c.private))
		wardentest.NoError(t, tr.ctl.SetBudget(budget))
		tr.moreEpochs(2)
		r := tr.finish()
		if r.Wrong != 0 {
			t.Errorf("%+v", r)
		}
		limit, trims := tr.trimmedTo(budget)
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

func needNumpy(t *testing.T) {
	t.Helper()
	if out, err := exec.Command(python, "-c", "import numpy").CombinedOutput(); err != nil {
		t.Skipf("no numpy: %v: %s", err, out)
	}
}

// mapFile makes a file of 80 MiB whose pages are on the disk.
func mapFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a file of records") // a name with spaces
	f, err := os.Create(path)
	wardentest.NoError(t, err)
	defer f.Close()
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i*7 + i>>8)
	}
	for i := range 80 {
		block[i] ^= 0xa5
		if _, err := f.Write(block); err != nil {
			t.Fatal(err)
		}
	}
	wardentest.NoError(t, f.Sync())
	return path
}

func mappings(t *testing.T, result any, args ...string) {
	t.Helper()
	_, dir := hooked(t)
	out := torchtest.Run(t, nil, append([]string{"testdata/mappings.py", dir, mapFile(t)}, args...)...)
	if err := json.Unmarshal([]byte(out), result); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestTrimMappings maps a file in all the ways and trims without and with
// --trim-private: what may be dropped is, all else stays, and every byte reads
// as before.
func TestTrimMappings(t *testing.T) {
	needNumpy(t)
	var got map[string]struct {
		Full, Trim, Private rss.Bytes
		Same                bool
		Said                []string
	}
	mappings(t, &got)
	if len(got) != 13 {
		t.Errorf("%d ways", len(got))
	}
	for way, g := range got {
		always, asked := false, false
		switch way {
		case "memmap r", "ACCESS_READ":
			always, asked = true, true
		case "pyarrow":
			asked = true
		}
		if !g.Same || len(g.Said) > 0 || g.Full < 60*rss.MiB {
			t.Errorf("%s: %+v", way, g)
		}
		for _, c := range []struct {
			left    rss.Bytes
			dropped bool
		}{{g.Trim, always}, {g.Private, asked}} {
			if c.dropped != (c.left == 0) || !c.dropped && c.left != g.Full {
				t.Errorf("%s: of %v, %v stayed after a trim, %v with private mappings", way, g.Full, g.Trim, g.Private)
			}
		}
	}
}

// TestTrimBesideThreads has a thread take mapped files away and put memory of
// its own in their places, while trims go on. Trimmed by the list alone, that
// memory loses its contents; ours looks again without letting the thread run.
func TestTrimBesideThreads(t *testing.T) {
	needNumpy(t)
	var naive, ours struct{ Lost, Turns, Trims int }
	mappings(t, &naive, "race", "120", "naive")
	if naive.Lost == 0 {
		t.Fatalf("the race was not met in %d trims: nothing is shown", naive.Trims)
	}
	mappings(t, &ours, "race", fmt.Sprint(wardentest.Few(60, 2)), "ours")
	if ours.Lost != 0 || ours.Turns == 0 || ours.Trims == 0 {
		t.Errorf("%+v", ours)
	}
	t.Logf("naive: lost %d times in %d trims; ours: %+v", naive.Lost, naive.Trims, ours)
}

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
		{"--case cycles --where trainer", 100 * rss.MiB},
		// From here on with RSSWARDEN_ENDURANCE only.
		{"--case fragments --where worker", 70 * rss.MiB},
		{"--case fragments --where trainer", 70 * rss.MiB},
		{"--case fragments --where trainer --workers 0", 70 * rss.MiB},
		{"--case cycles --where worker", 100 * rss.MiB},
	}[:wardentest.Few(5, 1)], func(c kase) string { return c.args }, func(t *testing.T, on *stand, c kase) {
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
