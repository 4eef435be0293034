package cli

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// typed are the commands that documents show, each as it is typed where python, torchrun,
// accelerate, apptainer and srun are stand-ins. What is shown and is not in this table fails the test,
// as does what is in it and not shown.
var typed = []struct {
	shown string
	// args stand in the place of the words that a reader replaces; nil where there are
	// none.
	args   map[string]string
	status []int
	says   string // a part of what it prints
	by     string // the test that types it, where another does
}{
	{shown: "exec rsswarden run -- python train.py", says: "trained"},
	{shown: "srun rsswarden run -- python train.py", says: "trained"},
	{shown: "rsswarden run -- python train.py", says: "trained"},
	{shown: "rsswarden run --limit 3G -- python train.py", says: "trained"},
	{shown: "rsswarden run -- python tokens.py", says: "trained"},
	{shown: "rsswarden run -- torchrun … train.py", says: "torchrun train.py"},
	{shown: "rsswarden run --at 97%:requeue …", args: map[string]string{"…": "-- python train.py"}, says: "trained"},
	{shown: "rsswarden run --alert URL …", args: map[string]string{"URL": "http://127.0.0.1:1", "…": "-- python train.py"}, says: "trained"},
	{shown: "rsswarden run --alert http://alertmanager:9093 -- python train.py", says: "trained"},
	{shown: "rsswarden run --at '95%:stop' -- python train.py", says: "trained"},
	{shown: "rsswarden run --at 93%:signal=USR2 -- python train.py", says: "trained"},
	{shown: "rsswarden run --at 93%:signal=USR2 -- accelerate launch train.py", says: "accelerate launch train.py"},
	{shown: "rsswarden run -- apptainer exec image.sif python train.py", says: "apptainer exec image.sif python train.py"},
	{shown: "rsswarden run --config job.toml -- …", args: map[string]string{"…": "python train.py"}, says: "trained"},
	{shown: "rsswarden run -- srun …", args: map[string]string{"…": "python train.py"}, says: "trained"},
	{shown: "rsswarden run --textfile /var/lib/prometheus/rsswarden -- python train.py", args: map[string]string{"/var/lib/prometheus/rsswarden": "."}, says: "trained"},
	{shown: `exec rsswarden run --at 97%:requeue --checkpoint-signal USR2 --checkpoint-file "$CHECKPOINT" -- python train.py`, says: "trained"},
	{shown: "exec rsswarden run -- sh -c '", by: "examples/integrations.TestApptainer"},
	{shown: "rsswarden run --help", says: "Usage: rsswarden run [OPTIONS] [--] COMMAND [ARG...]"},
	{shown: "rsswarden run --help-all", says: "Checkpoint and requeue"},
	{shown: "rsswarden attach PID", args: map[string]string{"PID": "$$"}, says: "watching"},
	{shown: "srun --overlap --mem=0 -N1 -n1 -w NODE --jobid=46 rsswarden attach --job 46", status: []int{2}, says: "no process of job 46 found on this node"},
	{shown: "rsswarden limits", says: "node"},
	{shown: "rsswarden limits            # what can end a job here, and what helps", says: "node"},
	{shown: "rsswarden report 4711       # of a Slurm job, also one that ran without rsswarden", status: []int{2}, says: "no run "},
	{shown: "rsswarden doctor                       # what works here", status: []int{0, 1}, says: "limited"},
	{shown: "exec rsswarden run -- python train.py  # the last line of the sbatch file", says: "trained"},
	{shown: "rsswarden report --since 30d --by user DIR", args: map[string]string{"DIR": "."}, status: []int{0, 2}},
	{shown: "rsswarden doctor", status: []int{0, 1}, says: "limited"},
	{shown: "rsswarden doctor                    # in the job, or on the node", status: []int{0, 1}, says: "limited"},
	{shown: "rsswarden doctor -- PYTHON", args: map[string]string{"PYTHON": python}, status: []int{0, 1}, says: python},
	{shown: "rsswarden doctor -- path/to/python", status: []int{0, 1}, says: "path/to/python"},
	{shown: "rsswarden doctor -- venv/bin/python", status: []int{0, 1}, says: "venv/bin/python"},
	{shown: "rsswarden doctor --torch", status: []int{0, 1}, says: "python"},
	{shown: "rsswarden doctor --try-alerts", status: []int{0, 1}, says: "alert"},
	{shown: "rsswarden report", status: []int{0, 2}, says: "run"},
	{shown: "rsswarden report                    # past runs, the newest first", status: []int{0, 2}, says: "run"},
	{shown: "rsswarden report last               # why the newest ended, and what to ask for next", status: []int{0, 2}, says: "record of"},
	{shown: "rsswarden report k3f2               # the same of one run, by its ID in the list", status: []int{2}, says: "no run "},
	{shown: "rsswarden report 4711               # of a Slurm job, also one that ran without rsswarden", status: []int{2}, says: "no run "},
	{shown: "rsswarden report --since 7d --outcome oom", status: []int{0, 2}, says: "run"},
	{shown: "rsswarden report --since 30d --by user DIR...", args: map[string]string{"DIR...": "."}, status: []int{0, 2}},
	{shown: "rsswarden task-prolog"}, // no task of Slurm's: it prints nothing
	{shown: "rsswarden report --advise DIR --json", args: map[string]string{"DIR": "."}, status: []int{2}, says: "no run has left a record"},
	{shown: "rsswarden report --advise DIR", args: map[string]string{"DIR": "."}, status: []int{2}, says: "no run has left a record"},

	{shown: "rsswarden status", by: "TestReadmeLeaders"}, {shown: "rsswarden top", by: "TestReadmeLeaders"},
	{shown: "rsswarden recycle", by: "TestReadmeLeaders"}, {shown: "rsswarden checkpoint", by: "TestReadmeLeaders"},
	{shown: "$ rsswarden trim --pid 32337", by: "TestReadmeTrim"},
	{shown: "$ rsswarden report 4711                 # a Slurm job; also an ID of the list, or a path", by: "TestReadmeReport"},
	{shown: "$ rsswarden report                      # past runs, also short and failed ones", by: "TestReadmeReport"},
	{shown: "$ rsswarden report last                 # the newest", by: "TestReadmeReport"},
	{shown: "$ rsswarden report 4711 --html run.html # a timeline to zoom into, one file that loads nothing", by: "TestReadmeReport"},
	{shown: "$ rsswarden report --advise             # what to ask for, from all your runs", by: "TestReadmeReport"},
	{shown: "$ rsswarden replay 4711 --limit 2500M   # what another limit would have done", by: "TestReadmeReport"},
}

