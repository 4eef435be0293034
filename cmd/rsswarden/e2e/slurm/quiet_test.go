package slurm

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

func TestSlurmCgroupQuiet(t *testing.T) {
	c, warden := cluster(t, slurmtest.Cgroup)
	for name, job := range map[string]string{
		"page cache": fmt.Sprintf("%s %s $PWD/cache", python, c.Install(t, "testdata/jobs/cache.py")),
		"ramp":       fmt.Sprintf("%s %s", python, c.Install(t, "testdata/jobs/ramp.py")),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(c.Dir(), "events-"+name[:4])
			got := c.Submit(t, fmt.Sprintf("exec %s run --events %s -- %s", warden, path, job), "--mem=300", "--no-requeue").Wait(t)
			if got.State != "COMPLETED" || got.ExitCode != 0 {
				t.Errorf("%s %d:%d, want COMPLETED 0:0\n%s", got.State, got.ExitCode, got.Signal, got.Stderr)
			}
			said := wardentest.Events(t, path)
			if len(said[event.NameDecision]) > 0 || len(said[event.NameOutcome]) > 0 {
				t.Errorf("decided on something: %v %v", said[event.NameDecision], said[event.NameOutcome])
			}
			exit := said[event.NameExit][0]
			binding := exit["binding"].(map[string]any)
			t.Logf("outcome %v, %v at %v of %v, charged %v", exit["outcome"], binding["limit"],
				binding["used_bytes"], binding["limit_bytes"], binding["charged_bytes"])
			if exit["outcome"] != "ok" || binding["limit"] != "cgroup" {
				t.Errorf("outcome %v on %v, want ok on cgroup", exit["outcome"], binding["limit"])
			}
		})
	}
}

// TestSlurmOrphan: a subreaper would bring the orphan back under the task, and
// slurmstepd would kill a job that survives bare.
func TestSlurmOrphan(t *testing.T) {
	t.Parallel()
	c, warden := cluster(t, slurmtest.Linux)
	job := python + " " + c.Install(t, "testdata/jobs/orphan.py")
	for _, wrap := range []string{"", warden + " run --"} {
		got := c.Submit(t, "exec "+wrap+" "+job, "--mem=400").Wait(t)
		if got.State != "COMPLETED" || got.ExitCode != 0 || got.Stdout != "parent ends\n" {
			t.Errorf("%q: %s %s %d:%d, stdout %q\n%s", wrap, got.State, got.Reason, got.ExitCode, got.Signal, got.Stdout, got.Stderr)
		}
	}
}

// TestSlurmWithoutExec: under a batch shell that waits, Slurm's signals do not
// arrive, and the first lines say so.
func TestSlurmWithoutExec(t *testing.T) {
	t.Parallel()
	c, warden := cluster(t, slurmtest.Linux)
	const warning = "write exec rsswarden run -- COMMAND as its last line"
	got := c.Submit(t, warden+" run -- sleep 1\nexit 0", "--mem=400").Wait(t)
	wardentest.Says(t, got.Stderr, warning)
	got = c.Submit(t, "exec "+warden+" run -- sleep 1", "--mem=400").Wait(t)
	if strings.Contains(got.Stderr, warning) {
		t.Errorf("a warning with exec:\n%s", got.Stderr)
	}
	if out := c.Srun(t, "--mem=400", warden, "run", "--", "sleep", "1"); out.Code != 0 || strings.Contains(out.Stderr, warning) {
		t.Errorf("srun: status %d\n%s", out.Code, out.Stderr)
	}
}

// TestSlurmSignals: whatever way Slurm sends a signal, the command has it
// exactly once, as bare.
func TestSlurmSignals(t *testing.T) {
	c, warden := cluster(t, slurmtest.Linux)
	job := python + " " + c.Install(t, "testdata/jobs/count.py")
	for name, wrap := range map[string]string{"bare": "", "wrapped": warden + " run --"} {
		t.Run(name, func(t *testing.T) {
			run := c.Submit(t, "exec "+wrap+" "+job, "--mem=400")
			seen := func(text string) func(slurmtest.Result) bool {
				return func(r slurmtest.Result) bool { return r.Over() || strings.Contains(r.Stdout, text) }
			}
			run.Until(t, time.Minute, seen("ready"))
			// -b reaches the batch process alone, -f its whole process group.
			c.Cancel(t, "-b", "-s", "USR1", run.ID)
			run.Until(t, time.Minute, seen("got 10"))
			c.Cancel(t, "-f", "-s", "USR2", run.ID)
			run.Until(t, time.Minute, seen("got 12"))
			c.Cancel(t, "-b", "-s", "TERM", run.ID)
			got := run.Wait(t)
			if want := "ready\ngot 10\ngot 12\ngot 15\n"; got.Stdout != want {
				t.Errorf("%s, stdout %q, want %q\n%s", got.State, got.Stdout, want, got.Stderr)
			}
		})
	}
}

// TestSlurmTerminal uses a shell of srun --pty as a person does: ^C, ^Z, jobs
// and fg work as without us.
func TestSlurmTerminal(t *testing.T) {
	c, warden := cluster(t, slurmtest.Linux)
	cmd := c.Command(t.Context(), "srun", "--mem=400", "--pty", warden, "run", "--quiet", "--", "bash", "--norc", "--noprofile", "-i")
	f, err := pty.Start(cmd)
	wardentest.NoError(t, err)
	defer f.Close()
	var shown wardentest.Text
	go io.Copy(&shown, f) // ends with the terminal
	typed := func(text string) {
		t.Helper()
		if _, err := io.WriteString(f, text); err != nil {
			t.Fatalf("%v\n%s", err, shown.String())
		}
	}
	typed("PS1='> '; echo up-$((40+2))\n")
	shown.Await(t, "up-42", 1)
	typed("sleep 1000; echo status-$((0+$?))\n")
	awaitProcess(t, "sleep\x001000\x00")
	typed("\x03")
	typed("echo after-$((1+1))\n")
	shown.Await(t, "after-2", 1)
	typed("sleep 1001\n")
	awaitProcess(t, "sleep\x001001\x00")
	typed("\x1a")
	shown.Await(t, "Stopped", 1)
	typed("jobs; echo jobs-$((1+2))\n")
	shown.Await(t, "jobs-3", 1)
	if strings.Count(shown.String(), "Stopped") < 2 {
		t.Errorf("jobs does not list the stopped job:\n%s", &shown)
	}
	typed("fg\n")
	shown.Await(t, "sleep 1001", 4) // typed, stopped, listed, and now in front again
	typed("\x03")
	typed("exit 5\n")
	err = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 5 {
		t.Errorf("srun ended with %d (%v), want the shell's 5\n%s", code, err, &shown)
	}
}

// awaitProcess waits until a process with that command line runs.
func awaitProcess(t *testing.T, line string) {
	t.Helper()
	wardentest.Until(t, fmt.Sprintf("a process %q", line), func() bool {
		files, err := filepath.Glob("/proc/[0-9]*/cmdline")
		wardentest.NoError(t, err)
		return slices.ContainsFunc(files, func(file string) bool { return wardentest.Read(file) == line })
	})
}
