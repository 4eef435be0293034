package loader

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader/torchtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestVerbs: a trainer with an open InfiniBand device is not forked again, and one whose
// workers are not forks of it is served.
func TestVerbs(t *testing.T) {
	t.Parallel()
	torchtest.Each(t, func(t *testing.T, s *stand) {
		for i, context := range []string{"fork", "spawn", "forkserver"} {
			for j, mode := range []event.Mode{event.Swap, event.Drain} {
				if !s.Turn(i+j, 4) || context != "fork" && mode == event.Drain && wardentest.Few(1, 0) == 0 {
					continue // seconds each
				}
				t.Run(context+"/"+string(mode), func(t *testing.T) {
					t.Parallel()
					device := filepath.Join(t.TempDir(), "uverbs0")
					tr := train(t, trainOptions{on: s, args: "--workers 2 --part 800 --context " + context + " --verbs " + device})
					before := tr.have(2)
					if context != "fork" {
						tr.recycle(1, mode)
						tr.right()
						return
					}
					said := tr.ask(before[0], mode)
					if said.What != event.LoaderRefused || !strings.HasPrefix(said.Reason, string(event.ReasonForkRefused)) ||
						!strings.Contains(said.Reason, device) {
						t.Errorf("%+v", said)
					}
					if l := tr.ctl.Trainers()[0].Loaders[0]; l.CanRecycle || !slices.Equal(l.Workers, before) {
						t.Errorf("%+v, workers were %v", l, before)
					}
					if r := tr.finish(); r.Wrong != 0 || r.Workers != 2 {
						t.Errorf("%+v", r)
					}
				})
			}
		}
	})
}

// TestUnknownTorch has torch with unknown internals: that is reported once, nothing is
// recycled, trimming goes on, the data are right.
func TestUnknownTorch(t *testing.T) {
	t.Parallel()
	type kase struct {
		in, rename string
		why        string
		trims      bool // on request, too
	}
	torchtest.EachCase(t, []kase{
		{"_utils.worker", "base_seed to seed_base", "_worker_loop has no parameter base_seed", true},
		{"dataloader", "_try_put_index to _try_put", "torch has no _try_put_index", true},
		{"dataloader", "_shutdown_workers to _end_workers", "torch has no _shutdown_workers", false},
		{"dataloader", "_task_info to _tasks", "torch's iterator has no _task_info", true},
		{"dataloader", "_index_queues to _queues", "torch's iterator has no _index_queues by worker", true},
		{"dataloader", "target=_utils.worker._worker_loop to target=_utils.worker.__dict__['_worker_loop']", "torch starts _worker_loop in no places", true},
	}, func(c kase) string { return c.rename }, func(t *testing.T, s *stand, c kase) {
		want := bareOn(t, s, brief)
		tr := train(t, trainOptions{on: s, args: brief + " --workers 2",
			env: []string{"PYTHONPATH=" + script(t, "changed"), "RENAME=" + c.rename, "RENAME_IN=" + c.in}})
		tr.until("a loader", func() bool { ts := tr.ctl.Trainers(); return len(ts) == 1 && len(ts[0].Loaders) > 0 })
		trainer := tr.ctl.Trainers()[0]
		l := trainer.Loaders[0]
		if l.CanRecycle || !strings.Contains(l.Why, c.why) {
			t.Errorf("%+v", trainer)
		}
		if pids := tr.workers(); c.trims {
			id, asked, err := tr.ctl.Trim()
			if err != nil || len(pids) != 2 {
				t.Fatalf("%v: workers %v", err, pids)
			}
			for range asked {
				tr.until("an answer", func() bool { said, ok := tr.last(id); return ok && said.What == event.LoaderTrimmed })
			}
		} else if len(pids) != 0 {
			t.Errorf("workers %v are known, their end would not be", pids)
		}
		// By budget it trims in any case.
		must(t, tr.ctl.SetBudget(1))
		tr.until("a trim", func() bool {
			return slices.ContainsFunc(tr.said, func(s Said) bool { return s.What == event.LoaderTrimmed && s.Reason == "budget" })
		})
		tr.moreEpochs(1)
		tr.like(want)
		tr.quiet()
		tr.notOff()
		if all := tr.heard(event.LoaderHello, 0); len(all) != 1 {
			t.Errorf("hellos %+v", all)
		}
	})
}

// TestTraceback: the traceback of a dataset that raises is the same as bare, without a line
// of ours.
func TestTraceback(t *testing.T) {
	t.Parallel()
	torchtest.Each(t, func(t *testing.T, s *stand) {
		want := s.Run(t, nil, script(t, "raises.py"))
		env, _ := hooked(t)
		if got := s.Run(t, env, script(t, "raises.py")); got != want || strings.Count(want, "ZeroDivisionError") < 2 {
			t.Errorf("got\n%s\nbare\n%s", got, want)
		}
	})
}

// TestUnderHook: programs that print the same on every stand.
func TestUnderHook(t *testing.T) {
	t.Parallel()
	torchtest.Each(t, func(t *testing.T, s *stand) {
		for name, want := range map[string]string{
			// An iterator ends while the interpreter clears the modules, the hook's among them: torch
			// ends its workers, and nothing is printed.
			"cleared.py": "[]\n",
			// Each function that looks for tensors raises: the hook is turned off, and nothing reaches
			// the program.
			"sharingfails.py": "True False (400, 1000)\n",
		} {
			env, _ := hooked(t)
			if out := s.Run(t, env, script(t, name)); out != want {
				t.Errorf("%s: got %q, want %q", name, out, want)
			}
		}
	})
}

// TestFreeThreaded has a Python say that it is free-threaded: the hook turns itself off,
// says so once, and changes nothing.
func TestFreeThreaded(t *testing.T) {
	t.Parallel()
	torchtest.EachCase(t, []string{"fork", "spawn"}, nil, func(t *testing.T, s *stand, context string) {
		site := t.TempDir()
		must(t, os.WriteFile(filepath.Join(site, "sitecustomize.py"), []byte("import sys, sysconfig\nsysconfig.get_config_vars()\nsys.abiflags += 't'\n"), 0o600))
		want := bareOn(t, s, brief)
		tr := train(t, trainOptions{on: s, args: brief + " --workers 2 --context " + context, env: []string{"PYTHONPATH=" + site}})
		tr.until("that the hook is off", func() bool { ts := tr.ctl.Trainers(); return len(ts) == 1 && ts[0].Off })
		must(t, tr.ctl.SetBudget(1))
		tr.moreEpochs(2)
		tr.like(want)
		tr.quiet()
		if len(tr.said) != 2 || tr.said[1].What != event.LoaderOff || !strings.Contains(tr.said[1].Reason, "free-threaded") {
			t.Errorf("said %+v", tr.said)
		}
	})
}
