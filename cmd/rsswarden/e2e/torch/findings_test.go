package torch

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// grower is a program whose memory grows for one reason, or an innocent one: a
// script of testdata/growers.
type grower struct {
	name    string
	script  string
	arg     string
	options []string      // of rsswarden run
	want    event.Finding // empty for an innocent one
	least   event.Confidence
	role    string
	// evidence is what the evidence must match, advice what the advice must tell.
	evidence, advice string
	// warned says that the log is to name the cause.
	warned bool
	// hook says that without the hook nothing can be told.
	hook bool
}

// rungs are warnings that come one after the other.
var rungs = func() (options []string) {
	for n := 50; n < 80; n += 2 {
		options = append(options, "--at", fmt.Sprintf("%d%%:warn", n))
	}
	return append(options, "--at", "82%:warn", "--at", "84%:warn")
}()

func far(size string) []string { return []string{"--limit", size} }

// near is a limit that the script comes near to, with more warnings than by
// default.
func near(size string) []string { return append(far(size), rungs...) }

// growers are told in the order in which they are begun: the longest first.
var growers = []grower{
	{name: "leak in trainer", script: "leaktrainer.py", options: far("4G"), want: event.FindingTrainerLeak, least: event.Likely, role: "trainer",
		evidence: `RssAnon of 1 trainer grew by [\d.]+ MiB a minute for \d+ s, by [\d.]+ MiB in all`, advice: "loss.detach()"},
	{name: "leak in worker", script: "leakworker.py", options: near("900M"), want: event.FindingWorkerLeak, least: event.Likely, role: "worker",
		evidence: `RssAnon of 2 workers grew by [\d.]+ MiB a minute.*Private_Dirty grew with it`, advice: "lru_cache", warned: true},
	{name: "saw-tooth", script: "sawtooth.py", options: far("4G")},
	{name: "ramp at the start", script: "rampup.py", options: far("4G")},
	{name: "pinned memory, CUDA", script: "pinned.py", arg: "cuda", options: far("4G"), want: event.FindingPinned, least: event.Likely, role: "trainer",
		evidence: `RssShmem of 1 trainer grew by [\d.]+ MiB.*without a file`, advice: "pin_memory=False"},
	{name: "steady", script: "steady.py", options: far("4G")},
	{name: "mapped file", script: "mapped.py", options: near("1300M"), want: event.FindingMapped, least: event.Certain, role: "worker",
		evidence: `3 workers .*data\.lmdb, mapped shared.*\(smaps\)`, advice: "num_workers below the 3", warned: true},
	{name: "copy-on-write", script: "cow.py", options: far("2G"), want: event.FindingCopyOnWrite, least: event.Likely, role: "worker",
		evidence: `Private_Dirty from [\d.]+ MiB to [\d.]+ MiB and Shared_Dirty from .*no summed RSS`, advice: "numpy array"},
	{name: "fragmentation", script: "fragmentation.py", options: append(far("1500M"), "--at", "none", "--at", "40%:gc", "--at", "50%:gc", "--at", "60%:gc"),
		want: event.FindingFragmentation, least: event.Certain, role: "trainer",
		evidence: `gc.collect and malloc_trim\(3\) gave back [\d.]+ MiB`, advice: "MALLOC_ARENA_MAX=2", hook: true},
	{name: "arrow file", script: "arrow.py", options: far("2G"), want: event.FindingArrow, least: event.Certain, role: "worker",
		evidence: `RssFile of 3 workers grew by [\d.]+ MiB.*train-00000\.arrow, mapped privately`, advice: "recycle"},
	{name: "pinned memory, io_uring", script: "pinned.py", arg: "uring", options: far("2G"), want: event.FindingPinned, least: event.Certain, role: "trainer",
		evidence: `VmPin of 1 trainer grew by [\d.]+ MiB`, advice: "pin_memory=False"},
	{name: "prefetch queue", script: "prefetch.py", options: far("4G"), want: event.FindingPrefetch, least: event.Certain, role: "worker",
		evidence: `\d+ MiB wait in \d+ segments torch_\*`, advice: "prefetch_factor"},
	{name: "shm managers", script: "managers.py", options: far("4G"), want: event.FindingShmManagers, least: event.Certain, role: "shm manager",
		evidence: `3 processes of torch_shm_manager have an RSS of [\d.]+ MiB`, advice: `set_sharing_strategy("file_descriptor")`},
	{name: "copies of data", script: "copies.py", options: far("2G"), want: event.FindingCopies, least: event.Certain, role: "worker",
		evidence: `each of the 2 workers holds its own copy of the data set: 1[2-9]\d MiB.* wrote 120 MiB to start each`, advice: `"fork" in place of "forkserver"`, hook: true},
	{name: "tensors by spawn", script: "spawn.py", options: far("4G"), want: event.FindingSpawn, least: event.Likely, role: "trainer",
		evidence: `(mappings|descriptors) of process \d+ went from \d+ to \d+`, advice: `set_start_method("fork")`},
}

