package main_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
)

// block returns the first fenced block of the documents behind a line that holds
// the words given.
func block(t *testing.T, words string) string {
	t.Helper()
	_, rest, found := strings.Cut(rsstest.Documents(t), words)
	if !found {
		t.Fatalf("the documents do not say %q", words)
	}
	_, rest, _ = strings.Cut(rest, "```")
	_, rest, _ = strings.Cut(rest, "\n")
	text, _, _ := strings.Cut(rest, "```")
	return text
}

var ruleShown = regexp.MustCompile("`((?:[a-z]+ )?(?:[0-9]+%|eta<|free<)[^`]*:[a-z][^`]*)`")

// TestReadmeRules gives every rule that the README shows to the program.
func TestReadmeRules(t *testing.T) {
	shown := ruleShown.FindAllStringSubmatch(rsstest.Documents(t), -1)
	if len(shown) < 5 {
		t.Fatalf("only %d rules found", len(shown))
	}
	for _, m := range shown {
		if _, errs, err := output([]string{binary, "run", "--at", m[1], "--", "true"}); err != nil {
			t.Errorf("%s: %v\n%s", m[1], err, errs)
		}
	}
}

// TestReadmeJob submits the README's own batch script.
func TestReadmeJob(t *testing.T) {
	c := slurmtest.Start(t, slurmtest.Linux, slurmtest.Options{CPUs: 4, RealMemory: 20000})
	bin := filepath.Dir(c.Install(t, binary))
	run := c.Submit(t, block(t, "## Use it in a job"), "--export=ALL,PATH="+bin+":/usr/bin:/bin", "--chdir="+readmeFolder(t, c, bin))
	if got := run.Wait(t); got.State != "COMPLETED" || got.Stdout != "trained\n" || !strings.Contains(got.Stderr, "slurmstepd kills on summed RSS") {
		t.Errorf("%s, stdout %q\n%s", got.State, got.Stdout, got.Stderr)
	}
}

// readmeFolder is a folder with a train.py, and a python beside the program.
func readmeFolder(t *testing.T, c *slurmtest.Cluster, bin string) string {
	t.Helper()
	dir := filepath.Join(c.Dir(), "readme")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "train.py"), []byte("print('trained')\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(python, filepath.Join(bin, "python")); err != nil {
		t.Fatal(err)
	}
	return dir
}

var (
	digits = regexp.MustCompile(`[0-9]+(\.[0-9]+)?`)
	lasted = regexp.MustCompile(`after .*;`) // "15 s", or "1 min 43 s" on a slow machine
)

// shape leaves of a line what does not differ from run to run: no numbers, and
// nothing behind the first parenthesis.
func shape(line string) string {
	line, _, _ = strings.Cut(line, "(")
	line = strings.TrimSpace(lasted.ReplaceAllString(line, "after T;"))
	if front, _, found := strings.Cut(line, " watching "); found {
		line = front + " watching"
	}
	return digits.ReplaceAllString(line, "#")
}

func TestShape(t *testing.T) {
	for line, want := range map[string]string{
		"rsswarden: 08:29:13 watching python train.py (process 32337): 2.93 GiB may be used\n":                 "rsswarden: #:#:# watching",
		"rsswarden: 08:29:28 exit status 0 after 1 min 43 s; peaks of its tree: summed RSS 2.11 GiB":           "rsswarden: #:#:# exit status # after T; peaks of its tree: summed RSS # GiB",
		"rsswarden: 08:29:28 done: workers trimmed themselves 176 times to keep to 384 MiB (66.0 GiB), and on": "rsswarden: #:#:# done: workers trimmed themselves # times to keep to # MiB",
	} {
		if got := shape(line); got != want {
			t.Errorf("%q has the shape %q, want %q", line, got, want)
		}
	}
}

