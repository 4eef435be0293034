package site

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// beside says, in a task, whether a watcher that lives is beside it.
const beside = `if [ -n "$RSSWARDEN_DIR" ] && kill -0 $(sed -n "s/^pid //p" "$RSSWARDEN_DIR/identity"); then echo beside; else echo bare; fi`

// TestTaskProlog: where TaskProlog calls rsswarden task-prolog, a watcher is beside each task, and
// the task sees and does what it would without it.
func TestTaskProlog(t *testing.T) {
	s := newPrologSite(t, "")
	t.Run("steps", s.prologSteps)
	t.Run("bare", s.prologBare)
	t.Run("signals", s.prologSignals)
	t.Run("terminal", s.prologTerminal)
	t.Run("training", s.prologTraining)
	t.Run("watcher killed", func(t *testing.T) {
		got := s.Srun(t, "--mem=1100", "sh", "-c", `kill -9 $(sed -n "s/^pid //p" "$RSSWARDEN_DIR/identity"); /usr/bin/python3 -c "import multiprocessing.pool; print(7)"; exit 7`)
		if got.Code != 7 || got.Stdout != "7\n" {
			t.Errorf("%+v", got)
		}
	})
	t.Run("no program", func(t *testing.T) {
		wardentest.NoError(t, os.Rename(s.bin, s.bin+".old"))
		wardentest.NoError(t, os.WriteFile(s.bin, []byte("\x7fELF cut off"), 0o755))
		if got := s.Srun(t, "--mem=1100", "sh", "-c", beside+"; exit 7"); got.Code != 7 || got.Stdout != "bare\n" {
			t.Errorf("%+v", got)
		}
	})
}

// TestTaskPrologSid has what differs between releases of Slurm: how a prolog is run.
func TestTaskPrologSid(t *testing.T) {
	s := newPrologSite(t, debian.Sid)
	nodes := s.Srun(t, "-N2", "--ntasks-per-node=2", "--mem=2200", "sh", "-c", beside+"; exit 7")
	if nodes.Stdout != strings.Repeat("beside\n", 4) || nodes.Code != 7 {
		t.Errorf("%+v", nodes)
	}
	if got := s.Submit(t, beside, "--mem=1100").Wait(t); got.State != "COMPLETED" || got.Stdout != "beside\n" || got.Stderr != "" {
		t.Errorf("%s\n%s%s", got.State, got.Stdout, got.Stderr)
	}
	events := filepath.Join(s.Dir(), "events")
	// A task that ends before its watcher has begun is not watched.
	began := `; until [ -s "$RSSWARDEN_EVENTS" ]; do sleep 0.1; done`
	if got := s.Srun(t, "--mem=1100", "--export=ALL,RSSWARDEN_EVENTS="+events, "sh", "-c", beside+began); got.Code != 0 || got.Stdout != "beside\n" {
		t.Errorf("%+v", got)
	}
	if log := wardentest.Read(events); len(wardentest.ParseLog([]byte(log)).Of(event.NameExit)) != 1 {
		t.Errorf("the watcher did not write the end:\n%s", log)
	}
}

// newPrologSite starts a Slurm with the example as TaskProlog and TaskEpilog.
func newPrologSite(t *testing.T, suite debian.Suite) *site {
	t.Helper()
	dir := t.TempDir()
	wardentest.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	prolog := filepath.Join(dir, "task-prolog.sh")
	o := options
	o.Suite, o.Conf = suite, o.Conf+"\nTaskProlog="+prolog+"\nTaskEpilog="+prolog
	s := &site{Cluster: slurmtest.Start(t, slurmtest.Linux, o)}
	s.bin = s.Install(t, wardentest.Program(t, wardentest.Site)) // which reads etc/rsswarden.toml
	script := wardentest.Read("../../../../examples/site/task-prolog.sh")
	wardentest.NoError(t, os.WriteFile(prolog, []byte(strings.Replace(script, "bin=/usr/bin/rsswarden", "bin="+s.bin, 1)), 0o755))
	return s
}

