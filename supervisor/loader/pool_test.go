package loader

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader/torchtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// poolShapes are programs with a pool, each of which must not notice that workers are
// replaced: kind, start method and how it takes the results.
var poolShapes = []struct {
	on   *stand
	args string
}{
	{torch113, "--pool multiprocessing --start fork --how imap_unordered --limit 400"},
	{torch113, "--pool executor --start fork --how submit"},
	{torch113, "--pool torch --how imap_unordered --tensors"},
	{newest, "--pool multiprocess --start fork --how map"},
	// From here on with RSSWARDEN_ENDURANCE only: pairs of what stands above.
	{newest, "--pool joblib --how map"}, // whose workers are loky's
	{torch113, "--pool multiprocessing --start spawn --how apply_async"},
	{torch113, "--pool executor --start forkserver --how as_completed"},
	{torch113, "--pool multiprocessing --start fork --how map"},
	{torch113, "--pool executor --start spawn --how map --limit 400"},
	{newest, "--pool executor --start forkserver --how submit --tensors"},
	{newest, "--pool multiprocessing --start fork --how imap"},
	{newest, "--pool multiprocessing --start forkserver --how imap_unordered"},
	{newest, "--pool loky --how submit"},
	{torch113, "--pool multiprocessing --start fork --how imap"},
	{torch113, "--pool multiprocessing --start forkserver --how imap"},
	{torch113, "--pool executor --start spawn --how submit"},
	{torch113, "--pool multiprocessing --start fork --how imap --tensors"},
	{torch113, "--pool executor --start spawn --how submit --tensors"},
	{newest, "--pool executor --start forkserver --how submit"},
	{newest, "--pool executor --start spawn --how map"},
	{newest, "--pool executor --start fork --how map"},
}

// TestPools replaces workers of pools: no task is lost, done twice or out of place, what
// raises raises as without us, and no descriptor or semaphore is left behind.
func TestPools(t *testing.T) {
	t.Parallel()
	for _, shape := range poolShapes[:wardentest.Few(len(poolShapes), 4)] {
		t.Run(strings.ReplaceAll(shape.on.Name+" "+shape.args, "--", ""), func(t *testing.T) {
			t.Parallel()
			tr := train(t, trainOptions{on: shape.on, script: "pools.py", args: shape.args, forks: true})
			count := wardentest.Few(200, 6)
			tr.recycle(count, event.Drain)
			r := tr.finish()
			if r.Wrong != 0 || r.Errors == 0 || r.FDs[1] > r.FDs[0]+4 || r.Sems[0] == 0 || r.Sems[1] > r.Sems[0] || r.Sems[3] > 0 {
				t.Errorf("%+v", r)
			}
			t.Logf("%d workers replaced, %d results wrong; %d descriptors, then %d; %d semaphores, then %d, of %d left %d",
				count, r.Wrong, r.FDs[0], r.FDs[1], r.Sems[0], r.Sems[1], r.Sems[2], r.Sems[3])
			tr.notOff()
			tr.quiet()
		})
	}
}

// TestPoolsInEveryPython: executors before 3.11 are left alone.
func TestPoolsInEveryPython(t *testing.T) {
	t.Parallel()
	for i, py := range torchtest.Interpreters(t, torchtest.Interpreter.Armed) {
		for j, args := range []string{"--pool multiprocessing --start fork --how imap", "--pool executor --start spawn --how submit"} {
			if i%2 != j && wardentest.Few(1, 0) == 0 {
				continue
			}
			t.Run(strings.ReplaceAll(py.Name+" "+args, "--", ""), func(t *testing.T) {
				t.Parallel()
				tr := train(t, trainOptions{python: py.Path, script: "pools.py", args: args + " --tasks 60"})
				if strings.Contains(args, "executor") && !py.AtLeast(3, 11) {
					tr.moreEpochs(2)
				} else {
					tr.recycle(4, event.Drain)
				}
				tr.right()
				tr.notOff()
				tr.quiet()
			})
		}
	}
}

