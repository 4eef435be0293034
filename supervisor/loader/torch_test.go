package loader

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader/torchtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// EnvTexts names a directory with the text of releases of torch, for [TestReleases]:
// VERSION has what is below torch/utils/data.
const EnvTexts = "TORCH_TEXTS"

// release is a row of testdata/releases.txt.
type release struct {
	version, digest string
	dataset         string   // how a worker is given the data set: is or in, and the attribute
	tried           []string // the binaries that a trial of its text went well with, VERSION/PYTHON
}

func readReleases(t *testing.T) []release {
	t.Helper()
	data, err := os.ReadFile("testdata/releases.txt")
	wardentest.NoError(t, err)
	var list []release
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		if len(f) < 3 {
			t.Fatalf("a row of %d fields: %s", len(f), line)
		}
		list = append(list, release{f[0], f[1], f[2], f[3:]})
	}
	return list
}

// shape is a way to use a loader.
type shape struct {
	name  string
	args  string
	newer bool // torch 1.13 does not have it
	// swaps says that a drain is made a swap.
	swaps bool
	// slow says that a replacement takes seconds to come up.
	slow bool
	// often has `make test` replace so many workers in each mode, 2 where it is 0.
	often int
	// child says that all of it is done in a child, which says hello beside its parent.
	child bool
}

// shapes are those that recycling is claimed for.
var shapes = []shape{
	{name: "persistent", args: "--workers 4"},
	{name: "in_order=False", args: "--unordered --workers 3", newer: true, swaps: true},
	{name: "lmdb", args: "--dataset lmdb --workers 2"},
	{name: "pin thread, endless", args: "--pin --loader endless --workers 2"},
	{name: "spawn", args: "--context spawn --workers 2", slow: true},
	{name: "epoch left early, a new iterator an epoch", args: "--loader plain --workers 3 --break-at 17", often: 8},
	// From here on with RSSWARDEN_ENDURANCE only: pairs of what stands above, or of what every test uses.
	// Batches are of use only while the worker that made them lives, and come before their turn.
	{name: "batches of a living worker, epoch left early", args: "--break-at 7 --dataset named --sampler sequential --workers 2", often: 4},
	{name: "persistent, 1 worker", args: "--workers 1", swaps: true},
	{name: "two loaders at once", args: "--pair --workers 2"},
	{name: "a new iterator an epoch", args: "--loader plain --workers 4"},
	{name: "file_system sharing", args: "--sharing file_system --workers 3"},
	{name: "a loader inside the dataset", args: "--dataset nested --workers 2"},
	{name: "in a forked child", args: "--child fork --workers 2", child: true},
	{name: "WeightedRandomSampler", args: "--sampler weighted --workers 2"},
	{name: "a batch sampler", args: "--sampler batch --workers 2"},
	{name: "plain file", args: "--dataset plain --main-reads --workers 2"},
	{name: "a new iterator an epoch, 1 worker", args: "--loader plain --workers 1", swaps: true},
	{name: "endless", args: "--loader endless --workers 4"},
	{name: "endless, 1 worker", args: "--loader endless --workers 1", swaps: true},
	{name: "epoch left early", args: "--workers 3 --break-at 17", often: 8},
	{name: "forkserver", args: "--context forkserver --workers 2", slow: true},
	{name: "pin thread", args: "--pin --workers 3"},
	{name: "a loader inside the loop", args: "--inner 40 --workers 2"},
	{name: "in a spawned child", args: "--child spawn --workers 2", slow: true, child: true},
	{name: "RandomSampler", args: "--sampler random --workers 2"},
	{name: "SequentialSampler", args: "--sampler sequential --workers 2"},
	{name: "an infinite sampler", args: "--sampler infinite --loader plain --workers 2"},
	{name: "DistributedSampler, set_epoch", args: "--sampler distributed --workers 2"},
	{name: "numpy memmap", args: "--dataset memmap --workers 2"},
	{name: "h5py", args: "--dataset h5py --main-reads --workers 2", newer: true},
	{name: "batches of a living worker, endless", args: "--loader endless --dataset named --sampler sequential --workers 2", often: 4},
}

