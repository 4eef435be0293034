//go:build endurance

package run

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestEnduranceHours: beside a tree that grows, shrinks and forks for two hours, or as long
// as RSSWARDEN_SOAK says, holder and watcher stay as they were after the first tenth: within
// 1 MiB of private memory, and without one descriptor more. They are looked at where the
// tree is at rest: each process of it has descriptors.
func TestEnduranceHours(t *testing.T) {
	lasts := 2 * time.Hour
	if v := os.Getenv("RSSWARDEN_SOAK"); v != "" {
		var err error
		if lasts, err = time.ParseDuration(v); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	cmd := exec.Command(binary, "run", "--limit", "2G", "--at", "20%:warn", "--at", "30%:warn", "--record", filepath.Join(dir, "record"), "--textfile", dir, "--", "python3", "testdata/soak.py")
	cmd.Env = wardentest.Env("TMPDIR="+dir, "XDG_STATE_HOME="+dir)
	wardentest.NoError(t, cmd.Start())
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}()
	var found []int
	wardentest.Until(t, "a watcher", func() bool { found = wardentest.Watchers(cmd.Process.Pid); return len(found) == 1 })
	ours := map[string]int{"holder": cmd.Process.Pid, "watcher": found[0]}
	first := map[string]footprint{}
	began := time.Now()
	for tick := time.NewTicker(lasts / 100); time.Since(began) < lasts; {
		<-tick.C
		atRest(t, cmd.Process.Pid)
		for name, pid := range ours {
			now := footprintOf(t, pid)
			f, ok := first[name]
			switch {
			case !ok && time.Since(began) < lasts/10:
			case !ok:
				first[name] = now
				t.Logf("%s after %v: %+v", name, time.Since(began).Round(time.Second), now)
			default:
				f.most, f.mostFDs = max(f.most, now.private), max(f.mostFDs, now.fds)
				f.last, f.lastFDs = now.private, now.fds
				first[name] = f
			}
		}
	}
	for name, f := range first {
		t.Logf("%s after %v: private %v, at most %v, at last %v; descriptors %d, at most %d, at last %d",
			name, lasts, f.private, f.most, f.last, f.fds, f.mostFDs, f.lastFDs)
		if f.last > f.private+rss.MiB || f.lastFDs > f.fds {
			t.Errorf("%s grows: %+v", name, f)
		}
	}
}

// atRest waits until below holder there have been the watcher and the command alone for as
// long as the watcher takes to look twice. It looks seldom itself, not to be most of what
// this machine does for hours.
func atRest(t *testing.T, holder int) {
	t.Helper()
	var since time.Time
	for deadline := time.Now().Add(2 * time.Minute); since.IsZero() || time.Since(since) < 2*time.Second; time.Sleep(100 * time.Millisecond) {
		switch {
		case len(wardentest.Descendants(holder)) != 2:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		}
		if time.Now().After(deadline) {
			t.Fatal("its tree is never at rest")
		}
	}
}

// footprint is what a process has for itself, and has had since it was first looked at.
type footprint struct {
	private, most, last   rss.Bytes
	fds, mostFDs, lastFDs int
}

func footprintOf(t *testing.T, pid int) (f footprint) {
	t.Helper()
	b := wardentest.ReadFile(t, "/proc/"+strconv.Itoa(pid)+"/smaps_rollup")
	for line := range strings.Lines(string(b)) {
		name, rest, _ := strings.Cut(line, ":")
		if name == "Private_Dirty" || name == "Private_Clean" {
			n, err := strconv.ParseUint(strings.Fields(rest)[0], 10, 64)
			wardentest.NoError(t, err)
			f.private += rss.Bytes(n) * rss.KiB
		}
	}
	names, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
	wardentest.NoError(t, err)
	f.fds = len(names)
	return f
}

// TestReplayOfLiveRunsEndurance: the same for runs that grow, are acted on and end
// in other ways.
func TestReplayOfLiveRunsEndurance(t *testing.T) {
	job := func(args ...string) []string { return append([]string{python, "testdata/grow.py"}, args...) }
	mapping := mappingJob(t, "10")
	for name, test := range map[string]struct {
		options, job []string
		status       int
		least        int
		actions      []event.Action
	}{
		"trimmed":         {mappedOptions, mapping, 0, 40, []event.Action{event.ActionTrim, event.ActionSignal, event.ActionExec, event.ActionWarn}},
		"trimmed, 200 ms": {append([]string{"--interval", "200ms"}, mappedOptions...), mapping, 0, 40, []event.Action{event.ActionTrim, event.ActionSignal}},
		"dry run":         {append([]string{"--dry-run"}, mappedOptions...), mapping, 0, 5, []event.Action{event.ActionTrim, event.ActionSignal, event.ActionExec, event.ActionWarn}},
		"a pool recycled": {
			[]string{"--limit", "260M", "--accounting", "noshared", "--at", "60%:recycle", "--at", "30%:exec=false", "--worker-signal", "TERM", "--worker-match", "grow.py in a pool"},
			job("in a pool", "90"), 0, 8, []event.Action{event.ActionRecycle, event.ActionExec},
		},
		"bursts": {
			[]string{"--limit", "400M", "--accounting", "rss", "--at", "50%:exec=true", "--at", "free<120M:gc", "--at", "95%:signal=USR1"},
			job("in bursts", "120", "1"), 0, 8, []event.Action{event.ActionExec, event.ActionWarn},
		},
		"bursts, PSS": {
			[]string{"--limit", "400M", "--accounting", "pss", "--at", "50%:exec=true", "--at", "user 65%:warn"},
			job("in bursts", "120", "2"), 0, 8, []event.Action{event.ActionExec, event.ActionWarn},
		},
		"a steady leak, stopped": {
			[]string{"--limit", "900M", "--accounting", "rss", "--at", "30%:exec=true", "--at", "eta<4m:exec=true", "--at", "eta<2m:stop"},
			job("steadily", "500"), 137, 4, []event.Action{event.ActionWarn, event.ActionExec, event.ActionStop},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := liveRun(t, test.status, test.options, test.job)
			r.same(t, test.least, test.actions...)
			if name == "trimmed" {
				r.otherLimits(t)
			}
		})
	}
}