// TestPoolsTrimmed has workers of a pool give back what they have mapped, between two tasks.
func TestPoolsTrimmed(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"--pool multiprocessing --start fork --how imap", "--pool executor --start fork --how submit"}[:wardentest.Few(2, 1)] {
		t.Run(strings.ReplaceAll(args, "--", ""), func(t *testing.T) {
			t.Parallel()
			tr := train(t, trainOptions{script: "pools.py", args: args + " --map 64 --sleep 0.01 --tasks 30"})
			tr.moreEpochs(1)
			pids := tr.some()
			id, asked, err := tr.ctl.Trim(pids...)
			wardentest.NoError(t, err)
			tr.until("trims", func() bool { return len(tr.heard(event.LoaderTrimmed, id)) == len(asked) })
			for _, s := range tr.heard(event.LoaderTrimmed, id) {
				if s.Freed < 16<<20 {
					t.Errorf("%+v", s)
				}
			}
			id, asked, err = tr.ctl.GC()
			wardentest.NoError(t, err)
			if slices.Contains(asked, tr.pid) {
				t.Errorf("asked %v: the owner of a pool looks at no requests", asked)
			}
			tr.until("collections", func() bool { return len(tr.heard(event.LoaderCollected, id)) == len(asked) })
			wardentest.NoError(t, tr.ctl.SetBudget(32<<20))
			tr.until("a trim by the budget", func() bool {
				for _, s := range tr.heard(event.LoaderTrimmed, 0) {
					if s.Request == 0 && s.Freed > 0 {
						return true
					}
				}
				return false
			})
			tr.right()
			tr.notOff()
		})
	}
}

// TestPoolsThatStay has pools whose workers must not be asked to end: they say why, and
// what asks all the same is refused.
func TestPoolsThatStay(t *testing.T) {
	t.Parallel()
	for args, why := range map[string]string{
		"--pool executor --start fork --how submit":  "beside its own threads",
		"--pool datasets --how map":                  "Hugging Face datasets gives up",
		"--pool inductor --start spawn --how submit": "torch.compile's workers end by themselves",
	} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			tr := train(t, trainOptions{script: "pools.py", args: args})
			pid := tr.some()[0]
			i := slices.IndexFunc(tr.ctl.Trainers(), func(tr Trainer) bool { return len(tr.Loaders) > 0 })
			l := tr.ctl.Trainers()[i].Loaders[0]
			if l.CanRecycle || !l.Pool || !strings.Contains(l.Why, why) {
				t.Errorf("%+v", l)
			}
			if role := tr.ctl.Roles()[pid]; role != rss.RolePoolWorker {
				t.Errorf("its worker is a %s", role)
			}
			if said := tr.ask(pid, event.Drain); said.What != event.LoaderRefused || said.Reason != l.Why {
				t.Errorf("%+v", said)
			}
			tr.right()
			tr.notOff()
		})
	}
}

// TestOddPools has pools as few programs do. Workers are asked to end all the time: what comes of
// each task is as bare, and where a worker has to stay its pool says why.
func TestOddPools(t *testing.T) {
	t.Parallel()
	const shared = "its initializer has a "
	for _, c := range [][2]string{
		{"--case forks"},                      // a task forks, and its child does the work
		{"--case exits"},                      // os._exit in a task: the Pool goes on, bare too
		{"--case locked"},                     // the main thread has a lock that tasks use
		{"--case piped"},                      // a program that the main thread starts reads a pipe to its end
		{"--case ends --start spawn"},         // Python waits for tasks once the script has ended
		{"--case numbered"},                   // tasks go by the number of their worker
		{"--case closed --start spawn"},       // shut down with wait=False while tasks wait
		{"--case dropped --start forkserver"}, // nothing refers to the executor while tasks wait
		// From here on with RSSWARDEN_ENDURANCE only.
		{"--patched gevent --start spawn", "gevent has replaced Python's select"}, // a forked Pool hangs there, bare too
		{"--case once --start spawn", shared + "Synchronized"},                    // unpickling it fails the fourth time
		{"--case inside --start forkserver"},                                      // a pool in each task of a pool
		{"--case exits --start spawn"},                                            // … the executor is broken, bare too
		{"--case daemon"},                                                         // a daemon process beside the pool
		{"--case single"},                                                         // maxtasksperchild=1
		{"--patched eventlet --start spawn", "eventlet has replaced Python's select"},
		{"--case closed --start loky"},
		{"--case dropped --start loky"},
		{"--case dropped --start spawn"},
		{"--case queue", shared + "Queue"},
		{"--case counter --start spawn", shared + "Synchronized"},
	}[:wardentest.Few(20, 8)] {
		args, why := c[0], c[1]
		t.Run(strings.ReplaceAll(args, "--", ""), func(t *testing.T) {
			t.Parallel()
			if words := strings.Fields(args); words[0] == "--patched" && exec.Command(python, "-c", "import "+words[1]).Run() != nil {
				t.Skip("no " + words[1])
			}
			if why == "" && wardentest.Few(1, 0) == 0 {
				args += " --rounds 1"
			}
			on := torch113
			if strings.Contains(args, "loky") {
				on = newest
			}
			bare := train(t, trainOptions{on: on, script: "oddpools.py", args: args, ends: true, bare: true}).finish()
			tr := train(t, trainOptions{on: on, script: "oddpools.py", args: args, ends: true})
			asked, done := map[int]bool{}, false
			for !done {
				for _, pid := range tr.workers() {
					if !asked[pid] {
						asked[pid] = true
						tr.ctl.Recycle(pid, event.Drain) // it may have ended
					}
				}
				for _, t := range tr.ctl.Trainers() {
					for _, l := range t.Loaders {
						if l.CanRecycle != (why == "") && l.Why != notRefilled || !strings.Contains(l.Why, why) {
							tr.t.Errorf("%+v", l)
						}
					}
				}
				tr.poll()
				select {
				case <-tr.done:
					done = true
				case <-time.After(5 * time.Millisecond):
				}
			}
			r := tr.finish()
			if r.Checksum == "" || r.Checksum != bare.Checksum {
				t.Errorf("checksum %q, bare %q\n%s", r.Checksum, bare.Checksum, tr.stderr.String())
			}
			left := len(tr.heard(event.LoaderRecycled, 0))
			if len(asked) == 0 || why != "" && left > 0 || why == "" && left == 0 && !strings.Contains(args, "single") && !strings.Contains(args, "exits") {
				t.Errorf("asked %d workers, %d were replaced", len(asked), left)
			}
			tr.notOff()
		})
	}
}

