package main_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestAttachRefuses what is no process of a job.
func TestAttachRefuses(t *testing.T) {
	p := startTold(t)
	threads := startAttach(t, nil, p.pid()) // a Go program has threads
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", threads.cmd.Process.Pid))
	if err != nil || len(tasks) < 2 {
		t.Fatalf("%v, %v", tasks, err)
	}
	thread := tasks[len(tasks)-1].Name()
	for what, want := range map[string]string{
		thread: fmt.Sprintf("error: %s is a thread of process %d\nhint: rsswarden attach %d\n", thread, threads.cmd.Process.Pid, threads.cmd.Process.Pid),
		"2":    "error: 2 (kthreadd) is a thread of the kernel\nhint: ",
	} {
		if b, err := os.ReadFile("/proc/2/comm"); what == "2" && (err != nil || string(b) != "kthreadd\n") {
			continue // a PID namespace of our own
		}
		out, err := exec.Command(binary, "attach", what).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.HasPrefix(string(out), want) {
			t.Errorf("%s: %v, %s, want %s", what, err, out, want)
		}
	}
	p.end()
	threads.ended(0)
}

// TestAttachCgroup: the limit of the process's own cgroup, not of ours.
func TestAttachCgroup(t *testing.T) {
	g := rsstest.NewGroup(t, 200*rss.MiB)
	p := startTold(t)
	g.Join(p.cmd.Process.Pid)
	w := startAttach(t, nil, "--at", "70%:signal=USR1", p.pid())
	p.do("grow 150")
	p.do("signals")
	p.end()
	all := w.ended(0)
	l := reading(t, all, event.LimitCgroup, filepath.Base(g.Dir))
	if l["limit_bytes"] != float64(200<<20) || l["enforcer"] != "kernel OOM killer" || l["scope"] != "cgroup" || l["used_bytes"].(float64) < 140<<20 {
		t.Errorf("%v", l)
	}
	b, err := json.Marshal(all)
	if err != nil || strings.Contains(string(b), `"vanished":1`) {
		t.Errorf("%v %s", err, b)
	}
}

// TestAttachFromAnotherJob: what Slurm told us is not what it told the process. Root does
// not believe what the process says that it was told.
func TestAttachFromAnotherJob(t *testing.T) {
	end := strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10)
	job := []string{"SLURM_JOB_ID=4", "SLURM_STEP_ID=0", "SLURM_JOB_END_TIME=" + end}
	user := os.Geteuid()
	if user == 0 {
		user = 65534
	}
	type attachCase struct {
		uid  int
		env  []string
		time bool
	}
	cases := map[string]attachCase{"in no job": {user, nil, false}, "in a job itself": {user, job, true}}
	if os.Geteuid() == 0 {
		cases["root"] = attachCase{0, job, false}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := startToldBy(t, c.uid, c.env...)
			as := attachAs(t, c.uid)
			w := startAttach(t, func(cmd *exec.Cmd) {
				as(cmd)
				cmd.Env = append(cmd.Env, "SLURM_JOB_ID=999", "SLURM_STEP_ID=0", "SLURMD_NODENAME=n1", "SLURM_MEM_PER_NODE=50", "SLURM_JOB_END_TIME="+end)
			}, p.pid())
			p.end()
			has := false
			for _, l := range w.ended(0)[event.NameStart][0]["limits"].([]any) {
				l := l.(map[string]any)
				has = has || l["limit"] == "time"
				if l["limit"] == "slurm" {
					t.Errorf("%v", l)
				}
			}
			if has != c.time {
				t.Errorf("a job's end: %v, want %v", has, c.time)
			}
		})
	}
}