// growth is what became of one of them.
type growth struct {
	err    error
	stderr string
	events string           // the file of --events
	told   []map[string]any // the diagnosis events, in order
	after  float64          // seconds until the first
	report string
}

// grow runs one under rsswarden, until what is to be told of it was told: see
// testdata/growers/lasting.py.
func (g *grower) grow(dir string, options ...string) (r growth) {
	r.events = filepath.Join(dir, "events")
	records := filepath.Join(dir, "records")
	args := append([]string{"run", "--accounting", "rss", "--events", r.events, "--record", records}, g.options...)
	args = append(append(args, options...), "--")
	if g.want != "" {
		enough := filepath.Join(dir, "enough")
		args = append(args, "env", "ENOUGH="+enough)
		ended := make(chan struct{})
		defer close(ended)
		go func() {
			for !g.toldIn(r.events) {
				select {
				case <-ended:
					return
				case <-time.After(time.Second):
				}
			}
			_ = os.WriteFile(enough, nil, 0o600) // without it the run only takes longer
		}()
	}
	args = append(args, python, "-W", "ignore", filepath.Join("testdata/growers", g.script), dir, g.arg)
	if _, r.stderr, r.err = wardentest.Output(append([]string{binary}, args...)...); r.err != nil {
		return r
	}
	r.report, _, r.err = wardentest.Output(binary, "report", "--no-slurm", "--full", records)
	return r
}

// right says whether an event tells of what grows.
func (g *grower) right(e map[string]any) bool {
	return e["finding"] == string(g.want) && e["role"] == g.role && (e["confidence"] == string(event.Certain) || e["confidence"] == string(g.least))
}

// toldIn says whether a file of events tells all that is wanted: the finding with its
// evidence, and, where it is to be in a warning, a warning after it.
func (g *grower) toldIn(path string) bool {
	text, _ := os.ReadFile(path)
	told := false
	for line := range strings.Lines(string(text)) {
		var e map[string]any
		if json.Unmarshal([]byte(line), &e) != nil {
			continue
		}
		switch event.Name(fmt.Sprint(e["event"])) {
		case event.NameDiagnosis:
			told = told || g.right(e) && regexp.MustCompile(g.evidence).MatchString(fmt.Sprint(e["evidence"]))
		case event.NameDecision:
			if told && g.warned && e["action"] == string(event.ActionWarn) {
				return true
			}
		}
	}
	return told && !g.warned
}

// seconds is the time between two events.
func seconds(a, b map[string]any) float64 {
	from, _ := time.Parse(time.RFC3339Nano, fmt.Sprint(a["time"]))
	to, _ := time.Parse(time.RFC3339Nano, fmt.Sprint(b["time"]))
	return to.Sub(from).Seconds()
}

// wrong says what of all that was told is not right, nil where nothing is.
func (g *grower) wrong(r *growth, hook bool) (all []string) {
	no := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if r.err != nil {
		return []string{r.err.Error()}
	}
	_, grown, _ := strings.Cut(r.report, grownTitle+"\n")
	grown = strings.Join(strings.Fields(grown), " ")
	if g.want == "" || g.hook && !hook {
		for _, e := range r.told {
			no("told of %v, %v: %v", e["finding"], e["confidence"], e["evidence"])
		}
		if strings.Contains(r.stderr, " growth: ") || grown != "" {
			no("the log or the report has a cause of growth")
		}
		return all
	}
	if !slices.ContainsFunc(r.told, g.right) {
		no("no event of it, %s at least", g.least)
	}
	for _, e := range r.told {
		if e["finding"] != string(g.want) {
			no("told of %v, %v: %v", e["finding"], e["confidence"], e["evidence"])
		}
	}
	switch {
	case !strings.HasPrefix(grown, string(g.want)+", "):
		no("it is not the first cause in the report\n%s", r.report)
	case !regexp.MustCompile(g.evidence).MatchString(grown):
		no("the evidence is not `%s`: %s", g.evidence, grown)
	}
	if len(r.told) > 0 && !strings.Contains(fmt.Sprint(r.told[len(r.told)-1]["advice"]), g.advice) {
		no("the advice is %v", r.told[len(r.told)-1]["advice"])
	}
	if g.warned && !regexp.MustCompile(`growth: (likely )?`+string(g.want)).MatchString(r.stderr) {
		no("the log does not name the cause")
	}
	return all
}

