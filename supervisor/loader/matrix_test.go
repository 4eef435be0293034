package loader

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

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
	{name: "persistent, 1 worker", args: "--workers 1", swaps: true},
	{name: "a new iterator an epoch", args: "--loader plain --workers 4"},
	{name: "a new iterator an epoch, 1 worker", args: "--loader plain --workers 1", swaps: true},
	{name: "endless", args: "--loader endless --workers 4"},
	{name: "endless, 1 worker", args: "--loader endless --workers 1", swaps: true},
	{name: "epoch left early", args: "--workers 3 --break-at 17", often: 8},
	{name: "epoch left early, a new iterator an epoch", args: "--loader plain --workers 3 --break-at 17", often: 8},
	{name: "spawn", args: "--context spawn --workers 2", slow: true},
	{name: "forkserver", args: "--context forkserver --workers 2", slow: true},
	{name: "file_system sharing", args: "--sharing file_system --workers 3"},
	{name: "pin thread", args: "--pin --workers 3"},
	{name: "pin thread, endless", args: "--pin --loader endless --workers 2"},
	{name: "two loaders at once", args: "--pair --workers 2"},
	{name: "a loader inside the dataset", args: "--dataset nested --workers 2"},
	{name: "a loader inside the loop", args: "--inner 40 --workers 2"},
	{name: "in a forked child", args: "--child fork --workers 2", child: true},
	{name: "in a spawned child", args: "--child spawn --workers 2", slow: true, child: true},
	{name: "RandomSampler", args: "--sampler random --workers 2"},
	{name: "SequentialSampler", args: "--sampler sequential --workers 2"},
	{name: "WeightedRandomSampler", args: "--sampler weighted --workers 2"},
	{name: "a batch sampler", args: "--sampler batch --workers 2"},
	{name: "an infinite sampler", args: "--sampler infinite --loader plain --workers 2"},
	{name: "DistributedSampler, set_epoch", args: "--sampler distributed --workers 2"},
	{name: "plain file", args: "--dataset plain --main-reads --workers 2"},
	{name: "numpy memmap", args: "--dataset memmap --workers 2"},
	{name: "h5py", args: "--dataset h5py --main-reads --workers 2", newer: true}, // in the turn of a stand that has it
	{name: "lmdb", args: "--dataset lmdb --workers 2"},
	{name: "in_order=False", args: "--unordered --workers 3", newer: true, swaps: true},
	// Batches are of use only while the worker that made them lives, and come before their turn.
	{name: "batches of a living worker, endless", args: "--loader endless --dataset named --sampler sequential --workers 2", often: 4},
	{name: "batches of a living worker, epoch left early", args: "--break-at 7 --dataset named --sampler sequential --workers 2", often: 4},
}

// TestMatrix holds the promise for every shape, started as the stand's Python does, and
// with RSSWARDEN_ENDURANCE on every torch: workers are
// replaced while batches flow, no record is lost, doubled or out of its place,
// what each holds is right, each worker that was replaced ended with 0, and its
// replacement has its id.
func TestMatrix(t *testing.T) {
	t.Parallel()
	for i, sh := range shapes {
		if sh.newer && torch113.Turn(i, len(shapes)) && !torch26.Turn(i, len(shapes)) {
			t.Errorf("%s is in the turn of a torch that does not have it", sh.name)
		}
		for _, s := range stands {
			if sh.newer && s == torch113 || !s.Turn(i, len(shapes)) {
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

// TestPreloadedForkServer is a row of it on two torches at least: the fork server imports
// torch before it starts a worker, as set_forkserver_preload has it do.
func TestPreloadedForkServer(t *testing.T) {
	t.Parallel()
	for _, s := range []*stand{torch26, newest, torch113} {
		if s == torch113 && wardentest.Few(1, 0) == 0 {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			s.Need(t)
			t.Parallel()
			runCell(t, s, shape{name: "forkserver that has torch", args: "--context forkserver --preload torch datasets --workers 2"})
		})
	}
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
	must(tr.t, err)
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
