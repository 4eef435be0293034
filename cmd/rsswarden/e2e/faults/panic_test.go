// Package faults has each part of rsswarden fail, and the command end as bare.
package faults

import (
	_ "embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// binary is the program under test, faulty the same with faults that can be asked for.
var binary, faulty, ofSite string

const python = wardentest.Python

func TestMain(m *testing.M) {
	rsstest.BeEater()
	os.Exit(wardentest.Main(m, map[string]*string{wardentest.Rsswarden: &binary, wardentest.Faults: &faulty, wardentest.Daemon: new(string), wardentest.Site: &ofSite}))
}

// countSignals prints its PID, a line for each SIGUSR1, and ends with 43 at the end of
// its input. It waits for both by one select: a handler of Python's whose signal comes
// just before read(2) would wait for the end of that.
//
//go:embed testdata/countsignals.py
var countSignals string

// startCount starts cmd, which has countSignals under a holder of which a part is going to
// fail, and waits until that is ready. It returns its PID too.
func startCount(t *testing.T, cmd *exec.Cmd, fault string) (c *wardentest.Talk, pid int) {
	t.Helper()
	cmd.Env = append(wardentest.Env(cmd.Env...), "RSSWARDEN_FAULT="+fault, "RSSWARDEN_RUNTIME="+t.TempDir(), "XDG_STATE_HOME="+t.TempDir())
	c = wardentest.StartTalk(t, cmd)
	pid, err := strconv.Atoi(c.Hear())
	wardentest.NoError(t, err)
	return c, pid
}

// TestHolderPanics: a bug in a part of the holder, or of what runs before and after it.
// The command runs, gets its signals once, and ends as bare.
func TestHolderPanics(t *testing.T) {
	for part, says := range map[string]string{
		"run":            "the command runs unwatched: internal error: asked for",
		"prepare":        "the loader hook is off: internal error: asked for",
		"holder-start":   "",
		"holder":         "the holder failed; the command runs on, its signals and its end are passed on: internal error: asked for by RSSWARDEN_FAULT at loop.go:",
		"holder-signal":  "the holder failed;",
		"holder-starter": "cannot start watcher: internal error: asked for by RSSWARDEN_FAULT at watcher.go:",
		"holder-log":     "",
		"tidy":           "",
		// One that was parked until now.
		"holder woken":        "the holder failed; the command runs on, its signals",
		"holder-signal woken": "the holder failed;",
	} {
		for _, end := range []string{"exit", "signal"} {
			t.Run(part+" "+end, func(t *testing.T) {
				t.Parallel()
				cmd := exec.Command(faulty, "run", "--limit", "1000M", "--", "/usr/bin/python3", "-c", countSignals)
				part, woken := strings.CutSuffix(part, " woken")
				if strings.HasPrefix(part, "holder") && !woken {
					cmd.Env = []string{"RSSWARDEN_PARK=0"}
				}
				c, _ := startCount(t, cmd, "panic-in:"+part)
				if woken {
					wardentest.NoError(t, cmd.Process.Signal(syscall.SIGCONT)) // job control wakes it
				}
				for i := range 3 {
					wardentest.NoError(t, cmd.Process.Signal(syscall.SIGUSR1))
					if !c.Lines.Scan() || c.Lines.Text() != "got" {
						t.Errorf("signal %d: %q", i, c.Lines.Text())
					}
				}
				began := time.Now()
				if end == "signal" {
					wardentest.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
				} else {
					c.In.Close()
				}
				if c.Lines.Scan() {
					t.Errorf("%q besides", c.Lines.Text())
				}
				_ = cmd.Wait()
				if took := time.Since(began); took > 3*time.Second {
					t.Errorf("the end took %v", took)
				}
				status := cmd.ProcessState.Sys().(syscall.WaitStatus)
				if end == "signal" && status.Signal() != syscall.SIGTERM || end == "exit" && status.ExitStatus() != 43 {
					t.Errorf("it ended with %v", cmd.ProcessState)
				}
				wardentest.Says(t, c.Stderr.String(), says)
				if strings.Contains(c.Stderr.String(), "goroutine ") {
					t.Errorf("a stack reached stderr:\n%s", &c.Stderr)
				}
			})
		}
	}
}

// TestHolderFaults: a fault in C, or a page of the program that cannot be read any more,
// ends the holder as SIGKILL would. The command runs on as an orphan, unless whoever
// started us wanted it to get a signal then.
func TestHolderFaults(t *testing.T) {
	for _, sig := range []string{"clear", "USR1", "TERM"} {
		t.Run("death signal "+sig, func(t *testing.T) {
			cmd := exec.Command("/usr/bin/setpriv", "--pdeathsig", sig, faulty, "run", "--limit", "1000M", "--", "/usr/bin/python3", "-c", countSignals)
			cmd.Env = []string{"RSSWARDEN_PARK=0"}
			c, pid := startCount(t, cmd, "bus-in:holder-signal")
			wardentest.Until(t, "a watcher", func() bool { return len(wardentest.Watchers(cmd.Process.Pid)) == 1 })
			watcher := wardentest.Watchers(cmd.Process.Pid)[0]
			wardentest.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
			state, err := cmd.Process.Wait()
			if err != nil || state.Success() {
				t.Errorf("the holder ended with %v, %v", state, err)
			}
			wardentest.Until(t, "the watcher's end", func() bool { return !wardentest.IsWatcher(watcher) })
			switch sig {
			case "clear":
				if err := syscall.Kill(pid, syscall.SIGUSR1); err != nil {
					t.Errorf("the command is gone: %v", err)
				}
				fallthrough
			case "USR1":
				if !c.Lines.Scan() || c.Lines.Text() != "got" {
					t.Errorf("the command said %q", c.Lines.Text())
				}
				c.In.Close()
			}
			// Each thread of the holder that ends sends it, as threads of anybody do.
			for c.Lines.Scan() && sig == "USR1" && c.Lines.Text() == "got" {
			}
			if c.Lines.Text() != "" && sig != "USR1" {
				t.Errorf("%q besides", c.Lines.Text())
			}
			wardentest.Until(t, "the command's end", func() bool { return wardentest.Ended(pid) })
		})
	}
}

// faultAt is the file that has the fault of this name.
func faultAt(t *testing.T, part string) (file string) {
	t.Helper()
	for _, top := range []string{"supervisor", "cmd/rsswarden"} {
		wardentest.NoError(t, filepath.WalkDir(wardentest.Path(t, top), func(path string, d fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".go") && strings.Contains(wardentest.Read(path), `.Point("`+part+`")`) {
				file = filepath.Base(path)
			}
			return err
		}))
	}
	if file == "" {
		t.Fatalf("no part %q can be asked to fail", part)
	}
	return file
}