// grownTitle stands above the findings of a report.
const grownTitle = "what grew, and why"

// TestDiagnosis runs each program once under rsswarden. They sleep most of the
// time: what bounds how many run at once is memory, up to 2 GiB for the largest.
func TestDiagnosis(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute and a half")
	}
	diagnose(t, 1)
}

// diagnose runs each program several times.
func diagnose(t *testing.T, times int, options ...string) {
	wardentest.NeedTorch(t)
	hook := !slices.Contains(options, "off")
	const atOnce = 4
	places := make(chan struct{}, atOnce)
	results := make([][]chan growth, len(growers))
	for i := range growers {
		for range times {
			dir, done := t.TempDir(), make(chan growth, 1)
			results[i] = append(results[i], done)
			places <- struct{}{}
			go func() {
				defer func() { <-places }()
				done <- growers[i].grow(dir, options...)
			}()
		}
	}
	for i := range growers {
		g := &growers[i]
		t.Run(g.name, func(t *testing.T) {
			right, told := 0, []string{}
			for _, done := range results[i] {
				r := <-done
				if strings.Contains(r.stderr, "io_uring: errno") {
					t.Skip("the kernel has no io_uring for us")
				}
				if list := wardentest.Events(t, r.events); len(list[event.NameDiagnosis]) > 0 {
					r.told = list[event.NameDiagnosis]
					r.after = seconds(list[event.NameStart][0], r.told[0])
				}
				all := g.wrong(&r, hook)
				if len(all) == 0 {
					right++
				} else {
					t.Errorf("%s\n%s", strings.Join(all, "\n"), wardentest.Said(r.stderr))
				}
				if n := len(r.told); n > 0 {
					told = append(told, fmt.Sprintf("%v, %v, after %.0f s", r.told[n-1]["finding"], r.told[n-1]["confidence"], r.after))
				} else {
					told = append(told, "nothing")
				}
			}
			t.Logf("%d of %d right: %s", right, times, strings.Join(told, "; "))
		})
	}
}

