package loader

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestVerbs holds that a trainer that has an InfiniBand device open is not
// forked anew, and that one whose workers are not forks of it is served.
func TestVerbs(t *testing.T) {
	eachTorch(t, func(t *testing.T, s *stand) {
		for i, context := range []string{"fork", "spawn", "forkserver"} {
			for j, mode := range []event.Mode{event.Swap, event.Drain} {
				if !s.turn(i+j, 4) || context != "fork" && mode == event.Drain && endurance(0, 1) == 0 {
					continue // seconds each
				}
				t.Run(context+"/"+string(mode), func(t *testing.T) {
					t.Parallel()
					device := filepath.Join(t.TempDir(), "uverbs0")
					tr := train(t, trainOptions{on: s, args: []string{"--context", context, "--verbs", device,
						"--workers", "2", "--part", "800", "--until", "@stop"}})
					tr.until("workers", func() bool { return len(tr.workers()) == 2 })
					if context != "fork" {
						tr.recycle(1, mode)
						if r := tr.finish(); r.Wrong != 0 {
							t.Errorf("%+v", r)
						}
						return
					}
					before := tr.workers()
					id, err := tr.ctl.Recycle(before[0], mode)
					if err != nil {
						t.Fatal(err)
					}
					tr.until("an answer", func() bool { _, ok := tr.last(id); return ok })
					said, _ := tr.last(id)
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

// changed is a sitecustomize that has torch's own text changed as it is
// imported, so that to the hook it is another version of it.
const changed = `
import importlib.machinery, os, sys

class Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, name):
        path = self.get_filename(name)
        return self.source_to_code(self.get_data(path), path)
    def get_data(self, path):
        text = super().get_data(path)
        old, new = (s.encode() for s in os.environ["RENAME"].split(" to "))
        assert old in text
        return text.replace(old, new)

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "torch.utils.data." + os.environ["RENAME_IN"]:
            spec = importlib.machinery.PathFinder.find_spec(name, path, target)
            spec.loader = Loader(name, spec.origin)
            return spec

sys.meta_path.insert(1, Finder)
`

// TestUnknownTorch has torch's internals be others than the ones known: that is
// said once, nothing is recycled, trimming goes on, the data are right.
func TestUnknownTorch(t *testing.T) {
	eachTorch(t, func(t *testing.T, s *stand) {
		for i, c := range []struct {
			in, rename string
			why        string
			trims      bool // on request, too
		}{
			{"_utils.worker", "base_seed to seed_base", "_worker_loop has no parameter base_seed", true},
			{"dataloader", "_try_put_index to _try_put", "torch has no _try_put_index", true},
			{"dataloader", "_shutdown_workers to _end_workers", "torch has no _shutdown_workers", false},
			{"dataloader", "_task_info to _tasks", "torch's iterator has no _task_info", true},
			{"dataloader", "_index_queues to _queues", "torch's iterator has no _index_queues by worker", true},
			{"dataloader", "target=_utils.worker._worker_loop to target=_utils.worker.__dict__['_worker_loop']", "torch starts _worker_loop in no places", true},
		} {
			if !s.turn(i, 6) {
				continue
			}
			t.Run(c.rename, func(t *testing.T) {
				t.Parallel()
				site := t.TempDir()
				if err := os.WriteFile(filepath.Join(site, "sitecustomize.py"), []byte(changed), 0o600); err != nil {
					t.Fatal(err)
				}
				args := []string{"--part", "800", "--epochs", "2"}
				want := bareOn(t, s, args...)
				tr := train(t, trainOptions{on: s, args: append(args, "--workers", "2", "--until", "@stop"),
					env: []string{"PYTHONPATH=" + site, "RENAME=" + c.rename, "RENAME_IN=" + c.in}})
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
				if err := tr.ctl.SetBudget(1); err != nil {
					t.Fatal(err)
				}
				tr.until("a trim", func() bool {
					return slices.ContainsFunc(tr.said, func(s Said) bool { return s.What == event.LoaderTrimmed && s.Reason == "budget" })
				})
				seen := tr.seen()
				tr.until("an epoch", func() bool { return tr.seen() > seen })
				r := tr.finish()
				if r.Wrong != 0 || r.Checksum != want.Checksum || tr.stderr.Len() > 0 {
					t.Errorf("got %+v, bare %+v\n%s", r, want, tr.stderr.String())
				}
				hellos := 0
				for _, said := range tr.said {
					switch said.What {
					case event.LoaderHello:
						hellos++
					case event.LoaderOff:
						t.Errorf("hook is off: %s", said.Reason)
					}
				}
				if hellos != 1 {
					t.Errorf("%d hellos", hellos)
				}
			})
		}
	})
}

// TestTraceback holds that a dataset that raises is told of in the words it is
// told of bare: no line of ours stands between the program's.
func TestTraceback(t *testing.T) {
	eachTorch(t, func(t *testing.T, s *stand) {
		const program = `
import torch
torch.set_num_threads(1)
class Data(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return 1 // (5 - i)
for workers in (0, 1) if __name__ == "__main__" else (): # with two, torch has a line of its own for batches out of turn
    try:
        for batch in torch.utils.data.DataLoader(Data(), 2, num_workers=workers): pass
    except ZeroDivisionError:
        import traceback
        print(traceback.format_exc())
`
		script := filepath.Join(t.TempDir(), "program.py")
		if err := os.WriteFile(script, []byte(program), 0o600); err != nil {
			t.Fatal(err)
		}
		run := func(env []string) string {
			cmd := s.command(t, python, script)
			cmd.Env = env
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			return string(out)
		}
		want := run(os.Environ())
		env, _ := hooked(t)
		if got := run(env); got != want || strings.Count(want, "ZeroDivisionError") < 2 {
			t.Errorf("got\n%s\nbare\n%s", got, want)
		}
	})
}

// TestModulesCleared has an iterator end while the interpreter clears the modules, the
// hook's among them: torch ends its workers, and nothing is printed.
func TestModulesCleared(t *testing.T) {
	eachTorch(t, func(t *testing.T, s *stand) {
		const program = `
import os, torch
torch.set_num_threads(1)
batches = iter(torch.utils.data.DataLoader(range(8), 2, num_workers=2))
next(batches)
workers = [w.pid for w in batches._workers]
import _rsswarden.patch
assert batches._rsswarden.why is None, batches._rsswarden.why
for name in list(vars(_rsswarden.patch)): vars(_rsswarden.patch)[name] = None
del batches
print([pid for pid in workers if os.path.exists("/proc/%d" % pid)])
`
		env, _ := hooked(t)
		cmd := s.command(t, python, "-c", program)
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != "[]\n" {
			t.Errorf("%v: %s", err, out)
		}
	})
}

// TestFreeThreaded has a Python say that it is free-threaded: the hook turns itself off,
// says so once, and changes nothing.
func TestFreeThreaded(t *testing.T) {
	eachTorch(t, func(t *testing.T, s *stand) {
		for i, context := range []string{"fork", "spawn"} {
			if !s.turn(i, 2) {
				continue
			}
			t.Run(context, func(t *testing.T) {
				t.Parallel()
				site := t.TempDir()
				if err := os.WriteFile(filepath.Join(site, "sitecustomize.py"), []byte("import sys, sysconfig\nsysconfig.get_config_vars()\nsys.abiflags += 't'\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				args := []string{"--part", "800", "--epochs", "2"}
				want := bareOn(t, s, args...)
				tr := train(t, trainOptions{on: s, args: append(args, "--workers", "2", "--context", context, "--until", "@stop"), env: []string{"PYTHONPATH=" + site}})
				tr.until("that the hook is off", func() bool { ts := tr.ctl.Trainers(); return len(ts) == 1 && ts[0].Off })
				if err := tr.ctl.SetBudget(1); err != nil {
					t.Fatal(err)
				}
				seen := tr.seen()
				tr.until("two epochs", func() bool { return tr.seen() >= seen+2 })
				r := tr.finish()
				if r.Wrong != 0 || r.Checksum != want.Checksum || tr.stderr.Len() > 0 {
					t.Errorf("got %+v, bare %+v\n%s", r, want, tr.stderr.String())
				}
				if len(tr.said) != 2 || tr.said[1].What != event.LoaderOff || !strings.Contains(tr.said[1].Reason, "free-threaded") {
					t.Errorf("said %+v", tr.said)
				}
			})
		}
	})
}
