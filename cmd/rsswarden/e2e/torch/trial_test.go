package torch

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/cmd/rsswarden/e2e/e2etest"
	"github.com/rsswarden/rsswarden/supervisor/doctor"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader/torchtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// What a trial does, in Python.
const (
	trialGood    = `print('\nrsswarden-trial: {"verdict": "ok"}')`
	trialRefuses = `print('\nrsswarden-trial: {"verdict": "refused", "why": "batches were lost"}')`
	trialHangs   = `import time; time.sleep(1000)`
	trialCrashes = `os.kill(os.getpid(), 11)`
	trialGarbage = `os.write(1, os.urandom(5000)); os.write(2, os.urandom(5000)); os._exit(1)`
)

// badTorch is a training whose torch, or whose place for what is known of it, is not as
// it should be.
type badTorch struct {
	torch   func(t *testing.T, dir string) // changes the torch in dir
	first   string                         // what the training does first, in Python
	python  []string                       // options of Python
	env     []string
	shell   string // what starts the training, as "$@", and knows $CACHE, a directory that is there; or ""
	trial   string // what a trial does; trialGood where it is empty
	library bool   // it is known for torch by what it maps alone
	// The training waits for this event, where it is not empty.
	wait   event.Loader
	trials int    // that are made in two starts
	state  string // of the last event on a trial
	says   string // is in the one line on recycling; there is none where it is empty
}

// TestBadTorch: whatever is wrong with a torch, or with the place where a verdict on it is
// kept, the training runs as bare. One line says why nothing is recycled, if so, and a trial
// is made once in two starts.
func TestBadTorch(t *testing.T) {
	const waiting = event.LoaderTried
	for name, c := range map[string]badTorch{
		"as it is": {wait: waiting, trials: 1, state: "tried"},

		"without a file": {torch: func(t *testing.T, dir string) { remove(t, dir, "_utils/worker.py") }},
		"cut short": {torch: func(t *testing.T, dir string) {
			edit(t, dir, "dataloader.py", "class _MultiProcessingDataLoaderIter", "class (")
		}},
		"half of another version": {torch: func(t *testing.T, dir string) {
			edit(t, dir, "_utils/worker.py", "worker_id):", "worker_id, persistent=False):")
		},
			wait: event.LoaderIter, state: "refused", says: "_worker_loop takes 6 arguments, and is given 5"},
		"without signal handling": {torch: func(t *testing.T, dir string) {
			remove(t, dir, "_utils/signal_handling.py")
			edit(t, dir, "_utils/__init__.py", "signal_handling, ", "")
		}, wait: event.LoaderIter, state: "refused", says: "torch has no _remove_worker_pids"},
		"without workers": {torch: func(t *testing.T, dir string) {
			edit(t, dir, "dataloader.py", "_MultiProcessingDataLoaderIter", "_Iterator")
		}, wait: event.LoaderHello, says: "torch has no _MultiProcessingDataLoaderIter"},
		"without a version": {torch: func(t *testing.T, dir string) { edit(t, dir, "../../__init__.py", "__version__", "version") },
			wait: waiting, trials: 1, state: "tried"},
		"without dataloader": {torch: func(t *testing.T, dir string) {
			remove(t, dir, "dataloader.py")
			edit(t, dir, "__init__.py", "from", "# from")
		}},
		"compiled": {torch: compileTorch, wait: event.LoaderIter, state: "refused", says: "there is no source text of torch.utils.data.dataloader ("},
		"in a zip": {torch: zipTorch, first: `sys.path[0] += "/torch.zip"`, wait: waiting, trials: 1, state: "tried"},
		"compiled, in a zip": {torch: func(t *testing.T, dir string) { compileTorch(t, dir); zipTorch(t, dir) }, first: `sys.path[0] += "/torch.zip"`,
			wait: event.LoaderIter, state: "refused", says: "there is no source text of torch.utils.data.dataloader ("},
		"frozen": {first: frozen, wait: event.LoaderIter, state: "refused", says: "there is no source text of torch.utils.data.dataloader (frozen)"},

		"no bytecode":   {env: []string{"PYTHONDONTWRITEBYTECODE=1"}, wait: waiting, trials: 1, state: "tried"},
		"isolated":      {python: []string{"-I"}, library: true, wait: event.LoaderUnreached, says: "it was started with -I"},
		"without site":  {python: []string{"-S"}, library: true, wait: event.LoaderUnreached, says: "it was started with -S"},
		"free-threaded": {first: `sys.abiflags = "t"`, wait: event.LoaderOff, says: "this Python is free-threaded"},

		"cache read-only": {shell: `mount -t tmpfs none "$CACHE" && mount -o remount,ro "$CACHE" && exec "$@"`, wait: waiting, trials: 1, state: "tried"},
		"cache read-only, refused": {shell: `mount -t tmpfs none "$CACHE" && mount -o remount,ro "$CACHE" && exec "$@"`, trial: trialRefuses,
			wait: waiting, trials: 1, state: "refused", says: "batches were lost"},
		"cache full": {shell: `mount -t tmpfs -o size=64k none "$CACHE" && { cat /dev/zero >"$CACHE/full" 2>/dev/null || exec "$@"; }`,
			wait: waiting, trials: 1, state: "tried"},
		"no home":         {shell: `unset HOME XDG_CACHE_HOME; exec "$@"`, wait: waiting, trials: 1, state: "tried"},
		"open to writing": {shell: `umask 0; exec "$@"`, wait: waiting, trials: 1, state: "tried"},

		"trial refuses": {trial: trialRefuses, wait: waiting, trials: 1, state: "refused", says: "batches were lost"},
		"trial crashes": {trial: trialCrashes, wait: waiting, trials: 1, state: "refused", says: "the trial ended by signal: segmentation fault"},
		"trial prints garbage": {trial: trialGarbage, wait: waiting, trials: 1, state: "refused",
			says: "the trial ended by exit status 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if strings.Contains(c.shell, "mount") && os.Geteuid() != 0 {
				t.Skip("needs root to mount a tmpfs")
			}
			s := layBadTorch(t, c)
			bare, bareErrs, err := s.run(t, false)
			if err != nil && !errors.As(err, new(*exec.ExitError)) {
				t.Fatal(err)
			}
			for start := range 2 {
				out, errs, wrapped := s.run(t, true)
				if out != bare || exitCode(wrapped) != exitCode(err) || theirs(errs) != theirs(bareErrs) {
					t.Errorf("%v, %q, bare %v, %q\n%s", wrapped, out, err, bare, errs)
				}
				s.check(t, c, start, errs)
			}
			if trials := s.trials(); trials != c.trials {
				t.Errorf("%d trials", trials)
			}
		})
	}
}