// TestCopiesByDefault runs the example over an array in memory on the newest Python that
// Debian has: by its default the four workers get a copy each, and the finding says so,
// live and in the report. With what it advises there is nothing to find, the tree's PSS is
// less by the copies, and the training is the same.
func TestCopiesByDefault(t *testing.T) {
	sid := debian.Need(t, debian.Sid)
	t.Setenv("PYTHONDONTWRITEBYTECODE", "1")
	const data = 1000 * 120_000
	dir := t.TempDir()
	sum := regexp.MustCompile(`(?m)^checksum \S+$`)
	sums, peaks := map[string]string{}, map[string]float64{} // of PSS
	for _, start := range []string{"default", "fork"} {
		log, records := filepath.Join(dir, start+".events"), filepath.Join(dir, start+".records")
		stdout, stderr, err := wardentest.Output(sid.Argv(binary, "run", "--limit", "4G", "--accounting", "pss", "--events", log, "--record", records, "--",
			"python3", "-W", "ignore", "../../../../examples/train/train.py", "--data", filepath.Join(dir, "data.lmdb"), "--records", "1000",
			"--workers", "4", "--persistent", "--epochs", "8", "--step-ms", "40", "--in-memory", "--start", start)...)
		if err != nil {
			t.Fatalf("%s: %v\n%s%s", start, err, stdout, stderr)
		}
		sums[start] = sum.FindString(stdout)
		all := wardentest.Events(t, log)
		peaks[start], _ = all[event.NameExit][0]["peaks"].(map[string]any)["pss_bytes"].(float64)
		found := slices.DeleteFunc(all[event.NameDiagnosis], func(e map[string]any) bool { return e["finding"] != string(event.FindingCopies) })
		report, _, err := wardentest.Output(binary, "report", "--no-slurm", "--full", records)
		wardentest.NoError(t, err)
		if start == "fork" {
			if len(found) > 0 || strings.Contains(report, string(event.FindingCopies)) {
				t.Errorf("a finding for forked workers: %v\n%s", found, report)
			}
			continue
		}
		if len(found) == 0 {
			t.Fatalf("no finding\n%s", wardentest.Said(stderr))
		}
		last := found[len(found)-1]
		bytes, _ := last["bytes"].(float64)
		if text := fmt.Sprint(last["evidence"]); !regexp.MustCompile(`each of the 4 workers holds .* MiB .*Python 3\.\d+ starts them by forkserver`).MatchString(text) ||
			last["confidence"] != string(event.Certain) || bytes < 4*data || bytes > 4*(data+64<<20) {
			t.Errorf("found %v", last)
		}
		if text := fmt.Sprint(last["advice"]); !strings.Contains(text, `multiprocessing_context="fork" shares it`) {
			t.Errorf("advice %s", text)
		}
		if !strings.Contains(report, "copies of data") || !strings.Contains(report, "forkserver") {
			t.Errorf("the report has no finding:\n%s", report)
		}
	}
	t.Logf("peaks of PSS %v", peaks)
	if peaks["default"]-peaks["fork"] < 3*data { // of 4 copies, as PSS is read now and then
		t.Errorf("with fork the peak falls from %.0f to %.0f bytes, with 4 copies of %d found", peaks["default"], peaks["fork"], data)
	}
	if sums["default"] == "" || sums["default"] != sums["fork"] {
		t.Errorf("%v", sums)
	}
}

// nonmemoryRun is what a training that runs out of something else than memory went
// through.
type nonmemoryRun struct {
	code   int
	failed time.Time // when PyTorch raised its error
	ok     bool      // it did not
	error  string
	events []map[string]any
	stderr string
}

// runSides runs a script of testdata/sides under rsswarden; before are words of a
// command line that rsswarden is started by, @events among args is the file of events.
func runSides(t *testing.T, before, options []string, script string, args ...string) nonmemoryRun {
	t.Helper()
	wardentest.NeedTorch(t)
	dir := t.TempDir()
	list, file := filepath.Join(dir, "events"), filepath.Join(dir, "result")
	line := append(slices.Clone(before), binary, "run", "--record", "none", "--events", list)
	line = append(append(line, options...), "--", python, filepath.Join("testdata", "sides", script))
	for _, arg := range append(args, file) {
		line = append(line, strings.ReplaceAll(arg, "@events", list))
	}
	cmd := exec.Command(line[0], line[1:]...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	r := nonmemoryRun{code: cmd.ProcessState.ExitCode(), stderr: stderr.String()}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v\n%s", err, r.stderr)
	}
	var result struct {
		OK    bool
		Time  float64
		Error string
	}
	wardentest.NoError(t, json.Unmarshal(b, &result))
	r.ok, r.error = result.OK, result.Error
	r.failed = time.UnixMicro(int64(result.Time * 1e6))
	r.events = wardentest.ReadLog(t, list)
	return r
}

// first returns when an event that fits came first, zero for never.
func (r *nonmemoryRun) first(fits func(e map[string]any) bool) time.Time {
	for _, e := range r.events {
		if fits(e) {
			at, _ := time.Parse(time.RFC3339Nano, fmt.Sprint(e["time"]))
			return at
		}
	}
	return time.Time{}
}

// warned is when the rule on a limit warned, told when the hook said what was
// about to be sent.
func (r *nonmemoryRun) warned(l event.LimitName) time.Time {
	return r.first(func(e map[string]any) bool {
		return e["event"] == string(event.NameDecision) && e["limit"] == string(l) && e["action"] == "warn"
	})
}

func (r *nonmemoryRun) told() time.Time {
	return r.first(func(e map[string]any) bool { return e["what"] == string(event.LoaderPickling) })
}

