package loader

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// statefulTraining starts testdata/stateful.py.
func statefulTraining(t *testing.T, on *stand, args ...string) *training {
	return train(t, trainOptions{on: on, script: "testdata/stateful.py", args: append(slices.Clone(args), "--until", "@stop")})
}

// statefulBare returns the result of a training without us; the same is run once.
func statefulBare(t *testing.T, on *stand, args ...string) result {
	t.Helper()
	return bareOnce(t, trainOptions{on: on, script: "testdata/stateful.py", args: args})
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
	shapes := statefulShapes
	if os.Getenv("TORCHDATA") == "" {
		shapes = shapes[:endurance(4, len(shapes))]
	}
	eachTorch(t, func(t *testing.T, on *stand) {
		for i, args := range shapes {
			if os.Getenv("TORCHDATA") == "" && !on.turn(i, len(shapes)) {
				continue
			}
			t.Run(args, func(t *testing.T) {
				t.Parallel()
				a := strings.Fields(args)
				want := statefulBare(t, on, a...)
				tr := statefulTraining(t, on, a...)
				said := tr.recycleStateful(endurance(6, 60))
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
				seen := tr.seen()
				tr.until("another epoch", func() bool { return tr.seen() > seen })
				tr.sameAs(want)
				t.Logf("%d recycled, %d checkpoints resumed", len(said), tr.out.Saved)
			})
		}
	})
}

// passing are reasons for which a worker cannot be replaced at this moment.
var passing = []string{"loader ended", "no such worker", "process has ended", "worker is at the end of its data"}

// recycleStateful asks for the worker in turn n until count were recycled. One
// at the end of its data is refused.
func (tr *training) recycleStateful(count int) (recycled []Said) {
	tr.t.Helper()
	for n := 0; len(recycled) < count; n++ {
		tr.until("workers", func() bool { return len(tr.workers()) > 0 })
		pids := tr.workers()
		id, err := tr.ctl.Recycle(pids[n%len(pids)], event.Swap)
		if err != nil {
			tr.t.Fatal(err)
		}
		tr.until("an answer", func() bool { _, ok := tr.last(id); return ok })
		switch s, _ := tr.last(id); {
		case s.What == event.LoaderRecycled:
			recycled = append(recycled, s)
		case slices.Contains(passing, s.Reason):
		default:
			tr.t.Fatalf("refused: %+v", s)
		}
	}
	return recycled
}

// sameAs ends the training and compares it with one without us.
func (tr *training) sameAs(want result) {
	tr.t.Helper()
	got := tr.finish()
	if want.Wrong != 0 || got.Wrong != 0 || got.Checksum != want.Checksum || want.Batches == 0 {
		tr.t.Errorf("got %+v, bare %+v", got, want)
	}
	if text := tr.stderr.String(); text != "" {
		tr.t.Errorf("stderr: %s", text)
	}
	for _, s := range tr.said {
		if s.What == event.LoaderOff {
			tr.t.Errorf("hook is off: %s", s.Reason)
		}
	}
}

// TestStatefulReplacementFails has every replacement die, hang, fail or come back
// with another state than it was given: the worker stays, and no batch differs.
func TestStatefulReplacementFails(t *testing.T) {
	eachTorch(t, func(t *testing.T, on *stand) {
		for i, c := range []struct{ args, why string }{
			{"--dataset ended", "replacement did not come up: status -9"},
			{"--dataset broken", "replacement cannot load the worker's state: KeyError: 'no such shard'"},
			{"--dataset forgetful --persistent", "another state after load_state_dict"},
			{"--dataset hung --waits 1", "the training waited 1 s"},
			{"--dataset hung --timeout 10", "within the loader's timeout"},
			{"--dataset stream --unpicklable --persistent --context spawn", "fork refused: TypeError"},
			{"--dataset map --unpicklable --persistent --context forkserver", "fork refused: TypeError"},
		} {
			if !on.turn(i, 7) {
				continue
			}
			t.Run(c.args, func(t *testing.T) {
				t.Parallel()
				a := append(strings.Fields(c.args), "--workers", "2", "--count", "400")
				want := statefulBare(t, on, slices.DeleteFunc(slices.Clone(a), func(s string) bool { return s == "--unpicklable" })...)
				tr := statefulTraining(t, on, a...)
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
				seen := tr.seen()
				tr.until("two more epochs", func() bool { return tr.seen() > seen+1 })
				tr.sameAs(want)
			})
		}
	})
}