// TestTrialHangs: a trial that hangs keeps neither the training nor its end waiting, and
// leaves no process behind.
func TestTrialHangs(t *testing.T) {
	s := layBadTorch(t, badTorch{trial: trialHangs, wait: "trial"})
	bare, _, err := s.run(t, false)
	out, errs, wrapped := s.run(t, true)
	if out != bare || exitCode(wrapped) != exitCode(err) || s.trials() != 1 {
		t.Errorf("%v, %q, bare %v, %q, %d trials\n%s", wrapped, out, err, bare, s.trials(), errs)
	}
	wardentest.Until(t, "the trial's end", func() bool {
		environs, _ := filepath.Glob("/proc/[0-9]*/environ")
		return !slices.ContainsFunc(environs, func(name string) bool {
			b, _ := os.ReadFile(name)
			return bytes.Contains(b, []byte(s.note))
		})
	})
}

// TestTwoTorches: two trainers of one run have two torches, with a verdict each.
func TestTwoTorches(t *testing.T) {
	t.Parallel()
	c := badTorch{wait: event.LoaderTried, trial: "if 'second' in __file__: " + trialRefuses + "\nelse: " + trialGood}
	s := layBadTorch(t, c)
	second := filepath.Join(s.dir, "second")
	wardentest.NoError(t, os.CopyFS(second, os.DirFS(s.torch)))
	edit(t, filepath.Join(second, "torch/utils/data"), "dataloader.py", "timeout=5.0", "timeout=6.0")
	s.shell = `TRAIN_TORCH=` + second + ` "$@" >"$CACHE/out" & "$@"; code=$?; wait; cat "$CACHE/out"; exit $code`
	s.inside = true
	bare, _, err := s.run(t, false)
	if strings.Count(bare, "checksum") != 2 {
		t.Fatalf("%v: %s", err, bare)
	}
	for range 2 {
		out, errs, wrapped := s.run(t, true)
		if out != bare || exitCode(wrapped) != exitCode(err) {
			t.Errorf("%v, %q, bare %v, %q", wrapped, out, err, bare)
		}
		states := map[string]int{}
		for _, e := range s.heard(t) {
			if e["what"] == string(event.LoaderTried) {
				states[e["trial"].(string)]++
			}
		}
		if !maps.Equal(states, map[string]int{"tried": 1, "refused": 1}) || len(onRecycling(errs)) != 1 {
			t.Errorf("%v\n%s", states, errs)
		}
	}
	if s.trials() != 2 {
		t.Errorf("%d trials", s.trials())
	}
}

