package supervisor

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/record/store"
	"github.com/rsswarden/rsswarden/supervisor/replay"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

var updateScenes = flag.Bool("update-scenes", false, "write testdata/scenes")

// scenes are whole runs of a watcher over a made-up tree. Each ends its stand.
var scenes = map[string]func(*testing.T) *stand{
	// Memory leaps over all rungs between two readings, and falls again.
	"burst": func(t *testing.T) *stand {
		s := opened(t)
		for _, used := range []rss.Bytes{790, 990, 400} {
			s.later(time.Second)
			s.put(theCommand, theHolder, used*rss.MiB, 0)
			s.tick()
		}
		s.end(&hold.Exit{})
		return s
	},
	// Memory grows by 5 MiB a second until the limit kills.
	"ramp": func(t *testing.T) *stand {
		s := opened(t)
		for used := rss.Bytes(150); used <= 1050; used += 50 {
			s.later(10 * time.Second)
			s.put(theCommand, theHolder, used*rss.MiB, 0)
			s.full()
		}
		s.end(&hold.Exit{Signal: int(syscall.SIGKILL)})
		return s
	},
	// The larger of two workers is replaced; then the other refuses.
	"recycle": func(t *testing.T) *stand {
		s := newStand(t, withLoader(t))
		id := s.trainer(100*rss.MiB, worker1, worker2)
		s.put(worker1, id.PID, 300*rss.MiB, 10*rss.MiB)
		s.put(worker2, id.PID, 400*rss.MiB, 10*rss.MiB)
		s.open(s.holder.begin)
		s.fs.End(worker2)
		s.put(worker3, id.PID, 110*rss.MiB, 10*rss.MiB)
		s.log(id, `"what":"recycled","id":1,"n":1,"worker":5000012,"new":5000013,"pause_ms":7,"mode":"drain"`)
		s.full()
		s.later(time.Minute)
		s.put(worker1, id.PID, 700*rss.MiB, 10*rss.MiB)
		s.full()
		s.log(id, `"what":"refused","id":2,"n":1,"worker":5000011,"why":"the loader ends"`)
		s.later(2 * time.Second) // by now nothing grows, however fast the test is
		s.full()
		s.end(&hold.Exit{})
		return s
	},
	// Mapped pages are taken by ptrace, piece by piece, until it is enough.
	"ptrace": func(t *testing.T) *stand {
		s := tracedStand(t, 300*rss.MiB, 500*rss.MiB)
		s.open(s.holder.begin)
		s.plans()
		for left := rss.Bytes(450); left >= 350; left -= 50 {
			s.gives(s.wanted(), left*rss.MiB, 2*time.Millisecond)
		}
		s.end(&hold.Exit{})
		return s
	},
	// A worker of a pool without a hook gets a signal and is replaced.
	"pool": func(t *testing.T) *stand {
		s, _ := pooled(t)
		s.fs.End(s.acts.InFlight().Acted.Procs[0].ID.PID)
		s.fs.Write("proc/"+itoa(worker3)+"/cmdline", "python\x00pool.py\x00")
		s.put(worker3, theCommand, 10*rss.MiB, 0)
		s.later(time.Second)
		s.looksUntil("outcome", func() bool {
			p := s.view.Sample.Find(worker3)
			return s.acts.InFlight() == nil && p != nil && p.Role == rss.RoleWorker
		})
		s.end(&hold.Exit{})
		return s
	},
	// A job goes back to the queue with more memory.
	"requeue": func(t *testing.T) *stand {
		newFakeSlurm(t)
		s := inJob46(t, nil)
		s.put(theCommand, theHolder, 980*rss.MiB, 0)
		s.looksUntil("decision", func() bool { return s.acts.InFlight() != nil })
		s.looksUntil("outcome", func() bool { return s.acts.InFlight() == nil })
		s.end(&hold.Exit{Signal: int(syscall.SIGTERM)})
		return s
	},
	// A trim finds no answer before the command has to be stopped.
	"stop": func(t *testing.T) *stand {
		s, cmd := stoppable(t)
		s.open(s.holder.begin)
		id := s.trainer(10*rss.MiB, worker1)
		s.fs.Put(rsstest.Process{PID: id.PID, Start: id.Start, Parent: s.observe.Pop.Command.PID, Comm: "python", Anon: 10 * rss.MiB})
		s.put(worker1, id.PID, 10*rss.MiB, 700*rss.MiB)
		s.full()
		s.fs.End(id.PID) // it is this test, and gets no signal
		s.size(960 * rss.MiB)
		s.full()
		_ = cmd.Wait() // SIGTERM ends it
		s.end(&hold.Exit{Signal: int(syscall.SIGTERM)})
		return s
	},
	// A process that runs already is watched from outside, and left alive.
	"attach": func(t *testing.T) *stand {
		s := opened(t, attachedTo("it was started without the hook", "its exit status is its parent's"))
		s.put(theCommand, theHolder, 950*rss.MiB, 0)
		s.full()
		s.end(nil)
		return s
	},
	// The lead of a node falls to another rank above a rung: nothing is done twice.
	"two-ranks": func(t *testing.T) *stand {
		first, second := twoUsing(t, 900*rss.MiB, "80%:warn", "95%:warn")
		second.inherits(first)
		second.full()
		second.later(time.Second)
		second.put(theCommand, theHolder+500, 960*rss.MiB, 0)
		second.full()
		second.end(&hold.Exit{Code: 3})
		return second
	},
	// A second watcher goes on after the first was killed.
	"crash": func(t *testing.T) *stand {
		s := newStand(t, func(o *Options) {
			o.Link.(*fakeHolder).begin.Attempt = 2
			o.Settings.Warnings = []string{"the watcher was killed (SIGKILL) and is started again"}
		})
		s.put(theCommand, theHolder, 860*rss.MiB, 0)
		s.open(s.holder.begin)
		s.end(&hold.Exit{})
		return s
	},
	// A line says what would be done, and nothing is.
	"dry-run": func(t *testing.T) *stand {
		s := newStand(t, withLoader(t), func(o *Options) { o.Settings.DryRun = true })
		id := s.trainer(20*rss.MiB, worker1)
		s.put(theCommand, theHolder, 500*rss.MiB, 0)
		s.put(worker1, id.PID, 20*rss.MiB, 350*rss.MiB)
		s.open(s.holder.begin)
		s.later(time.Minute)
		s.put(theCommand, theHolder, 620*rss.MiB, 0)
		s.full()
		s.end(&hold.Exit{})
		return s
	},
	// The user asks for a recycle; the second worker refuses.
	"control": func(t *testing.T) *stand {
		s, id := answering(t)
		results, err := asks(t, s, func(context.Context) (<-chan control.Result, error) {
			return s.tell.Status.Source().Do(context.Background(), control.Command{Do: event.ActionRecycle, By: 4711})
		})
		wardentest.NoError(t, err)
		first := s.acts.InFlight().Acted.Procs[0].ID.PID
		s.fs.End(first)
		s.put(worker3, id.PID, 100*rss.MiB, 0)
		s.log(id, fmt.Sprintf(`"what":"recycled","id":1,"n":1,"worker":%d,"new":5000013,"pause_ms":7,"mode":"drain"`, first))
		s.full()
		<-results
		s.log(id, fmt.Sprintf(`"what":"refused","id":2,"n":1,"worker":%d,"why":"the loader ends"`, s.acts.InFlight().Acted.Procs[0].ID.PID))
		s.full()
		<-results
		<-results
		s.end(&hold.Exit{})
		return s
	},
}