// TestGoroutinePanics: a bug in a goroutine of the watcher ends that watcher. The next
// says where it was, and goes on with rungs, record and alerts.
func TestGoroutinePanics(t *testing.T) {
	for part, c := range map[string]struct {
		prepare func(*brokenRun)
		stir    func(*brokenRun) // has it do something; nil where it does by itself
		late    bool             // it does something at the second rung
		early   bool             // … at the first, and then for a minute not
	}{
		"log":          {late: true},
		"events":       {},
		"record":       {},
		"record-sync":  {early: true},
		"journal":      {late: true},
		"counts":       {},
		"shared":       {},
		"textfile":     {},
		"pss":          {prepare: func(r *brokenRun) { r.option("--accounting", "pss") }},
		"alert":        {late: true},
		"alert-answer": {late: true},
		"exec":         {prepare: execWorks, late: true},
		"exec-output":  {prepare: execWorks, late: true},
		"link":         {stir: func(r *brokenRun) { _ = r.Cmd.Process.Signal(syscall.SIGWINCH) }},
		"notifier":     {stir: touchAll},
		"control":      {stir: func(r *brokenRun) { r.Status() }},
	} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			died, says := func() {}, " at "+faultAt(t, part)+":" // of the line on what the watcher before it died of
			b := broken{
				prepare: func(r *brokenRun) {
					asksFor("panic-in:" + part)(r)
					if c.early {
						wardentest.Write(t, filepath.Join(r.bin, "fault"), "")
					}
					if c.prepare != nil {
						c.prepare(r)
					}
				},
				harm: func(r *brokenRun) {
					if c.early {
						r.Stderr.Await(t, says, 1)
						return
					}
					if died = faultNext(r); c.stir != nil {
						c.stir(r)
					}
					if !c.late {
						died()
					}
				},
				then: func(*brokenRun) { died() },
				late: c.late,
				says: says,
			}
			b.run(t)
		})
	}
}