// refused asks for a worker until that is refused in the middle of an epoch; it
// returns the workers that were there, too.
func (tr *training) refused() ([]int, Said) {
	tr.t.Helper()
	for {
		tr.until("workers", func() bool { return len(tr.workers()) > 0 })
		before := tr.workers()
		id, err := tr.ctl.Recycle(before[0], event.Drain)
		if err != nil {
			tr.t.Fatal(err)
		}
		tr.until("an answer", func() bool { _, ok := tr.last(id); return ok })
		s, _ := tr.last(id)
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
	needTorch(t)
	changed := t.TempDir()
	if err := os.CopyFS(changed, os.DirFS("testdata/standin")); err != nil {
		t.Fatal(err)
	}
	const module = "torchdata/stateful_dataloader/stateful_dataloader.py"
	text, err := os.ReadFile(filepath.Join(changed, module))
	if err != nil {
		t.Fatal(err)
	}
	other := strings.Replace(string(text), "worker_states[self._worker_key(i)]", "worker_states.get(self._worker_key(i))", 1)
	if other == string(text) {
		t.Fatal("nothing changed")
	}
	if err := os.WriteFile(filepath.Join(changed, module), []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, torchdata, why string }{
		{"--dataset unstated", "", "no state_dict"},
		{"--dataset stream --every 0", "", "snapshot_every_n_steps is 0"},
		{"--dataset map", changed, "worker_states.get(self._worker_key(i))"},
		{"--dataset hugging", "", "shuffle buffer"},
		{"--dataset counting", "", "__iter__ sets .epochs"},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			args := append(strings.Fields(c.args), "--count", "400", "--persistent")
			want := statefulBare(t, torch113, args...)
			tr := train(t, trainOptions{script: "testdata/stateful.py", args: append(args, "--until", "@stop"),
				env: slices.DeleteFunc([]string{"TORCHDATA=" + c.torchdata}, func(string) bool { return c.torchdata == "" })})
			tr.until("workers", func() bool { return len(tr.workers()) == 3 })
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
			tr.until("trims", func() bool {
				return slices.ContainsFunc(tr.said, func(s Said) bool { return s.What == event.LoaderTrimmed && s.Request == id })
			})
			tr.sameAs(want)
		})
	}
}

// TestStatefulHookFails has functions of the hook raise while a worker is being
// replaced: the training goes on with the right batches.
func TestStatefulHookFails(t *testing.T) {
	faults := []fault{
		{"raise", "stateful.Recycler._settle"}, {"raise", "stateful.Recycler._judge"}, {"raise", "stateful.Recycler.wait"},
		{"raise", "stateful.begin"}, {"raise:1", "recycle.Recycler._take_over"}, {"raise:2", "recycle.Recycler._take_over"},
	}
	if endurance(0, 1) == 1 {
		out, err := exec.Command(python, "testdata/fault.py", "list", "hook").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for line := range strings.Lines(string(out)) {
			var name string
			var statements int
			fmt.Sscan(line, &name, &statements)
			if strings.HasPrefix(name, "stateful.") || strings.HasPrefix(name, "recycle.Recycler._take_over") {
				for k := range statements {
					faults = append(faults, fault{fmt.Sprintf("raise:%d", k), name})
				}
			}
		}
	}
	needTorch(t)
	for _, f := range faults {
		t.Run(f.kind+"/"+f.in, func(t *testing.T) {
			t.Parallel()
			args := []string{"--dataset", "stream", "--workers", "2", "--count", "400", "--persistent"}
			want := statefulBare(t, torch113, args...)
			tr := train(t, trainOptions{script: "testdata/stateful.py", args: append(args, "--until", "@stop"), hook: func(dir string) string {
				changed := filepath.Join(t.TempDir(), "hook")
				out, err := exec.Command(python, "testdata/fault.py", f.kind, dir, changed, f.in).CombinedOutput()
				if err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				return changed
			}})
			tr.until("an epoch", func() bool { return tr.seen() > 0 })
			for n := range 4 {
				seen := tr.seen()
				if pids := tr.workers(); len(pids) == 2 {
					tr.ctl.Recycle(pids[n%2], event.Swap)
				}
				tr.until("an epoch", func() bool { return tr.seen() > seen })
			}
			// Some are met where a reason is given for the loader alone.
			why := fmt.Sprintf("%+v", tr.ctl.Trainers())
			got := tr.finish()
			if got.Wrong != 0 || got.Checksum != want.Checksum || tr.stderr.Len() > 0 {
				t.Errorf("got %+v, bare %+v\n%s", got, want, tr.stderr.String())
			}
			_, err := os.Stat(strings.TrimSuffix(tr.stop, "stop") + "started.reached")
			off := strings.Contains(why, "injected into "+f.in) || slices.ContainsFunc(tr.said, func(s Said) bool {
				return (s.What == event.LoaderOff || s.What == event.LoaderRefused) && strings.Contains(s.Reason, "injected into "+f.in)
			})
			if err == nil && !off {
				t.Errorf("that the hook is off was not said: %+v", tr.said)
			}
			if err != nil && endurance(0, 1) == 0 {
				t.Errorf("%s was not reached: %+v", f.in, tr.said)
			}
		})
	}
}
