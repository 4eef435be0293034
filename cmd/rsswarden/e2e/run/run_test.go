// Package run runs commands under rsswarden, without Slurm or PyTorch: what they inherit, alerts, records.
package run

import (
	"cmp"
	_ "embed"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
	"github.com/rsswarden/rsswarden/supervisor/replay"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// binary is the program under test.
var binary string

const python = wardentest.Python

func TestMain(m *testing.M) {
	os.Exit(wardentest.Main(m, map[string]*string{wardentest.Rsswarden: &binary, wardentest.Daemon: new(string)}))
}

// TestRealTime: a command keeps the real-time policy that its user started rsswarden with. The
// watcher must not: its runtime may spin until another of its threads gets a processor.
func TestRealTime(t *testing.T) {
	wardentest.NeedRoot(t, "needs root, for a real-time policy")
	const policies = `until pgrep -P $PPID -x rss-watcher >/dev/null; do sleep 0.01; done
for pid in $$ $(pgrep -P $PPID -x rss-watcher); do
	chrt -p $pid | sed -n 's/.*policy: //p'
done`
	for _, park := range []string{"", "RSSWARDEN_PARK=0"} {
		for option, name := range map[string]string{"-f": "SCHED_FIFO", "-r": "SCHED_RR"} {
			cmd := exec.Command("chrt", option, "1", binary, "run", "--quiet", "--", "sh", "-c", policies)
			cmd.Env = wardentest.Env(park)
			if out, errs, err := wardentest.Run(cmd); err != nil || out != name+"\nSCHED_OTHER\n" {
				t.Errorf("%s %s: %v %q %s", option, park, err, out, errs)
			}
		}
	}
}

// risenJob starts a Python that is setuid, as sudo is, or not to be read by who executes
// it, as programs under licence are. In it a helper, of root's where it can be, holds
// 60 MiB. Both end when their input does.
//
//go:embed testdata/risen.py
var risenJob string

// TestAnotherUserInTheTree: a process of the job's becomes another user's, or runs what may
// not be read, and the one who watches may no longer read it. It is counted, the summary says that it
// was seen in part, and the command knows nothing of it.
func TestAnotherUserInTheTree(t *testing.T) {
	wardentest.NeedRoot(t, "needs root, to become others")
	for name, c := range map[string]struct {
		mount, accounting string
		counts            string // in a sample
		says              string
		mode              uint32 // of the program
		siblings          int    // that are there before
	}{
		// RSS is for everybody to read, PSS is not.
		"smaps is root's": {"", "pss", `"used_max_bytes":`, "; at most ", 0o4755, 0},
		"hidepid=1":       {"mount -t proc -o hidepid=1 proc /proc && ", "rss", `"denied":1`, "; seen in part", 0o4755, 0},
		"hidepid=2":       {"mount -t proc -o hidepid=2 proc /proc && ", "rss", `"denied":1`, "; seen in part", 0o4755, 0},
		"its own user's":  {"mount -t proc -o hidepid=2 proc /proc && ", "rss", `"denied":1`, "; seen in part", 0o711, 0},
		"one of many":     {"mount -t proc -o hidepid=2 proc /proc && ", "rss", `"denied":1`, "; seen in part", 0o711, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp("", "risen") // no other user may get there
			wardentest.NoError(t, err)
			t.Cleanup(func() { os.RemoveAll(dir) })
			var fs unix.Statfs_t
			if err := unix.Statfs(dir, &fs); err != nil || fs.Flags&unix.ST_NOSUID != 0 {
				t.Skip("setuid programs are none in ", dir, err)
			}
			warden, risen, own := filepath.Join(dir, "rsswarden"), filepath.Join(dir, "risen"), filepath.Join(dir, "own")
			for to, from := range map[string]string{warden: binary, risen: "/usr/bin/python3"} {
				if out, err := exec.Command("cp", "-L", from, to).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			for _, err := range []error{os.Mkdir(own, 0o700), os.Chown(own, 65534, 65534), os.Chmod(dir, 0o755), unix.Chmod(risen, c.mode)} {
				wardentest.NoError(t, err)
			}
			list := filepath.Join(own, "events")
			cmd := exec.Command("unshare", "-m", "--propagation", "private", "sh", "-c",
				c.mount+`exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"`, "sh",
				warden, "run", "--events", list, "--interval", "50ms", "--limit", "400M", "--accounting", c.accounting, "--", "/usr/bin/python3", "-c", risenJob, risen, strconv.Itoa(c.siblings))
			cmd.Env = wardentest.Env("XDG_STATE_HOME="+own, "RSSWARDEN_RUNTIME="+own, "HOME="+own)
			cmd.Dir = dir
			run := wardentest.StartTalk(t, cmd)
			wardentest.Until(t, "the process that cannot be read is counted", func() bool {
				return strings.Contains(wardentest.Read(list), c.counts) && (c.accounting != "pss" || unknown(wardentest.Read(list)))
			})
			run.EndsWith(7)
			if !strings.Contains(run.Stderr.String(), c.says) || strings.Contains(run.Stderr.String(), "watcher died") {
				t.Errorf("said\n%s", &run.Stderr)
			}
		})
	}
}

// limitUser is a reading of that limit with both its bounds.
var limitUser = regexp.MustCompile(`"limit":"user"[^}]*"used_bytes":([0-9]+),"used_max_bytes":([0-9]+)`)

// unknown says that of the last samples of two processes each has a sum that is unknown by the
// files which one maps: what it has of its own is for everybody to read.
func unknown(list string) bool {
	const samples, files = 20, 3 << 20
	in := 0
	for line := range strings.Lines(list) {
		if !strings.Contains(line, `"event":"sample"`) || !strings.HasSuffix(line, "\n") {
			continue
		}
		m := limitUser.FindStringSubmatch(line)
		if in++; m == nil || !strings.Contains(line, `"procs":{"other":2}`) {
			in = 0
			continue
		}
		used, _ := strconv.Atoi(m[1])
		if most, _ := strconv.Atoi(m[2]); most-used < files {
			in = 0
		}
	}
	return in >= samples
}

// TestRunWithinRun: a job's script may run what has a run of its own. Both watch, the
// status goes through both, and a signal arrives once.
//
// F10: two supervisors nested.
func TestRunWithinRun(t *testing.T) {
	const script = `n=0; trap 'n=$((n+1))' TERM; echo ready; i=0; while [ $i -lt 40 ]; do sleep 0.05; i=$((i+1)); done; echo got $n; exit 5`
	cmd := exec.Command(binary, "run", "--interval", "50ms", "--limit", "800M", "--", binary, "run", "--interval", "50ms", "--limit", "400M", "--", "sh", "-c", script)
	cmd.Env = wardentest.Env("TMPDIR="+t.TempDir(), "XDG_CACHE_HOME="+t.TempDir())
	run := wardentest.StartTalk(t, cmd)
	run.Hear()                         // ready
	time.Sleep(200 * time.Millisecond) // both watchers are there, and judge what is sent
	wardentest.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	if line := run.Hear(); line != "got 1" {
		t.Errorf("the command says %q", line)
	}
	run.EndsWith(5)
	errs := &run.Stderr
	outer := fmt.Sprintf("rsswarden run %d watches this command too", cmd.Process.Pid)
	if n := strings.Count(errs.String(), "watches this command too"); n != 1 || !strings.Contains(errs.String(), outer) {
		t.Errorf("it is said %d times, want once: %s\n%s", n, outer, errs)
	}
	if n := strings.Count(errs.String(), "✖ cancelled: SIGTERM (exit 5"); n != 2 {
		t.Errorf("%d of two say how it ended\n%s", n, errs)
	}
}

// TestStopEndsWhatIsLeft: a shell dies of the TERM of a stop and does not pass it on. What
// it had started does not run on beside the next try; one that saves a checkpoint when TERM
// comes can do so.
func TestStopEndsWhatIsLeft(t *testing.T) {
	dir := t.TempDir()
	script := `cd "$0" || exit
(trap 'echo saved >checkpoint; exit' TERM; echo >ready; while :; do sleep .1; done) >out 2>&1 &
echo $! >pid
while [ ! -e ready ]; do sleep .1; done
x=$(head -c 200M /dev/zero | tr '\0' x)
wait`
	_, stderr, err := wardentest.Output(binary, "run", "--limit", "100M", "--accounting", "rss", "--at", "none", "--at", "95%:stop", "--", "sh", "-c", script, dir)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 137 || !strings.Contains(stderr, " left by the command: ") {
		t.Fatalf("%v, said\n%s", err, stderr)
	}
	text := wardentest.ReadFile(t, filepath.Join(dir, "pid"))
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	wardentest.NoError(t, err)
	wardentest.Until(t, "what the shell had started has ended", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
	if _, err := os.Stat(filepath.Join(dir, "checkpoint")); err != nil {
		t.Error(err)
	}
}

// TestHolderIsSmall: what the start has touched is given back, and what is touched then does
// not bring all of the program with it.
func TestHolderIsSmall(t *testing.T) {
	cmd := exec.Command(binary, "run", "--limit", "1G", "--record", "none", "--", "sleep", "1000")
	wardentest.NoError(t, cmd.Start())
	wardentest.Until(t, "a holder with at most 3 MiB of files in memory", func() bool {
		var file int
		fmt.Sscan(wardentest.StatusLine(t, cmd.Process.Pid, "RssFile"), &file)
		return len(wardentest.Watchers(cmd.Process.Pid)) > 0 && file <= 3<<10
	})
	wardentest.NoError(t, cmd.Process.Signal(unix.SIGTERM))
	if err := cmd.Wait(); wardentest.ExitStatus(cmd.ProcessState) != 128+int(unix.SIGTERM) {
		t.Errorf("ended with %v", err)
	}
}

// jobStart is when the jobs of these tests began.
var jobStart = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// nodeOf is the leader's record of node n of a job, with so many ranks each.
func nodeOf(n, nodes, ranks int, length time.Duration) recordtest.Ranks {
	first := (n - 1) * ranks
	d := recordtest.Ranks{
		Job: "4711", Node: fmt.Sprint("n", n), NodeID: n - 1, Nodes: nodes, Tasks: nodes * ranks, First: first, Count: ranks, Leader: first, Heavy: first + ranks - 1,
		Start: jobStart, To: length, Workers: 4, Limit: 4 * rss.GiB, Share: recordtest.Rising(length, 0.3, 0.5+0.4*float64(n)/float64(nodes)),
		Exit: recordtest.Ended(0, "", event.RunOK),
	}
	for task := first + 1; task < first+ranks; task++ {
		d.Ends = append(d.Ends, recordtest.RankEnd{Task: task, At: length})
	}
	return d
}

// sharedPlace is a directory that a job was submitted from, with what its nodes left
// in .rsswarden there.
type sharedPlace struct {
	t       testing.TB
	dir     string
	sacct   string // what a sacct in PATH prints of the nodes; empty for no sacct
	records string
}

func newSharedPlace(t testing.TB) *sharedPlace {
	t.Helper()
	s := &sharedPlace{t: t, dir: t.TempDir()}
	s.records = filepath.Join(s.dir, ".rsswarden")
	wardentest.NoError(t, os.Mkdir(s.records, 0o700))
	return s
}

// keep leaves a record, or where it is only the node's own a journal.
func (s *sharedPlace) keep(d recordtest.Ranks, journal bool) {
	s.t.Helper()
	save := d.Save
	if journal {
		save = d.SaveJournal
	}
	if _, err := save(s.records); err != nil {
		s.t.Fatal(err)
	}
}

// report runs the command where the job was submitted from.
func (s *sharedPlace) report(args ...string) string {
	s.t.Helper()
	cmd := exec.Command(binary, append([]string{"report"}, args...)...)
	cmd.Dir = s.dir
	path := s.t.TempDir()
	if s.sacct != "" {
		script := "#!/bin/sh\ncase \"$*\" in\n*MaxRSS*) echo '4711|4711|COMPLETED|None|0:0|0:0|4G||2026-11-20T12:00:00|2026-11-20T12:10:01|01:00:00|" + s.sacct + "|/home/u|train' ;;\n" +
			"*) echo '4711|4711|" + s.sacct + "' ;;\nesac\n"
		wardentest.NoError(s.t, os.WriteFile(filepath.Join(path, "sacct"), []byte(script), 0o755))
	}
	cmd.Env = []string{"PATH=" + path, "TMPDIR=" + path, "HOME=" + path, "TZ=UTC"}
	out, err := cmd.Output()
	if err != nil {
		var said string
		if e, ok := err.(*exec.ExitError); ok {
			said = string(e.Stderr)
		}
		s.t.Fatalf("report %q: %v\n%s", args, err, said)
	}
	return string(out)
}

// TestReportOfNodes: a job's number finds what all its nodes left, a record here and
// a journal there, and a directory does too.
func TestReportOfNodes(t *testing.T) {
	s := newSharedPlace(t)
	s.keep(nodeOf(1, 2, 2, 10*time.Minute), false)
	lost, successor := nodeOf(2, 2, 2, 10*time.Minute), nodeOf(2, 2, 2, 10*time.Minute)
	lost.To, lost.Exit, lost.Ends = 5*time.Minute, nil, nil
	successor.From, successor.Leader = 5*time.Minute+time.Second, 3
	successor.Ends = []recordtest.RankEnd{{Task: 2, At: 10 * time.Minute}}
	s.keep(lost, true)
	s.keep(successor, true)
	other := nodeOf(1, 1, 1, time.Minute)
	other.Job = "471"
	s.keep(other, true)
	for _, args := range [][]string{{"4711", "--no-slurm"}, {s.dir, "--no-slurm"}, {s.records, "--no-slurm"}} {
		out := s.report(args...)
		wardentest.Says(t, out,
			"all 4 ranks on 2 nodes ended with exit status 0; n2 came nearest",
			"n2 came nearest to its limit: cgroup, job at 3.6 of 4.0 GiB (90 %)",
			"on n2 the lead went from step 0, task 2, whose watcher was gone, to step 0,",
			"  n1           cgroup    2.80 GiB",
		)
	}
	var rep struct {
		Nodes []struct {
			Node string
			Runs []string
		}
		Ranks []struct {
			Node string
			Task int
			Code *int
			Peak *rss.Bytes `json:"peak_rss_bytes"`
		}
		Leads []struct {
			Node     string
			From, To int
			Gap      float64 `json:"gap_s"`
		} `json:"lead_changes"`
		Binding struct{ Node string }
	}
	wardentest.NoError(t, json.Unmarshal([]byte(s.report("4711", "--no-slurm", "--json")), &rep))
	if len(rep.Nodes) != 2 || rep.Nodes[0].Node != "n2" || len(rep.Nodes[0].Runs) != 2 || len(rep.Ranks) != 4 || len(rep.Leads) != 1 || rep.Leads[0].Node != "n2" ||
		rep.Binding.Node != "n2" {
		t.Errorf("%+v", rep)
	}
	for _, r := range rep.Ranks {
		// A journal has no processes.
		if (r.Peak != nil) != (r.Node == "n1") || r.Code == nil || *r.Code != 0 {
			t.Errorf("rank %+v", r)
		}
	}
	rows, err := csv.NewReader(strings.NewReader(s.report("4711", "--no-slurm", "--csv"))).ReadAll()
	wardentest.NoError(t, err)
	node := slices.Index(rows[0], "node")
	seen := map[string]int{}
	for _, row := range rows[1:] {
		seen[row[node]]++
	}
	if len(seen) != 2 || seen["n1"] == 0 || seen["n2"] == 0 {
		t.Errorf("rows by node: %v", seen)
	}
	html, svg := filepath.Join(s.dir, "report.html"), filepath.Join(s.dir, "report.svg")
	s.report("4711", "--no-slurm", "--html", html, "--svg", svg)
	for _, file := range []string{html, svg} {
		if b, err := os.ReadFile(file); err != nil || !strings.Contains(string(b), ">n2</text>") || strings.Contains(string(b), "task 3</text>") {
			t.Errorf("%s: %v: not one chart for each node", file, err)
		}
	}
	s = newSharedPlace(t)
	s.keep(nodeOf(1, 2, 2, 10*time.Minute), false)
	s.keep(nodeOf(2, 2, 2, 10*time.Minute), true)
	if out := strings.Join(strings.Fields(s.report("--advise", s.records)), " "); !strings.Contains(out, "#SBATCH --mem=") || !strings.Contains(out, "on n2, which needed most of 2 nodes; --mem is for each") {
		t.Errorf("advice:\n%s", out)
	}
}

// TestReportMissesNode: of a node that Slurm gave to the job and that left nothing
// here it is said.
func TestReportMissesNode(t *testing.T) {
	s := newSharedPlace(t)
	s.keep(nodeOf(1, 3, 2, 10*time.Minute), true)
	s.keep(nodeOf(3, 3, 2, 10*time.Minute), true)
	if out := s.report("4711"); !strings.Contains(out, "of 1 node of the job there is no record, and Slurm did not say of which") {
		t.Errorf("without Slurm:\n%s", out)
	}
	s.sacct = "n[1-3]"
	if out := s.report("4711"); !strings.Contains(out, "there is no record of n2, which Slurm gave to the job") || !strings.Contains(out, "all 4 ranks on 2 nodes with a record ended") {
		t.Errorf("with sacct:\n%s", out)
	}
	s.keep(nodeOf(2, 3, 2, 10*time.Minute), true)
	if out := s.report("4711"); strings.Contains(out, "no record of") {
		t.Errorf("with all three:\n%s", out)
	}
}

// TestReportOfAnotherCluster: two clusters that share a home count jobs each for
// itself.
func TestReportOfAnotherCluster(t *testing.T) {
	s := newSharedPlace(t)
	s.keep(nodeOf(1, 1, 2, 10*time.Minute), true)
	old := nodeOf(2, 1, 2, 10*time.Minute)
	old.Start = jobStart.Add(-24 * time.Hour)
	path, err := old.SaveJournal(s.records)
	wardentest.NoError(t, err)
	b := wardentest.ReadFile(t, path)
	wardentest.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(b), `"cluster":"lab"`, `"cluster":"other"`, 1)), 0o600))
	if out := s.report("4711", "--no-slurm"); strings.Contains(out, "n2") || !strings.Contains(out, "both ranks on 1 node") {
		t.Errorf("the other cluster's job is shown too:\n%s", out)
	}
}