var ours = regexp.MustCompile(`^(?:\$ |exec |srun (?:-\S+ |NODE )*)*rsswarden +(\S.*)$`)

// commandsShown are the command lines of ours in README and docs, without those of the
// reference, which are made from the program: lines of blocks, and what stands in a text.
// A line that ends within the command, as "exec rsswarden run --" does, is part of one.
func commandsShown(t *testing.T) (list []string) {
	t.Helper()
	text, _, _ := strings.Cut(rsstest.Documents(t), "<!-- made from the code")
	add := func(line string) {
		line = strings.TrimSpace(line)
		if m := ours.FindStringSubmatch(line); m != nil && !strings.HasSuffix(line, "rsswarden run --") && m[1] != "run" && !slices.Contains(list, line) {
			list = append(list, line)
		}
	}
	blocks, lines, spans := rsstest.Shown(text)
	for _, block := range blocks {
		for l := range strings.Lines(block) {
			add(l)
		}
	}
	for _, l := range slices.Concat(lines, spans) {
		add(l)
	}
	return list
}

// TestDocumentsCommands types each command that README and docs show.
func TestDocumentsCommands(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"bin/python": "#!/bin/sh\necho trained\n", "bin/torchrun": "#!/bin/sh\necho torchrun \"$@\"\n", "bin/apptainer": "#!/bin/sh\necho apptainer \"$@\"\n",
		"bin/accelerate": "#!/bin/sh\necho accelerate \"$@\"\n",
		"bin/srun":       "#!/bin/sh\nwhile :; do case $1 in -w) shift 2;; -*) shift;; *) exec \"$@\";; esac; done\n",
		"job.toml":       "limit = \"2560M\"\n",
		"train.py":       "",
		"image.sif":      "",
	} {
		wardentest.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		wardentest.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755))
	}
	for _, name := range []string{"venv/bin/python", "path/to/python"} {
		wardentest.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		wardentest.NoError(t, os.Symlink(python, filepath.Join(dir, name)))
	}
	env := wardentest.Env("HOME="+dir, "TMPDIR="+dir, "XDG_STATE_HOME="+dir, "XDG_CACHE_HOME="+dir, "CHECKPOINT="+dir+"/model.pt",
		"PATH="+dir+"/bin:"+filepath.Dir(binary)+":"+os.Getenv("PATH"))
	alone := &syscall.SysProcAttr{}
	if os.Geteuid() == 0 { // as a user who has no other runs
		alone = asSpareUser(t, dir)
	}
	first := exec.Command(binary, "run", "--quiet", "--", "sleep", "0.1") // a run to report
	first.Env, first.Dir, first.SysProcAttr = env, dir, alone
	wardentest.NoError(t, first.Run())
	shown := commandsShown(t)
	for _, c := range typed {
		if !slices.Contains(shown, c.shown) {
			t.Errorf("no document shows %q", c.shown)
		}
		if c.by != "" {
			continue
		}
		t.Run(strings.ReplaceAll(c.shown, "/", "|"), func(t *testing.T) {
			t.Parallel()
			line := c.shown
			for old, instead := range c.args {
				line = strings.ReplaceAll(line, old, instead)
			}
			line = strings.ReplaceAll(line, " … ", " ")
			cmd := exec.Command("sh", "-c", line)
			if strings.Contains(line, "attach $$") { // what it attaches to ends
				cmd = exec.Command("sh", "-c", "sleep 1 & "+strings.Replace(line, "$$", "$!", 1))
			}
			cmd.Env, cmd.Dir, cmd.SysProcAttr = env, dir, alone
			out, _ := cmd.CombinedOutput()
			want := c.status
			if want == nil {
				want = []int{0}
			}
			if got := cmd.ProcessState.ExitCode(); !slices.Contains(want, got) || !strings.Contains(string(out), c.says) {
				t.Errorf("%s: status %d, want %v and %q in\n%s", line, got, want, c.says, out)
			}
		})
	}
	for _, line := range shown {
		known := false
		for _, c := range typed {
			known = known || c.shown == line
		}
		if !known {
			t.Errorf("no test types %q", line)
		}
	}
}

