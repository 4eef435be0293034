package loader

import (
	"bytes"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader/torchtest"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// fault is something that goes wrong in a function of the hook.
type fault struct {
	kind string // raise, raise:STATEMENT or slow
	in   string // MODULE.FUNCTION of package _rsswarden
}

// oftenFaults are those of `make test`: they lie where a training has most to lose.
var oftenFaults = []fault{
	{"raise", "iterators._poll"}, {"raise", "iterators.made"}, {"raise", "iterators._settle"}, {"raise", "patch._before_fetch"},
	{"raise", "recycle.Recycler._take_over"}, {"raise", "recycle.Recycler._refill"}, {"raise", "recycle.Recycler._watch"},
	{"raise", "birth.start"}, {"slow", "recycle.Recycler._tell"}, {"slow", "epoch.settle"},
	{"raise", "sharing.need"},
}

// bornOff are functions that fail before there is a training to report.
var bornOff = []string{"__init__.begin", "patch.install", "channel.meant", "channel._read", "channel.start_time",
	"channel.Side.__init__", "channel.Side.hello"}

// ownProcess runs in a replacement alone, before anything of the program's is
// reached. Such a process says what it met and ends, as one that cannot be started.
const ownProcess = "birth._born"

// onlyInjected says that a program printed nothing but the fault, as Python
// prints what ends a process.
func onlyInjected(stderr string, f fault) bool {
	processes := strings.Count(stderr, "Process Process-")
	return processes > 0 && processes == strings.Count(stderr, "Traceback (most recent call last):") &&
		processes == strings.Count(stderr, "ZeroDivisionError: injected into "+f.in+"\n")
}

// TestHookFails has functions of the hook raise, or be slow for 5 s: the
// training goes on, its data are right, and it ends as it would. With
// RSSWARDEN_ENDURANCE it is each function, on each torch, and before each of
// its statements where recycling may be left half done.
func TestHookFails(t *testing.T) {
	t.Parallel()
	for _, s := range stands {
		t.Run(s.Name, func(t *testing.T) {
			s.Need(t)
			for i, f := range faultsOf(t) {
				if s.Turn(i, len(oftenFaults)) {
					t.Run(f.kind+"/"+f.in, func(t *testing.T) {
						t.Parallel()
						runFault(t, s, f)
					})
				}
			}
		})
	}
}

// put makes a hook that has the fault.
func (f fault) put(t *testing.T) func(dir string) string {
	return func(dir string) string {
		changed := filepath.Join(t.TempDir(), "hook")
		torchtest.Run(t, nil, "testdata/fault.py", f.kind, dir, changed, f.in)
		return changed
	}
}

// hookFunctions are the functions of the hook, with how many statements each has.
func hookFunctions(t *testing.T) iter.Seq2[string, int] {
	t.Helper()
	list := torchtest.Run(t, nil, "testdata/fault.py", "list", "hook")
	return func(yield func(string, int) bool) {
		for line := range strings.Lines(list) {
			name, n, _ := strings.Cut(strings.TrimSpace(line), " ")
			if statements, _ := strconv.Atoi(n); !yield(name, statements) {
				return
			}
		}
	}
}

// faultsOf lists the faults to try.
func faultsOf(t *testing.T) []fault {
	t.Helper()
	if wardentest.Few(1, 0) == 0 {
		return oftenFaults
	}
	var list []fault
	for name, statements := range hookFunctions(t) {
		if strings.HasPrefix(name, "stateful.") {
			continue // see TestStatefulHookFails
		}
		list = append(list, fault{"raise", name}, fault{"slow", name})
		for _, prefix := range []string{"recycle.Recycler._take_over", "recycle.Recycler._tell", "recycle.Recycler._drain",
			"recycle.Recycler._refill", "recycle.Recycler._begin", "recycle.Recycler.reap", "epoch.settle", "epoch.Ending.__init__"} {
			for k := 1; name == prefix && k < statements; k++ {
				list = append(list, fault{fmt.Sprintf("raise:%d", k), name})
			}
		}
	}
	return list
}

// brief are the options of a short training.
const brief = "--part 400 --epochs 2"

// runFault runs a training with the fault.
func runFault(t *testing.T, s *stand, f fault) {
	want := bareOn(t, s, brief)
	tr := train(t, trainOptions{on: s, args: brief + " --workers 2", hook: f.put(t)})
	var asked []uint64
	for n, mode := range []event.Mode{event.Swap, event.Drain} {
		tr.moreEpochs(1)
		wardentest.NoError(t, tr.ctl.SetBudget(rss.Bytes(n+1)))
		if pids := tr.workers(); len(pids) == 2 {
			// Some faults leave no process to ask.
			tr.ctl.Trim()
			tr.ctl.GC()
			if id, err := tr.ctl.Recycle(pids[n], mode); err == nil {
				asked = append(asked, id)
			}
		}
	}
	tr.moreEpochs(2)
	r := tr.finish()
	if r.Wrong != 0 || r.Checksum != want.Checksum || r.Main != want.Main && r.Epochs == want.Epochs {
		t.Errorf("got %+v, bare %+v", r, want)
	}
	if text := tr.stderr.String(); text != "" && !(f.kind == "raise" && f.in == ownProcess && onlyInjected(text, f)) {
		t.Errorf("stderr: %s", text)
	}
	hit, off := tr.reached(), false
	for _, said := range tr.said {
		if said.What == event.LoaderRefused && f.in == "birth.start" && strings.Contains(said.Reason, "injected into "+f.in) {
			off = true // as far as recycling goes
		}
		if said.What != event.LoaderOff {
			continue
		}
		off = true
		if f.kind == "slow" || !strings.Contains(said.Reason, "injected into "+f.in) {
			t.Errorf("off: %s", said.Reason)
		}
	}
	if f.kind == "raise" && slices.ContainsFunc(oftenFaults, func(o fault) bool { return o == f }) && (!hit || !off) {
		t.Errorf("got there: %t; that the hook is off was said: %t: %+v", hit, off, tr.said)
	}
	if f.kind == "slow" && !off && !slices.Contains(bornOff, f.in) {
		for _, id := range asked {
			if said, ok := tr.last(id); !ok {
				t.Errorf("request %d was not answered: %+v", id, tr.said)
			} else if said.What != event.LoaderRecycled {
				t.Logf("%s: %+v", f.in, said)
			}
		}
	}
	t.Logf("a process got there: %v", hit)
}

// reached says whether a process of the training got to the fault.
func (tr *training) reached() bool {
	_, err := os.Stat(strings.TrimSuffix(tr.stop, "stop") + "started.reached")
	return err == nil
}

// TestGarbage writes garbage into the files that the hook reads, and replaces those it
// writes by something unwritable.
func TestGarbage(t *testing.T) {
	t.Parallel()
	torchtest.Each(t, func(t *testing.T, s *stand) {
		start := func(t *testing.T) (*training, rss.ProcID) {
			tr := train(t, trainOptions{on: s, args: brief + " --workers 2"})
			tr.have(2)
			return tr, tr.ctl.Trainers()[0].ID
		}
		end := func(t *testing.T, tr *training) { tr.like(bareOn(t, s, brief)) }
		t.Run("control file", func(t *testing.T) {
			t.Parallel()
			tr, id := start(t)
			path := filepath.Join(tr.dir, nodedir.FileOf("ctl", id))
			for _, garbage := range [][]byte{
				nil, []byte("{"), []byte("[]"), []byte("null"), []byte(`{"v":1}`), []byte(`{"v":2,"budget":0}`),
				[]byte(`{"v":1,"budget":"many","trim":7,"recycle":{}}`), []byte(`{"v":1,"budget":1e400,"trim":[],"recycle":[]}`),
				[]byte(`{"v":1,"budget":-5,"trim":[{"id":1,"pids":[null]}],"recycle":[{"id":9,"worker":1,"mode":"melt"}]}`),
				[]byte(`{"v":1,"budget":0,"trim":[],"recycle":[],"gc":[{"id":"x","pids":3}],"trim_private":[]}`),
				bytes.Repeat([]byte("["), 60000), bytes.Repeat([]byte{0xff}, 200000),
			} {
				wardentest.NoError(t, replaceFile(path, garbage))
				tr.moreEpochs(1)
			}
			// It still listens.
			tr.recycle(1, event.Swap)
			end(t, tr)
		})
		for i, c := range []struct {
			name string
			make func(path string) error
		}{
			{"a directory", func(path string) error { return os.Mkdir(path, 0o700) }},
			{"a pipe", func(path string) error { return syscall.Mkfifo(path, 0o600) }},
			{"a link", func(path string) error { return os.Symlink("/proc/self/mem", path) }},
			{"full", func(path string) error { return os.Symlink("/dev/full", path) }},
		} {
			for j, kind := range []string{"log", "ctl"} {
				if !s.Turn(2*i+j, 8) {
					continue
				}
				t.Run(kind+" is "+c.name, func(t *testing.T) {
					t.Parallel()
					tr, id := start(t)
					path := filepath.Join(tr.dir, nodedir.FileOf(kind, id))
					pids := tr.workers()
					wardentest.NoError(t, os.RemoveAll(path))
					wardentest.NoError(t, c.make(path))
					if kind == "log" {
						// It is asked, and cannot answer.
						for n, mode := range []event.Mode{event.Swap, event.Drain} {
							if _, err := tr.ctl.Recycle(pids[n], mode); err != nil {
								t.Fatal(err)
							}
						}
					}
					tr.moreEpochs(2)
					end(t, tr)
				})
			}
		}
	})
}
