// Package torch runs real PyTorch trainings, without Slurm.
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

// binary is the program under test.
var binary string

const python = wardentest.Python

func TestMain(m *testing.M) {
	os.Exit(wardentest.Main(m, map[string]*string{wardentest.Rsswarden: &binary}))
}

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
		{"J: a dry run", 0, []string{"--limit", "500M", "--dry-run"}, train("--epochs", "3"), event.RunOver, event.HelpedDryRun, `did  dry run, nothing done`},
		{"K: a leak in a cgroup", 900 * rss.MiB, nil, train("--epochs", "2", "--leak-worker", "400"), event.RunKept, event.HelpedYes, `workers? recycled`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if strings.ContainsAny(c.name[:1], "CGIJ") {
				wardentest.Long(t)
			}
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

// TestBrokenHookNextRung: the hook of a trainer breaks, and no worker of it can be recycled
// any more. Why is said, the next rung is taken, and the training's data and end are its
// own.
func TestBrokenHookNextRung(t *testing.T) {
	t.Parallel()
	wardentest.NeedTorch(t)
	data := filepath.Join(t.TempDir(), "train.lmdb")
	args := []string{python, "../../../../examples/train/train.py", "--data", data, "--records", "3000", "--record-bytes", "20000",
		"--workers", "2", "--persistent", "--epochs", "2", "--leak-worker", "80", "--step-ms", "6"}
	out, errs, err := wardentest.Output(args...)
	want := wardentest.Checksum(out)
	if err != nil || want == "" {
		t.Fatalf("bare: %v\n%s", err, errs)
	}
	for name, c := range map[string]struct {
		file, text string // what is added to which file of the hook
		instead    bool   // … or written over it
		says       []string
		whole      bool // it is not broken
	}{
		"whole":        {file: "recycle.py", whole: true, says: []string{": recycled worker "}},
		"raises":       {file: "recycle.py", text: raisingRecycler, says: []string{"switched itself off; training goes on: RuntimeError: broken", "recycle skipped: no DataLoader or pool workers found"}},
		"is deaf":      {file: "iterators.py", text: "\ndef _poll(iterator): pass\n"}, // its answer is waited for until long after
		"is no Python": {file: "patch.py", text: "def broken(:\n", instead: true, says: []string{"recycle skipped: no DataLoader or pool workers found"}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.text != raisingRecycler {
				wardentest.Long(t)
			}
			t.Parallel()
			dir := t.TempDir()
			list, fired := filepath.Join(dir, "events"), filepath.Join(dir, "fired")
			redirect := ">>"
			if c.instead {
				redirect = ">"
			}
			// As a disk does that gives other bytes than it was given: after they were checked.
			spoil := fmt.Sprintf(`printf %%s "$SPOIL" %s "${PYTHONPATH%%%%:*}/_rsswarden/%s" && exec "$@"`, redirect, c.file)
			run := []string{"run", "--events", list, "--limit", "1000M", "--accounting", "noshared", "--interval", "100ms",
				"--at", "none", "--at", "user 50%:recycle", "--at", "user 60%:exec=touch " + fired, "--", "sh", "-c", spoil, "sh"}
			cmd := exec.Command(binary, append(run, args...)...)
			cmd.Env = wardentest.Env("XDG_CACHE_HOME="+dir, "SPOIL="+c.text)
			got, said, err := wardentest.Run(cmd)
			if err != nil {
				t.Errorf("%v\n%s", err, said)
			}
			if sum := wardentest.Checksum(got); sum != want {
				t.Errorf("checksum %s, bare %s", sum, want)
			}
			if _, err := os.Stat(fired); (err == nil) == c.whole {
				t.Errorf("the next rung: %v\n%s", err, said)
			}
			wardentest.Says(t, said, c.says...)
			for _, o := range wardentest.Events(t, list)[event.NameOutcome] {
				if o["detail"] == "swap" && o["ok"] == true && !c.whole {
					t.Errorf("a worker was recycled: %v", o)
				}
			}
		})
	}
}

// raisingRecycler is a bug in what a loader is recycled by.
const raisingRecycler = `
def _broken(*_, **__): raise RuntimeError("broken")
Recycler.__init__ = _broken
`

