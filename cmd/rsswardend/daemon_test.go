package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
	"github.com/rsswarden/rsswarden/rss/rsstest/reference"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/nodejobs"
	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// binary is the program under test, built once.
var binary string

func TestMain(m *testing.M) {
	rsstest.BeEater()
	os.Exit(wardentest.Main(m, map[string]*string{wardentest.Daemon: &binary}, slurmtest.Shutdown))
}

var (
	must  = wardentest.NoError
	until = wardentest.Until
)

// instance is a daemon that runs.
type instance struct {
	t       *testing.T
	cmd     *exec.Cmd
	address string
	log     wardentest.Text // stderr
}

// start runs the daemon on a free port, until it listens.
func start(t *testing.T, args ...string) *instance {
	t.Helper()
	return startCommand(t, append([]string{binary, "--interval", "1s"}, args...)...)
}

// startCommand is start of a command that ends in the daemon and its options.
func startCommand(t *testing.T, command ...string) *instance {
	t.Helper()
	d := &instance{t: t, cmd: exec.Command(command[0], append(command[1:], "--listen", "127.0.0.1:0")...)}
	d.cmd.Env, d.cmd.Stderr = wardentest.Env(), &d.log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, d.cmd.Start())
	t.Cleanup(func() {
		if d.cmd.ProcessState == nil {
			d.cmd.Process.Kill()
			d.cmd.Wait()
		}
	})
	const listens = `msg="Listening on" address=`
	d.log.Await(t, listens, 1)
	_, address, _ := strings.Cut(d.said(), listens)
	d.address, _, _ = strings.Cut(address, "\n")
	return d
}

func (d *instance) said() string { return d.log.String() }

// end sends SIGTERM, and wants the end with status 0.
func (d *instance) end() {
	d.t.Helper()
	must(d.t, d.cmd.Process.Signal(syscall.SIGTERM))
	defer time.AfterFunc(20*time.Second, func() { d.cmd.Process.Kill() }).Stop()
	if err := d.cmd.Wait(); err != nil {
		d.t.Errorf("%v: %s", err, d.said())
	}
}

// sleeper starts a process in a group.
func sleeper(t *testing.T, in rsstest.Group) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	in.Join(cmd.Process.Pid)
}