// prologSteps compares steps with what they are bare.
func (s *site) prologSteps(t *testing.T) {
	multi := filepath.Join(s.Dir(), "multi.conf")
	wardentest.NoError(t, os.WriteFile(multi, []byte("0-1 sh -c '"+beside+"'\n"), 0o644))
	sh := func(script string, args ...string) []string {
		return append([]string{"sh", "-c", beside + "; " + script}, args...)
	}
	for _, row := range []struct {
		name  string
		tasks int
		args  []string
	}{
		{"arguments", 1, sh(`for a in "$0" "$@"; do echo "[$a]"; done`, "zero", "two words", "", "--", `"`)},
		{"status", 1, sh("echo said >&2; exit 7")},
		{"signal", 0, []string{"sh", "-c", "kill -TERM $$"}},
		{"input", 1, sh("cat; wc -c </dev/null")},
		{"process", 1, sh("ulimit -a; umask; pwd; grep -E '^Sig(Blk|Ign)' /proc/self/status; ps -o comm= -p $PPID; env | grep -v -e ^RSSWARDEN -e ^PYTHONPATH= | cut -d= -f1 | sort")},
		{"two nodes", 4, append([]string{"-N2", "--ntasks-per-node=2", "--mem=2200"}, sh("")...)},
		{"multi-prog", 2, []string{"-n2", "--mem=2200", "--multi-prog", multi}},
		{"not found", 0, []string{"no-such-command"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			with := s.Srun(t, append([]string{"--mem=1100"}, row.args...)...)
			bare := s.Srun(t, append([]string{"--mem=1100", "--export=ALL,RSSWARDEN=off"}, row.args...)...)
			if n := strings.Count(with.Stdout, "beside\n"); n != row.tasks || strings.Contains(bare.Stdout, "beside\n") {
				t.Errorf("%d tasks have a watcher, want %d\n%s", n, row.tasks, bare.Stdout)
			}
			out := strings.ReplaceAll(with.Stdout, "beside\n", "bare\n")
			if out != bare.Stdout || with.Code != bare.Code || unnumbered(with.Stderr) != unnumbered(bare.Stderr) {
				t.Errorf("status %d\n%s%s\nbare %d\n%s%s", with.Code, out, with.Stderr, bare.Code, bare.Stdout, bare.Stderr)
			}
		})
	}
	t.Run("batch and step", func(t *testing.T) {
		t.Parallel()
		got := s.Submit(t, beside+"; srun --mem=0 sh -c '"+beside+"'; echo $PYTHONPATH", "--mem=1100").Wait(t)
		if lines := strings.Split(got.Stdout, "\n"); got.State != "COMPLETED" || len(lines) < 3 || lines[0] != "beside" || lines[1] != "beside" || strings.Contains(lines[2], ":") || got.Stderr != "" {
			t.Errorf("%s\n%s%s", got.State, got.Stdout, got.Stderr)
		}
	})
	// slurmstepd kills the process group of its prolog: no watcher may be in it by then.
	t.Run("each lives", func(t *testing.T) {
		t.Parallel()
		for range wardentest.Few(100, 4) {
			if got := s.Srun(t, "--mem=1100", "sh", "-c", beside); got.Stdout != "beside\n" || unnumbered(got.Stderr) != "" {
				t.Errorf("%+v", got)
			}
		}
	})
}

// prologBare are tasks that have none.
func (s *site) prologBare(t *testing.T) {
	for name, args := range map[string][]string{
		"off":         {"--mem=1100", "--export=ALL,RSSWARDEN=off"},
		"little":      {"--mem=1000"},
		"many":        {"--mem=1100", "-n2"},
		"container":   {"--mem=1100", "--export=ALL,SLURM_CONTAINER=x"},
		"a bad value": {"--mem=1100", "--export=ALL,RSSWARDEN_LIMIT=abc"},
		"a long path": {"--mem=1100", "--export=ALL,PYTHONPATH=" + strings.Repeat("/long", 700)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// What is found to be too little only once the task runs ends then.
			got := s.Srun(t, append(args, "sh", "-c", `for i in $(seq 100); do [ -e "$RSSWARDEN_DIR/identity" ] || break; sleep 0.1; done; `+beside+` 2>/dev/null`)...)
			if strings.Contains(got.Stdout, "beside") || got.Code != 0 || unnumbered(got.Stderr) != "" {
				t.Errorf("%+v", got)
			}
		})
	}
}