// TestDocumentsAlerts: the variable with receivers is taken as the documents write it, and
// what is secret in it is in no line.
func TestDocumentsAlerts(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	wardentest.NoError(t, os.WriteFile(token, []byte("abc\n"), 0o600))
	shown := rsstest.Block(t, "taken from RSSWARDEN_ALERT")
	set := strings.Replace(shown, "/home/me/.hook-token", token, 1)
	cmd := exec.Command("sh", "-c", "export "+set+"\nexec rsswarden run --dry-run --limit 1G --at '50%:warn' -- true")
	cmd.Env = wardentest.Env("PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"), "TMPDIR="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil || set == shown || strings.Contains(string(out), "not used") {
		t.Errorf("%v\n%s%s", err, set, out)
	}
	for _, secret := range []string{"PASSWORD", "KEY", "TOKEN"} {
		if strings.Contains(string(out), secret) {
			t.Errorf("%s is printed:\n%s", secret, out)
		}
	}
}

var ruleShown = regexp.MustCompile("`((?:[a-z]+ )?(?:[0-9]+%|eta<|free<)[^`]*:[a-z][^`]*)`")

// TestReadmeRules gives every rule that the README shows to the program.
func TestReadmeRules(t *testing.T) {
	shown := ruleShown.FindAllStringSubmatch(rsstest.Documents(t), -1)
	if len(shown) < 5 {
		t.Fatalf("only %d rules found", len(shown))
	}
	for _, m := range shown {
		if _, errs, err := wardentest.Output(binary, "run", "--at", m[1], "--", "true"); err != nil {
			t.Errorf("%s: %v\n%s", m[1], err, errs)
		}
	}
}