func runCell(t *testing.T, s *stand, sh shape) {
	count := wardentest.Few(100, cmp.Or(sh.often, 2))
	if sh.slow {
		count = wardentest.Few(100, 1)
	}
	tr := train(t, trainOptions{on: s, args: fmt.Sprintf("--context= --init started %s --part %d --step 0.001", sh.args, wardentest.Few(800, 400))})
	var recycled []Said
	for _, mode := range []event.Mode{event.Swap, event.Drain} {
		for _, said := range tr.recycle(count, mode) {
			recycled = append(recycled, said)
			want := mode
			if sh.swaps {
				want = event.Swap
			}
			if said.Exit != 0 || said.Mode != want || said.Paused <= 0 || said.New == 0 || said.New == said.Worker || said.Before == 0 {
				t.Errorf("%+v, want mode %q", said, want)
			}
		}
	}
	// What was replaced last is used for a while.
	tr.moreEpochs(1)
	r := tr.finish()
	t.Logf("%d recycled, %d batches, %d wrong", len(recycled), r.Batches, r.Wrong)
	if r.Wrong != 0 || r.Repeated != 0 {
		t.Errorf("%+v", r)
	}
	tr.notOff()
	workers := tr.started()
	for _, said := range recycled {
		if id := workers[said.New]; id == "" || id != workers[said.Worker] {
			t.Errorf("replacement %d ran as worker %q, the old one %d as %q", said.New, id, said.Worker, workers[said.Worker])
		}
	}
	// No worker passes for a trainer.
	if hellos, want := len(tr.heard(event.LoaderHello, 0)), map[bool]int{false: 1, true: 2}[sh.child]; hellos != want {
		t.Errorf("%d hellos, want %d", hellos, want)
	}
	if text := unlinkedBefore(tr.stderr.String()); text != "" && os.Getenv("RSSWARDEN_ENDURANCE") == "" {
		t.Errorf("stderr: %s", text)
	}
}

// started is which worker each process was, as worker_init_fn saw it.
func (tr *training) started() map[int]string {
	tr.t.Helper()
	data, err := os.ReadFile(strings.TrimSuffix(tr.stop, "stop") + "started")
	wardentest.NoError(tr.t, err)
	id := make(map[int]string)
	for line := range strings.Lines(string(data)) {
		worker, pid, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, _ := strconv.Atoi(pid)
		id[n] = worker
	}
	return id
}

// tracked is what Python's resource tracker says, now and then, of a semaphore
// that has been unlinked, by the process that made it, in a shutdown of which
// it was not told in time: of a program whose loader is in a spawned child. A
// bare Python 3.13 does so too, 1 time in 48 on a busy machine.
var tracked = regexp.MustCompile(`(?m)^\S*/multiprocessing/resource_tracker\.py:\d+: UserWarning: resource_tracker: .*\n( +warnings\.warn\(.*\n)?`)

// unlinkedBefore leaves that out where the semaphore was gone already.
func unlinkedBefore(stderr string) string {
	if !strings.Contains(stderr, "[Errno 2] No such file or directory") {
		return stderr
	}
	return tracked.ReplaceAllString(stderr, "")
}

