package loader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader/torchtest"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// mutant is a torch that was changed in its text, a row of testdata/mutants.json.
type mutant struct {
	Name string
	Edit [][3]string // file below torch/utils/data, old, new
	// Why is reported from the text, or from the first iterator, where nothing is tried;
	// empty where a trial is made.
	Why string
	// Good says that a trial may find nothing wrong: what is recycled then is right.
	Good bool
	// Rests says that replacing workers that died rests on what differs, though recycling does not.
	Rests bool
	// Often has its trial made by `make test`.
	Often bool
}

var mutants = sync.OnceValue(func() (list []mutant) {
	if json.Unmarshal([]byte(wardentest.Read("testdata/mutants.json")), &list) != nil {
		panic("testdata/mutants.json")
	}
	return list
})

// start starts a command that Try makes, on the stand.
func startOn(t testing.TB, s *stand) func(*exec.Cmd) error {
	return func(cmd *exec.Cmd) error {
		on := s.Command(t, cmd.Path, cmd.Args[1:]...)
		cmd.Path, cmd.Args = on.Path, on.Args
		err := cmd.Start()
		if err == nil {
			go wardentest.Hurry(cmd.Process.Pid)
		}
		return err
	}
}

// mutate makes a torch that differs, and returns what goes on PYTHONPATH.
func mutate(t *testing.T, s *stand, m mutant) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "site")
	args := []string{script(t, "mutant.py"), folder}
	for _, e := range m.Edit {
		data, err := json.Marshal(e)
		wardentest.NoError(t, err)
		args = append(args, string(data))
	}
	s.Run(t, nil, args...)
	return folder
}

// untried is what the hook says of the torch of a stand, or of the one in site, as if
// its text were not known.
func untried(t testing.TB, s *stand, env []string, site string) Untried {
	t.Helper()
	cmd := s.Command(t, python, script(t, "untried.py"))
	cmd.Env = setEnv(env, "PYTHONPATH", getEnv(env, "PYTHONPATH")+":"+site)
	var stderr output
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.kept)
	}
	u, err := ReadUntried(getEnv(env, EnvDir), strings.TrimSpace(string(out)))
	wardentest.NoError(t, err)
	return u
}