// TestRootReadsOthers: root reads another user's record as it reads its own, also where
// that user does not let others in.
func TestRootReadsOthers(t *testing.T) {
	wardentest.NeedRoot(t, "needs root, to read what is another's")
	const other = 12345
	dir, err := os.MkdirTemp("/tmp", "rsswarden-owner-")
	wardentest.NoError(t, err)
	defer os.RemoveAll(dir)
	path, err := nodeOf(1, 1, 1, time.Minute).Save(dir)
	wardentest.NoError(t, err)
	report := func() string {
		out, errs, err := wardentest.Output(binary, "report", "--no-slurm", path)
		if err != nil {
			t.Fatalf("%v\n%s", err, errs)
		}
		return out + errs
	}
	ours := report()
	err = filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = os.Chown(name, other, other)
		}
		return err
	})
	wardentest.NoError(t, err)
	if theirs := report(); theirs != ours {
		t.Errorf("of another user:\n%s\nof root:\n%s", theirs, ours)
	}
}

// lived is a real run, as three have told of it: itself while it ran, its record,
// and a replay of that.
type lived struct {
	dir    string
	events map[event.Name][]map[string]any
	again  replay.Result
}

// mappingJob is the loader of examples/lmdbload over data of its own.
func mappingJob(t *testing.T, epochs string) []string {
	t.Helper()
	dir := t.TempDir()
	load := wardentest.Program(t, wardentest.LMDBLoad)
	line := []string{load, "-data", filepath.Join(dir, "load.lmdb"), "-growth", "60", "-epochs", epochs}
	if _, errs, err := wardentest.Output(append(slices.Clone(line), "-create")...); err != nil {
		t.Fatalf("cannot make the data: %v\n%s", err, errs)
	}
	return line
}