// trained is what a small training under rsswarden came to.
type trained struct {
	sum, stderr string
	outcomes    map[event.Action][]map[string]any // that were OK
	limit       map[string]any                    // nearest to its limit
	exit        map[string]any
}

// trainUnder runs a training of 80 MB with two workers under rsswarden.
func trainUnder(t *testing.T, data string, options, rules []string) trained {
	t.Helper()
	list := filepath.Join(t.TempDir(), "events")
	args := append([]string{binary, "run", "--events", list, "--accounting", "noshared"}, rules...)
	args = append(args, "--", python, "../../../../examples/train/train.py", "--data", data, "--records", "4000", "--record-bytes", "20000",
		"--workers", "2", "--persistent", "--epochs", "2")
	out, errs, err := wardentest.Output(append(args, options...)...)
	if err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	r := trained{sum: wardentest.Checksum(out), stderr: errs, outcomes: map[event.Action][]map[string]any{}}
	all := wardentest.Events(t, list)
	actions := map[any]event.Action{}
	for _, d := range all[event.NameDecision] {
		actions[d["id"]] = event.Action(d["action"].(string))
	}
	for _, o := range all[event.NameOutcome] {
		if a := actions[o["decision"]]; o["ok"] == true {
			r.outcomes[a] = append(r.outcomes[a], o)
		}
	}
	r.exit = all[event.NameExit][0]
	r.limit, _ = r.exit["binding"].(map[string]any)
	return r
}

// TestRungsOnATraining: the rungs that go through the hook, on a real PyTorch
// training, whose checksum they leave as it is.
func TestRungsOnATraining(t *testing.T) {
	wardentest.NeedTorch(t)
	data := filepath.Join(t.TempDir(), "train.lmdb")
	want := trainUnder(t, data, nil, []string{"--at", "none"})

	// Cycles of 2 MiB a batch with Python's collector off: 500 MiB in all.
	t.Run("gc", func(t *testing.T) {
		garbage := []string{"--garbage", "2048"}
		// It lasts little more than a second: looks each second miss its peak.
		bare := trainUnder(t, data, garbage, []string{"--limit", "4G", "--at", "none", "--interval", "100ms"})
		run := trainUnder(t, data, garbage, []string{"--limit", "600M", "--at", "none", "--at", "80%:gc"})
		peak := func(r trained) rss.Bytes {
			return rss.Bytes(r.exit["peaks"].(map[string]any)["noshared_bytes"].(float64))
		}
		t.Logf("bare peak %v, with gc %v\n%s", peak(bare), peak(run), wardentest.Said(run.stderr))
		if peak(bare) < 600*rss.MiB {
			t.Errorf("bare peak %v: the test proves nothing", peak(bare))
		}
		if peak(run) >= 600*rss.MiB || run.sum != want.sum || len(run.outcomes[event.ActionGC]) == 0 {
			t.Errorf("peak %v, checksum %s, want %s; %d times gc\n%s", peak(run), run.sum, want.sum, len(run.outcomes[event.ActionGC]), run.stderr)
		}
		for _, o := range run.outcomes[event.ActionGC] {
			if o["freed_bytes"].(float64) < float64(16*rss.MiB) || o["paused_s"] == nil {
				t.Errorf("outcome %v", o)
			}
		}
	})

	// A fresh worker counts what its trainer has: two of them fit into the room
	// of the one run and not of the other.
	for mode, rules := range map[event.Mode][]string{
		event.Swap:  {"--limit", "4G", "--at", "none", "--at", "18%:recycle"},
		event.Drain: {"--limit", "800M", "--at", "none", "--at", "85%:recycle"},
	} {
		t.Run(string(mode), func(t *testing.T) {
			if mode == event.Drain {
				wardentest.Long(t)
			}
			run := trainUnder(t, data, []string{"--leak-worker", "150"}, rules)
			t.Logf("%v\n%s", run.outcomes[event.ActionRecycle], wardentest.Said(run.stderr))
			if run.sum != want.sum || len(run.outcomes[event.ActionRecycle]) == 0 {
				t.Errorf("checksum %s, want %s; %d recycles\n%s", run.sum, want.sum, len(run.outcomes[event.ActionRecycle]), run.stderr)
			}
			for _, o := range run.outcomes[event.ActionRecycle] {
				wardentest.Has(t, o, "detail", string(mode))
			}
		})
	}
}