// stranger is a torch whose Python is a shell script.
func stranger(t *testing.T, program string) (Untried, []string) {
	t.Helper()
	env, dir := hooked(t)
	exe := filepath.Join(t.TempDir(), "python3")
	syscall.ForkLock.RLock() // a child that holds it open for writing keeps it from being executed
	err := os.WriteFile(exe, []byte("#!/bin/sh\n"+program+"\n"), 0o700)
	syscall.ForkLock.RUnlock()
	wardentest.NoError(t, err)
	return Untried{Key: strings.Repeat("a", 32), Torch: "9.0", Executable: exe, Hook: dir, data: []byte("{}")}, env
}

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
	wardentest.NoError(t, err)
	t.Cleanup(func() { Remove(prepared.Dir) })
	key := strings.Repeat("a", 32)
	s := &trialStand{t: t, verdict: filepath.Join(prepared.Dir, "torch."+key), note: filepath.Join(t.TempDir(), "ran")}
	python := filepath.Join(t.TempDir(), "python3")
	untried, err := json.Marshal(Untried{Key: key, Torch: "9.0", Executable: python, Hook: prepared.Hook})
	wardentest.NoError(t, err)
	pid := os.Getpid()
	start, err := proctree.StartTime("/proc", pid)
	wardentest.NoError(t, err)
	me := fmt.Sprintf("%d.%d", pid, start)
	for name, text := range map[string]string{
		python: "#!/bin/sh\necho x >> " + s.note + "\n" + says + "\n",
		filepath.Join(prepared.Dir, "untried."+key): string(untried),
		filepath.Join(prepared.Dir, "hello."+me):    fmt.Sprintf(`{"v":1,"pid":%d,"start":%d,"ppid":1,"torch":"9.0","can_recycle":true}`, pid, start),
		filepath.Join(prepared.Dir, "log."+me): fmt.Sprintf(`{"t":1,"pid":%d,"what":"iter","n":1,"kind":"map","num_workers":1,"start":"fork","can_recycle":true,"workers":[2],"trial":"waiting","key":"%s"}`+"\n",
			pid, key),
	} {
		wardentest.NoError(t, os.WriteFile(name, []byte(text), 0o700))
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

// TestMutants has torch's text differ: the difference is seen, in each of them, and
// where the text cannot be understood it says why.
func TestMutants(t *testing.T) {
	t.Parallel()
	torchtest.Each(t, func(t *testing.T, s *stand) {
		t.Parallel()
		lines := strings.Split(strings.TrimSpace(inHookOf(t, s, "fingerprint.py", "mutants", script(t, "mutants.json"))), "\n")
		if len(lines) != len(mutants()) {
			t.Fatalf("%d answers: %q", len(lines), lines)
		}
		for i, m := range mutants() {
			var name, why string
			var known bool
			if err := json.Unmarshal([]byte(lines[i]), &[]any{&name, &why, &known}); err != nil || name != m.Name {
				t.Fatalf("%v: %s", err, lines[i])
			}
			if known || !strings.HasPrefix(why, m.Why) || (why == "") != (m.Why == "") {
				t.Errorf("%s: known %v, why %q, want %q", m.Name, known, why, m.Why)
			}
		}
	})
}

// TestTrial makes trials as the watcher does: of each stand's torch one that goes well,
// and of mutants that only a trial can tell. None is found good that is not: with those
// that are, workers of a training are replaced.
func TestTrial(t *testing.T) {
	t.Parallel()
	torchtest.Each(t, func(t *testing.T, s *stand) {
		t.Parallel()
		t.Run("as it is", func(t *testing.T) {
			if s != newest && wardentest.Few(1, 0) == 0 {
				return // a trial of each stand is made of a mutant
			}
			t.Parallel()
			env, _ := hooked(t)
			u := untried(t, s, env, "")
			for range wardentest.Few(50, 1) {
				if v, err := Try(t.Context(), u, env, startOn(t, s)); err != nil || !v.OK() || v.Unrevived != "" {
					t.Errorf("%+v, %v", v, err)
				}
			}
			if v, ok := KeptVerdict(u, env); !ok || !v.OK() {
				t.Errorf("kept: %+v, %v", v, ok)
			}
		})
		for i, m := range mutants() {
			if m.Why != "" || !m.Often && wardentest.Few(1, 0) == 0 || !s.Turn(i) {
				continue
			}
			t.Run(m.Name, func(t *testing.T) {
				t.Parallel()
				env, _ := hooked(t)
				site := mutate(t, s, m)
				u := untried(t, s, env, site)
				v, err := Try(t.Context(), u, env, startOn(t, s))
				t.Logf("%+v", v)
				if err != nil || v.What == "" || v.OK() && !m.Good || m.Good && v.What == VerdictRefused {
					t.Errorf("%+v, %v", v, err)
				}
				if v.OK() == (v.Why != "") || v.OK() && (v.Unrevived == "") == m.Rests {
					t.Errorf("%+v", v)
				}
				if !v.OK() {
					return
				}
				tr := train(t, trainOptions{on: s, args: "--workers 2 --part 800", env: []string{"PYTHONPATH=" + site}})
				tr.have(2)
				wardentest.NoError(t, tr.ctl.Tried(u.Key, v))
				for _, mode := range []event.Mode{event.Swap, event.Drain} {
					tr.recycle(wardentest.Few(10, 1), mode)
				}
				if r := tr.finish(); r.Wrong != 0 || r.Repeated != 0 {
					t.Errorf("recycled, though: %+v", r)
				}
			})
		}
	})
}

// TestTrialGivesWay: a trial leaves the processor and memory to the training, also where the kernel
// shares the processor out by sessions.
func TestTrialGivesWay(t *testing.T) {
	t.Parallel()
	env, hook := hooked(t)
	if _, err := os.Stat("/proc/self/autogroup"); err != nil {
		t.Skipf("a kernel without autogroup: %v", err)
	}
	cmd := exec.Command(python, "-c", `
import sys; sys.path.insert(0, sys.argv[1])
import trial; trial.give_way()
import os; print(os.nice(0), open("/proc/self/oom_score_adj").read(), open("/proc/self/autogroup").read().split()[1:])`,
		filepath.Join(hook, "_rsswarden"))
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.CombinedOutput()
	if got := strings.Join(strings.Fields(string(out)), " "); err != nil || got != "19 1000 ['nice', '19']" {
		t.Errorf("%v: nice, oom_score_adj, autogroup: %s", err, got)
	}
}

// TestTrialRemovesLeft: a trial removes the directories of trials whose watcher was killed,
// and nothing else of that name.
func TestTrialRemovesLeft(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	old := time.Now().Add(-2 * time.Hour)
	kept := []string{"another", "rsswarden-trial.file", "rsswarden-trial.link", "rsswarden-trial.new"}
	for _, name := range []string{"rsswarden-trial.old/torch_1", "rsswarden-trial.new/torch_1", "another/torch_1"} {
		wardentest.NoError(t, os.MkdirAll(filepath.Join(tmp, name), 0o700))
	}
	if err := errors.Join(os.WriteFile(filepath.Join(tmp, "rsswarden-trial.file"), nil, 0o600), os.Symlink("another", filepath.Join(tmp, "rsswarden-trial.link")),
		os.Chtimes(filepath.Join(tmp, "rsswarden-trial.old"), old, old), os.Chtimes(filepath.Join(tmp, "rsswarden-trial.file"), old, old),
		os.Chtimes(filepath.Join(tmp, "another"), old, old)); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		dir := filepath.Join(tmp, "rsswarden-trial.stranger")
		wardentest.NoError(t, errors.Join(os.Mkdir(dir, 0o700), os.Chtimes(dir, old, old), os.Chown(dir, 1002, 1002)))
		kept = append(kept, "rsswarden-trial.stranger")
	}
	u, env := stranger(t, `echo 'rsswarden-trial: {"verdict":"ok"}'`)
	if v, err := Try(t.Context(), u, env, (*exec.Cmd).Start); err != nil || v.What != VerdictOK {
		t.Fatalf("%+v, %v", v, err)
	}
	var left []string
	entries, err := os.ReadDir(tmp)
	for _, e := range entries {
		if left = append(left, e.Name()); e.Name() == "another" {
			if _, err := os.Stat(filepath.Join(tmp, "another/torch_1")); err != nil {
				t.Error(err)
			}
		}
	}
	if err != nil || !slices.Equal(left, kept) {
		t.Errorf("%v: left %v, want %v", err, left, kept)
	}
}