// TestGoroutinePanicsOnce: so it is in those that are there from the start, and in those
// that need circumstances. The next watcher says where it was.
func TestGoroutinePanicsOnce(t *testing.T) {
	batch := []string{"SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n1", "SLURMD_NODENAME=n1", "SLURM_MEM_PER_NODE=20000", "SLURM_CONF=/nowhere"}
	step := append([]string{"SLURM_STEP_ID=0"}, batch...)
	at := func(rule string, more ...string) []string {
		return append([]string{"--at", "none", "--at", rule}, more...)
	}
	for part, c := range map[string]struct {
		args []string
		env  []string
		// first comes before what the command does; it has a path of its own as argument
		first string
		stir  func(testing.TB) // has it do something; nil where it does by itself
	}{
		"stalled":     {stir: rsstest.Stall},
		"closelook":   {},
		"mapped":      {first: forkMapping},
		"holders":     {args: at("shm 0.0001%:warn")},
		"planner":     {args: at("user 50%:trim", "--trim", "ptrace"), first: forkMapping},
		"join":        {env: step},
		"strangers":   {env: batch},
		"scontrol":    {env: step},
		"comment":     {args: at("user 1%:warn", "--alert-comment"), env: step},
		"reach":       {first: forkMapping},
		"requeue-ask": {args: at("user 1%:requeue"), env: step},
		"trial":       {first: unknownTorch},
	} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "fault")
			wardentest.NoError(t, os.WriteFile(file, nil, 0o600))
			shm, err := os.CreateTemp("/dev/shm", "rsswarden-test")
			wardentest.NoError(t, err)
			t.Cleanup(func() { os.Remove(shm.Name()) })
			if _, err := shm.Write(make([]byte, 1<<20)); err != nil {
				t.Fatal(err)
			}
			args := slices.Concat([]string{"run", "--limit", "100M", "--accounting", "rss", "--interval", "50ms"}, c.args, []string{"--", "/usr/bin/python3", "-c", c.first + countSignals, t.TempDir() + "/mapped"})
			cmd := exec.Command(faulty, args...)
			cmd.Env = c.env
			r, _ := startCount(t, cmd, "panic-in:"+part+"-once:"+file)
			if c.stir != nil {
				c.stir(t)
			}
			r.Stderr.Await(t, " at "+faultAt(t, part)+":", 1)
			wardentest.NoError(t, cmd.Process.Signal(syscall.SIGUSR1))
			if !r.Lines.Scan() || r.Lines.Text() != "got" {
				t.Errorf("it had no signal: %q", r.Lines.Text())
			}
			r.EndsWith(43)
		})
	}
}

// forkMapping has a child that maps the file of the first argument.
//
//go:embed testdata/forkmapping.py
var forkMapping string

// unknownTorch says what the hook says in a trainer whose torch is not known.
//
//go:embed testdata/unknowntorch.py
var unknownTorch string

func execWorks(r *brokenRun) { r.second("exec=echo done") }

// touchAll makes a file in each directory that loaders and ranks talk through, once the
// kernel is asked to report that.
func touchAll(r *brokenRun) {
	fds := fmt.Sprintf("/proc/%d/fd", r.watcher(0))
	wardentest.Until(r.T, "an instance of inotify", func() bool {
		names, _ := os.ReadDir(fds)
		return slices.ContainsFunc(names, func(d fs.DirEntry) bool {
			to, _ := os.Readlink(filepath.Join(fds, d.Name()))
			return strings.Contains(to, "inotify")
		})
	})
	_ = filepath.WalkDir(r.Dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.WriteFile(filepath.Join(path, "stray"), nil, 0o600)
		}
		return nil
	})
}

