package supervisor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestSaidBeforeTheWatcher: what a trainer said before the first watcher was there is heard;
// a watcher that was started again does not repeat it.
func TestSaidBeforeTheWatcher(t *testing.T) {
	for attempt, want := range map[int]bool{1: true, 2: false} {
		s := newStand(t, withLoader(t), func(o *Options) { o.Link.(*fakeHolder).begin.Attempt = attempt })
		id := s.trainer(100*rss.MiB, worker1, worker2)
		s.put(theCommand, theHolder, 10*rss.MiB, 0)
		s.put(worker1, id.PID, 10*rss.MiB, 0)
		s.put(worker2, id.PID, 10*rss.MiB, 0)
		s.open(s.holder.begin)
		s.poll(true)
		if got := s.count(event.NameLoader, "what", string(event.LoaderHello)) > 0; got != want {
			t.Errorf("attempt %d: told %v", attempt, got)
		}
	}
}

// TestTorchThatIsTried: the result of a trial is reported once, and decides whether its
// workers can be recycled.
func TestTorchThatIsTried(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	prepared, err := loader.Prepare(loader.Options{Env: os.Environ()})
	wardentest.NoError(t, err)
	t.Cleanup(func() { loader.Remove(prepared.Dir) })
	s := newStand(t, withLoader(t))
	key, python := strings.Repeat("a", 32), filepath.Join(t.TempDir(), "python3")
	untried, err := json.Marshal(loader.Untried{Key: key, Torch: "9.0", Executable: python, Hook: prepared.Hook})
	wardentest.NoError(t, err)
	for name, text := range map[string]string{
		python: "#!/bin/sh\n" + `echo 'rsswarden-trial: {"verdict":"refused","why":"batches were lost"}'` + "\n",
		filepath.Join(s.Settings.Dir, "untried."+key): string(untried),
	} {
		wardentest.NoError(t, os.WriteFile(name, []byte(text), 0o700))
	}
	id := s.trainer(100 * rss.MiB)
	s.put(worker1, id.PID, 110*rss.MiB, 0)
	s.log(id, fmt.Sprintf(`"what":"iter","n":2,"kind":"map","num_workers":1,"start":"fork","can_recycle":true,"workers":[%d],"trial":"waiting","key":"%s"`, worker1, key))
	s.open(s.holder.begin)
	const line = "trimmed, not recycled (batches were lost)"
	s.says(line)
	s.full()
	if n := strings.Count(s.stderr(), line); n != 1 || len(s.observe.Workers.Recyclable(event.AccountingRSS)) > 0 {
		t.Errorf("told %d times; %+v", n, s.observe.Workers.Recyclable(event.AccountingRSS))
	}
	if n := s.count(event.NameLoader, "what", string(event.LoaderTried), "trial", string(event.TrialRefused)); n != 1 {
		t.Errorf("%d events", n)
	}
}

// TestTrainingWithoutTheHook: it is reported once, and each refused request says why.
func TestTrainingWithoutTheHook(t *testing.T) {
	s := newStand(t, withLoader(t))
	s.fs.Write("proc/5000001/environ", "A=B\x00")
	s.fs.Write("proc/5000001/maps", "7f00-7f01 r--p 00000000 08:01 1 /usr/lib/libtorch_cpu.so\n")
	s.open(s.holder.begin)
	s.says("does not reach process 5000001")
	s.full()
	if detail := s.acts.Can(mustRules("90%:gc")[0], &s.view.Limits[0]).Detail; strings.Count(s.stderr(), "does not reach") != 1 || !strings.HasPrefix(detail, "process ") {
		t.Errorf("%s\n%s", detail, s.stderr())
	}
	if n := s.count(event.NameLoader, "what", string(event.LoaderUnreached)); n != 1 {
		t.Errorf("%d events", n)
	}
}
