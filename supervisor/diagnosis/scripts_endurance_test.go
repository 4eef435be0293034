//go:build endurance

package diagnosis_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/shm"
	"github.com/rsswarden/rsswarden/supervisor/diagnosis"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

const python = "/usr/bin/python3"

// scripts are programs with the growth that one finding names, and three with none.
var scripts = []struct {
	name string
	args []string
	want event.Finding // the only one; empty for an innocent one
}{
	{"mapped.py", nil, event.FindingMapped},
	{"cow.py", nil, event.FindingCopyOnWrite},
	{"leakworker.py", nil, event.FindingWorkerLeak},
	{"leaktrainer.py", nil, event.FindingTrainerLeak},
	{"fragmentation.py", []string{"alone"}, event.FindingFragmentation},
	{"prefetch.py", nil, event.FindingPrefetch},
	{"pinned.py", []string{"uring"}, event.FindingPinned},
	{"pinned.py", []string{"cuda"}, event.FindingPinned},
	{"managers.py", nil, event.FindingShmManagers},
	{"spawn.py", nil, event.FindingSpawn},
	{"arrow.py", nil, event.FindingArrow},
	{"steady.py", nil, ""},
	{"rampup.py", nil, ""},
	{"sawtooth.py", nil, ""},
}

// TestEnduranceScripts runs each five times. They sleep most of the time: what
// bounds how many run at once is memory, 1.5 GiB for the largest. Once each, and
// under rsswarden itself, they are run by the tests of cmd/rsswarden.
func TestEnduranceScripts(t *testing.T) { runScripts(t, 5, 4) }

var torch = sync.OnceValue(func() error {
	out, err := exec.Command(python, "-c", "import torch, lmdb").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%v: %s", err, bytes.TrimSpace(out))
	}
	return nil
})

// outcome is what became of one run of a script.
type outcome struct {
	ever map[event.Finding]time.Duration // each finding that was told, and when first
	last []event.Diagnosis               // those at the end
	err  error
}

func runScripts(t *testing.T, times, atOnce int) {
	if err := torch(); err != nil {
		t.Skipf("no torch, or no lmdb, for %s: %v", python, err)
	}
	places := make(chan struct{}, atOnce)
	var all []chan outcome
	for range times {
		for _, c := range scripts {
			dir, done := t.TempDir(), make(chan outcome, 1)
			all = append(all, done)
			go func() {
				places <- struct{}{}
				defer func() { <-places }()
				var o outcome
				o.ever, o.last, o.err = watch(c.name, append([]string{dir}, c.args...)...)
				done <- o
			}()
		}
	}
	for i, done := range all {
		c := scripts[i%len(scripts)]
		o := <-done
		t.Run(strings.TrimSuffix(c.name, ".py")+strings.Join(c.args, ""), func(t *testing.T) {
			if o.err != nil {
				t.Fatal(o.err)
			}
			right := len(o.last) > 0 && o.last[0].Finding == c.want
			for _, d := range o.last {
				right = right && d.Finding == c.want
			}
			if c.want == "" {
				right = len(o.ever) == 0
			}
			if !right {
				t.Errorf("want %q", c.want)
			}
			t.Logf("ever %v, at the end %s", o.ever, tell(o.last))
		})
	}
}

func tell(ds []event.Diagnosis) string {
	var b strings.Builder
	for _, d := range ds {
		fmt.Fprintf(&b, "%s, %s, %s, %v", d.Finding, d.Confidence, d.Role, d.Bytes)
		for _, e := range d.Evidence {
			fmt.Fprintf(&b, "\n  evidence: %s", e)
		}
		for _, e := range d.Advice {
			fmt.Fprintf(&b, "\n  advice: %s", e)
		}
		b.WriteString("\n")
	}
	if b.Len() == 0 {
		return "nothing"
	}
	return b.String()
}

