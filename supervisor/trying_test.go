package supervisor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader"
)

// untriedStand is a watcher whose trainer has a torch that is not known. Its Python is a
// shell script that says what a trial would, and notes that it ran; verdicts are kept in cache.
func untriedStand(t *testing.T, cache, says string, change func(*Options)) (s *stand, torch string, ran func() bool) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", cache)
	prepared, err := loader.Prepare(loader.Options{Env: os.Environ()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { loader.Remove(prepared.Dir) })
	with := withLoader(t)
	s = newStand(t, func(o *Options) {
		with(o)
		if change != nil {
			change(o)
		}
	})
	key := strings.Repeat("a", 32)
	note := filepath.Join(t.TempDir(), "ran")
	python := filepath.Join(t.TempDir(), "python3")
	if err := os.WriteFile(python, []byte("#!/bin/sh\necho x >> "+note+"\n"+says+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(loader.Untried{Key: key, Torch: "9.0", Executable: python, Hook: prepared.Hook})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.Settings.Dir, "untried."+key), data, 0o600); err != nil {
		t.Fatal(err)
	}
	id := s.trainer(100 * rss.MiB)
	s.put(worker1, id.PID, 110*rss.MiB, 0)
	s.log(id, fmt.Sprintf(`"what":"iter","n":2,"kind":"map","num_workers":1,"start":"fork","can_recycle":true,"workers":[%d],"trial":"waiting","key":"%s"`, worker1, key))
	s.open(s.holder.begin)
	return s, filepath.Join(s.Settings.Dir, "torch."+key), func() bool {
		data, _ := os.ReadFile(note)
		if len(data) > 2 {
			t.Errorf("a trial was made %d times", len(data)/2)
		}
		return len(data) > 0
	}
}

// settleTrial lets the watcher find what is kept, make a trial and hand it on.
func (s *stand) settleTrial() {
	s.t.Helper()
	for range 4 {
		s.full()
		if !s.trials.Busy() {
			continue
		}
		if !s.trials.Wait(time.Minute) {
			s.t.Fatal("no result")
		}
		s.heardTrial()
	}
}

// TestTriesTorch: a torch that is not known is tried, its trainers get the verdict, and
// the next run finds it kept.
func TestTriesTorch(t *testing.T) {
	for _, test := range []struct {
		name, says string
		file       string // what the hook is given
		trial      event.Trial
		line       string
	}{
		{"good", `echo 'rsswarden-trial: {"verdict":"ok"}'`, "ok\n", event.TrialTried, ""},
		{"bad", `echo 'rsswarden-trial: {"verdict":"refused","why":"batches were lost"}'`, "batches were lost\n", event.TrialRefused, "trimmed, not recycled (batches were lost)"},
		{"crash", `kill -SEGV $$`, "the trial ended by signal: segmentation fault\n", event.TrialRefused, "not recycled (the trial ended by signal"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cache := t.TempDir()
			s, torch, ran := untriedStand(t, cache, test.says, nil)
			if len(s.workers.Recyclable(event.AccountingRSS)) > 0 {
				t.Error("a worker is recycled before a trial")
			}
			check := func(s *stand, torch string) {
				t.Helper()
				s.settleTrial()
				s.full()
				if data, err := os.ReadFile(torch); err != nil || string(data) != test.file {
					t.Errorf("%v: %q", err, data)
				}
				if len(s.workers.Recyclable(event.AccountingRSS)) > 0 != (test.trial == event.TrialTried) {
					t.Error("whether its worker can be recycled does not follow")
				}
				if test.line != "" && strings.Count(s.stderr(), test.line) != 1 {
					t.Errorf("said:\n%s", s.stderr())
				}
			}
			check(s, torch)
			if !ran() {
				t.Error("no trial was made")
			}
			told := 0
			for _, e := range named(s.events(), event.NameLoader) {
				if e["what"] == string(event.LoaderTried) {
					told++
					if e["trial"] != string(test.trial) {
						t.Errorf("%v", e)
					}
				}
			}
			if told != 1 {
				t.Errorf("%d events", told)
			}
			// The next run in the same cache. ran holds that nothing is tried twice.
			s2, torch2, ran2 := untriedStand(t, cache, test.says, nil)
			check(s2, torch2)
			if ran2() {
				t.Error("a trial was repeated")
			}
		})
	}
}

// TestTrialNeedsRoom: a trial is made only where every limit leaves room for it, it is
// ended where that goes, and what cannot be tried is said once.
func TestTrialNeedsRoom(t *testing.T) {
	t.Run("too little", func(t *testing.T) {
		s, torch, ran := untriedStand(t, t.TempDir(), "sleep 1000", func(o *Options) { o.Settings.Limit = 800 * rss.MiB })
		s.settleTrial()
		s.later(trialYouth + time.Second)
		s.settleTrial()
		if _, err := os.Stat(torch); err == nil || ran() {
			t.Error("a trial was made")
		}
		if strings.Count(s.stderr(), "PyTorch 9.0 has not been tried here") != 1 {
			t.Errorf("said:\n%s", s.stderr())
		}
	})
	t.Run("it goes", func(t *testing.T) {
		s, torch, ran := untriedStand(t, t.TempDir(), "sleep 1000", nil)
		s.full()
		s.trials.Wait(time.Minute) // nothing is kept
		s.heardTrial()
		s.full()
		if s.trials.cancel == nil {
			t.Fatal("no trial was begun")
		}
		for !ran() {
			time.Sleep(time.Millisecond)
		}
		s.put(theCommand, theHolder, 700*rss.MiB, 0)
		s.settleTrial()
		if _, err := os.Stat(torch); err == nil || s.trials.Busy() {
			t.Error("the trial went on")
		}
	})
	t.Run("a dry run", func(t *testing.T) {
		s, _, ran := untriedStand(t, t.TempDir(), "sleep 1000", func(o *Options) { o.Settings.DryRun = true })
		s.settleTrial()
		if ran() || !strings.Contains(s.stderr(), "a dry run makes no trial") {
			t.Errorf("said:\n%s", s.stderr())
		}
	})
	t.Run("the command ends", func(t *testing.T) {
		s, _, ran := untriedStand(t, t.TempDir(), "sleep 1000", nil)
		s.full()
		s.trials.Wait(time.Minute)
		s.heardTrial()
		s.full()
		for !ran() {
			time.Sleep(time.Millisecond)
		}
		s.trials.stop()
		if s.trials.cancel != nil || s.trials.Busy() {
			t.Error("the trial went on")
		}
	})
}