// sampleShown wants the lines of a README block among those of a real run.
func sampleShown(t *testing.T, words, stderr string) {
	t.Helper()
	real := map[string]bool{}
	for line := range strings.Lines(said(stderr)) {
		real[shape(line)] = true
	}
	for line := range strings.Lines(block(t, words)) {
		if !real[shape(line)] {
			t.Errorf("the README shows\n%s\nno line like it in\n%s", line, said(stderr))
		}
	}
}

// TestReadmeTrim types what the README shows, for a process that there is.
func TestReadmeTrim(t *testing.T) {
	shown := block(t, "## Trim by hand")
	typed, want, _ := strings.Cut(shown, "\n")
	m := startMapper(t, mapFile(t), "futex", nil)
	words := strings.Fields(strings.ReplaceAll(typed, "32337", m.pid()))
	out, errs, err := output(append([]string{binary}, words[2:]...))
	plain := func(s string) string { return strings.Join(strings.Fields(digits.ReplaceAllString(s, "#")), " ") }
	if err != nil || plain(out) != plain(want) {
		t.Errorf("the README shows\n%s\nthe program prints\n%s%s%v", want, out, errs, err)
	}
}

// TestReadmeReport types what the README shows of a job's end, for a job that there
// was.
func TestReadmeReport(t *testing.T) {
	dir := t.TempDir()
	run := exec.Command(binary, "run", "--quiet", "--limit", "1G", "--record", filepath.Join(dir, "disk"), "--", "sleep", "3")
	run.Env = append(os.Environ(), "SLURM_JOB_ID=4711", "SLURM_SUBMIT_DIR="+dir, "TMPDIR="+dir)
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	typed := 0
	for l := range strings.Lines(block(t, "## After a run")) {
		words, ok := strings.CutPrefix(l, "$ rsswarden ")
		if !ok {
			continue
		}
		words, _, _ = strings.Cut(words, "#")
		cmd := exec.Command(binary, strings.Fields(words)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil || len(out) == 0 {
			t.Errorf("%s: %v\n%s", words, err, out)
		}
		typed++
	}
	if typed < 5 {
		t.Errorf("only %d lines were typed", typed)
	}
	if page, err := os.ReadFile(filepath.Join(dir, "run.html")); err != nil || !strings.HasPrefix(string(page), "<!DOCTYPE html>") {
		t.Errorf("the page: %v, %.40q", err, page)
	}
}

// TestReadmeProcesses: what the README types to see the processes of a run finds both.
func TestReadmeProcesses(t *testing.T) {
	_, typed, _ := strings.Cut(strings.Join(strings.Fields(rsstest.Documents(t)), " "), "which `ps ")
	typed, _, _ = strings.Cut(typed, "`")
	run := exec.Command(binary, "run", "--record", "none", "--", "sleep", "60")
	run.Env = append(withoutSlurm(), "TMPDIR="+t.TempDir())
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = run.Process.Signal(syscall.SIGTERM) // it dies by it, as its command
		_ = run.Wait()
	}()
	holder := strconv.Itoa(run.Process.Pid)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		out, err := exec.Command("ps", append(strings.Fields(typed), "-o", "pid=,ppid=,comm=")...).Output()
		found := map[string]bool{}
		for l := range strings.Lines(string(out)) {
			if f := strings.Fields(l); len(f) == 3 {
				found[f[2]] = found[f[2]] || f[0] == holder || f[1] == holder
			}
		}
		if found["rsswarden"] && found["rss-watcher"] {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("ps %s finds %v (%v):\n%s", typed, found, err, out)
		}
	}
}