// TestPoolNotRefilled has an initializer that fails the second time: the pool has a worker
// less, no other is asked to end, and all results come.
func TestPoolNotRefilled(t *testing.T) {
	t.Parallel()
	tr := train(t, trainOptions{script: "pools.py", args: "--how imap --once"})
	said := tr.ask(tr.have(3)[0], event.Drain)
	if said.What != event.LoaderRecycled || said.New != 0 {
		t.Errorf("%+v", said)
	}
	if l := tr.ctl.Trainers()[0].Loaders[0]; l.CanRecycle || l.Why != notRefilled {
		t.Errorf("%+v", l)
	}
	tr.right()
}

// TestLongTask has a worker that does not come to the end of its task: the action that asked
// waits no more after 10 s, the request goes on.
func TestLongTask(t *testing.T) {
	t.Parallel()
	tr := train(t, trainOptions{script: "pools.py", args: "--how imap --tasks 3 --sleep 12"})
	var id uint64
	for waits := false; !waits; {
		var err error
		id, err = tr.ctl.Recycle(tr.some()[0], event.Drain)
		wardentest.NoError(t, err)
		tr.until("the word that it is asked", func() bool { return len(tr.heard(event.LoaderAccepted, id)) > 0 })
		if waits = tr.heard(event.LoaderAccepted, id)[0].Reason == string(event.ReasonTask); !waits {
			tr.answer(id) // it had not begun its first task yet
		}
	}
	if s := tr.answer(id); s.What != event.LoaderRecycled || s.Reason != string(event.ReasonTask) || s.New == 0 {
		t.Errorf("%+v", s)
	}
	tr.right()
}

// TestWorkerThatReachedItsOwnLimit is asked and gone: that is the answer.
func TestWorkerThatReachedItsOwnLimit(t *testing.T) {
	t.Parallel()
	tr := train(t, trainOptions{script: "pools.py", args: "--how imap --limit 40"})
	for {
		if s := tr.ask(tr.some()[0], event.Drain); s.What == event.LoaderRefused {
			if s.Reason != string(event.ReasonVanished) {
				t.Errorf("%+v", s)
			}
			break
		}
	}
	tr.right()
}

// TestTaskLimit: a request is taken back that no task's end has met.
func TestTaskLimit(t *testing.T) {
	t.Parallel()
	tr := train(t, trainOptions{script: "pools.py", args: "--how imap --tasks 3 --sleep 5"})
	id, err := tr.ctl.Recycle(tr.some()[0], event.Drain)
	wardentest.NoError(t, err)
	tr.ctl.pending[id].asked = time.Now().Add(-TaskLimit)
	if s := tr.answer(id); s.What != event.LoaderRefused || s.Reason != noTask {
		t.Errorf("%+v", s)
	}
	tr.right()
}
