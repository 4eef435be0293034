package torch

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/render"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// taker takes 5 MiB each 0.08 s, so many times, and ends with a status.
const taker = `import sys, time
held = []
for _ in range(int(sys.argv[1])):
    held.append(bytearray(b"x" * (5 << 20))); time.sleep(.08)
sys.exit(int(sys.argv[2]))
`

// TestOneStory: the summary on stderr, the exit event, the text of report, its JSON, its page
// and the counts for Prometheus have the same outcome, peak, ledger of actions and advice,
// however a run ends. One that is killed with its watcher has the last four.
func TestOneStory(t *testing.T) {
	t.Parallel()
	wardentest.NeedTorch(t)
	train := func(more ...string) []string {
		return append([]string{python, wardentest.Path(t, "examples/train/train.py"), "--data", filepath.Join(os.TempDir(), "one-story.lmdb"),
			"--records", "1500", "--workers", "3", "--persistent", "--step-ms", "8"}, more...)
	}
	take := func(times, status int) []string {
		return []string{python, "-c", taker, fmt.Sprint(times), fmt.Sprint(status)}
	}
	for _, c := range []struct {
		name    string
		group   rss.Bytes // of a memory cgroup, 0 for none
		options []string
		command []string
		want    event.RunOutcome
		helped  event.Helped
		words   string // of the summary
	}{
		{"A: mapped pages", 0, []string{"--limit", "1000M"}, train("--epochs", "4"), event.RunKept, event.HelpedYes, `did  \d+ trims`},
		{"B: a leak", 0, []string{"--limit", "1000M"}, train("--epochs", "2", "--leak-worker", "150"), event.RunKept, event.HelpedYes, `workers? recycled`},
		{"C: a pool that a signal recycles", 0, []string{"--limit", "360M", "--accounting", "rss", "--worker-signal", "TERM", "--worker-match", "lmdbload worker"},
			[]string{wardentest.Program(t, wardentest.LMDBLoad), "-data", filepath.Join(t.TempDir(), "c.lmdb"), "-growth", "80"}, event.RunKept, event.HelpedYes, `workers? recycled`},
		{"D: over --limit", 0, []string{"--limit", "200M"}, take(60, 0), event.RunOver, event.HelpedRefused, `next --limit \d+M or more: it still grew`},
		{"E: over --limit, failed", 0, []string{"--limit", "200M"}, take(60, 3), event.RunFailed, event.HelpedRefused, `command failed, over --limit \(exit 3`},
		{"F: the kernel's kill", 400 * rss.MiB, nil, take(120, 0), event.RunOOM, event.HelpedRefused, `next #SBATCH --mem=|next --limit`},
		{"G: failed near the limit", 400 * rss.MiB, nil, take(71, 3), event.RunFailed, event.HelpedRefused, `command failed, memory at 9\d % of cgroup \(exit 3`},
		{"H: a process inside was killed", 0, []string{"--limit", "500M"}, []string{"sh", "-c", "sleep 1.5; exit 137"}, event.RunKilled, event.HelpedNo, `a process inside was killed, memory fine \(exit 137`},
		{"I: everything is killed", 0, []string{"--limit", "500M"}, take(10000, 0), event.RunUnknown, event.HelpedRefused, ""},
		{"J: a dry run", 0, []string{"--limit", "500M", "--dry-run"}, train("--epochs", "3"), event.RunOver, event.HelpedDryRun, `did  dry run: nothing was done`},
		{"K: a leak in a cgroup", 900 * rss.MiB, nil, train("--epochs", "2", "--leak-worker", "400"), event.RunKept, event.HelpedYes, `workers? recycled`},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			events, metrics := filepath.Join(dir, "events"), t.TempDir()
			args := append([]string{binary, "run", "--events", events, "--record", dir, "--textfile", metrics}, c.options...)
			args = append(append(args, "--"), c.command...)
			if c.group > 0 {
				wardentest.NeedRoot(t, "a memory cgroup takes root")
				g := rsstest.NewGroup(t, c.group)
				args = append([]string{"sh", "-c", `echo $$ >` + g.Dir + `/cgroup.procs; exec "$@"`, "-"}, args...)
			}
			cmd := exec.Command(args[0], args[1:]...)
			cmd.Env = wardentest.Env("XDG_STATE_HOME="+dir, "COLUMNS=80", "LC_ALL=C.UTF-8")
			var stderr wardentest.Text
			cmd.Stderr = &stderr
			wardentest.NoError(t, cmd.Start())
			if c.want == event.RunUnknown {
				stderr.Await(t, "recycle skipped", 1)
				for _, pid := range append(wardentest.Descendants(cmd.Process.Pid), cmd.Process.Pid) {
					wardentest.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
				}
			}
			if err := cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
				t.Fatal(err)
			}

			out, _, err := wardentest.Output(binary, "report", "--json", dir)
			wardentest.NoError(t, err)
			var rep struct {
				Summary json.RawMessage
			}
			wardentest.NoError(t, json.Unmarshal([]byte(out), &rep))
			var got analysis.Brief
			wardentest.NoError(t, json.Unmarshal(rep.Summary, &got))
			if got.Outcome != c.want || got.Helped != c.helped {
				t.Errorf("outcome %s, helped %q, want %s and %q", got.Outcome, got.Helped, c.want, c.helped)
			}
			headline := render.Headline(&got)
			if c.want != event.RunUnknown {
				exit := lastExit(t, events)
				if diff := cmp.Diff(exit.Brief, got.Brief); diff != "" {
					t.Errorf("exit event and report differ:\n%s", diff)
				}
				if p := got.Peak; (p == nil) != (exit.Binding == nil) || p != nil && (p.Used != exit.Binding.Used || p.Limit != exit.Binding.Limit) {
					t.Errorf("peak %+v, in the exit event %+v", p, exit.Binding)
				}
				if n := strings.Count(stderr.String(), headline); n != 1 {
					t.Errorf("%q is %d times on stderr", headline, n)
				}
				if !regexp.MustCompile(c.words).MatchString(stderr.String()) {
					t.Errorf("no %q in the summary", c.words)
				}
				files, err := filepath.Glob(filepath.Join(metrics, "*.prom"))
				wardentest.NoError(t, err)
				counted := fmt.Sprintf(`rsswarden_runs_total\{[^}]*outcome="%s"[^}]*\} 1\n`, c.want)
				if len(files) != 1 || !regexp.MustCompile(counted).MatchString(wardentest.Read(files[0])) {
					t.Errorf("no %s in %v", counted, files)
				}
			}
			text, _, err := wardentest.Output(binary, "report", dir)
			wardentest.NoError(t, err)
			if !strings.HasPrefix(text, render.Glyph(got.Outcome)+" "+headline) {
				t.Errorf("report begins otherwise:\n%s", text)
			}
			if peak := regexp.MustCompile(`[\d.]+ %  \S+ of .*`).FindString(stderr.String()); peak != "" && !strings.Contains(text, strings.TrimSpace(peak)) {
				t.Errorf("the peak %q is not in the report:\n%s", peak, text)
			}

			page := filepath.Join(dir, "page.html")
			_, _, err = wardentest.Output(binary, "report", "--html", page, dir)
			wardentest.NoError(t, err)
			embedded := regexp.MustCompile(`(?s)<script type="application/json" id="report">(.*?)</script>`).FindStringSubmatch(wardentest.Read(page))
			if embedded == nil {
				t.Fatal("the page has no report")
			}
			var ofPage struct{ Summary analysis.Brief }
			wardentest.NoError(t, json.Unmarshal([]byte(embedded[1]), &ofPage))
			if diff := cmp.Diff(got, ofPage.Summary); diff != "" {
				t.Errorf("JSON and page differ:\n%s", diff)
			}
			if t.Failed() {
				t.Log(stderr.String())
			}
		})
	}
}

// lastExit is the exit event of a run.
func lastExit(t *testing.T, events string) (e event.Exit) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(wardentest.Read(events)), "\n")
	wardentest.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &e))
	return e
}