// badTorchStand is where such a training runs.
type badTorchStand struct {
	dir, torch, cache, events, note string
	python, env                     []string
	shell                           string
	inside                          bool // shell is the command, and not around the run
}

func layBadTorch(t *testing.T, c badTorch) *badTorchStand {
	t.Helper()
	wardentest.NeedPython(t)
	dir := t.TempDir()
	s := &badTorchStand{dir: dir, torch: filepath.Join(dir, "first"), cache: filepath.Join(dir, "cache"), events: filepath.Join(dir, "events"),
		note: filepath.Join(dir, "trials"), python: c.python, shell: c.shell}
	runs := filepath.Join(dir, "runs")
	wardentest.NoError(t, errors.Join(os.CopyFS(s.torch, os.DirFS("testdata/fewtorch")), os.Mkdir(s.cache, 0o700), os.Mkdir(runs, 0o700)))
	if c.torch != nil {
		c.torch(t, filepath.Join(s.torch, "torch/utils/data"))
	}
	trial := c.trial
	if trial == "" {
		trial = trialGood
	}
	s.env = wardentest.Env("HOME="+dir, "XDG_CACHE_HOME="+s.cache, "CACHE="+s.cache, "RSSWARDEN_RUNTIME="+runs, "TMPDIR="+dir,
		"TRAIN_TORCH="+s.torch, "TRAIN_FIRST="+c.first, "TRIALS="+s.note, "TRIAL="+trial, "TRAIN_EVENTS="+s.events)
	if c.wait != "" {
		s.env = append(s.env, "TRAIN_WAIT="+string(c.wait))
	}
	if c.library {
		library := filepath.Join(dir, "libtorch_few.so")
		wardentest.NoError(t, os.WriteFile(library, make([]byte, 1<<16), 0o600))
		s.env = append(s.env, "TRAIN_LIBRARY="+library)
	}
	s.env = append(s.env, c.env...)
	return s
}