// exhausted checks that a run failed, and that its last words name the cause and
// the cure.
func (r *nonmemoryRun) exhausted(t *testing.T, words ...string) {
	t.Helper()
	if r.ok || r.code != 1 {
		t.Fatalf("it ended with %d: %s\n%s", r.code, r.error, r.stderr)
	}
	last := r.events[len(r.events)-1]
	wardentest.Has(t, last, "outcome", string(event.RunExhausted))
	_, summary, _ := strings.Cut(r.stderr, "✖ ran out of ")
	wardentest.Says(t, summary, words...)
}

// before checks that a warning came, and came before the failure.
func (r *nonmemoryRun) before(t *testing.T, what string, at time.Time) {
	t.Helper()
	switch {
	case at.IsZero():
		t.Errorf("%s did not warn: %s\n%s", what, r.error, r.stderr)
	case at.After(r.failed):
		t.Errorf("%s warned %v after it had failed", what, at.Sub(r.failed))
	default:
		t.Logf("%s warned %.1f s before", what, r.failed.Sub(at).Seconds())
	}
}

// TestSmallTensors is what users report: a training in a process of its own, which
// fails when its loader starts, in each way of starting and in each of sharing. All pairs
// of them, and that the counts keep up with it when they are alone, are for endurance.
func TestSmallTensors(t *testing.T) { t.Parallel(); smallTensors(t, 1) }

func smallTensors(t *testing.T, times int) {
	wardentest.NeedTorch(t)
	for _, method := range []string{"spawn", "forkserver"} {
		for range times {
			run := func(name string, test func(t *testing.T)) {
				if times > 1 || (method == "spawn") != (name == "file_system without the hook") {
					t.Run(method+"/"+name, test)
				}
			}
			run("file_system", func(t *testing.T) {
				wardentest.Long(t)
				t.Parallel()
				r := runSides(t, nil, nil, "tensors.py", method, "file_system", "80000")
				r.before(t, "the hook", r.told())
				r.before(t, "the count", r.warned(event.LimitMaps))
				r.exhausted(t, "memory mappings", `set_start_method("fork")`)
			})
			run("file_system without the hook", func(t *testing.T) {
				wardentest.Long(t)
				t.Parallel()
				args := []string{method, "file_system", "80000"}
				if times == 1 {
					args = append(args, "@events")
				}
				r := runSides(t, nil, []string{"--loader", "off"}, "tensors.py", args...)
				r.before(t, "the count", r.warned(event.LimitMaps))
				r.exhausted(t, "memory mappings", `set_start_method("fork")`)
			})
			run("file_descriptor", func(t *testing.T) {
				t.Parallel()
				r := runSides(t, nil, nil, "tensors.py", method, "file_descriptor", "80000")
				r.before(t, "the hook", r.told())
				r.exhausted(t, `set_start_method("fork")`)
			})
		}
	}
}

// TestSmallTensorsCured: with what is advised the same script passes.
func TestSmallTensorsCured(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"file_system", "file_descriptor"} {
		t.Run("fork/"+strategy, func(t *testing.T) {
			if strategy == "file_system" {
				wardentest.Long(t)
			}
			t.Parallel()
			r := runSides(t, nil, nil, "tensors.py", "fork", strategy, "80000")
			if !r.ok || r.code != 0 || !r.told().IsZero() || !r.warned(event.LimitMaps).IsZero() {
				t.Errorf("it ended with %d: %s\n%s", r.code, r.error, r.stderr)
			}
		})
	}
	t.Run("spawn/file_descriptor with --nofile", func(t *testing.T) {
		t.Parallel()
		var l unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil || l.Max < 6000 {
			t.Skipf("the hard RLIMIT_NOFILE is %d: %v", l.Max, err)
		}
		few := []string{"prlimit", "--nofile=1024:"}
		bare := runSides(t, few, nil, "tensors.py", "spawn", "file_descriptor", "4000")
		bare.before(t, "the hook", bare.told())
		bare.exhausted(t, "raise ulimit -n")
		cured := runSides(t, few, []string{"--nofile", "65536"}, "tensors.py", "spawn", "file_descriptor", "4000")
		if !cured.ok || cured.code != 0 {
			t.Fatalf("it ended with %d: %s\n%s", cured.code, cured.error, cured.stderr)
		}
		at := cured.first(func(e map[string]any) bool {
			return e["event"] == string(event.NameCure) && e["remedy"] == string(event.RemedyNoFile) && e["ok"] == true && e["before"] == 1024.0
		})
		if at.IsZero() || !strings.Contains(cured.stderr, "1,024 before") {
			t.Errorf("no event of the cure\n%s", cured.stderr)
		}
	})
}