// get reads a page.
func (d *instance) get(path string) (status int, body string) {
	d.t.Helper()
	resp, err := http.Get("http://" + d.address + path)
	if err != nil {
		d.t.Fatalf("%v: %s", err, d.said())
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must(d.t, err)
	return resp.StatusCode, string(b)
}

// values are the series of a node in a text, by "name scope jobid step".
func values(t *testing.T, text, node string) map[string]float64 {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("not metrics: %v\n%s", err, text)
	}
	out := map[string]float64{}
	for name, f := range families {
		for _, m := range f.Metric {
			labels := map[string]string{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["node"] == node {
				key := strings.Join(strings.Fields(strings.Join([]string{name, labels["jobid"], labels["step"], labels["scope"]}, " ")), " ")
				out[key] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return out
}

// TestRealCgroups: a job of real cgroups and processes, seen by a scrape and in the
// textfile, until it ends.
func TestRealCgroups(t *testing.T) {
	tree := rsstest.NewSlurmTree(t)
	task := tree.Job(4711, 200*rss.MiB)
	for range 3 {
		sleeper(t, task)
	}
	eater := rsstest.StartEater(t)
	task.Join(eater.PID)
	if !eater.Anon(150 * rss.MiB) {
		t.Fatal("the eater died")
	}
	text := t.TempDir()
	d := start(t, "--textfile", text)
	_, page := d.get("/metrics")
	got := values(t, page, tree.Node)
	if n := got["rsswarden_processes 4711 batch"]; n != 4 {
		t.Errorf("%v processes, want 4", n)
	}
	for whose, id := range map[string]string{"job_": " 4711", "step_": " 4711 batch"} {
		if v := got["rsswarden_"+whose+"memory_limit_bytes"+id]; v != 200<<20 {
			t.Errorf("limit %v of%s", v, id)
		}
		if v := got["rsswarden_"+whose+"memory_unreclaimable_bytes"+id]; v < 150<<20 || v > 160<<20 {
			t.Errorf("%v bytes of%s", v, id)
		}
		if v := got["rsswarden_"+whose+"limit_ratio"+id]; v < 0.75 || v > 0.8 {
			t.Errorf("ratio %v of%s", v, id)
		}
	}
	b, err := os.ReadFile(filepath.Join(text, "rsswardend.prom"))
	must(t, err)
	if n := len(values(t, string(b), tree.Node)); n != len(got) {
		t.Errorf("%d series in the textfile, %d in the scrape", n, len(got))
	}
	for _, name := range []string{"rsswarden_build_info", "rsswarden_oom_unheard_steps", "process_resident_memory_bytes", "go_goroutines"} {
		wardentest.Says(t, page, "\n"+name)
	}
	if status, body := d.get("/-/healthy"); status != 200 || !strings.Contains(body, "healthy") {
		t.Errorf("health: %d %q", status, body)
	}
	if status, body := d.get("/"); status != 200 || !strings.Contains(body, "/metrics") {
		t.Errorf("landing page: %d %q", status, body)
	}
	// A hang-up is nothing to it.
	must(t, d.cmd.Process.Signal(syscall.SIGHUP))
	// Memory that is given to the job while it runs (scontrol update).
	for _, dir := range []string{filepath.Dir(filepath.Dir(task.Dir)), filepath.Dir(task.Dir)} {
		must(t, os.WriteFile(dir+"/memory.limit_in_bytes", []byte("314572800"), 0))
	}
	until(t, "the new limit", func() bool {
		_, page := d.get("/metrics")
		return values(t, page, tree.Node)["rsswarden_step_memory_limit_bytes 4711 batch"] == 300<<20
	})
	d.end()
	if left, _ := filepath.Glob(filepath.Join(text, "*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestSecondDaemon: one that cannot listen leaves the file of the one that does.
func TestSecondDaemon(t *testing.T) {
	dir := t.TempDir()
	first := start(t, "--textfile", dir)
	name := filepath.Join(dir, "rsswardend.prom")
	var was os.FileInfo
	until(t, "a file", func() (ok bool) { was, _ = os.Stat(name); return was != nil })
	second := exec.Command(binary, "--interval", "1h", "--textfile", dir, "--listen", first.address)
	out, _ := second.CombinedOutput()
	if second.ProcessState.ExitCode() != exitFailed || !strings.Contains(string(out), "address already in use\nhint: one rsswardend a node is enough") {
		t.Fatalf("%v: %s", second.ProcessState, out)
	}
	if _, err := os.Stat(name); err != nil {
		t.Error(err)
	}
	first.end()
	if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its own file, at its end: %v", err)
	}
}

// TestComplains: a failure is reported once, until the part has worked again.
func TestComplains(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	must(t, os.Mkdir(dir, 0o755))
	var log bytes.Buffer
	d := newDaemon(settings{node: "n1", textfile: dir, interval: time.Second}, slog.New(slog.NewTextHandler(&log, nil)))
	defer d.close()
	for _, there := range []bool{true, false, false, false, true, false, false} {
		if there {
			_ = os.Mkdir(dir, 0o755)
		} else if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		d.look()
	}
	if n := strings.Count(log.String(), "cannot write to "+dir); n != 2 {
		t.Errorf("told %d times, want 2:\n%s", n, log.String())
	}
}

// TestUsage: an error says what is wrong or keeps it from starting, and what to do about it.
func TestUsage(t *testing.T) {
	full, config := t.TempDir(), filepath.Join(t.TempDir(), "web.yml")
	must(t, os.Mkdir(filepath.Join(full, "oom.jsonl"), 0o755))
	wardentest.Write(t, config, "tls_server_confg: {cert_file: x}\n")
	for _, test := range []struct{ line, says string }{
		{"--listen 7", "not an address"},
		{"--listen none", "nothing to do"},
		{"--interval 1ms", "too short"},
		{"--interval 10", "error: --interval \"10\" has no unit\nhint: give the number a unit: --interval 10s\n"},
		{"--interval soon", "error: --interval \"soon\" is not a duration\nhint: give a number with a unit"},
		{"--listen", "error: option --listen needs a value\n"},
		{"--textfile /none/such", "not a directory"},
		{"--records /etc/passwd", "not a directory"},
		{"--textfile /proc", "no file can be made in /proc"},
		{"--records /proc", "no file can be made in /proc"},
		{"--records " + full, "cannot write what is there"},
		{`--node a"b`, "not the name of a node"},
		{"--nonsense", "error: unknown option --nonsense\n"},
		{"--port 9759", "error: unknown option --port\nhint: did you mean --listen?\n"},
		{"--web.listen-address=:9759", "error: unknown option --web.listen-address\nhint: did you mean --listen?\n"},
		{"word", "unexpected argument"},
		{"", "this is job 7"},
		{"--listen 192.0.2.1:9759", "cannot assign requested address\nhint: no interface of this node has that address"},
		{"--web.config.file " + config, "field tls_server_confg not found in type web.Config\nhint: it is YAML, "},
		{"--web.config.file " + config + ".none", "no such file or directory\nhint: it is YAML, "},
	} {
		cmd, want := exec.Command(binary, strings.Fields(test.line)...), exitUsage
		if strings.Contains(test.says, "no interface") || strings.Contains(test.says, "YAML") {
			want = exitFailed
		}
		if cmd.Env = wardentest.Env(); test.line == "" {
			cmd.Env = append(cmd.Env, "SLURM_JOB_ID=7")
		}
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != want || !strings.Contains(string(out), test.says) || !strings.Contains(string(out), "\nhint: ") {
			t.Errorf("%q: %v, %s", test.line, cmd.ProcessState, out)
		}
	}
	for line, says := range map[string]string{
		"help": "Usage:", "help man": "Usage:", "man help": "Usage:", "-h": "Usage:", "--help": "Usage:",
		"version": "rsswardend ", "-V": "rsswardend ", "--version": "rsswardend ", "version help": "Usage:",
	} {
		out, errs, err := wardentest.Output(append([]string{binary}, strings.Fields(line)...)...)
		if err != nil || !strings.HasPrefix(out, says) || errs != "" {
			t.Errorf("%s: %v, %q, %q", line, err, out, errs)
		}
	}
}

// TestChurn: jobs that come and go all the time leave nothing behind in the daemon. With
// RSSWARDEN_ENDURANCE=1 for ten minutes.
func TestChurn(t *testing.T) {
	warm, length := time.Second, 4*time.Second
	if os.Getenv("RSSWARDEN_ENDURANCE") != "" {
		warm, length = time.Minute, 10*time.Minute
	}
	tree := rsstest.NewSlurmTree(t)
	d := start(t)
	const alive = 20
	jobs := make([]churned, alive)
	made := 0
	defer func() {
		for i := range jobs {
			jobs[i].end(t)
		}
	}()
	churn := func(length time.Duration) {
		for began := time.Now(); time.Since(began) < length; made++ {
			j := &jobs[made%alive]
			j.end(t)
			*j = beginJob(t, tree, made+1)
			if made%10 == 0 {
				if _, page := d.get("/metrics"); !strings.Contains(page, tree.Node) && made > 200 {
					t.Fatal("no job is seen")
				}
			}
			// As fast as a node of many small jobs; the kernel removes cgroups at its leisure.
			time.Sleep(10 * time.Millisecond)
		}
	}
	churn(warm)
	fds, rss := d.holds()
	afterFDs, afterRSS := fds, rss
	const parts = 10
	for part := range parts {
		churn(length / parts)
		afterFDs, afterRSS = d.holds()
		t.Logf("after %v and %d jobs: %d descriptors, RSS %.1f MiB", warm+length*time.Duration(part+1)/parts, made, afterFDs, afterRSS)
	}
	t.Logf("%d jobs; descriptors %d then %d, RSS %.1f then %.1f MiB", made, fds, afterFDs, rss, afterRSS)
	// What twenty jobs of two levels keep, an eventfd for each step, and connections that are
	// idle.
	if afterFDs > fds+10*2*alive+50 {
		t.Errorf("descriptors: %d, %d after %d jobs", fds, afterFDs, made)
	}
	if afterRSS > rss+8 {
		t.Errorf("RSS: %.1f MiB, %.1f after %d jobs", rss, afterRSS, made)
	}
	if said := d.said(); strings.Count(said, "\n") > 20 {
		t.Errorf("it says too much: %.2000s", said)
	}
}

// holds is how many descriptors the daemon has open, and its RSS in MiB.
func (d *instance) holds() (fds int, mib float64) {
	d.t.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.cmd.Process.Pid))
	must(d.t, err)
	kib, err := strconv.Atoi(strings.Fields(wardentest.StatusLine(d.t, d.cmd.Process.Pid, "VmRSS"))[0])
	must(d.t, err)
	return len(open), float64(kib) / (1 << 10)
}

// churned is a job of one process.
type churned struct {
	dir string
	cmd *exec.Cmd
}

func beginJob(t *testing.T, tree *rsstest.SlurmTree, id int) churned {
	t.Helper()
	j := churned{dir: fmt.Sprintf("%s/uid_1000/job_%d", tree.Dir, id), cmd: exec.Command("sleep", "600")}
	for _, dir := range []string{j.dir, j.dir + "/step_batch", j.dir + "/step_batch/task_0"} {
		must(t, os.Mkdir(dir, 0o755))
	}
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, j.cmd.Start())
	must(t, os.WriteFile(j.dir+"/step_batch/task_0/cgroup.procs", []byte(fmt.Sprint(j.cmd.Process.Pid)), 0))
	return j
}

func (j *churned) end(t *testing.T) {
	if j.cmd == nil {
		return
	}
	j.cmd.Process.Kill()
	j.cmd.Wait()
	for _, dir := range []string{j.dir + "/step_batch/task_0", j.dir + "/step_batch", j.dir} {
		until(t, dir+" is empty", func() bool { return os.Remove(dir) == nil })
	}
	j.cmd = nil
}

// TestRealSlurm: a job of a real Slurm, its steps and its limit are told while it runs; and
// one that the OOM killer hits is on record.
func TestRealSlurm(t *testing.T) {
	c := slurmtest.Start(t, slurmtest.Cgroup, slurmtest.Options{})
	records := t.TempDir()
	d := start(t, "--records", records)
	// A step of its own sleeps beside the batch step.
	near := c.Submit(t, `srun --mem=100 sleep 600 &
exec /usr/bin/python3 -c 'import time; held = bytearray(180 << 20); time.sleep(600)'`, "--mem=300", "--ntasks=1", "--overcommit")
	near.Running(t)
	var got map[string]float64
	until(t, "the job, its two steps and 0.5 of its limit are told", func() bool {
		_, page := d.get("/metrics")
		got = values(t, page, c.Node())
		return got["rsswarden_job_limit_ratio "+near.ID] > 0.5 && got["rsswarden_processes "+near.ID+" 0"] > 0
	})
	const mib = 1 << 20
	for series, want := range map[string]float64{
		"rsswarden_job_memory_limit_bytes " + near.ID:             300 * mib,
		"rsswarden_step_memory_limit_bytes " + near.ID + " batch": 300 * mib,
		"rsswarden_step_memory_limit_bytes " + near.ID + " 0":     100 * mib,
		"rsswarden_oom_kills_total " + near.ID:                    0,
	} {
		if v, ok := got[series]; v != want || !ok {
			t.Errorf("%s is %v, %v; want %v", series, v, ok, want)
		}
	}
	if n := got["rsswarden_processes "+near.ID+" 0"]; n < 1 || n > 2 {
		t.Errorf("%v processes in step 0: %v", n, got)
	}
	if out := c.Do(t, "scancel", near.ID); out.Code != 0 {
		t.Fatalf("scancel: %s", out.Stderr)
	}
	until(t, "the job is gone", func() bool {
		_, page := d.get("/metrics")
		return !strings.Contains(page, `jobid="`+near.ID+`"`)
	})

	began := time.Now()
	// The script goes on for a moment, as most do: a step that ends in the same instant takes
	// its count with it. Where slurmstepd cannot lower its oom_score_adj to -1000 (which takes
	// CAP_SYS_RESOURCE), the killer takes it next if it is called again before the memory of
	// tail is free, 1 time in 300 on a busy machine. So it is to prefer what fills the memory.
	over := c.Submit(t, "(echo 1000 >/proc/self/oom_score_adj; head -c 900000000 /dev/zero | tail)\nsleep 2", "--mem=60", "--no-requeue")
	if r := over.Wait(t); r.State != "OUT_OF_MEMORY" {
		t.Fatalf("%s (%s)", r.State, r.Reason)
	}
	until(t, "a line about the end of the job", func() bool {
		return strings.Contains(d.said(), `msg="a job that the OOM killer hit has ended" jobid=`+over.ID+" ")
	})
	e, b := lastRecord(t, records, c.Node())
	if e.JobID != over.ID || !e.Ended || e.OOMKills == 0 || e.Steps["batch"] == 0 || e.LimitBytes == nil || *e.LimitBytes != 60*mib || e.FirstKill.Before(began) || e.UID == nil {
		t.Errorf("%s", b)
	}
	d.end()
}

const unitFile = "../../examples/prometheus/rsswardend.service"

// TestUnitIsHardened has systemd judge the unit: from 0, safe, to 10.
func TestUnitIsHardened(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not there:", err)
	}
	file, err := filepath.Abs(unitFile)
	must(t, err)
	out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=30", file).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestUnitStarts gives the unit's options to the program, as a user who may do nothing,
// without any capability, and all files but its own read-only.
func TestUnitStarts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to take it away")
	}
	b, err := os.ReadFile(unitFile)
	must(t, err)
	_, command, _ := strings.Cut(string(b), "\nExecStart=")
	command, _, _ = strings.Cut(command, "\n")
	words := strings.Fields(command)
	state := t.TempDir()
	for dir := state; dir != "/"; dir = filepath.Dir(dir) { // the test's folders are root's alone
		if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o055 != 0o055 && strings.Contains(dir, "Test") {
			must(t, os.Chmod(dir, 0o755))
		}
	}
	must(t, os.Chown(state, 65534, 65534))
	must(t, os.Chmod(filepath.Dir(binary), 0o755))
	tree := rsstest.NewSlurmTree(t)
	task := tree.Job(12, 100*rss.MiB)
	sleeper(t, task)
	// Mounts of its own, where all is read-only but the state.
	script := `mount --make-rprivate / && mount --bind "$1" "$1" && mount -o remount,bind,ro / && mount -o remount,bind,ro /sys && shift &&
exec setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"`
	args := []string{"unshare", "--mount", "sh", "-c", script, "sh", state, binary}
	for _, word := range words[1:] {
		args = append(args, strings.ReplaceAll(word, "${STATE_DIRECTORY}", state))
	}
	d := startCommand(t, args...)
	_, page := d.get("/metrics")
	got := values(t, page, tree.Node)
	if got["rsswarden_job_memory_limit_bytes 12"] != 100<<20 || got["rsswarden_processes 12 batch"] != 1 {
		t.Errorf("%v\n%s", got, d.said())
	}
	// cgroup v1 reports OOM kills as they happen to root only, and the metric says so.
	if strings.Contains(page, "\nrsswarden_oom_unheard_steps 0\n") || !strings.Contains(page, "\nrsswarden_oom_unheard_steps ") || !strings.Contains(d.said(), "the kernel does not tell of OOM kills in some steps") {
		t.Error(d.said())
	}
	var st syscall.Stat_t
	if err := syscall.Stat(fmt.Sprintf("/proc/%d", d.cmd.Process.Pid), &st); err != nil || st.Uid != 65534 {
		t.Errorf("it runs as %d, %v", st.Uid, err)
	}
	d.end()
}

// TestLogSteersNoTerminal: directories below a step may be its user's, and their names
// stand in what cannot be read of them.
func TestLogSteersNoTerminal(t *testing.T) {
	var b bytes.Buffer
	d := newDaemon(settings{node: "n1"}, slog.New(slog.NewTextHandler(&b, nil)))
	d.complain("files of jobs cannot be read", &fs.PathError{Op: "open", Path: "/sys/fs/cgroup/job_7/step_0/" + recordtest.Hostile, Err: unix.EACCES})
	if bad := recordtest.Shows(b.String()); len(bad) > 0 || strings.Count(b.String(), "\n") != 1 {
		t.Errorf("%q", b.String())
	}
	if !strings.Contains(b.String(), "job_7") {
		t.Errorf("no line: %q", b.String())
	}
}

// scene is a look at three jobs: one with a forecast, one without a limit, one without
// a memory cgroup.
func scene() *nodejobs.Snapshot {
	near := nodejobs.Use{
		Measured: true, Charged: 900 * rss.MiB, Unreclaimable: 750 * rss.MiB, Used: 750 * rss.MiB, Limit: 1000 * rss.MiB,
		OOMKills: 2, Processes: 5, ETA: 90 * time.Second, Forecast: true,
	}
	step := near
	step.Unreclaimable, step.Used, step.Forecast = 500*rss.MiB, 500*rss.MiB, false
	free := nodejobs.Use{Measured: true, Charged: 10, Unreclaimable: 5, Used: 5, Limit: cgroup.Unlimited, Processes: 1}
	bare := nodejobs.Use{Processes: 3, RSS: 4096}
	return &nodejobs.Snapshot{
		At: time.Now(), Where: "memory", Memory: true, Found: true,
		Jobs: []nodejobs.Job{
			{ID: "7", Node: "n1", UID: 1000, Use: near, Steps: []nodejobs.Step{{ID: "batch", Use: step}, {ID: "0", Use: step}}},
			{ID: "sEKNKTV3WPV500", Node: "n1", UID: -1, Use: free, Steps: []nodejobs.Step{{ID: "extern", Use: free}}},
			{ID: "9", Node: "n2", UID: -1, Use: bare, Steps: []nodejobs.Step{{ID: "0", Use: bare}}},
		},
	}
}

func encoded(encode func(io.Writer) error) string {
	var b strings.Builder
	_ = encode(&b)
	return b.String()
}

// TestScrape: the metrics of each job and step. The textfile has the same.
func TestScrape(t *testing.T) {
	s := scene()
	s.At = time.Unix(1.7e9, 0)
	golden.Check(t, "testdata/scrape.txt", encoded((&view{s, nil}).encode))
}

// TestStale: what is too old is not told: a daemon that hangs has no numbers but how long it
// has hung.
func TestStale(t *testing.T) {
	const none, look = "rsswarden_build_info", "rsswarden_build_info rsswarden_last_look_timestamp_seconds"
	for age, want := range map[time.Duration]string{0: none, time.Minute: look, time.Second: "more"} {
		d := newDaemon(settings{interval: 10 * time.Second, node: "n1"}, slog.New(slog.DiscardHandler))
		if s := scene(); age > 0 {
			s.At = s.At.Add(-age)
			d.snap.Store(&view{s, nil})
		}
		var names []string
		for line := range strings.Lines(encoded(d.scrape)) {
			if name, ok := strings.CutPrefix(line, "# HELP "); ok {
				names = append(names, strings.Fields(name)[0])
			}
		}
		if got := strings.Join(names, " "); got != want && want != "more" || want == "more" && len(names) < 10 {
			t.Errorf("%v ago: %s", age, got)
		}
	}
}

// TestKilledIsTold: a job that the OOM killer hit is reported for a while after its end, as
// it most often ends at once, and no longer once it is here again.
func TestKilledIsTold(t *testing.T) {
	d := newDaemon(settings{node: "n1"}, slog.New(slog.DiscardHandler))
	began := time.Now()
	look := func(after time.Duration, alive bool, kills uint64) string {
		s := &nodejobs.Snapshot{At: began.Add(after)}
		j := nodejobs.Job{ID: "7", Node: "n1", UID: -1, Use: nodejobs.Use{Measured: true, OOMKills: kills, Limit: cgroup.Unlimited}}
		if alive {
			s.Jobs = []nodejobs.Job{j}
		} else if kills > 0 {
			s.Ended = []nodejobs.Ended{{Job: j, Last: s.At}}
		}
		d.watchOOM(s)
		_, line, _ := strings.Cut(encoded((&view{s, slices.Collect(maps.Values(d.killed))}).encode), "rsswarden_oom_kills_total counter\n")
		line, _, _ = strings.Cut(line, "\n")
		return line
	}
	const series = `rsswarden_oom_kills_total{jobid="7",node="n1"} `
	for _, c := range []struct {
		after time.Duration
		alive bool
		kills uint64
		want  string
	}{
		{0, true, 0, series + "0"},
		{time.Second, true, 2, series + "2"},
		{2 * time.Second, false, 2, series + "2"}, // its end
		{toldFor, false, 0, series + "2"},
		{toldFor + 2*time.Second, false, 0, ""},
		{time.Hour, true, 1, series + "1"}, // requeued
		{time.Hour + time.Second, false, 1, series + "1"},
		{time.Hour + time.Minute, true, 0, series + "0"}, // and again
		{time.Hour + 2*time.Minute, false, 0, ""},
	} {
		if got := look(c.after, c.alive, c.kills); got != c.want {
			t.Errorf("after %v: %q, want %q", c.after, got, c.want)
		}
	}
}

// TestManual: man shows the page without a warning. Each option has its text in it, and that
// is golden in docs/reference.
func TestManual(t *testing.T) {
	if _, err := exec.LookPath("man"); err != nil {
		t.Skip("no man:", err)
	}
	page, _, err := wardentest.Output(binary, "man")
	must(t, err)
	file := filepath.Join(t.TempDir(), "page.8")
	wardentest.Write(t, file, page)
	if _, warned, err := wardentest.Output("man", "--warnings", "-l", file); err != nil || warned != "" {
		t.Errorf("man warns: %v\n%s", err, warned)
	}
	for _, f := range flags() {
		if about[f.Names()[0]] == "" {
			t.Errorf("the manual does not tell of --%s", f.Names()[0])
		}
	}
}

// TestHelpFitsAScreen: a user reads it in a terminal.
func TestHelpFitsAScreen(t *testing.T) {
	help, err := exec.Command(binary, "--help").Output()
	must(t, err)
	lines := strings.Split(strings.TrimSuffix(string(help), "\n"), "\n")
	for _, l := range lines {
		if n := utf8.RuneCountInString(l); n > 80 {
			t.Errorf("%d columns: %s", n, l)
		}
	}
	if len(lines) > 24 || !strings.HasSuffix(string(help), examples[len(examples)-1]+"\n") {
		t.Errorf("%d lines\n%s", len(lines), help)
	}
	for _, f := range flags() {
		if !strings.Contains(string(help), "   --"+f.Names()[0]) {
			t.Errorf("--help does not tell of --%s", f.Names()[0])
		}
	}
}

// TestReference: what docs/reference says of the daemon is what the program has.
func TestReference(t *testing.T) {
	p := reference.New("rsswardend", "`rsswardend man` shows the same. What it is for: [all jobs of a node](../daemon.md); its metrics:\n[metrics](metrics.md).")
	p.Verbatim(strings.ReplaceAll(usageText, "   ", ""))
	tell(p)
	p.Section("EXAMPLES")
	p.Verbatim(strings.Join(examples, "\n"))
	p.Check(t, "docs/reference/rsswardend.md")
}

// webConfig writes a --web.config.file with TLS and one user, and returns it with the
// pool that trusts its certificate.
func webConfig(t *testing.T) (file string, pool *x509.CertPool) {
	t.Helper()
	// A certificate for 127.0.0.1 that is made already.
	made := httptest.NewTLSServer(nil)
	made.Close()
	secret, err := x509.MarshalPKCS8PrivateKey(made.TLS.Certificates[0].PrivateKey)
	must(t, err)
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made.Certificate().Raw})
	dir := t.TempDir()
	for name, text := range map[string][]byte{
		"cert.pem": public,
		"key.pem":  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
		"web.yml": []byte(`tls_server_config:
  cert_file: cert.pem
  key_file: key.pem
basic_auth_users:
  prometheus: $2a$04$vbhQrg83MZfrcjXaVz5j/OvHUcAoBQktmhAh/EDEYwL58.Pm3eKt2 # secret
`),
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(public)
	return filepath.Join(dir, "web.yml"), pool
}

func TestTLSAndPassword(t *testing.T) {
	file, pool := webConfig(t)
	d := start(t, "--web.config.file", file)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer client.CloseIdleConnections()
	ask := func(password string) int {
		t.Helper()
		req, err := http.NewRequest(http.MethodGet, "https://"+d.address+"/metrics", nil)
		must(t, err)
		if password != "" {
			req.SetBasicAuth("prometheus", password)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatalf("%v: %s", err, d.said())
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	for password, want := range map[string]int{"secret": 200, "": 401, "wrong": 401} {
		if got := ask(password); got != want {
			t.Errorf("password %q: status %d, want %d", password, got, want)
		}
	}
	if status, _ := d.get("/metrics"); status != http.StatusBadRequest { // plain HTTP
		t.Errorf("status %d without TLS", status)
	}
	d.end()
}
