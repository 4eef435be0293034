package loader

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestCollect asks processes whose heap holds free blocks between live ones, or
// reference cycles around arrays, to collect: memory goes back to the system,
// what lives is as it was, and Python's own collector as the program left it.
func TestCollect(t *testing.T) {
	eachTorch(t, func(t *testing.T, on *stand) {
		for i, c := range []struct {
			args  string
			least rss.Bytes // given back by the process that holds something
		}{
			{"--case fragments --where worker", 70 * rss.MiB},
			{"--case cycles --where trainer", 100 * rss.MiB},
			// From here on with RSSWARDEN_ENDURANCE only.
			{"--case fragments --where trainer", 70 * rss.MiB},
			{"--case fragments --where trainer --workers 0", 70 * rss.MiB},
			{"--case cycles --where worker", 100 * rss.MiB},
		}[:endurance(2, 5)] {
			if !on.turn(i, 2) {
				continue
			}
			t.Run(c.args, func(t *testing.T) {
				t.Parallel()
				tr := train(t, trainOptions{on: on, script: "testdata/heap.py", args: append(strings.Fields(c.args), "--until", "@stop")})
				tr.until("an epoch", func() bool { return tr.seen() > 0 })
				trainer := tr.ctl.Trainers()[0].ID.PID
				want := append(tr.workers(), trainer)
				holder := trainer
				if strings.Contains(c.args, "worker ") || strings.HasSuffix(c.args, "worker") {
					holder = want[0]
				}
				id, asked, err := tr.ctl.GC()
				if err != nil || !slices.Equal(asked, want) {
					t.Fatalf("asked %v, %v; want %v", asked, err, want)
				}
				answers := map[int]Said{}
				tr.until("answers", func() bool {
					for _, s := range tr.said {
						if s.Request == id && s.What == event.LoaderCollected {
							answers[s.Worker] = s
						}
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
				tr.until("an answer", func() bool { s, ok := tr.last(again); return ok && s.What == event.LoaderCollected })
				if r := tr.finish(); r.Wrong != 0 || r.Epochs == 0 {
					t.Errorf("%+v", r)
				}
				ignored := strings.Count(tr.stderr.String(), "ValueError: a finalizer of the program")
				// A worker forked from the trainer may collect its copy of the knot too.
				if cycles := strings.Contains(c.args, "cycles"); cycles != (ignored >= 1) {
					t.Errorf("%d finalizers were reported by Python:\n%s", ignored, tr.stderr.String())
				}
				for _, s := range tr.said {
					if s.What == event.LoaderOff {
						t.Errorf("hook is off: %s", s.Reason)
					}
				}
			})
		}
	})
}

// TestCollectHere runs collect.py without torch: where the C library has no
// malloc_trim that is said, and a forked worker that shares most of its memory
// with its trainer leaves the shared part alone.
func TestCollectHere(t *testing.T) {
	_, dir := hooked(t)
	const head = `
import ctypes, gc, os, sys, types
package = types.ModuleType("_rsswarden"); package.__path__ = [os.path.join(%q, "_rsswarden")]
sys.modules["_rsswarden"] = package
from _rsswarden import collect
class Side:
    pid, version, collects = os.getpid(), 0, ()
    def say(self, what, **fields): print(what, fields["id"], fields["why"], fields["after"] <= fields["before"] + (1 << 20))
def ask(side, collector, *ids):
    side.collects = ids; side.version += 1; collector.requests(); sys.stdout.flush()
`
	for _, c := range []struct{ name, body, want string }{
		{"each request once", `
side = Side(); c = collect.Collector(side, False)
ask(side, c, 3); ask(side, c, 3); ask(side, c, 3, 4, 5); ask(side, c)
`, "collected 3  True\ncollected 4  True\ncollected 5  True\n"},
		{"no malloc_trim", `
class Musl:
    def __init__(self, name): pass
ctypes.CDLL = Musl
side = Side(); ask(side, collect.Collector(side, False), 1)
`, "collected 1 no malloc_trim in this C library True\n"},
		{"a worker that shares its heap", `
kept = [[i] for i in range(400000)]
def private():
    with open("/proc/self/smaps_rollup") as file:
        return [int(line.split()[1]) >> 10 for line in file if line.startswith("Private_Dirty")][0]
if not os.fork():
    side = Side(); before = private()
    ask(side, collect.Collector(side, True), 1)
    print(private() - before < 8); sys.stdout.flush()
    gc.collect()
    print(private() - before > 15); sys.stdout.flush()
    os._exit(0)
os.wait()
`, "collected 1 no gc.collect: most of its memory is shared with the trainer True\nTrue\nTrue\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if out := runPython(t, nil, "-c", fmt.Sprintf(head, dir)+c.body); out != c.want {
				t.Errorf("got %q, want %q", out, c.want)
			}
		})
	}
}

// TestControlGC holds what the ctl file says of collections and of private
// mappings, and who is asked.
func TestControlGC(t *testing.T) {
	s := script(t)
	if err := s.SetPrivate(true); err != nil {
		t.Fatal(err)
	}
	s.hello(s.id)
	s.expect(event.LoaderHello)
	if !s.ctl().Private {
		t.Error("a trainer that comes later is not told of private mappings")
	}
	if _, _, err := s.GC(); !errors.Is(err, ErrNobody) {
		t.Errorf("a process without a loader was asked: %v", err)
	}
	s.log(`{"what":"iter","pid":1,"n":1,"workers":[101,102],"num_workers":2,"kind":"map"}` + "\n")
	s.expect(event.LoaderIter)
	if _, asked, err := s.GC(102); err != nil || !slices.Equal(asked, []int{102}) {
		t.Errorf("asked %v, %v", asked, err)
	}
	id, asked, err := s.GC()
	if err != nil || !slices.Equal(asked, []int{101, 102, s.id.PID}) {
		t.Fatalf("asked %v, %v", asked, err)
	}
	if c := s.ctl(); len(c.GC) != 2 || c.GC[1].ID != id || !slices.Equal(c.GC[1].PIDs, asked) || len(c.Trim) != 0 {
		t.Errorf("%+v", c)
	}
	s.log(fmt.Sprintf(`{"what":"collected","pid":101,"worker":101,"id":%d,"before":500,"after":200,"freed":300,"pause_ms":40}`+"\n", id))
	if said := s.expect(event.LoaderCollected); said[0].Freed != 300 || said[0].Paused != 0.04 || !said[0].Last || said[0].Request != id {
		t.Errorf("%+v", said)
	}
	if c := s.ctl(); !slices.Equal(s.pending[id].pids[s.id], []int{102, s.id.PID}) {
		t.Errorf("%+v", c)
	}
	if err := s.SetPrivate(false); err != nil || s.ctl().Private {
		t.Errorf("%+v, %v", s.ctl(), err)
	}
	s.log(`{"what":"off","pid":` + fmt.Sprint(s.id.PID) + `,"why":"x"}` + "\n")
	s.expect(event.LoaderOff)
	if _, asked, err := s.GC(); err != nil || !slices.Equal(asked, []int{101, 102}) {
		t.Errorf("a trainer whose hook is off was asked: %v, %v", asked, err)
	}
}