// TestVerbs: a trainer with an open InfiniBand device is not forked again, and one whose
// workers are not forks of it is served.
func TestVerbs(t *testing.T) {
	t.Parallel()
	torchtest.Each(t, func(t *testing.T, s *stand) {
		for i, context := range []string{"fork", "spawn", "forkserver"} {
			for j, mode := range []event.Mode{event.Swap, event.Drain} {
				if !s.Turn(i+j) || (context == "spawn" || mode == event.Drain) && wardentest.Few(1, 0) == 0 {
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

// helped starts a training whose loader has a fork helper, and returns that.
func helped(t *testing.T, s *stand, args string) (tr *training, helper int) {
	t.Helper()
	tr = train(t, trainOptions{on: s, args: "--helper --workers 2 --part 800 " + args})
	wardentest.NoError(t, tr.ctl.SetLeft(rss.TiB))
	tr.have(2)
	l := tr.ctl.Trainers()[0].Loaders[0]
	if tr.ctl.Roles()[l.Helper] != rss.RoleForkHelper || slices.Contains(l.Workers, l.Helper) {
		t.Fatalf("%+v, said %+v", l, tr.said)
	}
	return tr, l.Helper
}

// unhelped waits until the helper is let go of and has ended.
func (tr *training) unhelped(helper int, why string) {
	tr.t.Helper()
	tr.until("that there is no helper", func() bool {
		return tr.ctl.Trainers()[0].Loaders[0].Helper == 0 && unix.Kill(helper, 0) == unix.ESRCH
	})
	if !slices.ContainsFunc(tr.said, func(s Said) bool { return s.Reason == "fork helper: "+why }) {
		tr.t.Errorf("said %+v", tr.said)
	}
}

// TestForkHelper: replacements that a helper forks are like others. Where the helper has
// ended, the data set has changed or memory is short, the trainer forks them, if it may.
func TestForkHelper(t *testing.T) {
	t.Parallel()
	both := func(tr *training, n int) {
		for _, mode := range []event.Mode{event.Swap, event.Drain} {
			for _, said := range tr.recycle(n, mode) {
				if said.Exit != 0 || said.Mode != mode {
					tr.t.Errorf("%+v", said)
				}
			}
		}
	}
	torchtest.EachCase(t, []string{"killed", "trainer killed", "changed"}, nil, func(t *testing.T, s *stand, c string) {
		file := filepath.Join(t.TempDir(), "uverbs0")
		args := "--init started "
		if c == "changed" {
			args += "--pin --verbs " + file + " --changes " + file + ".changes"
		}
		tr, helper := helped(t, s, args)
		both(tr, wardentest.Few(12, 2))
		for _, l := range tr.ctl.Trainers()[0].Loaders {
			if l.Helper != helper {
				t.Fatalf("said %+v", tr.said)
			}
		}
		switch c {
		case "killed":
			wardentest.NoError(t, unix.Kill(helper, unix.SIGKILL))
			both(tr, 1)
			tr.unhelped(helper, "it has ended")
		case "trainer killed":
			wardentest.NoError(t, unix.Kill(tr.pid, unix.SIGKILL))
			wardentest.Until(t, "that the helper has ended", func() bool { return unix.Kill(helper, 0) == unix.ESRCH })
			return
		case "changed":
			write(t, file+".changes", "")
			tr.moreEpochs(2)
			if said := tr.ask(tr.some()[0], event.Drain); !strings.HasPrefix(said.Reason, string(event.ReasonForkRefused)) || !strings.Contains(said.Reason, file) {
				t.Errorf("%+v", said)
			}
			tr.unhelped(helper, "changed since it was made: dataset.epoch")
		}
		tr.right()
		tr.quiet()
		tr.notOff()
	})
}

// TestForkHelperPause, with RSSWARDEN_ENDURANCE, has trainers of 1, 4 and 8 GiB recycle workers
// with a helper.
func TestForkHelperPause(t *testing.T) {
	wardentest.Long(t)
	torchtest.Each(t, func(t *testing.T, s *stand) {
		for _, size := range []int{1, 4, 8} {
			tr := train(t, trainOptions{on: s, args: fmt.Sprintf("--workers 2 --part 800 --step 0.002 --ballast %d", size)})
			wardentest.NoError(t, tr.ctl.SetLeft(rss.TiB))
			tr.have(2)
			helper := tr.ctl.Trainers()[0].Loaders[0].Helper
			var pauses []float64
			for _, said := range append(tr.recycle(12, event.Swap), tr.recycle(12, event.Drain)...) {
				pauses = append(pauses, said.Paused*1e3)
				if said.Exit != 0 {
					t.Errorf("%+v", said)
				}
			}
			slices.Sort(pauses)
			t.Logf("%d GiB: %d recycled, trainer paused %.1f ms (least), %.1f (median), %.1f (most)", size, len(pauses), pauses[0], pauses[len(pauses)/2], pauses[len(pauses)-1])
			if l := tr.ctl.Trainers()[0].Loaders[0]; helper == 0 || l.Helper != helper || pauses[len(pauses)/2] > 5 {
				t.Errorf("helper %d, %+v", helper, l)
			}
			tr.right()
		}
	})
}

// TestForkHelperShort: a trainer lets go of its helper when less memory is left than it may
// hold, and has none where little is left when its loader is made.
func TestForkHelperShort(t *testing.T) {
	t.Parallel()
	torch113.Need(t)
	tr, helper := helped(t, torch113, "")
	wardentest.NoError(t, tr.ctl.SetLeft(0))
	tr.unhelped(helper, "little memory is left")
	tr.recycle(1, event.Swap)
	tr.right()

	tr = train(t, trainOptions{args: "--helper --workers 2 --part 800"})
	wardentest.NoError(t, tr.ctl.SetLeft(300*rss.MiB))
	tr.have(2)
	if l := tr.ctl.Trainers()[0].Loaders[0]; l.Helper != 0 {
		t.Errorf("%+v", l)
	}
	tr.right()
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
		{"dataloader", "_index_queues to _queues", "torch's iterator has no _index_queues by worker", true},
		{"dataloader", "_task_info to _tasks", "torch's iterator has no _task_info", true},
		// From here on with RSSWARDEN_ENDURANCE only.
		{"dataloader", "_shutdown_workers to _end_workers", "torch has no _shutdown_workers", false},
		{"dataloader", "target=_utils.worker._worker_loop to target=_utils.worker.__dict__['_worker_loop']", "torch starts _worker_loop in no places", true},
		{"dataloader", "_try_put_index to _try_put", "torch has no _try_put_index", true},
	}[:wardentest.Few(6, 3)], func(c kase) string { return c.rename }, func(t *testing.T, s *stand, c kase) {
		want := bareOn(t, s, brief)
		tr := train(t, trainOptions{on: s, args: brief + " --workers 2", before: revive(event.ReviveOOM),
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
		wardentest.NoError(t, tr.ctl.SetBudget(1))
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
	torchtest.On(t, newest, func(t *testing.T, s *stand) {
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
	torchtest.On(t, torch26, func(t *testing.T, s *stand) {
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

// TestAsBare: programs print what they print bare.
func TestAsBare(t *testing.T) {
	t.Parallel()
	torch113.Need(t)
	for _, what := range []string{"finalized", "succeeded", "limited", "loaders"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			p := prepare(t, atHome(t, os.Environ()))
			c, err := Open(p.Dir)
			wardentest.NoError(t, err)
			defer c.Close()
			wardentest.NoError(t, c.SetRevive(event.ReviveOOM))
			want := torch113.Run(t, nil, script(t, "asbare.py"), what)
			if got := torch113.Run(t, p.Env, script(t, "asbare.py"), what); got != want {
				t.Errorf("got\n%s\nbare\n%s", got, want)
			}
		})
	}
}

// TestFreeThreaded has a Python say that it is free-threaded: the hook turns itself off,
// says so once, and changes nothing.
func TestFreeThreaded(t *testing.T) {
	t.Parallel()
	torchtest.EachCase(t, []string{"spawn", "fork"}[:wardentest.Few(2, 1)], nil, func(t *testing.T, s *stand, context string) {
		site := t.TempDir()
		wardentest.NoError(t, os.WriteFile(filepath.Join(site, "sitecustomize.py"), []byte("import sys, sysconfig\nsysconfig.get_config_vars()\nsys.abiflags += 't'\n"), 0o600))
		want := bareOn(t, s, brief)
		tr := train(t, trainOptions{on: s, args: brief + " --workers 2 --context " + context, env: []string{"PYTHONPATH=" + site}})
		tr.until("that the hook is off", func() bool { ts := tr.ctl.Trainers(); return len(ts) == 1 && ts[0].Off })
		wardentest.NoError(t, tr.ctl.SetBudget(1))
		tr.moreEpochs(2)
		tr.like(want)
		tr.quiet()
		if len(tr.said) != 2 || tr.said[1].What != event.LoaderOff || !strings.Contains(tr.said[1].Reason, "free-threaded") {
			t.Errorf("said %+v", tr.said)
		}
	})
}

// TestReleases holds the table of torch's releases against what is shipped: each digest
// in known.py is that of a release, each release is known or was tried, and the torch of
// a stand has the digest that the table says: recycling is on with it because its text is in
// the list, and not by a trial. With [EnvTexts] it reads the texts of
// releases again, and tries each over the binaries of the stands.
func TestReleases(t *testing.T) {
	t.Parallel()
	list := readReleases(t)
	var known map[string][]string
	wardentest.NoError(t, json.Unmarshal([]byte(inHook(t, "fingerprint.py", "digests")), &known))
	for digest, pythons := range known {
		if !slices.ContainsFunc(list, func(r release) bool { return r.digest == digest }) {
			t.Errorf("known.py has %s on %v, no release has it", digest, pythons)
		}
	}
	for _, r := range list {
		if len(known[r.digest]) == 0 && len(r.tried) == 0 {
			t.Errorf("torch %s is neither known nor tried", r.version)
		}
	}

	for _, s := range stands {
		t.Run(s.Name, func(t *testing.T) {
			s.Need(t)
			out := inHookOf(t, s, "fingerprint.py", "release")
			f := strings.Fields(out)
			i := slices.IndexFunc(list, func(r release) bool {
				return f[0] == r.version || f[0] == r.version+"a0" // Debian's 1.13.0a0
			})
			switch {
			case i < 0 && s == newest:
				t.Logf("torch %s has no row yet", f[0]) // a newer Debian sid
			case i < 0:
				t.Fatalf("torch %s has no row", f[0])
			case f[1] != list[i].digest || f[2] != list[i].dataset:
				t.Errorf("%s, want %+v", out, list[i])
			}
			// That of Debian sid changes: a newer one has a trial in the other tests.
			out = inHookOf(t, s, "fingerprint.py", "recycles")
			if !strings.HasPrefix(out, "None True ") && (s != newest || wardentest.Few(1, 0) == 1) {
				t.Errorf("the digest of its text is not in known.py: %s", out)
			}
		})
	}

	texts := os.Getenv(EnvTexts)
	if texts == "" {
		return
	}
	for _, r := range list {
		folder := filepath.Join(texts, r.version)
		if _, err := os.Stat(folder); err != nil {
			t.Logf("no text of torch %s", r.version)
			continue
		}
		t.Run(r.version, func(t *testing.T) {
			out := inHook(t, "fingerprint.py", "text", folder)
			if got, want := strings.TrimSpace(out), r.digest+" "+r.dataset; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			for _, s := range stands {
				t.Run("over "+s.Name, func(t *testing.T) {
					s.Need(t)
					env, _ := hooked(t)
					site := mutate(t, s, mutant{})
					data := filepath.Join(site, "torch/utils/data")
					wardentest.NoError(t, errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(folder))))
					cmd := s.Command(t, python, "-c", "import torch.utils.data")
					cmd.Env = append(os.Environ(), "PYTHONPATH="+site)
					if out, err := cmd.CombinedOutput(); err != nil {
						t.Skipf("%v: %s", err, out)
					}
					u := untried(t, s, env, site)
					v, err := Try(t.Context(), u, env, startOn(t, s))
					t.Logf("torch %s: %+v, %v", u.Torch, v, err)
					if v.OK() == !slices.Contains(r.tried, strings.TrimSpace(inHookOf(t, s, "fingerprint.py", "binaries"))) {
						t.Errorf("%+v, the table has it tried over %v", v, r.tried)
					}
				})
			}
		})
	}
}

// TestWorksWith holds the README's row on PyTorch against what the stands have.
func TestWorksWith(t *testing.T) {
	t.Parallel()
	var list []string
	for _, s := range stands {
		s.Need(t)
		list = append(list, strings.TrimSpace(inHookOf(t, s, "fingerprint.py", "platform")))
	}
	rsstest.WorksWith(t, "PyTorch", list)
}

// TestMatrix holds the promise for every shape, started as the stand's Python does, and
// with RSSWARDEN_ENDURANCE on every torch: workers are
// replaced while batches flow, no record is lost, doubled or out of its place,
// what each holds is right, each worker that was replaced ended with 0, and its
// replacement has its id.
func TestMatrix(t *testing.T) {
	t.Parallel()
	for i, sh := range shapes[:wardentest.Few(len(shapes), 6)] {
		if sh.newer && torch113.Turn(i) && !torch26.Turn(i) {
			t.Errorf("%s is in the turn of a torch that does not have it", sh.name)
		}
		for _, s := range stands {
			if sh.newer && s == torch113 || !s.Turn(i) {
				continue
			}
			t.Run(s.Name+"/"+sh.name, func(t *testing.T) {
				s.Need(t)
				t.Parallel()
				runCell(t, s, sh)
			})
		}
	}
}

// TestPreloadedForkServer is a row of it: the fork server imports
// torch before it starts a worker, as set_forkserver_preload has it do. It reports late how
// workers ended.
func TestPreloadedForkServer(t *testing.T) {
	wardentest.Long(t)
	t.Parallel()
	torchtest.On(t, newest, func(t *testing.T, s *stand) {
		t.Parallel()
		runCell(t, s, shape{name: "forkserver that has torch", args: "--context forkserver --preload torch datasets latereport --workers 2"})
	})
}
