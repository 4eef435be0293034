//go:build endurance

package main_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// growsAs is a job that grows in the way its first argument names.
const growsAs = `
import mmap, os, random, signal, sys, time

def touch(mib):
    b = mmap.mmap(-1, mib << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for i in range(0, len(b), 4096): b[i] = 1
    return b

what, seconds = sys.argv[1], float(sys.argv[2])
end, kept = time.monotonic() + seconds, []
if what == "steadily":       # until it is stopped
    while time.monotonic() < end:
        kept.append(touch(1))
        time.sleep(0.4)
elif what == "in bursts":    # up and down, by the seed in the third argument
    rng = random.Random(int(sys.argv[3]))
    while time.monotonic() < end:
        size = sum(len(b) for b in kept) >> 20
        if kept and (size > 330 or rng.random() < 0.4):
            for _ in range(min(len(kept), rng.randint(1, 4))):
                kept.pop(rng.randrange(len(kept))).close()
        else:
            kept.append(touch(rng.randint(5, 60)))
        time.sleep(rng.choice((0.05, 0.2, 0.9)))
elif what == "in a pool":    # in workers that it starts again
    def work():
        signal.signal(signal.SIGTERM, lambda n, frame: os._exit(0))
        while True:
            kept.append(touch(1))
            time.sleep(0.25)
    def start():
        pid = os.fork()
        if pid == 0:
            work()
        pids.add(pid)
    pids = set()
    for _ in range(3): start()
    while time.monotonic() < end:
        pid, _ = os.waitpid(-1, os.WNOHANG)
        if pid:
            pids.discard(pid)
            start()
        time.sleep(0.05)
    for pid in pids: os.kill(pid, signal.SIGKILL)
    for pid in pids: os.wait()
`

// TestReplayOfLiveRunsEndurance: the same for runs that grow, are acted on and end
// in other ways.
func TestReplayOfLiveRunsEndurance(t *testing.T) {
	script := filepath.Join(t.TempDir(), "grow.py")
	if err := os.WriteFile(script, []byte(growsAs), 0o600); err != nil {
		t.Fatal(err)
	}
	job := func(args ...string) []string { return append([]string{python, script}, args...) }
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