// TestTrialFails: of a trial that crashes, hangs, or cannot be made there is no verdict on
// torch; it is kept as such, so that it is not repeated at each start.
func TestTrialFails(t *testing.T) {
	failed := func(t *testing.T, u Untried, env []string, v Verdict, err error, want string) {
		t.Helper()
		if err != nil || v.What != VerdictFailed || !strings.HasPrefix(v.Why, want) {
			t.Fatalf("%+v, %v", v, err)
		}
		if kept, ok := KeptVerdict(u, env); !ok || kept != v {
			t.Errorf("kept %+v, %v", kept, ok)
		}
	}
	for _, test := range []struct{ name, program, want string }{
		{"crashes", "kill -SEGV $$", "the trial ended by signal: segmentation fault"},
		{"ends", "echo out of luck >&2; exit 3", "the trial ended by exit status 3: out of luck"},
		{"says nothing", "exit 0", "the trial said nothing"},
		{"says another word", `echo 'rsswarden-trial: {"verdict":"splendid"}'`, "the trial said nothing"},
		{"gives no reason", `echo 'rsswarden-trial: {"verdict":"refused"}'`, "the trial said nothing"},
		{"says half of it", `printf 'rsswarden-trial: {"verdict":"o'; exit 1`, "the trial ended by exit status 1"},
		{"garbage", `head -c 5000 /dev/urandom; echo; head -c 5000 /dev/urandom >&2; exit 1`, "the trial ended by exit status 1"},
		{"says too much", "head -c 5000000 /dev/zero; echo; echo 'rsswarden-trial: {}'", "the trial said nothing"},
		{"no memory", `echo 'rsswarden-trial: {"verdict":"failed","why":"MemoryError: "}'`, "MemoryError:"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			u, env := stranger(t, test.program)
			v, err := Try(t.Context(), u, env, (*exec.Cmd).Start)
			failed(t, u, env, v, err, test.want)
		})
	}
	t.Run("hangs", func(t *testing.T) {
		t.Parallel()
		u, env := stranger(t, "trap '' TERM; sleep 1000 & sleep 1000")
		v, err := tryFor(t.Context(), 50*time.Millisecond, u, env, (*exec.Cmd).Start)
		failed(t, u, env, v, err, "the trial took longer than")
	})
	t.Run("hangs until a short training ends", func(t *testing.T) {
		t.Parallel()
		u, env := stranger(t, "sleep 1000")
		ctx, cancel := context.WithCancel(t.Context())
		v, err := tryFor(ctx, 250*time.Millisecond, u, env, func(cmd *exec.Cmd) error {
			time.AfterFunc(100*time.Millisecond, cancel) // later than a fifth of its patience
			return cmd.Start()
		})
		failed(t, u, env, v, err, "the trial had not ended after")
	})
	t.Run("hangs until it is ended", func(t *testing.T) {
		t.Parallel()
		u, env := stranger(t, "touch started; sleep 1000")
		ctx, cancel := context.WithCancel(t.Context())
		start := func(cmd *exec.Cmd) error {
			cmd.WaitDelay = 0
			err := cmd.Start()
			cancel()
			return err
		}
		if v, err := Try(ctx, u, env, start); err == nil || v.What != "" {
			t.Errorf("%+v, %v", v, err)
		}
		if v, ok := KeptVerdict(u, env); ok {
			t.Errorf("kept %+v", v)
		}
	})
}