// liveRun runs a job under rsswarden, which records it, and wants that status.
func liveRun(t *testing.T, status int, options, job []string) lived {
	t.Helper()
	r := lived{dir: filepath.Join(t.TempDir(), "records")}
	list := filepath.Join(t.TempDir(), "events")
	args := slices.Concat([]string{"run", "--record", r.dir, "--events", list}, options, []string{"--"}, job)
	cmd := exec.Command(binary, args...)
	cmd.Env = wardentest.Env()
	out, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != status {
		t.Fatalf("%v: %v, want exit status %d\n%s", args, err, status, out)
	}
	r.events = wardentest.Events(t, list)
	r.again = r.replay(t)
	return r
}

func (r lived) replay(t *testing.T, options ...string) replay.Result {
	t.Helper()
	out, errs, err := wardentest.Output(append([]string{binary, "replay", "--json", r.dir}, options...)...)
	var got replay.Result
	if err != nil || errs != "" || json.Unmarshal([]byte(out), &got) != nil {
		t.Fatalf("replay %v: %v %s\n%s", options, err, errs, out)
	}
	return got
}

// same wants the decisions of the replay to be those that the run told of while
// it ran, each within one tick, and that replay knows it.
func (r lived) same(t *testing.T, least int, actions ...event.Action) {
	t.Helper()
	got, told := r.again, r.events[event.NameDecision]
	if got.Estimate || got.Same == nil || !*got.Same || len(got.Missed) > 0 || got.Tick > 1 {
		t.Errorf("estimate %v, same %v, missed %+v, tick %v s", got.Estimate, got.Same, got.Missed, got.Tick)
	}
	if len(got.Decisions) != len(told) || len(told) < least {
		t.Errorf("%d decisions in the replay, %d in the run; want as many, and %d at least", len(got.Decisions), len(told), least)
	}
	type made struct {
		rule, limit string
		at          float64
	}
	var live, again []made
	for _, d := range told {
		at, err := time.Parse(time.RFC3339Nano, d["time"].(string))
		wardentest.NoError(t, err)
		live = append(live, made{d["rule"].(string), d["limit"].(string), at.Sub(got.Start).Seconds()})
	}
	count := map[event.Action]int{}
	for _, d := range got.Decisions {
		again = append(again, made{d.Rule, string(d.Limit), d.At})
		count[d.Action]++
	}
	// Of the decisions by one rule the first is the first, and so on.
	inOrder := func(a, b made) int {
		return cmp.Or(strings.Compare(a.rule, b.rule), strings.Compare(a.limit, b.limit), cmp.Compare(a.at, b.at))
	}
	slices.SortFunc(live, inOrder)
	slices.SortFunc(again, inOrder)
	worst := 0.0
	for i := range min(len(live), len(again)) {
		off := math.Abs(live[i].at - again[i].at)
		worst = max(worst, off)
		if live[i].rule != again[i].rule || live[i].limit != again[i].limit || off > got.Tick {
			t.Errorf("in the run %v, in the replay %v", live[i], again[i])
		}
	}
	for _, a := range actions {
		if count[a] == 0 {
			t.Errorf("no %s was decided: the test proves little", a)
		}
	}
	t.Logf("%.0f s, %d decisions %v, the same in the replay, at most %.3f s apart", got.End, len(told), count, worst)
}

