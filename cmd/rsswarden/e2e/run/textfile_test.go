package run

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/rsswarden/rsswarden/supervisor/metrics/promtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestTextfileNodeExporter: a real node_exporter shows several runs of a node side by
// side, of no job, of one job, of one step, of two attempts of one job, and one that was
// killed and left its file behind.
func TestTextfileNodeExporter(t *testing.T) {
	dir := t.TempDir()
	for d := dir; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		wardentest.NoError(t, os.Chmod(d, 0o755))
	}
	scrape := nodeExporter(t, dir)
	step := func(job, step string, more ...string) []string {
		return append([]string{"SLURM_JOB_ID=" + job, "SLURM_STEP_ID=" + step, "SLURMD_NODENAME=n1", "SLURM_PROCID=0", "TMPDIR=" + t.TempDir()}, more...)
	}
	runs := []*textRun{
		startTextRun(t, dir, nil, nil, "--limit", "1G"),
		startTextRun(t, dir, nil, nil, "--limit", "1G"),
		startTextRun(t, dir, step("46", "0"), nil, "--limit", "1G"),
		startTextRun(t, dir, step("46", "0"), nil, "--limit", "2G"), // of one step, and led apart
		startTextRun(t, dir, step("46", "1"), nil),
		startTextRun(t, dir, step("47", "0", "SLURM_ARRAY_JOB_ID=46", "SLURM_ARRAY_TASK_ID=1"), nil),
	}
	wardentest.Until(t, "all files", func() bool { return len(shownFiles(dir)) == len(runs) })
	killed := startTextRun(t, dir, step("48", "0"), nil)
	wardentest.Until(t, "one more", func() bool { return len(shownFiles(dir)) == len(runs)+1 })
	killWhole(t, killed)
	if n := len(shownFiles(dir)); n != len(runs)+1 {
		t.Errorf("%d files when one run was killed", n)
	}
	check := func(want int, families map[string]*dto.MetricFamily) {
		t.Helper()
		if f := families["node_textfile_scrape_error"]; f == nil || f.Metric[0].Gauge.GetValue() != 0 {
			t.Errorf("scrape error: %v", f)
		}
		for _, name := range []string{"rsswarden_build_info", "rsswarden_ranks", "rsswarden_last_look_timestamp_seconds", "rsswarden_oom_kills_total"} {
			if f := families[name]; f == nil || len(f.Metric) != want {
				t.Errorf("%d runs, and of %s: %v", want, name, f)
			}
		}
	}
	families := scrape()
	check(len(runs)+1, families)
	seen := map[string]int{}
	for _, m := range families["rsswarden_build_info"].Metric {
		var at []string
		for _, l := range m.Label {
			if l.GetName() == "jobid" || l.GetName() == "step" {
				at = append(at, l.GetValue())
			}
		}
		seen[strings.Join(at, ".")]++
	}
	if got, want := fmt.Sprint(seen), "map[:2 46.0:2 46.1:1 47.0:1 48.0:1]"; got != want {
		t.Errorf("shown are %s, want %s", got, want)
	}
	limits := families["rsswarden_job_memory_limit_bytes"]
	if !slices.ContainsFunc(limits.Metric, func(m *dto.Metric) bool { return m.Gauge.GetValue() == 2<<30 }) {
		t.Errorf("no limit of 2 GiB: %v", limits)
	}
	// The next attempt of the job that was killed comes to this node.
	runs = append(runs, startTextRun(t, dir, step("48", "0", "SLURM_RESTART_COUNT=1"), nil))
	wardentest.Until(t, "what was left is removed", func() bool {
		f := scrape()["rsswarden_build_info"]
		return len(shownFiles(dir)) == len(runs) && f != nil && len(f.Metric) == len(runs)
	})
	check(len(runs), scrape())
	for _, r := range runs {
		r.EndsWith(0)
	}
	ended := 0.0
	for _, m := range scrape()["rsswarden_runs_total"].Metric {
		ended += m.Counter.GetValue()
	}
	if ended != float64(len(runs)) {
		t.Errorf("%v runs have ended, want %d", ended, len(runs))
	}
	if left := promFiles(t, dir); len(left) > 0 {
		t.Errorf("left at the end: %q", left)
	}
}

