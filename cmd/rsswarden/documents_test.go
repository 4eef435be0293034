package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest"
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
	{shown: "rsswarden run --limit 3G -- python train.py", says: "3.00 GiB may be used"},
	{shown: "rsswarden run -- torchrun … train.py", says: "torchrun train.py"},
	{shown: "rsswarden run --at 97%:requeue …", args: map[string]string{"…": "-- python train.py"}, says: "trained"},
	{shown: "rsswarden run --alert URL …", args: map[string]string{"URL": "http://127.0.0.1:1", "…": "-- python train.py"}, says: "trained"},
	{shown: "rsswarden run --alert http://alertmanager:9093 -- python train.py", says: "trained"},
	{shown: "rsswarden run --at 93%:signal=USR2 -- python train.py", says: "trained"},
	{shown: "rsswarden run --at 93%:signal=USR2 -- accelerate launch train.py", says: "accelerate launch train.py"},
	{shown: "rsswarden run -- apptainer exec image.sif python train.py", says: "apptainer exec image.sif python train.py"},
	{shown: "rsswarden run --config job.toml -- …", args: map[string]string{"…": "python train.py"}, says: "2.50 GiB may be used"},
	{shown: "rsswarden run -- srun …", args: map[string]string{"…": "python train.py"}, says: "trained"},
	{shown: "rsswarden run --textfile /var/lib/prometheus/rsswarden -- python train.py", args: map[string]string{"/var/lib/prometheus/rsswarden": "."}, says: "trained"},
	{shown: `exec rsswarden run --at 97%:requeue --checkpoint-signal USR2 --checkpoint-file "$CHECKPOINT" -- python train.py`, says: "trained"},
	{shown: "exec rsswarden run -- sh -c '", by: "examples/integrations.TestApptainer"},
	{shown: "rsswarden run --help", says: "Usage: rsswarden run [OPTIONS] [--] COMMAND [ARG...]"},
	{shown: "rsswarden attach PID", args: map[string]string{"PID": "$$"}, says: "watching"},
	{shown: "srun --overlap --mem=0 -N1 -n1 -w NODE --jobid=46 rsswarden attach --job 46", status: []int{2}, says: "no process of job 46 is to be seen on this node"},
	{shown: "rsswarden limits", says: "node"},
	{shown: "rsswarden doctor", status: []int{0, 1}, says: "limited"},
	{shown: "rsswarden doctor                    # in the job, or on the node", status: []int{0, 1}, says: "limited"},
	{shown: "rsswarden doctor -- PYTHON", args: map[string]string{"PYTHON": python}, status: []int{0, 1}, says: python},
	{shown: "rsswarden doctor -- path/to/python", status: []int{0, 1}, says: "path/to/python"},
	{shown: "rsswarden doctor -- venv/bin/python", status: []int{0, 1}, says: "venv/bin/python"},
	{shown: "rsswarden doctor --torch", status: []int{0, 1}, says: "python"},
	{shown: "rsswarden doctor --try-alerts", status: []int{0, 1}, says: "alert"},
	{shown: "rsswarden man | man -l -", args: map[string]string{"man -l -": "cat"}, says: ".TH"},
	{shown: "rsswarden completion bash", says: "complete"},
	{shown: "rsswarden report", status: []int{2}, says: "no record"},
	{shown: "rsswarden report --advise DIR --json", args: map[string]string{"DIR": "."}, status: []int{2}, says: "no run has left a record"},
	{shown: "rsswarden report --advise DIR", args: map[string]string{"DIR": "."}, status: []int{2}, says: "no run has left a record"},

	{shown: "rsswarden status", by: "TestReadmeLeaders"}, {shown: "rsswarden top", by: "TestReadmeLeaders"},
	{shown: "rsswarden recycle", by: "TestReadmeLeaders"}, {shown: "rsswarden checkpoint", by: "TestReadmeLeaders"},
	{shown: "$ rsswarden trim --pid 32337", by: "TestReadmeTrim"},
	{shown: "$ rsswarden report 4711", by: "TestReadmeReport"},
	{shown: "$ rsswarden report                      # the newest run", by: "TestReadmeReport"},
	{shown: "$ rsswarden report 4711 --html run.html # a timeline to zoom into, one file that loads nothing", by: "TestReadmeReport"},
	{shown: "$ rsswarden report --advise .rsswarden  # what to ask for, from all runs here", by: "TestReadmeReport"},
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
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"venv/bin/python", "path/to/python"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(python, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	env := append(withoutSlurm(), "HOME="+dir, "TMPDIR="+dir, "XDG_STATE_HOME="+dir, "XDG_CACHE_HOME="+dir, "CHECKPOINT="+dir+"/model.pt",
		"PATH="+dir+"/bin:"+filepath.Dir(binary)+":"+os.Getenv("PATH"))
	alone := &syscall.SysProcAttr{}
	if os.Geteuid() == 0 { // as a user who has no other runs
		alone = asNobodyElse(t, dir)
	}
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
	if err := os.WriteFile(token, []byte("abc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	shown := block(t, "taken from RSSWARDEN_ALERT")
	set := strings.Replace(shown, "/home/me/.hook-token", token, 1)
	cmd := exec.Command("sh", "-c", "export "+set+"\nexec rsswarden run --dry-run --limit 1G --at '50%:warn' -- true")
	cmd.Env = append(withoutSlurm(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"), "TMPDIR="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil || set == shown || strings.Contains(string(out), "not used") {
		t.Errorf("%v\n%s%s", err, set, out)
	}
	for _, secret := range []string{"PASSWORD", "KEY", "TOKEN"} {
		if strings.Contains(string(out), secret) {
			t.Errorf("%s is told:\n%s", secret, out)
		}
	}
}