// TestAttachUnderRun: two must not speak with the same loaders.
func TestAttachUnderRun(t *testing.T) {
	dir := t.TempDir()
	run := exec.Command(binary, "run", "--quiet", "--", python, "-c", "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()")
	run.Env = append(withoutSlurm(), "TMPDIR="+dir, "XDG_CACHE_HOME="+dir)
	in, err := run.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewScanner(stdout)
	out.Scan()
	w := startAttach(t, nil, "--limit", "7M", out.Text())
	w.await(fmt.Sprintf("trim is of no use (not supported here, rsswarden (process %d) started it and does that; two must not)", run.Process.Pid))
	files, err := filepath.Glob(dir + "/rsswarden-*/*/ctl.*")
	if err != nil || len(files) > 0 {
		t.Errorf("%v, %v", files, err)
	}
	in.Close()
	if err := run.Wait(); err != nil {
		t.Error(err)
	}
	w.ended(0)
}

// TestAttachToOthers: what may not be read or signalled is named.
func TestAttachToOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be two users")
	}
	p := startTold(t)
	w := startAttach(t, attachAs(t, 65534), "--limit", "200M", "--at", "50%:signal=USR1", p.pid())
	p.do("grow 120")
	w.await("signal=USR1 did not work")
	p.do("grow 50")
	w.await("memory 8")
	p.end()
	w.ended(0)
	for _, want := range []string{
		"belongs to root, its environment cannot be read",
		"belongs to root, its PSS cannot be read",
		"belongs to root: signal, stop and worker signals will be refused",
	} {
		if !strings.Contains(w.err.String(), "from outside: process "+p.pid()+" "+want) {
			t.Errorf("not said: %q in\n%s", want, w.err.String())
		}
	}
}

// TestAttachKeepsNothingWhereOthersSay: no process chooses where root keeps files, nor
// what the scontrol that root starts loads. A user's own processes do so for the user.
func TestAttachKeepsNothingWhereOthersSay(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be two users")
	}
	for _, c := range []struct {
		watcher, watched int
		mine             bool
	}{{0, 0, false}, {0, 65534, false}, {65534, 65534, true}} {
		t.Run(fmt.Sprintf("user %d at user %d", c.watcher, c.watched), func(t *testing.T) {
			submit, path, records := openDir(t), openDir(t), openDir(t)
			loaded := filepath.Join(path, "loaded")
			scontrol := "#!/bin/sh\necho \"conf=$SLURM_CONF\" >> " + loaded + "\n"
			if err := os.WriteFile(filepath.Join(path, "scontrol"), []byte(scontrol), 0o755); err != nil {
				t.Fatal(err)
			}
			p := startToldBy(t, c.watched, "SLURM_JOB_ID=4711", "SLURM_SUBMIT_DIR="+submit, "SLURM_CONF="+filepath.Join(submit, "none"))
			as := attachAs(t, c.watcher)
			w := startAttach(t, func(cmd *exec.Cmd) {
				as(cmd)
				cmd.Env = append(cmd.Env, "PATH="+path+":"+os.Getenv("PATH"))
			}, "--record", records, "--limit", "1M", p.pid())
			w.await("memory ")
			soon(t, "kept a record, and the user's asked scontrol", func() bool {
				_, err := os.Stat(filepath.Join(submit, ".rsswarden"))
				_, asked := os.Stat(loaded)
				kept, _ := filepath.Glob(records + "/*/data.mdb")
				return len(kept) == 1 && (asked == nil && err == nil) == c.mine
			})
			p.end()
			w.ended(0)
			if files, _ := os.ReadDir(submit); (len(files) > 0) != c.mine {
				t.Errorf("in the directory that it names: %v", files)
			}
			if b, _ := os.ReadFile(loaded); strings.Contains(string(b), submit) != c.mine {
				t.Errorf("scontrol was started with %s", b)
			}
		})
	}
}

// poolJob keeps two workers that are hard to satisfy: each that ends is
// replaced, and grows. It ends with the fourth.
const poolJob = `
import os, signal, sys, time
def worker():
    kept = []
    while len(kept) < 60:
        kept.append(bytearray(b"x") * (1 << 20))
        time.sleep(0.005)
    print("grown", flush=True)
    time.sleep(60)
def start():
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, "-c", sys.argv[1], "pool-worker"])
if "pool-worker" in sys.argv:
    worker()
start(); start()
for n in range(4):
    os.wait()
    if n < 3:
        start()
print("four replaced", flush=True)
os.killpg(0, signal.SIGKILL)
`