var digits = regexp.MustCompile(`[0-9]+(\.[0-9]+)?`)

// TestReadmeTrim types what the README shows, for a process that there is.
func TestReadmeTrim(t *testing.T) {
	shown := rsstest.Block(t, "## Trim by hand")
	typed, want, _ := strings.Cut(shown, "\n")
	m := wardentest.StartMapper(t, wardentest.MapFile(t), "futex", nil)
	words := strings.Fields(strings.ReplaceAll(typed, "32337", m.PID()))
	out, errs, err := wardentest.Output(append([]string{binary}, words[2:]...)...)
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
	for l := range strings.Lines(rsstest.Block(t, "## After a run")) {
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

// TestReadmeLeaders types what the README shows to look at a run and act on it, for a
// run outside Slurm: each is answered by the one that leads.
func TestReadmeLeaders(t *testing.T) {
	dir := t.TempDir()
	alone := &syscall.SysProcAttr{}
	if os.Geteuid() == 0 { // as a user whose runs these are all
		alone = asSpareUser(t, dir)
	}
	env := wardentest.Env("TMPDIR="+dir, "HOME="+dir, "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
	run := exec.Command(binary, "run", "--record", "none", "--checkpoint-signal", "USR1", "--", "sh", "-c", `trap "echo saved" USR1; echo up; while :; do sleep 0.1; done`)
	run.Env, run.Dir, run.SysProcAttr = env, dir, alone
	out, err := run.StdoutPipe()
	if err == nil {
		err = run.Start()
	}
	wardentest.NoError(t, err)
	defer func() {
		_ = run.Process.Signal(syscall.SIGTERM)
		_ = run.Wait()
	}()
	if b := make([]byte, 3); !readsFull(out, b) || string(b) != "up\n" {
		t.Fatalf("the command said %q", b)
	}
	wardentest.Until(t, "who leads", func() bool {
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
	if b, _ := bare.CombinedOutput(); bare.ProcessState.ExitCode() != 2 || !strings.Contains(string(b), "your runs on this node:\n  rsswarden checkpoint --pid ") {
		t.Errorf("outside of it: %v\n%s", bare.ProcessState, b)
	}
	runs, err := filepath.Glob(filepath.Join(dir, "rsswarden-*", "run.*"))
	if err != nil || len(runs) != 1 {
		t.Fatalf("run directories %v, %v", runs, err)
	}
	env = append(env, "RSSWARDEN_DIR="+runs[0])
	// No loader is there to be recycled, and that is the leader's own word.
	wants := map[string]answer{
		"status": {0, "rules "}, "top": {0, "TREND"}, "checkpoint": {0, "1 of 1 process asked to checkpoint"},
		"recycle": {1, "no process to recycle: hook off"},
	}
	typed := strings.Split(strings.TrimSpace(rsstest.Block(t, "## Look at a job, and act on it")), "\n")
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

// asSpareUser has a command run as a user who runs nothing else, and lets that user into
// the directory.
func asSpareUser(t *testing.T, dir string) *syscall.SysProcAttr {
	t.Helper()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		wardentest.NoError(t, os.Chmod(d, 0o777|os.ModeSticky))
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(60000 + os.Getpid()%5000), Gid: 65534}}
}

func readsFull(r io.Reader, b []byte) bool {
	_, err := io.ReadFull(r, b)
	return err == nil
}