// mappedOptions have pages of a loader dropped from outside, and more rules than
// the ladder has by itself.
var mappedOptions = []string{
	"--limit", "500M", "--accounting", "rss", "--trim", "ptrace",
	"--at", "40%:warn", "--at", "70%:signal=USR1", "--at", "75%:exec=true", "--at", "free<90M:warn", "--at", "user eta<2m:exec=true",
}

// TestReplayOfALiveRun: with nothing changed a replay decides as the run did; with
// another limit it guesses, and says so.
func TestReplayOfALiveRun(t *testing.T) {
	r := liveRun(t, 0, mappedOptions, mappingJob(t, "3"))
	r.same(t, 12, event.ActionTrim, event.ActionSignal, event.ActionExec, event.ActionWarn)
	r.otherLimits(t)
}

// otherLimits replays the run of a loader with limits far from its own.
func (r lived) otherLimits(t *testing.T) {
	t.Helper()
	trims := func(got replay.Result) (n int, first float64) {
		first = math.Inf(1)
		for _, d := range got.Decisions {
			if d.Action == event.ActionTrim {
				n, first = n+1, min(first, d.At)
			}
		}
		return n, first
	}
	had, began := trims(r.again)
	for _, test := range []struct {
		limit   rss.Bytes
		fits    func(n int, first float64) bool
		becomes []replay.Fate
		says    string
	}{
		{40 * rss.GiB, func(n int, _ float64) bool { return n == 0 }, []replay.Fate{replay.Lives}, "no trim, and lives"},
		// Never, where what the run gave back came back no faster than it was given: by the pace of the machine.
		{650 * rss.MiB, func(n int, first float64) bool { return n <= had && first > began },
			[]replay.Fate{replay.Lives, replay.Unknown}, "the first trim later, or none"},
		{350 * rss.MiB, func(n int, first float64) bool { return n > 0 && first < began },
			[]replay.Fate{replay.Lives, replay.Dies, replay.Unknown}, "the first trim sooner"},
		{100 * rss.MiB, func(int, float64) bool { return true }, []replay.Fate{replay.Dies}, "dies"},
	} {
		got := r.replay(t, "--limit", strconv.FormatUint(uint64(test.limit/rss.MiB), 10))
		n, first := trims(got)
		t.Logf("with %v: %s, %d trims, the first after %.1f s (in the run %d, after %.1f s); %s", test.limit, got.Fate, n, first, had, began, got.Why)
		if !test.fits(n, first) || !slices.Contains(test.becomes, got.Fate) {
			t.Errorf("with %v: %s with %d trims, the first after %.1f s; want %s", test.limit, got.Fate, n, first, test.says)
		}
		if !got.Estimate || got.Same != nil || !strings.Contains(strings.Join(got.Notes, "\n"), "estimate") {
			t.Errorf("with %v: estimate %v, same %v, notes %q; want an estimate that is called one", test.limit, got.Estimate, got.Same, got.Notes)
		}
	}
}