// TestAttachPool: workers that their parent respawns are recycled by a signal,
// which needs no hook.
func TestAttachPool(t *testing.T) {
	cmd := exec.Command(python, "-c", poolJob, poolJob)
	cmd.Env = withoutSlurm()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out lines
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { unix.Kill(-cmd.Process.Pid, unix.SIGKILL) })
	// What they had when they were fresh is not known then.
	for deadline := time.Now().Add(time.Minute); strings.Count(out.String(), "grown\n") < 2; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(out.String())
		}
	}
	w := startAttach(t, nil, "--limit", "120M", "--interval", "20ms", "--at", "none", "--at", "80%:recycle",
		"--worker-signal", "TERM", "--worker-match", "pool-worker$", strconv.Itoa(cmd.Process.Pid))
	done := time.AfterFunc(time.Minute, func() { unix.Kill(-cmd.Process.Pid, unix.SIGKILL) })
	cmd.Wait()
	done.Stop()
	if !strings.Contains(out.String(), "four replaced") {
		t.Errorf("the pool said %q", out.String())
	}
	recycled := 0
	for _, o := range w.ended(0)[event.NameOutcome] {
		if o["ok"] == true {
			recycled++
		}
	}
	if recycled < 3 {
		t.Errorf("%d outcomes\n%s", recycled, w.err.String())
	}
}

// ranksJob starts ranks as torchrun and as Lightning do: the one that starts them
// catches TERM itself, and of Lightning's it is rank 0. argv: LOCAL_RANK of each.
const ranksJob = `
import os, signal, subprocess, sys, time
def tell(text):
    os.write(1, text.encode() + b"\n")  # whole: others write there too
def asked(n, frame):
    tell("asked " + os.environ.get("LOCAL_RANK", "main"))
    os._exit(0)
signal.signal(signal.SIGTERM, asked)
if "LOCAL_RANK" in os.environ:
    kept = bytearray(b"x") * (60 << 20)
    tell("ready")
    time.sleep(15)
ranks = [subprocess.Popen([sys.executable, "-c", sys.argv[1]], env=dict(os.environ, LOCAL_RANK=n)) for n in sys.argv[2:]]
for rank in ranks:
    rank.wait()
time.sleep(0.5)
tell("over")
`

// TestAttachRanks: behind what starts ranks every rank is asked, and who only
// starts them never.
func TestAttachRanks(t *testing.T) {
	for name, c := range map[string]struct{ locals, want []string }{
		"torchrun":  {[]string{"0", "1"}, []string{"asked 0", "asked 1", "over"}},
		"Lightning": {[]string{"1", "2"}, []string{"asked 1", "asked 2", "asked main"}},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(python, append([]string{"-c", ranksJob, ranksJob}, c.locals...)...)
			cmd.Env = withoutSlurm()
			var out lines
			cmd.Stdout = &out
			if err := cmd.Start(); err != nil {
				t.Skip(err)
			}
			done := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
			defer done.Stop()
			for deadline := time.Now().Add(time.Minute); strings.Count(out.String(), "ready") < 2; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("the ranks are not ready: %q", out.String())
				}
			}
			// It stands above the rung at the first look.
			w := startAttach(t, nil, "--limit", "150M", "--interval", "20ms", "--at", "none", "--at", "60%:signal=TERM", strconv.Itoa(cmd.Process.Pid))
			cmd.Wait()
			got := strings.Split(strings.TrimSpace(strings.ReplaceAll(out.String(), "ready\n", "")), "\n")
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q\n%s", got, c.want, w.err.String())
			}
			w.ended(0)
		})
	}
}