// TestFullShm: in a mount namespace with a /dev/shm of 96 MiB batches that were
// loaded ahead fill it, and a line says so before the kernel sends SIGBUS, with the
// processes that hold it.
func TestFullShm(t *testing.T) {
	t.Parallel()
	wardentest.NeedRoot(t, "a mount namespace takes root")
	before := []string{"unshare", "--mount", "sh", "-c", `mount -t tmpfs -o size=96m rsswarden-test /dev/shm && exec "$@"`, "sh"}
	r := runSides(t, before, nil, "shm.py")
	r.before(t, "the rule", r.warned(event.LimitSHM))
	r.exhausted(t, "/dev/shm", "prefetch_factor")
	wardentest.Says(t, r.stderr, "this job holds")
}

// leakRun runs it in a cgroup; workers wait until their oom_score_adj is least.
func leakRun(t *testing.T, g rsstest.Group, least string, options ...string) (code int, checkpoint string, all map[event.Name][]map[string]any, stderr string) {
	t.Helper()
	dir := t.TempDir()
	list, file := filepath.Join(dir, "events"), filepath.Join(dir, "checkpoint")
	line := []string{"-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, g.Dir, binary, "run", "--revive", "off", "--record", "none", "--at", "none", "--events", list}
	line = append(append(line, options...), "--", python, "testdata/nonmemory_leak.py", least, file)
	cmd := exec.Command("sh", line...)
	cmd.Env = wardentest.Env("OMP_NUM_THREADS=1")
	var errs strings.Builder
	cmd.Stderr = &errs
	_ = cmd.Run()
	b, _ := os.ReadFile(file)
	return cmd.ProcessState.ExitCode(), string(b), wardentest.Events(t, list), errs.String()
}

// TestOOMPreferSavesTheTrainer: in a full cgroup the kernel ends a worker that is
// smaller than the trainer, which gets PyTorch's error and writes its checkpoint.
// Without the option the trainer is killed and writes nothing.
func TestOOMPreferSavesTheTrainer(t *testing.T) {
	t.Parallel()
	wardentest.NeedTorch(t)
	wardentest.NeedRoot(t, "a memory cgroup takes root")
	const limit = 1000 * rss.MiB
	t.Run("workers", func(t *testing.T) {
		code, checkpoint, all, stderr := leakRun(t, rsstest.NewGroup(t, limit), "1000", "--oom-prefer", "workers")
		var got struct {
			Type, Error string
			Model       int
		}
		if err := json.Unmarshal([]byte(checkpoint), &got); err != nil || code != 3 || got.Model != 500<<20 {
			t.Fatalf("exit status %d, checkpoint %q: %v\n%s", code, checkpoint, err, stderr)
		}
		switch {
		case got.Type == "RuntimeError" && strings.HasPrefix(got.Error, "DataLoader worker"):
		case got.Type == "ConnectionResetError", got.Type == "EOFError", got.Type == "ConnectionRefusedError":
		default:
			t.Errorf("%s: %s\nis not what the end of a worker makes", got.Type, got.Error)
		}
		workers := map[any]bool{}
		for _, e := range all[event.NameCure] {
			wardentest.Has(t, e, "remedy", string(event.RemedyOOMPrefer), "ok", true, "after", 1000.0)
			workers[e["pid"]] = true
		}
		if len(workers) != 2 || len(all[event.NameCure]) != 2 {
			t.Errorf("cures %v", all[event.NameCure])
		}
		if n := strings.Count(stderr, "--oom-prefer: workers are killed first"); n != 1 || !strings.Contains(stderr, "out of memory: the kernel killed ") {
			t.Errorf("said %d times\n%s", n, stderr)
		}
		if last := all[event.NameExit]; len(last) != 1 || last[0]["kernel_oom_kills"] == nil {
			t.Errorf("exit %v", last)
		}
	})
	t.Run("none", func(t *testing.T) {
		code, checkpoint, all, stderr := leakRun(t, rsstest.NewGroup(t, limit), "-1000")
		if code != -1 || checkpoint != "" || len(all[event.NameCure]) != 0 {
			t.Errorf("exit status %d, checkpoint %q: it does not show that the option is of use\n%s", code, checkpoint, stderr)
		}
	})
}
