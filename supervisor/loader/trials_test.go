package loader

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/probe"
)

// trialStand is a trainer, this process, whose torch is not known. Its Python is a shell
// script that says what a trial would, and notes that it ran.
type trialStand struct {
	*Trials
	t       *testing.T
	control *Control
	verdict string // the file that the hook reads
	note    string
	now     time.Duration
}

func newTrialStand(t *testing.T, says string, dry bool) *trialStand {
	t.Helper()
	prepared, err := Prepare(Options{Env: os.Environ()})
	must(t, err)
	t.Cleanup(func() { Remove(prepared.Dir) })
	key := strings.Repeat("a", 32)
	s := &trialStand{t: t, verdict: filepath.Join(prepared.Dir, "torch."+key), note: filepath.Join(t.TempDir(), "ran")}
	python := filepath.Join(t.TempDir(), "python3")
	untried, err := json.Marshal(Untried{Key: key, Torch: "9.0", Executable: python, Hook: prepared.Hook})
	must(t, err)
	pid := os.Getpid()
	start, err := proctree.StartTime("/proc", pid)
	must(t, err)
	me := fmt.Sprintf("%d.%d", pid, start)
	for name, text := range map[string]string{
		python: "#!/bin/sh\necho x >> " + s.note + "\n" + says + "\n",
		filepath.Join(prepared.Dir, "untried."+key): string(untried),
		filepath.Join(prepared.Dir, "hello."+me):    fmt.Sprintf(`{"v":1,"pid":%d,"start":%d,"ppid":1,"torch":"9.0","can_recycle":true}`, pid, start),
		filepath.Join(prepared.Dir, "log."+me): fmt.Sprintf(`{"t":1,"pid":%d,"what":"iter","n":1,"kind":"map","num_workers":1,"start":"fork","can_recycle":true,"workers":[2],"trial":"waiting","key":"%s"}`+"\n",
			pid, key),
	} {
		must(t, os.WriteFile(name, []byte(text), 0o700))
	}
	if s.control, err = Open(prepared.Dir); err != nil {
		t.Fatal(err)
	}
	s.control.Poll(true)
	s.Trials = NewTrials(new(probe.Set), os.Environ, func(cmd *exec.Cmd) error { return cmd.Start() }, dry)
	return s
}

// look advances so many times, with so much left, and waits for what is found.
func (s *trialStand) look(times int, left rss.Bytes) (news []TrialNews) {
	s.t.Helper()
	for range times {
		s.now += time.Second
		news = append(news, s.Advance(s.now, left, s.control)...)
		if s.Busy() && !s.Wait(time.Minute) {
			s.t.Fatal("no result")
		}
	}
	return news
}

// ran says whether a trial was made.
func (s *trialStand) ran() bool {
	s.t.Helper()
	data, _ := os.ReadFile(s.note)
	if len(data) > 2 {
		s.t.Errorf("a trial was made %d times", len(data)/2)
	}
	return len(data) > 0
}

// TestTriesTorch: a torch that is not known is tried, its trainers get the verdict, and
// the next run finds it kept.
func TestTriesTorch(t *testing.T) {
	for _, c := range []struct {
		name, says string
		verdict    string // what the hook is given
		trial      event.Trial
	}{
		{"good", `echo 'rsswarden-trial: {"verdict":"ok"}'`, "ok\n", event.TrialTried},
		{"bad", `echo 'rsswarden-trial: {"verdict":"refused","why":"batches were lost"}'`, "batches were lost\n", event.TrialRefused},
		{"crash", `kill -SEGV $$`, "the trial ended by signal: segmentation fault\n", event.TrialRefused},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("XDG_CACHE_HOME", t.TempDir())
			for _, kept := range []bool{false, true} {
				s := newTrialStand(t, c.says, false)
				news := s.look(4, rss.GiB)
				if len(news) != 1 || news[0].Why != "" || news[0].Again || len(news[0].Errs) > 0 {
					t.Errorf("%+v, want one verdict", news)
				}
				if data, err := os.ReadFile(s.verdict); err != nil || string(data) != c.verdict {
					t.Errorf("%v: %q", err, data)
				}
				if all := s.control.Trainers(); all[0].Trial != c.trial || all[0].CanRecycle != (c.trial == event.TrialTried) {
					t.Errorf("%+v", all)
				}
				if s.ran() == kept {
					t.Errorf("a trial was made: %v; kept before: %v", s.ran(), kept)
				}
				// A trainer that comes later gets the same verdict.
				s.control.trainers[s.control.order[0]].Trial = event.TrialWaiting
				if news := s.look(1, rss.GiB); len(news) != 1 || !news[0].Again || s.control.Trainers()[0].Trial != c.trial {
					t.Errorf("later: %+v", news)
				}
			}
		})
	}
}

// TestTrialNeedsRoom: a trial is made only where every limit leaves room for it, it is
// ended where that goes, and a torch that cannot be tried is reported once.
func TestTrialNeedsRoom(t *testing.T) {
	begun := func(t *testing.T) *trialStand {
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
		s := newTrialStand(t, "exec sleep 1000", false)
		s.look(1, rss.GiB) // no verdict is kept
		s.Advance(s.now, rss.GiB, s.control)
		for deadline := time.Now().Add(time.Minute); !s.ran(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("no trial was begun")
			}
		}
		return s
	}
	t.Run("too little", func(t *testing.T) {
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
		s := newTrialStand(t, "exec sleep 1000", false)
		news := s.look(3, trialRoom-1)
		s.now += trialYouth
		news = append(news, s.look(3, trialRoom-1)...)
		if _, err := os.Stat(s.verdict); err == nil || s.ran() || len(news) != 1 || news[0].Why != "a limit left less than 512 MiB for a trial" {
			t.Errorf("%+v", news)
		}
	})
	t.Run("it goes", func(t *testing.T) {
		s := begun(t)
		news := append(s.Advance(s.now, trialLeast-1, s.control), s.look(3, trialLeast-1)...)
		if _, err := os.Stat(s.verdict); err == nil || s.Busy() || s.cancel != nil || len(news) != 1 || news[0].Why == "" {
			t.Errorf("the trial went on: %+v", news)
		}
	})
	t.Run("a dry run", func(t *testing.T) {
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
		s := newTrialStand(t, "exec sleep 1000", true)
		if news := s.look(4, rss.GiB); s.ran() || len(news) != 1 || news[0].Why != "a dry run makes no trial" {
			t.Errorf("%+v", news)
		}
	})
	t.Run("the command ends", func(t *testing.T) {
		s := begun(t)
		if s.Stop(time.Minute); s.cancel != nil || s.Busy() {
			t.Error("the trial went on")
		}
	})
}