// TestScenes compares the output of whole runs, on stderr and by events, with
// testdata/scenes, so that no restructuring changes it unseen. Times, rates, sizes of this
// process and names of its folders are left out; of samples, all but the first are.
func TestScenes(t *testing.T) {
	for name, play := range scenes {
		t.Run(name, func(t *testing.T) {
			s := play(t)
			got := s.scene()
			file := filepath.Join("testdata", "scenes", name+".txt")
			if *updateScenes {
				wardentest.NoError(t, os.WriteFile(file, []byte(got), 0o644))
			}
			want, err := os.ReadFile(file)
			wardentest.NoError(t, err)
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("the text differs from %s (-update-scenes writes it):\n%s", file, diff)
			}
		})
	}
}

// scene is what a stand has said, in lines and in events.
func (s *stand) scene() string {
	s.t.Helper()
	var b strings.Builder
	b.WriteString(s.stderr())
	sampled := false
	for _, e := range s.events() {
		if e["event"] == string(event.NameSample) {
			if sampled {
				continue
			}
			sampled = true
		}
		line, err := json.Marshal(timeless(e))
		wardentest.NoError(s.t, err)
		b.WriteString("\n")
		b.Write(line)
	}
	b.WriteString("\n")
	return s.plain(b.String())
}

// timeless leaves out of an event what differs from run to run.
func timeless(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			switch _, number := value.(float64); {
			case key == "time", key == "first", key == "last", key == "seq", key == "boot", key == "kernel", key == "host", key == "own", key == "settings", key == "environment":
				delete(v, key)
			case number && strings.HasSuffix(key, "_s"):
				v[key] = "s"
			default:
				v[key] = timeless(value)
			}
		}
	case []any:
		for i := range v {
			v[i] = timeless(v[i])
		}
	}
	return v
}