// TestKeptVerdict: what another user may have written, and what is not understood, counts
// for nothing, and a cache that cannot be written costs the cache alone.
func TestKeptVerdict(t *testing.T) {
	u, env := stranger(t, `echo 'rsswarden-trial: {"verdict":"refused","why":"batches were lost"}'`)
	if v, err := Try(t.Context(), u, env, (*exec.Cmd).Start); err != nil || v.What != VerdictRefused {
		t.Fatalf("%+v, %v", v, err)
	}
	name, _ := verdictName(u)
	dir := verdictDirs(u, env)[0]
	path := filepath.Join(dir, name)
	good, err := os.ReadFile(path)
	wardentest.NoError(t, err)
	for name, harm := range map[string]func() error{
		"empty":             func() error { return os.WriteFile(path, nil, 0o600) },
		"cut short":         func() error { return os.WriteFile(path, good[:len(good)-5], 0o600) },
		"another word":      func() error { return os.WriteFile(path, []byte(`{"verdict":"splendid"}`), 0o600) },
		"large":             func() error { return os.WriteFile(path, append(good, make([]byte, 1<<20)...), 0o600) },
		"others may write":  func() error { return os.Chmod(path, 0o666) },
		"a link":            func() error { return os.Symlink("/dev/zero", path) },
		"a pipe":            func() error { return exec.Command("mkfifo", path).Run() },
		"a directory":       func() error { return os.Mkdir(path, 0o700) },
		"another user's":    func() error { return os.Chown(path, 1234, 1234) },
		"others may enter":  func() error { return os.Chmod(dir, 0o777) },
		"another directory": func() error { return os.RemoveAll(dir) },
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(name, "another user") && os.Geteuid() != 0 {
				t.Skip("needs root")
			}
			wardentest.NoError(t, os.RemoveAll(path))
			if !strings.HasPrefix(name, "a ") {
				wardentest.NoError(t, os.WriteFile(path, good, 0o600))
				if v, ok := KeptVerdict(u, env); !ok || v.What != VerdictRefused {
					t.Fatalf("before: %+v, %v", v, ok)
				}
			}
			wardentest.NoError(t, harm())
			if v, ok := KeptVerdict(u, env); ok {
				t.Errorf("counts: %+v", v)
			}
			_ = os.Mkdir(dir, 0o700)
			wardentest.NoError(t, os.Chmod(dir, 0o700))
		})
	}
	t.Run("no room in the cache", func(t *testing.T) {
		wardentest.NoError(t, os.RemoveAll(dir))
		wardentest.NoError(t, os.WriteFile(dir, nil, 0o600))
		if v, err := Try(t.Context(), u, env, (*exec.Cmd).Start); err == nil || v.What != VerdictRefused {
			t.Errorf("%+v, %v", v, err)
		}
		if v, ok := KeptVerdict(u, env); ok {
			t.Errorf("kept %+v", v)
		}
		u.node = t.TempDir() // where runs are
		if v, err := Try(t.Context(), u, env, (*exec.Cmd).Start); err != nil || v.What != VerdictRefused {
			t.Errorf("%+v, %v", v, err)
		}
		if v, ok := KeptVerdict(u, env); !ok || v.What != VerdictRefused {
			t.Errorf("kept on the node: %+v, %v", v, ok)
		}
	})
}

