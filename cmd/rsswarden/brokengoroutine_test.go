package main_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// TestGoroutinePanics: a bug in a goroutine of the watcher ends that watcher. The next
// says where it was, and goes on with rungs, record and alerts.
func TestGoroutinePanics(t *testing.T) {
	for part, c := range map[string]struct {
		at      string
		prepare func(*brokenRun)
		stir    func(*brokenRun) // has it do something; nil where it does by itself
		late    bool             // it does something at the second rung
	}{
		"log":          {at: "log.go", late: true},
		"events":       {at: "stream.go"},
		"record":       {at: "writer.go"},
		"record-sync":  {at: "store.go"},
		"journal":      {at: "journalfile.go", late: true},
		"counts":       {at: "counts.go"},
		"shared":       {at: "shared.go"},
		"textfile":     {at: "file.go"},
		"pss":          {at: "side.go", prepare: func(r *brokenRun) { r.option("--accounting", "pss") }},
		"alert":        {at: "sender.go", late: true},
		"alert-answer": {at: "program.go", late: true},
		"exec":         {at: "program.go", prepare: execWorks, late: true},
		"exec-output":  {at: "program.go", prepare: execWorks, late: true},
		"link":         {at: "serve.go", stir: func(r *brokenRun) { _ = r.cmd.Process.Signal(syscall.SIGWINCH) }},
		"notifier":     {at: "notify.go", stir: touchAll},
		"control":      {at: "server.go", stir: func(r *brokenRun) { r.standing() }},
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
				says: " at " + c.at + ":", // of the line on what the watcher before it died of
			}
			b.run(t)
		})
	}
}

func execWorks(r *brokenRun) { r.second("exec=echo done") }

// touchAll makes a file in each directory that loaders and ranks talk through.
func touchAll(r *brokenRun) {
	_ = filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.WriteFile(filepath.Join(path, "stray"), nil, 0o600)
		}
		return nil
	})
}

// faultNext has the watcher fail at what comes next, and its successor not. What it
// returns waits for both.
func faultNext(r *brokenRun) (died func()) {
	pid, file := r.watcher(0), filepath.Join(r.bin, "fault")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		r.t.Fatal(err)
	}
	removed := make(chan struct{})
	go func() {
		defer close(removed)
		for end := time.Now().Add(time.Minute); isWatcher(pid) && time.Now().Before(end); time.Sleep(time.Millisecond) {
		}
		os.Remove(file)
	}()
	r.t.Cleanup(func() { <-removed })
	return func() {
		<-removed
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
			c := startCount(t, cmd, "panic-in:"+part)
			c.said.await(t, "the command runs on unwatched", 1)
			if err := cmd.Process.Signal(syscall.SIGUSR1); err != nil {
				t.Fatal(err)
			}
			if !c.lines.Scan() || c.lines.Text() != "got" {
				t.Errorf("it had no signal: %q", c.lines.Text())
			}
			c.in.Close()
			if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 43 {
				t.Errorf("%v", cmd.ProcessState)
			}
		})
	}
}