var (
	listedPIDs = regexp.MustCompile(`"pids?":\[?([0-9,]{2,})`)
	// This machine may have a slurm.conf, or none.
	slurmOfHere = regexp.MustCompile(`(?m)^.*cannot tell whether slurmstepd kills on memory.*\n`)
	lengths     = regexp.MustCompile(`-?\b\d+(\.\d+)? (ms|s|min|h|d|[KMG]iB/s)\b( \d\d (s|min|h)\b)?`)
	digests     = regexp.MustCompile(`\b[0-9a-f]{16,}\b`)
)

// plain puts words in the place of folders, times, digests and PIDs that are not made up.
func (s *stand) plain(text string) string {
	text = strings.ReplaceAll(text, s.fs.Dir, "ROOT")
	for _, dir := range []string{filepath.Dir(s.Settings.Events), s.Settings.Dir, os.Getenv("FAKE_SLURM")} {
		if dir != "" && dir != "." {
			text = strings.ReplaceAll(text, dir, "DIR")
		}
	}
	for _, found := range listedPIDs.FindAllStringSubmatch(text, -1) {
		for _, digits := range strings.Split(found[1], ",") {
			if pid, err := strconv.Atoi(digits); err == nil && pid < theHolder {
				text = regexp.MustCompile(`\b`+digits+`\b`).ReplaceAllString(text, "PROCESS")
			}
		}
	}
	text = slurmOfHere.ReplaceAllString(text, "")
	return digests.ReplaceAllString(lengths.ReplaceAllString(text, "TIME"), "DIGEST")
}

// TestScenesReplayed: the judge decides on the record of each scene what it decided live, to
// the byte.
func TestScenesReplayed(t *testing.T) {
	for name, play := range scenes {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() { recordStands = "" })
			var run *record.Run
			var again *replay.Result
			err := error(nil)
			for range 5 { // on a busy machine the record may not be written within the time that it gets at the end
				recordStands = t.TempDir()
				if run, err = play(t).recorded(); err == nil {
					again, err = replay.Replay(run, replay.Options{})
				}
				if err == nil {
					break
				}
			}
			wardentest.NoError(t, err)
			var got, want []string
			line := func(d replay.Decision) string {
				b, err := json.Marshal(d)
				wardentest.NoError(t, err)
				return string(b)
			}
			for _, e := range run.Events {
				if d, ok := e.Value.(*event.Decision); ok && !d.Asked() {
					want = append(want, line(replay.Decision{Rule: d.Rule, Limit: d.Limit, Action: d.Action, Arg: d.Arg, Used: d.Used, Size: d.LimitSize, ETA: d.ETA}))
				}
			}
			for _, d := range again.Decisions {
				d.At, d.Recorded, d.Freed = 0, nil, 0
				got = append(got, line(d))
			}
			if diff := cmp.Diff(want, got); diff != "" || !*again.Same {
				t.Errorf("decided again (same: %v, missed: %v):\n%s", *again.Same, again.Missed, diff)
			}
		})
	}
}

// recorded reads the record of a stand that has ended. Its events have the real clock's times,
// which know nothing of [stand.later].
func (s *stand) recorded() (*record.Run, error) {
	s.t.Helper()
	run, err := store.Read(context.Background(), filepath.Join(recordStands, s.tell.Run.ID), func() *exec.Cmd {
		return exec.Command("/proc/self/exe", exportRecord)
	})
	if err != nil {
		return nil, err
	}
	for i := range run.Events {
		e := &run.Events[i]
		at := run.Wall(e.At)
		for _, l := range s.leaps {
			if !l.at.After(at) {
				e.At += l.by
			}
		}
	}
	return run, nil
}