// run trains, bare or under rsswarden.
func (s *badTorchStand) run(t *testing.T, wrapped bool) (stdout, stderr string, err error) {
	t.Helper()
	argv := slices.Concat([]string{python}, s.python, []string{filepath.Join(s.torch, "train.py")})
	shell := []string{"sh", "-c", s.shell, "sh"}
	if s.inside {
		argv = slices.Concat(shell, argv)
	}
	if wrapped {
		argv = slices.Concat([]string{binary, "run", "--limit", "4G", "--interval", "50ms", "--record", "none", "--events", s.events, "--"}, argv)
	}
	if s.shell != "" && !s.inside {
		argv = slices.Concat([]string{"unshare", "--mount", "--propagation", "private"}, shell, argv)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = s.env
	if !wrapped {
		cmd.Env = append(slices.Clone(s.env), "TRAIN_WAIT=")
	} else if err := os.WriteFile(s.events, nil, 0o600); err != nil { // the training may look before there are any
		t.Fatal(err)
	}
	return wardentest.Run(cmd)
}

// check holds what was said in one start.
func (s *badTorchStand) check(t *testing.T, c badTorch, start int, stderr string) {
	t.Helper()
	lines := onRecycling(stderr)
	if c.says == "" && len(lines) > 0 || c.says != "" && (len(lines) != 1 || !strings.Contains(lines[0], c.says)) {
		t.Errorf("start %d said %q\n%s", start, lines, stderr)
	}
	state := ""
	for _, e := range s.heard(t) {
		if trial, ok := e["trial"].(string); ok {
			state = trial
		}
	}
	if state != c.state {
		t.Errorf("start %d: the trial is %q, want %q", start, state, c.state)
	}
}

// heard are the events of loaders.
func (s *badTorchStand) heard(t *testing.T) []map[string]any {
	t.Helper()
	return wardentest.Events(t, s.events)[event.NameLoader]
}

func (s *badTorchStand) trials() int {
	b, _ := os.ReadFile(s.note)
	return len(b)
}

// onRecycling are the lines that say that nothing is recycled, or that something of ours
// does not work.
func onRecycling(stderr string) (lines []string) {
	about := regexp.MustCompile(`not recycled|does not reach|switched itself off|cannot|trial`)
	for line := range strings.Lines(wardentest.Said(stderr)) {
		if about.MatchString(line) && !strings.Contains(line, " watching ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// theirs is the last line of a standard error that is not ours: the error, where torch
// cannot be imported. Its traceback has a line of the hook.
func theirs(stderr string) (last string) {
	for line := range strings.Lines(stderr) {
		if !strings.HasPrefix(line, "rsswarden: ") {
			last = line
		}
	}
	return last
}

func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

func remove(t *testing.T, dir, name string) {
	t.Helper()
	wardentest.NoError(t, os.Remove(filepath.Join(dir, name)))
}

func edit(t *testing.T, dir, name, old, new string) {
	t.Helper()
	path := filepath.Join(dir, name)
	b, err := os.ReadFile(path)
	if err != nil || !bytes.Contains(b, []byte(old)) {
		t.Fatalf("no %q in %s: %v", old, name, err)
	}
	wardentest.NoError(t, os.WriteFile(path, bytes.ReplaceAll(b, []byte(old), []byte(new)), 0o600))
}

// compileTorch leaves of torch what Python made of its text, and not the text.
func compileTorch(t *testing.T, dir string) {
	t.Helper()
	top := filepath.Join(dir, "../..")
	if out, err := exec.Command(python, "-m", "compileall", "-b", "-q", top).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command("find", top, "-name", "*.py", "-delete").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// zipTorch puts torch into a file beside it.
func zipTorch(t *testing.T, dir string) {
	t.Helper()
	torch := filepath.Join(dir, "../..")
	var zipped bytes.Buffer
	w := zip.NewWriter(&zipped)
	wardentest.NoError(t, w.AddFS(os.DirFS(filepath.Dir(torch))))
	wardentest.NoError(t, errors.Join(w.Close(), os.RemoveAll(torch), os.WriteFile(torch+".zip", zipped.Bytes(), 0o600)))
}

// frozen has torch come from one loader for all modules, without text, as frozen modules do.
//
//go:embed testdata/frozen.py
var frozen string

// TestDoctorTriesTorchForAll: what root has tried by doctor --torch is known to every user
// of the machine, but not where others could have written it.
func TestDoctorTriesTorchForAll(t *testing.T) {
	wardentest.Long(t)
	wardentest.NeedTorch(t)
	wardentest.NeedRoot(t, "needs root")
	const plainUser = 65534
	dir, err := os.MkdirTemp("", "verdicts") // another user has to get there
	wardentest.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	own, verdicts, program, site := filepath.Join(dir, "own"), filepath.Join(dir, "var/torch"), wardentest.Program(t, wardentest.Site), filepath.Join(dir, "site")
	for _, args := range [][]string{
		{python, "../../../../supervisor/loader/testdata/mutant.py", site, `["dataloader.py", "_workers_done_event", "_done_event"]`},
		{"install", "-d", "-m", "755", dir, filepath.Join(dir, "var")},
		{"install", "-d", "-o", "65534", own},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
	}
	ask := func(uid uint32, args ...string) doctor.Check {
		t.Helper()
		cmd := exec.Command(program, append(append([]string{"doctor", "--json", "--timeout", "2m"}, args...), "--", python)...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "RSSWARDEN_LIMIT=20G", "PYTHONPATH="+site, "TMPDIR="+own, "HOME="+own, "XDG_STATE_HOME="+own)
		if uid == 0 {
			cmd.Env = append(cmd.Env, "TMPDIR="+t.TempDir(), "HOME="+t.TempDir())
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, _, _ := wardentest.RunTrial(cmd) // the status is that of all checks
		_, of := e2etest.Examined(t, out)
		return of(doctor.NamePython)
	}
	if c := ask(plainUser); c.Status != doctor.Limited {
		t.Errorf("before: %+v", c)
	}
	old := syscall.Umask(0o077)
	c := ask(0, "--torch")
	syscall.Umask(old)
	if c.Status != doctor.OK {
		t.Fatalf("root: %+v", c)
	}
	if c := ask(plainUser); c.Status != doctor.OK || !strings.Contains(c.Found, "(tried here)") {
		t.Errorf("after: %+v", c)
	}
	wardentest.NoError(t, os.Chmod(verdicts, 0o777))
	if c := ask(plainUser); c.Status != doctor.Limited {
		t.Errorf("where others can write: %+v", c)
	}
}

// TestDoctorTorch: a real torch says hello, and the hook's word is taken.
func TestDoctorTorch(t *testing.T) {
	wardentest.NeedTorch(t)
	t.Setenv("RSSWARDEN_LIMIT", "20G")
	t.Setenv("TMPDIR", t.TempDir())
	out, errs, err := wardentest.Output(binary, "doctor", "--json", "--timeout", "2m", "--", python)
	r, of := e2etest.Examined(t, out)
	if c := of(doctor.NamePython); err != nil || !r.Protects || c.Status != doctor.OK || c.Do != "" {
		t.Errorf("%v, %v, %+v\n%s", err, r.Why, c, errs)
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestDoctorTriesTorch: a torch that differs from those that are known waits for a trial,
// which --torch makes; the verdict is kept.
func TestDoctorTriesTorch(t *testing.T) {
	t.Parallel()
	wardentest.NeedTorch(t)
	for _, test := range []struct {
		name, edit   string
		before, then doctor.Status
		want         string
	}{
		{"renamed", `["dataloader.py", "_workers_done_event", "_done_event"]`, doctor.Limited, doctor.OK, "(tried here; not replaced where they die: this torch lacks "},
		{"changed", `["_utils/worker.py", "seed = base_seed + worker_id", "seed = worker_id"]`, doctor.Limited, doctor.Limited, "two workers drew the same random numbers"},
		{"not understood", `["dataloader.py", "target=_utils.worker._worker_loop", "target=vars(_utils.worker)['_worker_loop']"]`, doctor.Limited, doctor.Limited, "torch starts _worker_loop in no places"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.name == "changed" {
				wardentest.Long(t)
			}
			t.Parallel()
			site, tmp := filepath.Join(t.TempDir(), "site"), t.TempDir()
			if out, err := exec.Command(python, "../../../../supervisor/loader/testdata/mutant.py", site, test.edit).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			env := append(os.Environ(), "RSSWARDEN_LIMIT=20G", "TMPDIR="+tmp, "XDG_CACHE_HOME="+t.TempDir(), "PYTHONPATH="+site)
			ask := func(args ...string) doctor.Check {
				t.Helper()
				// It looks at what its parent has started: this program has trainings in full cgroups.
				args = append(append([]string{"-c", `"$@"; exit $?`, "sh", binary, "doctor", "--json", "--timeout", "10m"}, args...), "--", python)
				cmd := exec.Command("sh", args...)
				cmd.Env = env
				out, errs, _ := wardentest.RunTrial(cmd)
				_, of := e2etest.Examined(t, out)
				if t.Failed() {
					t.Log(errs)
				}
				return of(doctor.NamePython)
			}
			if c := ask(); c.Status != test.before || strings.Contains(c.Found, test.want) != (test.name == "not understood") {
				t.Errorf("before: %+v", c)
			}
			for _, args := range [][]string{{"--torch"}, nil} {
				if test.name == "not understood" {
					break // there is nothing to try
				}
				if c := ask(args...); c.Status != test.then || !strings.Contains(c.Found, test.want) {
					t.Errorf("with %q: %+v", args, c)
				}
			}
			if left, err := os.ReadDir(tmp); err != nil || len(left) != 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// TestFingerprint: all that a Python program can see of itself, in /proc and
// inside, is the same bare and under rsswarden, but for the list in
// supervisor/loader/inert.md; and all of that list is seen.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	probe, err := filepath.Abs("../../../../supervisor/loader/testdata/probe.py")
	wardentest.NoError(t, err)
	for _, torch := range torches {
		for _, imported := range []bool{false, true} {
			if imported && torch.name != "of sid" && wardentest.Few(1, 0) == 0 {
				continue
			}
			name := "torch " + torch.name
			args := []string{"proc"}
			lists := []string{"From the start", "whole program's"}
			if imported {
				name += ", imported"
				args = append(args, "torch")
				lists = append(lists, "Once torch")
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				command := torch.command(t)
				dir := t.TempDir()
				bare, wrapped := lookAt(t, command, dir, probe, args), lookAt(t, command, dir, probe, args, binary, "run", "--quiet", "--")
				if again := lookAt(t, command, dir, probe, args); different(bare, again) != nil {
					t.Fatalf("two bare runs differ: %q", different(bare, again))
				}
				var listed []string
				for _, l := range lists {
					listed = append(listed, torchtest.Inert(t, l)...)
				}
				seen := map[string]bool{}
				for _, key := range different(bare, wrapped) {
					i := slices.IndexFunc(listed, func(l string) bool { return torchtest.Matches(l, key) })
					if i < 0 {
						t.Errorf("%s: bare %q, wrapped %q", key, bare[key], wrapped[key])
						continue
					}
					seen[listed[i]] = true
				}
				for _, l := range listed {
					if !seen[l] {
						t.Errorf("%s is listed and does not differ", l)
					}
				}
			})
		}
	}
}

// lookAt runs the probe, by wrap where that is given.
func lookAt(t *testing.T, command func(string, ...string) *exec.Cmd, dir, probe string, args []string, wrap ...string) map[string]string {
	t.Helper()
	out := filepath.Join(dir, "seen")
	argv := slices.Concat(wrap, []string{python, probe, out}, args)
	cmd := command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "XDG_CACHE_HOME="+dir, "OMP_NUM_THREADS=2", "PYTHONDONTWRITEBYTECODE=1")
	cmd.Dir = dir
	stdout, stderr, err := wardentest.Run(cmd)
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 7 || stdout != "to stdout\n" {
		t.Fatalf("%v: %q, %q", err, stdout, stderr)
	}
	b := wardentest.ReadFile(t, out)
	wardentest.NoError(t, os.Remove(out))
	seen := map[string]string{"stderr": stderr}
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if strings.HasPrefix(key, "fd ") {
			value = pipes.ReplaceAllString(value, "$1:[]")
		}
		seen[key] += fmt.Sprintf("%s;", value)
	}
	// A command in a root of its own has mounts of its own, each time others.
	if mine, err := os.Readlink("/proc/self/ns/mnt"); err == nil && seen["ns mnt"] != mine+";" {
		delete(seen, "ns mnt")
		delete(seen, "proc mountinfo")
	}
	return seen
}

func different(a, b map[string]string) (keys []string) {
	for key := range a {
		if b[key] != a[key] {
			keys = append(keys, key)
		}
	}
	for key := range b {
		if _, ok := a[key]; !ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// pipes are numbered by the kernel, in each run differently.
var pipes = regexp.MustCompile(`(pipe|socket):\[[0-9]+\]`)
