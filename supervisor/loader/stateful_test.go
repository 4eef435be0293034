package loader

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader/torchtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// statefulTraining starts testdata/stateful.py; statefulBare is the result of it without us.
func statefulTraining(t *testing.T, on *stand, args string) *training {
	return train(t, trainOptions{on: on, script: "stateful.py", args: args})
}

func statefulBare(t *testing.T, on *stand, args string) result {
	t.Helper()
	return bareOnce(t, trainOptions{on: on, script: "stateful.py", args: args})
}

// statefulShapes are the loaders whose workers are replaced. TORCHDATA=DIR names
// a checkout of torchdata to run them with, in place of the stand-in.
var statefulShapes = []string{
	"--dataset map --count 700 --every 7 --save 61", "--dataset stream --count 700 --save 61",
	"--dataset shards --count 700 --persistent --every 7", "--dataset bare --persistent --break-at 40",
	// From here on with RSSWARDEN_ENDURANCE or TORCHDATA only.
	"--dataset map --save 29", "--dataset stream --every 7 --save 29", "--dataset shards --save 29", "--dataset bare --every 7 --save 29",
	"--dataset map --persistent --break-at 40", "--dataset stream --persistent --break-at 33",
	"--dataset stream --workers 1 --save 29", "--dataset map --workers 1 --prefetch 1",
	"--dataset stream --context spawn --workers 2 --save 61", "--dataset map --context forkserver --workers 2",
	"--dataset stream --pin --save 29", "--dataset map --pin --persistent", "--dataset numpy --every 3", "--dataset slow --timeout 60",
	"--dataset map --fail 5 77 500 777 1100", "--dataset stream --fail 5 77 500 777 1100",
}

// TestStateful replaces workers of StatefulDataLoaders in the middle of their
// epochs. Batches come as bare, and each checkpoint taken meanwhile resumes with
// the rest of its epoch.
func TestStateful(t *testing.T) {
	t.Parallel()
	shapes := statefulShapes
	if os.Getenv("TORCHDATA") == "" {
		shapes = shapes[:wardentest.Few(len(shapes), 4)]
	}
	torchtest.Each(t, func(t *testing.T, on *stand) {
		for i, args := range shapes {
			if os.Getenv("TORCHDATA") == "" && !on.Turn(i, len(shapes)) {
				continue
			}
			t.Run(args, func(t *testing.T) {
				t.Parallel()
				want := statefulBare(t, on, args)
				tr := statefulTraining(t, on, args)
				said := tr.recycle(wardentest.Few(60, 6), event.Swap)
				for _, s := range said {
					if s.Exit != 0 || s.Before == 0 || s.After == 0 || s.Worker == s.New {
						t.Errorf("%+v", s)
					}
				}
				for _, l := range tr.ctl.Trainers()[0].Loaders {
					if !l.CanRecycle || !strings.HasPrefix(l.Kind, "stateful ") {
						t.Errorf("%+v", l)
					}
				}
				tr.moreEpochs(1)
				tr.sameAs(want)
				t.Logf("%d recycled, %d checkpoints resumed", len(said), tr.out.Saved)
			})
		}
	})
}

// sameAs ends the training and compares it with one without us.
func (tr *training) sameAs(want result) {
	tr.t.Helper()
	if tr.like(want); want.Wrong != 0 || want.Batches == 0 {
		tr.t.Errorf("bare %+v", want)
	}
	tr.quiet()
	tr.notOff()
}

// TestStatefulReplacementFails has every replacement die, hang, fail or come back
// with another state than it was given: the worker stays, and no batch differs.
func TestStatefulReplacementFails(t *testing.T) {
	t.Parallel()
	type kase struct{ args, why string }
	torchtest.EachCase(t, []kase{
		{"--dataset ended", "replacement did not come up: status -9"},
		{"--dataset broken", "replacement cannot load the worker's state: KeyError: 'no such shard'"},
		{"--dataset forgetful --persistent", "another state after load_state_dict"},
		{"--dataset hung --waits 1", "the training waited 1 s"},
		{"--dataset hung --timeout 10", "within the loader's timeout"},
		{"--dataset stream --unpicklable --persistent --context spawn", "fork refused: TypeError"},
		{"--dataset map --unpicklable --persistent --context forkserver", "fork refused: TypeError"},
	}, func(c kase) string { return c.args }, func(t *testing.T, on *stand, c kase) {
		args := c.args + " --workers 2 --count 400"
		want := statefulBare(t, on, strings.Replace(args, " --unpicklable", "", 1))
		tr := statefulTraining(t, on, args)
		tr.until("an epoch", func() bool { return tr.seen() > 0 })
		for range 2 {
			before, said := tr.refused()
			if !strings.Contains(said.Reason, c.why) {
				t.Fatalf("%+v", said)
			}
			if after := tr.workers(); strings.Contains(c.args, "persistent") && !slices.Equal(before, after) {
				t.Errorf("workers were %v, are %v", before, after)
			}
		}
		tr.moreEpochs(2)
		tr.sameAs(want)
	})
}

// refused asks for a worker until that is refused in the middle of an epoch; it
// returns the workers that were there, too.
func (tr *training) refused() ([]int, Said) {
	tr.t.Helper()
	for {
		before := tr.some()
		s := tr.ask(before[0], event.Drain)
		if s.What != event.LoaderRefused {
			tr.t.Fatalf("%+v", s)
		}
		if !slices.Contains(passing, s.Reason) {
			return before, s
		}
	}
}