// watch runs a script and returns every finding that was ever told, with when that
// was first, and those at the end.
func watch(name string, args ...string) (ever map[event.Finding]time.Duration, last []event.Diagnosis, err error) {
	var errs bytes.Buffer
	cmd := exec.Command(python, append([]string{"-W", "ignore", filepath.Join("testdata", name)}, args...)...)
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	said := make(chan string)
	ended := make(chan error, 1)
	go func() {
		for in := bufio.NewScanner(out); in.Scan(); {
			said <- in.Text()
		}
		ended <- cmd.Wait()
	}()
	e, s := newEyes(), diagnosis.New()
	defer e.close()
	ever = map[event.Finding]time.Duration{}
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(3 * time.Minute)
	for {
		select {
		case err := <-ended:
			if err != nil {
				return nil, nil, fmt.Errorf("%w: %s", err, errs.Bytes())
			}
			s.Add(&diagnosis.Look{At: time.Since(e.began) + time.Second})
			return ever, s.Findings(), nil
		case line := <-said:
			// As the hook tells it, of process and bytes.
			hook := event.LoaderSaid{What: event.LoaderCollected}
			var freed uint64
			if n, _ := fmt.Sscanf(line, "collected %d %d", &hook.PID, &freed); n == 2 {
				hook.Freed = rss.Bytes(freed)
				s.Tell(time.Since(e.began), &hook)
			}
		case <-limit:
			cmd.Process.Kill()
			return nil, nil, errors.New("the script does not end")
		case <-tick.C:
			s.Add(e.look(cmd.Process.Pid, s.Wants()))
			for _, d := range s.Findings() {
				if _, ok := ever[d.Finding]; !ok {
					ever[d.Finding] = time.Since(e.began).Round(time.Second)
				}
			}
		}
	}
}

// eyes reads for a State what the watcher reads.
type eyes struct {
	reader  *proctree.Reader
	counter *proctree.Counter
	began   time.Time
	counted time.Duration
}

func newEyes() *eyes {
	return &eyes{reader: proctree.New("/proc"), counter: proctree.NewCounter("/proc"), began: time.Now()}
}

func (e *eyes) close() {
	e.reader.Close()
	e.counter.Close()
}

// look reads the tree of a process, and what is wanted.
func (e *eyes) look(root int, wants []diagnosis.Want) *diagnosis.Look {
	l := &diagnosis.Look{At: time.Since(e.began)}
	l.Procs, _, _ = e.reader.Tree(rss.ProcID{PID: root})
	diagnosis.Guess(l.Procs)
	if l.At-e.counted > time.Second {
		e.counted = l.At
		for i := range l.Procs {
			id := l.Procs[i].ID
			maps, _ := e.counter.Maps(id)
			fds, _ := e.counter.Descriptors(id)
			l.Counts = append(l.Counts, diagnosis.Count{ID: id, Maps: maps.N, FDs: fds.N, MaxMaps: 65530, MaxFDs: 65536})
		}
	}
	for _, w := range wants {
		switch w.Reading {
		case diagnosis.WantParts:
			if p, err := e.reader.Parts(w.ID); err == nil {
				p.At = l.At
				l.Parts = append(l.Parts, diagnosis.Parts{ID: w.ID, Parts: p})
			}
		case diagnosis.WantFiles:
			if f, err := e.files(w.ID, l.At); err == nil {
				l.Files = append(l.Files, f)
			}
		case diagnosis.WantSpace, diagnosis.WantShm:
			if m, err := space(w.ID, l); err == nil {
				l.Shm = append(l.Shm, m)
			}
		}
	}
	return l
}

// files turns what proctree tells into what a State takes.
func (e *eyes) files(id rss.ProcID, at time.Duration) (diagnosis.Files, error) {
	out := diagnosis.Files{ID: id, At: at}
	m, err := e.reader.MappedFiles(id)
	for _, f := range m.Largest {
		out.Files = append(out.Files, diagnosis.File{Path: f.Path, Kind: string(f.Kind), Shared: f.Shared, RSS: f.RSS})
	}
	for k, v := range m.By {
		out.Sums = append(out.Sums, diagnosis.File{Kind: string(k.Kind), Shared: k.Shared, RSS: v.RSS})
	}
	return out, err
}

// space reads how full /dev/shm is, and what of the tree's segments is in it.
func space(id rss.ProcID, l *diagnosis.Look) (diagnosis.Shm, error) {
	u, err := shm.Usage("/proc", id.PID)
	if err != nil {
		return diagnosis.Shm{}, err
	}
	out := diagnosis.Shm{ID: id, At: l.At, Used: u.Used, Size: u.Size, Read: true}
	var pids, trainers []int
	for i := range l.Procs {
		pids = append(pids, l.Procs[i].ID.PID)
		if l.Procs[i].Role == rss.RoleTrainer {
			trainers = append(trainers, l.Procs[i].ID.PID)
		}
	}
	held, err := shm.Segments("/proc", pids, 0)
	for _, s := range held.Segments {
		if s.Kind != shm.Torch || s.Dev != u.Dev {
			continue
		}
		out.Segments++
		out.Torch += s.Size
		if !s.Deleted {
			out.Visible++
		}
		if slices.ContainsFunc(s.Holders, func(pid int) bool { return slices.Contains(trainers, pid) }) {
			out.Trainer += s.Size
		}
	}
	return out, err
}