// faultNext has the watcher fail at what comes next. It fails once: its successor may do
// the same before a test can see that the first has ended. What faultNext returns waits
// for both.
func faultNext(r *brokenRun) (died func()) {
	pid := r.watcher(0)
	wardentest.NoError(r.T, os.WriteFile(filepath.Join(r.bin, "fault"), nil, 0o600))
	return func() {
		wardentest.Until(r.T, "its end", func() bool { return !wardentest.IsWatcher(pid) })
		r.watcher(pid)
	}
}

// TestGoroutinePanicsAlways: where each watcher dies of it the last is followed by none,
// and the command goes on without.
func TestGoroutinePanicsAlways(t *testing.T) {
	for part, args := range map[string][]string{
		"rank":   nil,
		"match":  {"--worker-match", "none", "--worker-signal", "TERM"},
		"counts": nil,
		"events": {"--events", "/dev/null"},
	} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			args := slices.Concat([]string{"run", "--limit", "1000M", "--interval", "50ms"}, args, []string{"--", "/usr/bin/python3", "-c", countSignals})
			cmd := exec.Command(faulty, args...)
			c, _ := startCount(t, cmd, "panic-in:"+part)
			c.Stderr.Await(t, "the command runs on unwatched", 1)
			wardentest.NoError(t, cmd.Process.Signal(syscall.SIGUSR1))
			if !c.Lines.Scan() || c.Lines.Text() != "got" {
				t.Errorf("it had no signal: %q", c.Lines.Text())
			}
			c.EndsWith(43)
		})
	}
}

// TestCommandSurvivesItsWatcher: the watcher killed, stopped or crashing
// changes nothing for the command.
func TestCommandSurvivesItsWatcher(t *testing.T) {
	for _, a := range wardentest.Ailments {
		t.Run(a.Name, func(t *testing.T) {
			for script, want := range map[string]string{
				"sleep 1; echo done":                  "exit status 0",
				"sleep 1; echo done; exit 41":         "exit status 41",
				"sleep 1; echo done; kill -TERM $$":   "signal: terminated",
				"cat /proc/sys/kernel/ostype; exit 7": "exit status 7",
			} {
				ended, out, struck := a.Run(t, "run", "--interval", "20ms", "--", "sh", "-c", script)
				if ended != want || len(out) == 0 {
					t.Errorf("%q ended with %q having written %q, want %q", script, ended, out, want)
				}
				if a.Sig != 0 && struck == 0 && strings.HasPrefix(script, "sleep") {
					t.Errorf("%q: no watcher was struck: the test proves nothing", script)
				}
			}
		})
	}
}

// TestTrainingSurvivesItsWatcher runs a small training and wants the checksum
// of the bare run.
func TestTrainingSurvivesItsWatcher(t *testing.T) {
	wardentest.NeedTorch(t)
	data := filepath.Join(t.TempDir(), "small.lmdb")
	train := []string{python, "../../../../examples/train/train.py", "--data", data, "--records", "2000", "--record-bytes", "20000",
		"--workers", "2", "--persistent", "--epochs", "3"}
	bare, err := exec.Command(train[0], train[1:]...).Output()
	wardentest.NoError(t, err)
	want := wardentest.Checksum(string(bare))
	for _, a := range wardentest.Ailments {
		t.Run(a.Name, func(t *testing.T) {
			// The limit is far too small, so that everything is tried.
			ended, out, _ := a.Run(t, append([]string{"run", "--limit", "300M", "--accounting", "rss", "--interval", "20ms", "--"}, train...)...)
			if ended != "exit status 0" || wardentest.Checksum(string(out)) != want {
				t.Errorf("ended with %q, checksum %s, want exit status 0 and %s", ended, wardentest.Checksum(string(out)), want)
			}
		})
	}
}