// TestStatefulRefused has loaders whose workers' states do not tell their place,
// and a torchdata that starts its workers in another way.
func TestStatefulRefused(t *testing.T) {
	t.Parallel()
	torch113.Need(t)
	changed := t.TempDir()
	must(t, os.CopyFS(changed, os.DirFS("testdata/standin")))
	const module = "torchdata/stateful_dataloader/stateful_dataloader.py"
	text, err := os.ReadFile(filepath.Join(changed, module))
	must(t, err)
	other := strings.Replace(string(text), "worker_states[self._worker_key(i)]", "worker_states.get(self._worker_key(i))", 1)
	if other == string(text) {
		t.Fatal("nothing changed")
	}
	must(t, os.WriteFile(filepath.Join(changed, module), []byte(other), 0o600))
	for _, c := range []struct{ args, torchdata, why string }{
		{"--dataset unstated", "", "no state_dict"},
		{"--dataset stream --every 0", "", "snapshot_every_n_steps is 0"},
		{"--dataset map", changed, "worker_states.get(self._worker_key(i))"},
		{"--dataset hugging", "", "shuffle buffer"},
		{"--dataset counting", "", "__iter__ sets .epochs"},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			args := c.args + " --count 400 --persistent"
			want := statefulBare(t, torch113, args)
			o := trainOptions{script: "stateful.py", args: args}
			if c.torchdata != "" {
				o.env = []string{"TORCHDATA=" + c.torchdata}
			}
			tr := train(t, o)
			tr.have(3)
			l := tr.ctl.Trainers()[0].Loaders[0]
			if l.CanRecycle || !strings.Contains(l.Why, c.why) {
				t.Errorf("%+v", l)
			}
			if c.torchdata == "" {
				if _, said := tr.refused(); !strings.Contains(said.Reason, c.why) {
					t.Errorf("%+v", said)
				}
			}
			// They are trimmed all the same.
			id, asked, err := tr.ctl.Trim()
			if err != nil || len(asked) != 3 {
				t.Fatalf("%v asked, %v", asked, err)
			}
			tr.until("trims", func() bool { return len(tr.heard(event.LoaderTrimmed, id)) > 0 })
			tr.sameAs(want)
		})
	}
}

// TestStatefulHookFails has functions of the hook raise while a worker is being replaced: the
// training goes on with the right batches.
func TestStatefulHookFails(t *testing.T) {
	t.Parallel()
	faults := []fault{
		{"raise", "stateful.Recycler._settle"}, {"raise", "stateful.Recycler._judge"}, {"raise", "stateful.Recycler.wait"},
		{"raise", "stateful.begin"}, {"raise:1", "recycle.Recycler._take_over"}, {"raise:2", "recycle.Recycler._take_over"},
	}
	if wardentest.Few(1, 0) == 1 {
		for name, statements := range hookFunctions(t) {
			if strings.HasPrefix(name, "stateful.") || strings.HasPrefix(name, "recycle.Recycler._take_over") {
				for k := range statements {
					faults = append(faults, fault{fmt.Sprintf("raise:%d", k), name})
				}
			}
		}
	}
	hookFails(t, "stateful.py", "--dataset stream --workers 2 --count 400 --persistent", faults)
}

// TestIterableHookFails is the same over an iterable dataset, with requests of all kinds.
func TestIterableHookFails(t *testing.T) {
	t.Parallel()
	hookFails(t, "stream.py", "", []fault{
		{"raise", "iterable.Renewal.__init__"}, {"raise", "iterable.Renewal.report"},
		// From here on with RSSWARDEN_ENDURANCE only.
		{"raise", "iterable.Held.take"}, {"raise", "iterable.begin"}, {"raise", "iterable.due"},
		{"raise", "collect.Collector.requests"}, {"raise", "private.trim"},
	}[:wardentest.Few(7, 2)])
}

func hookFails(t *testing.T, script, args string, faults []fault) {
	torch113.Need(t)
	for _, f := range faults {
		t.Run(f.kind+"/"+f.in, func(t *testing.T) {
			t.Parallel()
			want := bareOnce(t, trainOptions{on: torch113, script: script, args: args})
			tr := train(t, trainOptions{script: script, args: args, hook: f.put(t)})
			tr.until("an epoch", func() bool { return tr.seen() > 0 })
			must(t, tr.ctl.SetPrivate(true))
			for n := range 4 {
				if pids := tr.workers(); len(pids) > 1 {
					tr.ctl.Trim()
					tr.ctl.GC()
					tr.ctl.Recycle(pids[n%2], event.Swap)
				}
				tr.moreEpochs(1)
			}
			// Some are met where a reason is given for the loader alone.
			why := fmt.Sprintf("%+v", tr.ctl.Trainers())
			if got := tr.like(want); got.Main != want.Main {
				t.Errorf("got %+v, bare %+v", got, want)
			}
			tr.quiet()
			off := strings.Contains(why, "injected into "+f.in) || slices.ContainsFunc(tr.said, func(s Said) bool {
				return (s.What == event.LoaderOff || s.What == event.LoaderRefused) && strings.Contains(s.Reason, "injected into "+f.in)
			})
			if tr.reached() && !off {
				t.Errorf("that the hook is off was not said: %+v", tr.said)
			}
			if !tr.reached() && wardentest.Few(1, 0) == 0 {
				t.Errorf("%s was not reached: %+v", f.in, tr.said)
			}
		})
	}
}