// TestTextfileFollowsTheLead: of several ranks who leads tells, and what the one before
// told goes, whether its watcher was killed or its command has ended.
func TestTextfileFollowsTheLead(t *testing.T) {
	dir, tmp := t.TempDir(), t.TempDir()
	var runs [2]*textRun
	file := func(i int) string {
		names, _ := filepath.Glob(fmt.Sprintf("%s/rsswarden_46_0_n1_%d_*.prom", dir, runs[i].Cmd.Process.Pid))
		if len(names) != 1 || len(promFiles(t, dir)) != 1 {
			return ""
		}
		b, _ := os.ReadFile(names[0])
		return string(b)
	}
	ranks := regexp.MustCompile(`(?m)^rsswarden_ranks\{jobid="46",step="0",node="n1",run="[0-9a-z]{8}"\} ([0-9]+)$`)
	tells := func(i int, of string) {
		t.Helper()
		wardentest.Until(t, fmt.Sprintf("rank %d alone tells, of %s", i, of), func() bool {
			m := ranks.FindStringSubmatch(file(i))
			return m != nil && m[1] == of
		})
	}
	for i := range runs {
		runs[i] = startTextRun(t, dir, []string{
			"SLURM_JOB_ID=46", "SLURM_STEP_ID=0", "SLURMD_NODENAME=n1", "SLURM_STEP_NUM_TASKS=2", fmt.Sprintf("SLURM_PROCID=%d", i), "TMPDIR=" + tmp,
		}, nil, "--limit", "1G")
		if i == 0 {
			tells(0, "1")
		}
	}
	wardentest.Until(t, "rank 1 stands by", func() bool { return strings.Contains(wardentest.Read(runs[1].events), `"what":"follows"`) })
	out, err := exec.Command("pgrep", "-P", fmt.Sprint(runs[0].Cmd.Process.Pid), "rss-watcher").Output()
	var watcher int
	if _, scanErr := fmt.Sscan(string(out), &watcher); err != nil || scanErr != nil {
		t.Fatalf("%v, %v: %s", err, scanErr, out)
	}
	wardentest.NoError(t, syscall.Kill(watcher, syscall.SIGKILL))
	tells(1, "2")
	runs[1].EndsWith(0)
	tells(0, "1")
	runs[0].EndsWith(0)
	if left := promFiles(t, dir); len(left) > 0 {
		t.Errorf("left at the end: %q", left)
	}
}

// TestTextfileAttach: an attach tells for as long as it lasts. It knows of no ranks.
func TestTextfileAttach(t *testing.T) {
	dir := t.TempDir()
	w := wardentest.StartAttach(t, nil, "--record", "none", "--textfile", dir, "--limit", "200M", wardentest.StartPuppet(t, os.Geteuid()).PID())
	wardentest.Until(t, "the file", func() bool { return len(shownFiles(dir)) == 1 })
	b, err := os.ReadFile(shownFiles(dir)[0])
	if err != nil || !strings.Contains(string(b), `limit="user"} 209715200`) || strings.Contains(string(b), "rsswarden_ranks") {
		t.Errorf("%v\n%s", err, b)
	}
	wardentest.NoError(t, w.Cmd.Process.Signal(syscall.SIGTERM))
	w.Ended(-1)
	if left := promFiles(t, dir); len(left) > 0 {
		t.Errorf("left at the end: %q", left)
	}
}