// prologSignals: those of scancel reach the tasks as bare, and the watcher stays.
func (s *site) prologSignals(t *testing.T) {
	run := s.Submit(t, `for s in TERM USR1 USR2; do trap "echo $s" $s; done; echo ready; while [ ! -e stop ]; do sleep 0.1; done; `+beside, "--mem=1100")
	seen := func(text string) func(slurmtest.Result) bool {
		return func(r slurmtest.Result) bool { return strings.Contains(r.Stdout, text) }
	}
	run.Until(t, rsstest.Patience, seen("ready"))
	for _, sig := range []string{"USR1", "USR2", "TERM"} {
		s.Cancel(t, "-f", "-s", sig, run.ID)
		run.Until(t, rsstest.Patience, seen(sig))
	}
	wardentest.NoError(t, os.WriteFile(filepath.Join(run.Dir, "stop"), nil, 0o644))
	if got := run.Wait(t); got.Stdout != "ready\nUSR1\nUSR2\nTERM\nbeside\n" {
		t.Errorf("%s\n%s%s", got.State, got.Stdout, got.Stderr)
	}
}

// prologTerminal: a shell of --pty has its terminal, of which nothing of ours is left.
func (s *site) prologTerminal(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), rsstest.Patience)
	defer cancel()
	file := filepath.Join(s.Dir(), "terminal.sh")
	wardentest.NoError(t, os.WriteFile(file, []byte("tty >/dev/null && "+beside+"; ps -o stat= -p $$; exit 3"), 0o644))
	cmd := s.Command(ctx, "script", "-qec", "srun --pty --mem=1100 sh "+file, "/dev/null")
	out, _ := cmd.Output()
	said := regexp.MustCompile(`(?m)^srun: .*\n`).ReplaceAllString(strings.ReplaceAll(string(out), "\r", ""), "")
	if text := strings.Trim(said, "\x00^@"); !terminalShell.MatchString(text) || cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("status %d: %q", cmd.ProcessState.ExitCode(), out)
	}
}

// terminalShell is a session leader in the foreground of its terminal, of whatever priority.
var terminalShell = regexp.MustCompile(`^beside\nS\w*s\w*\+`)

// prologTraining: workers of a user who typed nothing are recycled, and the training ends well.
func (s *site) prologTraining(t *testing.T) {
	wardentest.NeedTorch(t)
	train := s.Install(t, "../../../../examples/train/train.py")
	s.Install(t, "../../../../examples/train/data.py")
	wardentest.NoError(t, os.MkdirAll(filepath.Join(s.Dir(), "at", "etc"), 0o755))
	wardentest.Write(t, filepath.Join(s.Dir(), "at/etc/rsswarden.toml"), `at = ["50%:recycle"]`+"\n")
	args := []string{wardentest.Python, train, "--data", filepath.Join(s.Dir(), "train.lmdb"),
		"--records", strconv.Itoa(wardentest.Few(12000, 4000)), "--record-bytes", "120000", "--epochs", "4"}
	reference := s.Do(t, args[0], append(args[1:], "--workers", "2")...)
	want := wardentest.Checksum(reference.Stdout)
	if reference.Code != 0 || want == "none" {
		t.Fatalf("the run without a limit failed: %+v", reference)
	}
	job, mem := strings.Join(args, " ")+" --persistent --workers 4", fmt.Sprint("--mem=", wardentest.Few(3000, 2000))
	if bare := s.Submit(t, job, mem, "--export=ALL,RSSWARDEN=off", "--no-requeue").Wait(t); bare.State == "COMPLETED" {
		t.Errorf("bare it ends well, the test proves nothing")
	}
	for i := range wardentest.Few(20, 1) {
		events := filepath.Join(s.Dir(), fmt.Sprint("events", i))
		got := s.Submit(t, job, mem, "--no-requeue", "-D", filepath.Join(s.Dir(), "at"), "--export=ALL,RSSWARDEN_EVENTS="+events).Wait(t)
		if sum := wardentest.Checksum(got.Stdout); got.State != "COMPLETED" || sum != want {
			t.Errorf("%d: %s %d:%d, checksum %s, want %s\n%s%s", i, got.State, got.ExitCode, got.Signal, sum, want, got.Stdout, got.Stderr)
		}
		recycled := 0
		log := wardentest.ParseLog([]byte(wardentest.Read(events)))
		for _, e := range log.Of(event.NameLoader) {
			if e["what"] == string(event.LoaderRecycled) && (e["reason"] == nil || e["reason"] == "") {
				recycled++
			}
		}
		said := wardentest.Said(got.Stderr)
		t.Logf("%d workers recycled", recycled)
		if lines := strings.Split(strings.TrimSpace(said), "\n"); recycled == 0 || len(lines) != 3 || !strings.Contains(lines[2], "rsswarden report ") || len(log.Of(event.NameExit)) != 1 {
			t.Errorf("%d: %d workers recycled; the user reads:\n%s", i, recycled, got.Stderr)
		}
	}
}
