package nodejobs

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/rss/rsstest/guest"
)

func TestMain(m *testing.M) {
	rsstest.BeEater()
	os.Exit(m.Run())
}

// TestRealV2 runs itself in a guest, which has the memory controller on v2: directories as
// Slurm makes them, a step that grows and is hit by the OOM killer, and ends.
func TestRealV2(t *testing.T) {
	if os.Getenv("NODEJOBS_TEST_IN_GUEST") == "" {
		out, exit := guest.Run(t, guest.Options{
			Binary: guest.TestBinary(t), Args: []string{"-test.run=^TestRealV2$", "-test.v"},
			Env: []string{"NODEJOBS_TEST_IN_GUEST=1"},
		})
		if t.Log(out); exit != 0 || !strings.Contains(out, "--- PASS: TestRealV2") {
			t.Errorf("in the guest: status %d", exit)
		}
		return
	}
	const scope = "/sys/fs/cgroup/system.slice/n1_slurmstepd.scope"
	write := func(name, text string) {
		t.Helper()
		must(t, os.WriteFile(name, []byte(text), 0))
	}
	group := func(dir string) string {
		t.Helper()
		must(t, os.MkdirAll(dir, 0o755))
		for up := filepath.Dir(dir); up != "/sys/fs/cgroup"; up = filepath.Dir(up) {
			defer write(up+"/cgroup.subtree_control", "+memory") // from the top down
		}
		return dir
	}
	task := group(scope + "/job_5/step_0/user/task_0")
	stepd := group(scope + "/job_5/step_0/slurm")
	must(t, os.Chown(task, 1000, 1000))
	write(scope+"/job_5/memory.max", "120M")
	write(scope+"/job_5/step_0/user/memory.max", "100M")
	eater, other := rsstest.StartEater(t), rsstest.StartEater(t)
	write(task+"/cgroup.procs", strconv.Itoa(eater.PID))
	write(stepd+"/cgroup.procs", strconv.Itoa(other.PID))

	n := New("/proc", "/sys", "host")
	defer n.Close()
	must(t, n.Listen())
	look := func() Snapshot {
		t.Helper()
		snap, err := n.Scan(time.Now())
		if err != nil || snap.Failures > 0 {
			t.Fatalf("%v, %+v", err, snap)
		}
		return snap
	}
	if snap := look(); len(snap.Jobs) != 1 || snap.Jobs[0].Node != "n1" || snap.Jobs[0].UID != 1000 || snap.Where != "cgroup v2" || !snap.Memory {
		t.Fatalf("%+v", snap)
	}
	listed := n.lists
	if !eater.Anon(60 * rss.MiB) {
		t.Fatal("the eater has ended")
	}
	j := look().Jobs[0]
	if st := j.Steps[0]; j.Limit != 120*rss.MiB || st.Limit != 100*rss.MiB || st.Unreclaimable < 60*rss.MiB || st.Unreclaimable > 75*rss.MiB || j.Unreclaimable < st.Unreclaimable || j.Processes != 2 || st.Processes != 2 {
		t.Errorf("%+v", j)
	}
	if n.lists != listed {
		t.Error("directories were listed where none has changed")
	}
	group(scope + "/job_5/step_0/user/task_1")
	if look(); n.lists != listed+1 {
		t.Errorf("%d directories were listed where one has changed", n.lists-listed)
	}
	if n.Killed() {
		t.Error("reports a kill without one")
	}
	if eater.Anon(100 * rss.MiB) {
		t.Fatal("nothing was killed")
	}
	if !n.Killed() {
		t.Error("a kill is not noticed")
	}
	select {
	case <-n.Told():
	case <-time.After(10 * time.Second):
		t.Error("the kernel does not tell of a kill")
	}
	if snap := look(); snap.Unheard > 0 {
		t.Errorf("%d steps without notifications: %v", snap.Unheard, snap.Why)
	}
	if j := look().Jobs[0]; j.OOMKills == 0 || j.Steps[0].OOMKills == 0 {
		t.Errorf("%+v", j)
	}
	other.End()
	for _, dir := range []string{"/step_0/user/task_1", "/step_0/user/task_0", "/step_0/user", "/step_0/slurm", "/step_0", ""} {
		removed(t, scope+"/job_5"+dir)
		if snap := look(); dir == "/step_0" && (len(snap.Jobs[0].Steps) != 0 || snap.Jobs[0].OOMKills == 0) {
			t.Errorf("%+v", snap)
		} else if dir == "" && (len(snap.Jobs) != 0 || len(snap.Ended) != 1 || snap.Ended[0].OOMKills == 0) {
			t.Errorf("%+v", snap)
		}
	}
	// A job that comes, is hit and goes between two looks.
	task = group(scope + "/job_6/step_batch/user/task_0")
	write(scope+"/job_6/memory.max", "50M")
	eater = rsstest.StartEater(t)
	write(task+"/cgroup.procs", strconv.Itoa(eater.PID))
	armed(t, n, scope+"/job_6/step_batch")
	if eater.Anon(100 * rss.MiB) {
		t.Fatal("nothing was killed")
	}
	for dir := task; dir != scope; dir = filepath.Dir(dir) {
		removed(t, dir)
	}
	for deadline := time.After(10 * time.Second); ; {
		select {
		case <-n.Told():
		case <-deadline:
			t.Fatal("no notification for the job that came and went")
		}
		if snap := look(); len(snap.Ended) == 1 {
			if e := snap.Ended[0]; e.ID != "6" || !e.Unseen || e.OOMKills == 0 || e.stepKills("batch") == 0 || e.KilledBy == ByEnd {
				t.Errorf("%+v", e)
			}
			t.Logf("known by %s, limit %v, charge %v", snap.Ended[0].KilledBy, snap.Ended[0].Limit, snap.Ended[0].Charged)
			break
		}
	}
}