// TestUntriedTorch: nothing is recycled with a torch whose text is not known until a
// trial went well; the request before it is refused, and not those after it.
func TestUntriedTorch(t *testing.T) {
	t.Parallel()
	torchtest.EachCase(t, []bool{true, false}, nil, func(t *testing.T, s *stand, good bool) {
		site := mutate(t, s, mutants()[5])
		tr := train(t, trainOptions{on: s, args: "--workers 2 --part 800", env: []string{"PYTHONPATH=" + site}})
		tr.have(2)
		trainer := tr.ctl.Trainers()[0]
		if trainer.Trial != event.TrialWaiting || trainer.CanRecycle || len(tr.ctl.Untried()) != 1 {
			t.Fatalf("%+v", trainer)
		}
		ask := func() Said { return tr.ask(tr.workers()[0], event.Swap) }
		if said := ask(); said.What != event.LoaderRefused || !strings.HasSuffix(said.Reason, "has not been tried here") {
			t.Errorf("%+v", said)
		}
		v := Verdict{What: VerdictRefused, Why: "batches were lost"}
		if good {
			v = Verdict{What: VerdictOK}
		}
		wardentest.NoError(t, tr.ctl.Tried(trainer.Key, v))
		if trainer := tr.ctl.Trainers()[0]; trainer.CanRecycle != good || len(tr.ctl.Untried()) != 0 {
			t.Errorf("%+v", trainer)
		}
		if good {
			tr.recycle(2, event.Swap)
		} else if said := ask(); said.What != event.LoaderRefused || !strings.HasSuffix(said.Reason, v.Why) {
			t.Errorf("%+v", said)
		}
		if r := tr.finish(); r.Wrong != 0 || r.Repeated != 0 {
			t.Errorf("%+v", r)
		}
	})
}

// TestSiteVerdict: a verdict that root keeps for all users counts for a user without one,
// and only where only root can have written it.
func TestSiteVerdict(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	const user = 1234
	u, env := stranger(t, "exit 1")
	refused := Verdict{What: VerdictRefused, Why: "batches were lost"}
	for _, test := range []struct {
		name string
		harm func(dir, file string) error
		want bool
	}{
		{"as root wrote it", func(_, _ string) error { return nil }, true},
		{"others may write to the directory", func(dir, _ string) error { return os.Chmod(dir, 0o777) }, false},
		{"the directory of a user", func(dir, _ string) error { return os.Chown(dir, user, user) }, false},
		{"the directory above of a user", func(dir, _ string) error { return os.Chown(filepath.Dir(dir), user, user) }, false},
		{"others may write to the directory above", func(dir, _ string) error { return os.Chmod(filepath.Dir(dir), 0o777) }, false},
		{"a verdict of a user", func(_, file string) error { return os.Chown(file, user, user) }, false},
		{"others may write the verdict", func(_, file string) error { return os.Chmod(file, 0o666) }, false},
		{"a link in place of the verdict", func(_, file string) error {
			return errors.Join(os.Rename(file, file+".real"), os.Symlink(file+".real", file))
		}, false},
		{"a user's link in place of the directory", func(dir, _ string) error {
			return errors.Join(os.Rename(dir, dir+".real"), os.Symlink(dir+".real", dir), os.Lchown(dir, user, user))
		}, false},
		{"cut short", func(_, file string) error { return os.Truncate(file, 5) }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			SiteVerdicts = filepath.Join(t.TempDir(), "rsswarden", "torch")
			defer func() { SiteVerdicts = "" }()
			wardentest.NoError(t, KeepForAll(u, refused))
			name, _ := verdictName(u)
			wardentest.NoError(t, test.harm(SiteVerdicts, filepath.Join(SiteVerdicts, name)))
			if v, ok := KeptVerdict(u, env); ok != test.want || ok && v != refused {
				t.Errorf("%+v, %v", v, ok)
			}
		})
	}

	t.Run("beside the user's own", func(t *testing.T) {
		SiteVerdicts = filepath.Join(t.TempDir(), "rsswarden", "torch")
		defer func() { SiteVerdicts = "" }()
		failed := Verdict{What: VerdictFailed, Why: "it crashed"}
		wardentest.NoError(t, keepVerdict(u, env, failed))
		wardentest.NoError(t, KeepForAll(u, failed))
		if v, ok := KeptVerdict(u, env); !ok || v != failed {
			t.Errorf("a trial of root's that failed counts: %+v, %v", v, ok)
		}
		wardentest.NoError(t, KeepForAll(u, refused))
		if v, ok := KeptVerdict(u, env); !ok || v != refused {
			t.Errorf("root's verdict does not count: %+v, %v", v, ok)
		}
		good := Verdict{What: VerdictOK}
		wardentest.NoError(t, keepVerdict(u, env, good))
		if v, ok := KeptVerdict(u, env); !ok || v != good {
			t.Errorf("the user's own verdict does not count: %+v, %v", v, ok)
		}
	})
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
		{"good, but for workers that die", `echo 'rsswarden-trial: {"verdict":"ok","unrevived":" batches  were lost"}'`, "ok\nbatches were lost\n", event.TrialTried},
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
