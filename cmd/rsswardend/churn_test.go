package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"github.com/rsswarden/rsswarden/rss/rsstest"
)

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
	p, err := procfs.NewProc(d.cmd.Process.Pid)
	if err != nil {
		d.t.Fatal(err)
	}
	status, err := p.NewStatus()
	if err != nil {
		d.t.Fatal(err)
	}
	if fds, err = p.FileDescriptorsLen(); err != nil {
		d.t.Fatal(err)
	}
	return fds, float64(status.VmRSS) / (1 << 20)
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
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(j.dir+"/step_batch/task_0/cgroup.procs", []byte(fmt.Sprint(j.cmd.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
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
