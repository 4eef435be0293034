package faults

import (
	_ "embed"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

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
	}{
		"log":          {late: true},
		"events":       {},
		"record":       {},
		"record-sync":  {},
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
			var died func()
			b := broken{
				prepare: func(r *brokenRun) {
					asksFor("panic-in:" + part)(r)
					if c.prepare != nil {
						c.prepare(r)
					}
				},
				harm: func(r *brokenRun) {
					if died = faultNext(r); c.stir != nil {
						c.stir(r)
					}
					if !c.late {
						died()
					}
				},
				then: func(*brokenRun) { died() },
				late: c.late,
				says: " at " + faultAt(t, part) + ":", // of the line on what the watcher before it died of
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
	}{
		"stalled":     {},
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

// touchAll makes a file in each directory that loaders and ranks talk through.
func touchAll(r *brokenRun) {
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