// TestReadmeLeaders types what the README shows to look at a run and act on it, for a
// run outside Slurm: each is answered by the one that leads.
func TestReadmeLeaders(t *testing.T) {
	dir := t.TempDir()
	alone := &syscall.SysProcAttr{}
	if os.Geteuid() == 0 { // as a user whose runs these are all
		alone = asNobodyElse(t, dir)
	}
	env := append(withoutSlurm(), "TMPDIR="+dir, "HOME="+dir, "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
	run := exec.Command(binary, "run", "--record", "none", "--checkpoint-signal", "USR1", "--", "sh", "-c", `trap "echo saved" USR1; echo up; while :; do sleep 0.1; done`)
	run.Env, run.Dir, run.SysProcAttr = env, dir, alone
	out, err := run.StdoutPipe()
	if err == nil {
		err = run.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = run.Process.Signal(syscall.SIGTERM)
		_ = run.Wait()
	}()
	if b := make([]byte, 3); !readsFull(out, b) || string(b) != "up\n" {
		t.Fatalf("the command said %q", b)
	}
	soon(t, "who leads", func() bool {
		cmd := exec.Command(binary, "status")
		cmd.Env, cmd.Dir, cmd.SysProcAttr = env, dir, alone
		return cmd.Run() == nil
	})
	type answer struct {
		status int
		says   string
	}
	// They are typed within the run, as within a job; elsewhere a run must be named.
	bare := exec.Command(binary, "checkpoint")
	bare.Env, bare.Dir, bare.SysProcAttr = env, dir, alone
	if b, _ := bare.CombinedOutput(); bare.ProcessState.ExitCode() != 2 || !strings.Contains(string(b), "your runs on this node: run of process ") {
		t.Errorf("outside of it: %v\n%s", bare.ProcessState, b)
	}
	runs, err := filepath.Glob(filepath.Join(dir, "rsswarden-*", "run.*"))
	if err != nil || len(runs) != 1 {
		t.Fatalf("run directories %v, %v", runs, err)
	}
	env = append(env, "RSSWARDEN_DIR="+runs[0])
	// No loader is there to be recycled, and that is the leader's own word.
	wants := map[string]answer{
		"status": {0, "runs outside Slurm on "}, "top": {0, "LIMIT"}, "checkpoint": {0, "1 of 1 process asked to checkpoint"},
		"recycle": {1, "nobody to recycle: hook off"},
	}
	typed := strings.Split(strings.TrimSpace(block(t, "## Look at a job, and act on it")), "\n")
	typed = append(typed, "rsswarden recycle --rank 0")
	wants["recycle --rank 0"] = answer{1, "this run is in no step of Slurm's, so its ranks have no numbers\nhint: leave --rank out"}
	for _, line := range typed {
		name := strings.TrimPrefix(line, "rsswarden ")
		want, known := wants[name]
		if line = strings.Replace(line, "top", "top --once", 1); !known {
			t.Errorf("the README types %q", line)
			continue
		}
		cmd := exec.Command("sh", "-c", line)
		cmd.Env, cmd.Dir, cmd.SysProcAttr = env, dir, alone
		b, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != want.status || !strings.Contains(string(b), want.says) {
			t.Errorf("%s: status %d, want %d and %q in\n%s", line, got, want.status, want.says, b)
		}
		delete(wants, name)
	}
	if len(wants) > 0 {
		t.Errorf("the README no longer types %v", wants)
	}
}

// asNobodyElse has a command run as a user who runs nothing else, and lets that user into
// the directory.
func asNobodyElse(t *testing.T, dir string) *syscall.SysProcAttr {
	t.Helper()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o777|os.ModeSticky); err != nil {
			t.Fatal(err)
		}
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(60000 + os.Getpid()%5000), Gid: 65534}}
}

func readsFull(r io.Reader, b []byte) bool {
	_, err := io.ReadFull(r, b)
	return err == nil
}

func TestInstall(t *testing.T) {
	prefix := t.TempDir()
	if out, err := exec.Command("make", "-C", "../..", "install", "PREFIX="+prefix).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, _, err := output([]string{filepath.Join(prefix, "bin", "rsswarden"), "--version"}); err != nil || !strings.HasPrefix(out, "rsswarden ") {
		t.Errorf("%q, %v", out, err)
	}
}