// TestTextfileNotYet: where no file can be kept at the start, the command runs, one line
// says why and what to do, and the file is there once it can be.
func TestTextfileNotYet(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	wardentest.NoError(t, os.WriteFile(file, nil, 0o644))
	for at, want := range map[string]string{
		filepath.Join(dir, "none"): "no such file or directory", file: "not a directory", "/proc": "no such file or directory", "/sys": "permission denied",
	} {
		for _, by := range []string{"--textfile", "RSSWARDEN_TEXTFILE"} {
			cmd := exec.Command(binary, "run", "--", "echo", "started")
			if cmd.Env = wardentest.Env(); by == "--textfile" {
				cmd.Args = slices.Insert(cmd.Args, 2, by, at)
			} else {
				cmd.Env = append(cmd.Env, by+"="+at)
			}
			out, err := cmd.CombinedOutput()
			says := fmt.Sprintf("%s %q: no file can be written there: %s; it is tried again; ", by, at, want)
			if err != nil || !strings.Contains(string(out), "started\n") || strings.Count(string(out), says) != 1 || strings.Contains(string(out), "cannot write to") {
				t.Errorf("%s %s: %v\n%s", by, at, err, out)
			}
		}
	}
	late := filepath.Join(dir, "late")
	r := startTextRun(t, late, nil, nil, "--limit", "1G", "--interval", "100ms", "--at", "none", "--at", "5%:warn")
	wardentest.Until(t, "told at the start", func() bool { return strings.Contains(r.Stderr.String(), "it is tried again") })
	wardentest.NoError(t, os.Mkdir(late, 0o755))
	if _, err := r.In.Write([]byte("++++")); err != nil { // at a decision it is tried at once
		t.Fatal(err)
	}
	wardentest.Until(t, "the file", func() bool { return len(shownFiles(late)) == 1 })
	r.EndsWith(0)
}

// nodeExporter starts a real node_exporter on a directory, and returns what scrapes it.
func nodeExporter(t *testing.T, dir string) func() map[string]*dto.MetricFamily {
	t.Helper()
	s := promtest.NodeExporter(t, promtest.FreeAddr(t), dir)
	return func() map[string]*dto.MetricFamily {
		t.Helper()
		text, err := s.Text("/metrics")
		wardentest.NoError(t, err)
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(text))
		wardentest.NoError(t, err)
		return families
	}
}

// textRun is a run with --textfile that goes on until its stdin ends.
type textRun struct {
	*wardentest.Talk
	events string
}

func startTextRun(t *testing.T, dir string, env []string, before []string, options ...string) *textRun {
	t.Helper()
	events := filepath.Join(t.TempDir(), "events")
	args := slices.Concat(before, []string{binary, "run", "--record", "none", "--events", events, "--textfile", dir}, options)
	// It takes 16 MiB at each byte that it reads.
	const grows = `import mmap, sys
held = []
while sys.stdin.buffer.raw.read(1):
    held.append(mmap.mmap(-1, 16 << 20))
    held[-1].write(bytes(16 << 20))`
	cmd := exec.Command(args[0], append(args[1:], "--", python, "-c", grows)...)
	cmd.Env = wardentest.Env(env...)
	return &textRun{wardentest.StartTalk(t, cmd), events}
}

// shownFiles are the files that node_exporter reads: others are being written.
func shownFiles(dir string) []string {
	names, _ := filepath.Glob(dir + "/*.prom")
	return slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(filepath.Base(name), "rsswarden_runs_") })
}

// promFiles is all that there is in a directory, but for the counts of what has ended.
func promFiles(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	wardentest.NoError(t, err)
	var names []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "rsswarden_runs_") {
			names = append(names, e.Name())
		}
	}
	return names
}

// killWhole ends a run as SIGKILL to a whole job does: no process of it can tidy up.
func killWhole(t *testing.T, r *textRun) {
	t.Helper()
	holder := r.Cmd.Process.Pid
	wardentest.NoError(t, syscall.Kill(holder, syscall.SIGSTOP))
	out, err := exec.Command("ps", "-o", "pid=", "--ppid", fmt.Sprint(holder)).Output()
	wardentest.NoError(t, err)
	for _, word := range append(strings.Fields(string(out)), fmt.Sprint(holder)) {
		var pid int
		if _, err := fmt.Sscan(word, &pid); err != nil {
			t.Fatal(err)
		}
		wardentest.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	_ = r.Cmd.Wait()
}
