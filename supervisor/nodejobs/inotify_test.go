package nodejobs

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/rss/rsstest/guest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

func TestMain(m *testing.M) {
	rsstest.BeEater()
	os.Exit(m.Run())
}

// real is a node of real cgroups of v1, that no Slurm knows.
type real struct {
	*Node
	t    *testing.T
	name string
	user string // the directory of jobs
}

func newReal(t *testing.T) *real {
	t.Helper()
	const mount = "/sys/fs/cgroup/memory"
	if _, err := os.Stat(mount + "/memory.usage_in_bytes"); err != nil {
		t.Skip("no memory hierarchy of cgroup v1 here")
	}
	r := &real{t: t, name: fmt.Sprintf("rsn%d", time.Now().UnixNano())}
	top := mount + "/slurm_" + r.name
	r.user = top + "/uid_1000"
	r.mkdir(top)
	r.mkdir(r.user)
	r.Node = New("/proc", "/sys", "host")
	t.Cleanup(r.Node.Close)
	return r
}

func (r *real) mkdir(dir string) {
	r.t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		r.t.Skip("cannot make a cgroup:", err)
	}
	r.t.Cleanup(func() { os.Remove(dir) })
}

// job makes a job of one step and task with a limit, and returns the task's directory.
func (r *real) job(id int, limit rss.Bytes) (task string) {
	r.t.Helper()
	job := fmt.Sprintf("%s/job_%d", r.user, id)
	task = job + "/step_0/task_0"
	for _, dir := range []string{job, job + "/step_0", task} {
		r.mkdir(dir)
	}
	for _, dir := range []string{job, job + "/step_0"} {
		must(r.t, os.WriteFile(dir+"/memory.limit_in_bytes", fmt.Append(nil, uint64(limit)), 0))
	}
	return task
}

// hit has the OOM killer end a process in a task, and removes up directories of it as soon
// as the kernel allows.
func (r *real) hit(task string, up int) {
	r.t.Helper()
	eater := rsstest.StartEater(r.t)
	must(r.t, os.WriteFile(task+"/cgroup.procs", fmt.Append(nil, eater.PID), 0))
	if eater.Anon(100 * rss.MiB) {
		r.t.Fatal("nothing was killed")
	}
	for dir := task; up > 0; up, dir = up-1, filepath.Dir(dir) {
		removed(r.t, dir)
	}
}

// armed waits until the step of a task is watched.
func (r *real) armed(task string) { armed(r.t, r.Node, filepath.Dir(task)) }

func armed(t *testing.T, n *Node, step string) {
	t.Helper()
	wardentest.Until(t, "a notification for "+step, func() bool {
		n.notices.mu.Lock()
		defer n.notices.mu.Unlock()
		job := n.notices.jobAt(filepath.Dir(step))
		return job != nil && job.kids[filepath.Base(step)] != nil && job.kids[filepath.Base(step)].ooms.armed
	})
}

// removed removes a directory at the moment at which the kernel allows it.
func removed(t *testing.T, dir string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); os.Remove(dir) != nil; {
		if time.Now().After(deadline) {
			t.Fatalf("%s is not empty", dir)
		}
	}
}

// told waits for the kernel's word, and returns the look after it that says so.
func (r *real) told(what string, ok func(Snapshot) bool) Snapshot {
	r.t.Helper()
	for deadline := time.After(10 * time.Second); ; {
		select {
		case <-r.Told():
			if snap := r.look(); ok(snap) {
				return snap
			}
		case <-deadline:
			r.t.Fatalf("never told: %s", what)
		}
	}
}

// look is a look at the node's own jobs.
func (r *real) look() Snapshot {
	r.t.Helper()
	snap, err := r.Scan(time.Now())
	must(r.t, err)
	return snap
}

func (r *real) find(snap Snapshot, id string) *Job {
	for i := range snap.Jobs {
		if j := &snap.Jobs[i]; j.Node == r.name && j.ID == id {
			return j
		}
	}
	return nil
}

func (r *real) ended(snap Snapshot, id string) *Ended {
	for i := range snap.Ended {
		if e := &snap.Ended[i]; e.Node == r.name && e.ID == id {
			return e
		}
	}
	return nil
}

// A kill in a step that is gone at once, of a job that lives, and of one that no look ever
// saw.
func TestRealNotices(t *testing.T) {
	r := newReal(t)
	task := r.job(1, 30*rss.MiB)
	must(t, r.Listen())
	if snap := r.look(); r.find(snap, "1") == nil || snap.Unheard > 0 && r.unheardHere() > 0 {
		t.Fatalf("%+v", snap)
	}
	r.hit(task, 2)
	r.told("a kill in job 1", func(s Snapshot) bool {
		j := r.find(s, "1")
		if j == nil || j.OOMKills == 0 {
			return false
		}
		if j.OOMKills != 1 || j.KilledBy == ByEnd || j.stepKills("0") != 1 || len(j.Steps) > 0 {
			t.Errorf("%+v", j)
		}
		return true
	})
	// Later looks say the same.
	for range 3 {
		if j := r.find(r.look(), "1"); j == nil || j.OOMKills != 1 || j.stepKills("0") != 1 {
			t.Errorf("%+v", j)
		}
	}
	sure := 0
	for id := 2; id < 12; id++ {
		task := r.job(id, 30*rss.MiB)
		r.armed(task)
		r.hit(task, 3)
		r.told("a kill in a job that came and went", func(s Snapshot) bool {
			e := r.ended(s, fmt.Sprint(id))
			if e == nil || e.OOMKills == 0 {
				return false
			}
			if e.OOMKills != 1 || !e.Unseen || e.stepKills("0") != 1 || e.UID != 1000 || e.KilledBy == ByEnd || e.Since.IsZero() {
				t.Errorf("%+v", e)
			}
			if e.Limit == 30*rss.MiB && e.Charged > 25*rss.MiB {
				sure++
			}
			return true
		})
	}
	t.Logf("limit and charge were read of %d of 10", sure)
}

// unheardHere counts the steps of this node without notifications: other nodes may be on
// this machine.
func (r *real) unheardHere() (count int) {
	r.notices.mu.Lock()
	defer r.notices.mu.Unlock()
	var walk func(s *watchedDir)
	walk = func(s *watchedDir) {
		if s.node == r.name && s.ooms != nil && !s.ooms.armed {
			count++
		}
		for _, c := range s.kids {
			walk(c)
		}
	}
	walk(r.notices.root)
	return count
}

// Jobs that come and go leave nothing behind, and none is accused of a kill elsewhere.
func TestRealNoticesOfTheInnocent(t *testing.T) {
	r := newReal(t)
	elsewhere := filepath.Join(filepath.Dir(filepath.Dir(r.user)), r.name+"_service")
	r.mkdir(elsewhere)
	must(t, os.WriteFile(elsewhere+"/memory.limit_in_bytes", []byte("30M"), 0))
	must(t, r.Listen())
	r.look()
	for id := range 40 {
		task := r.job(100+id, 30*rss.MiB)
		if id%10 == 5 {
			r.hit(elsewhere, 0)
		}
		for dir := task; dir != r.user; dir = filepath.Dir(dir) {
			must(t, os.Remove(dir))
		}
		if id%10 == 6 {
			for _, e := range r.look().Ended {
				if e.Node == r.name && e.OOMKills > 0 {
					t.Errorf("%+v", e)
				}
			}
		}
	}
	wardentest.Until(t, "no eventfds and tries are left", func() bool {
		r.notices.mu.Lock()
		defer r.notices.mu.Unlock()
		held := len(r.notices.due)
		for _, e := range r.notices.events {
			if e.node == r.name {
				held++
			}
		}
		return held == 0
	})
	for _, e := range r.look().Ended {
		if e.Node == r.name && e.OOMKills > 0 {
			t.Errorf("%+v", e)
		}
	}
}

// Where the kernel's queue runs over, what is there is looked for.
func TestRealNoticesOverflow(t *testing.T) {
	r := newReal(t)
	r.job(1, 30*rss.MiB)
	must(t, r.Listen())
	n := r.notices
	n.mu.Lock()
	defer n.mu.Unlock()
	job := n.jobAt(r.user + "/job_1")
	delete(n.jobAt(r.user).kids, job.name) // never heard of
	n.again(n.root)
	again := n.jobAt(r.user + "/job_1")
	if again == nil || again.kids["step_0"] == nil || !again.kids["step_0"].ooms.armed {
		t.Errorf("%+v", again)
	}
}

// TestRealStill: of jobs that inotify watches and that are charged the same, steps that come,
// go or grow are seen as at every other look.
func TestRealStill(t *testing.T) {
	r := newReal(t)
	task := r.job(1, rss.GiB)
	must(t, r.Listen())
	eater := rsstest.StartEater(t)
	must(t, os.WriteFile(task+"/cgroup.procs", fmt.Append(nil, eater.PID), 0))
	step := func(id string) *Step {
		j := r.find(r.look(), "1")
		if j == nil {
			t.Fatal("the job is not there")
		}
		return j.step(id)
	}
	// The kernel counts what the eater has just done a little later.
	wardentest.Until(t, "a charge that stays", func() bool {
		charged := step("0").Charged
		return charged > 0 && step("0").Charged == charged
	})
	job := r.trees[0].root.find(r.user + "/job_1")
	wardentest.Until(t, "a look at the job alone", func() bool {
		step("0")
		of := job.kids[0].group
		return of.chargedAt == r.looks && of.readAt < r.looks
	})
	if !eater.Anon(50 * rss.MiB) {
		t.Fatal("the eater was killed")
	}
	if s := step("0"); s.Charged < 50*rss.MiB || s.Unreclaimable < 50*rss.MiB {
		t.Errorf("%+v after 50 MiB", s)
	}
	other := filepath.Dir(filepath.Dir(task)) + "/step_1"
	for range 20 {
		must(t, os.Mkdir(other, 0o755))
		if step("1") == nil {
			t.Error("a step that began is not there")
		}
		removed(t, other)
		if step("1") != nil {
			t.Error("a step that ended is there still")
		}
	}
}

// TestRealNoticesRefused: without spare descriptors or the permission to ask, a line says so
// and the step is counted.
func TestRealNoticesRefused(t *testing.T) {
	r := newReal(t)
	r.job(1, 30*rss.MiB)
	must(t, r.Listen())
	r.notices.mu.Lock()
	r.notices.most = 0
	r.notices.mu.Unlock()
	task := r.job(2, 30*rss.MiB)
	wardentest.Until(t, "it is said", func() bool {
		snap := r.look()
		return snap.Unheard > 0 && snap.Why != nil // a step that just came is unheard of too, without a reason yet
	})
	// What the counter says is seen as ever.
	r.hit(task, 0)
	if !r.Killed() {
		t.Error("a kill is not noticed")
	}
	if j := r.find(r.look(), "2"); j == nil || j.OOMKills != 1 || j.KilledBy != ByCounter {
		t.Errorf("%+v", j)
	}
	// One that is gone at once is the likely one where it is the only one to end; other jobs
	// of this machine may end at the same time.
	for id := 3; ; id++ {
		if id == 30 {
			t.Fatal("never taken for the one that was hit")
		}
		r.hit(r.job(id, 30*rss.MiB), 3)
		var e *Ended
		for deadline := time.Now().Add(time.Second); e == nil && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			e = r.ended(r.look(), fmt.Sprint(id))
		}
		if e != nil {
			if e.OOMKills != 1 || e.KilledBy != ByEnd || !e.Unseen {
				t.Errorf("%+v", e)
			}
			break
		}
	}
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

func TestForecast(t *testing.T) {
	s := v1Stand(t)
	const limit = 10_000_000_000
	var snap Snapshot
	looks := 0
	for used := uint64(2_000_000_000); used < 9_000_000_000; used += 100_000_000 {
		s.v1("slurm/uid_1/job_7", used, limit, 0)
		snap = s.look()
		looks++
		u := snap.Jobs[0].Use
		if used <= limit/2 && u.Forecast {
			t.Errorf("forecast at %d", used)
		}
		if used == 5_500_000_000 && (!u.Forecast || (u.ETA-450*time.Second).Abs() > 20*time.Second) {
			t.Errorf("%v, %v at %d, want 450s", u.ETA, u.Forecast, used)
		}
	}
	u := snap.Jobs[0].Use
	if !u.Growing || u.PerSecond < 9.9e6 || u.PerSecond > 10.1e6 || u.Peak != 8_900_000_000 || u.Near != 0 {
		t.Errorf("%+v", u)
	}
	s.v1("slurm/uid_1/job_7", 9_500_000_000, limit, 0)
	s.look()
	s.v1("slurm/uid_1/job_7", 9_600_000_000, limit, 0)
	if u := s.look().Jobs[0].Use; u.Near != 10*time.Second {
		t.Errorf("at the limit for %v", u.Near)
	}
	if st := snap.Jobs[0].Steps[0]; st.Forecast || st.Growing {
		t.Errorf("the step does not change: %+v", st)
	}
}

// However rare the looks are, growth that goes on is forecast after 20 of them, and what
// has just begun is not.
func TestForecastOfRareLooks(t *testing.T) {
	for _, interval := range []time.Duration{11 * time.Second, 30 * time.Second, time.Minute, 10 * time.Minute, time.Hour} {
		s := v1Stand(t)
		s.Interval = interval
		const limit, step = 10_000_000_000, 100_000_000
		first := 0
		for look := 1; look <= 40; look++ {
			used := uint64(5_100_000_000 + look*step)
			s.v1("slurm/uid_1/job_7", used, limit, 0)
			// A tick comes some milliseconds early or late.
			now := s.now.Add(time.Duration(look)*interval + time.Duration(look%3)*5*time.Millisecond)
			snap, err := s.Scan(now)
			must(t, err)
			u := snap.Jobs[0].Use
			if !u.Forecast {
				continue
			}
			if first == 0 {
				first = look
			}
			if want := time.Duration((limit-used)/step) * interval; (u.ETA - want).Abs() > want/20 {
				t.Errorf("%v: %v at look %d, want %v", interval, u.ETA, look, want)
			}
		}
		if first < 17 || first > 24 {
			t.Errorf("%v: the first forecast at look %d", interval, first)
		}
	}
}

// TestForecastOfFastGrowth: what fills its limit in six minutes is forecast once it is at
// half of it and has been seen for as long as a slope must hold, whatever the interval.
func TestForecastOfFastGrowth(t *testing.T) {
	for _, interval := range []time.Duration{time.Second, 3 * time.Second, 7 * time.Second, 10 * time.Second} {
		s := v1Stand(t)
		const limit = 360_000_000
		for at := interval; at < 350*time.Second; at += interval {
			used := uint64(at.Seconds() * 1_000_000)
			s.v1("slurm/uid_1/job_7", used, limit, 0)
			snap, err := s.Scan(s.now.Add(at))
			must(t, err)
			u := snap.Jobs[0].Use
			if want, due := 360*time.Second-at, used > limit/2 && at-interval >= rss.HoldTime; u.Forecast != due || u.Forecast && (u.ETA-want).Abs() > 5*time.Second {
				t.Errorf("each %v: after %v the forecast is %v, %v; want %v from half of the limit and 3 minutes on", interval, at, u.ETA, u.Forecast, want)
				break
			}
		}
	}
}

// TestNoForecastOfWhatMayFlatten: where growth may flatten below the limit, no time to it is
// told, though the middle of the forecast meets it.
func TestNoForecastOfWhatMayFlatten(t *testing.T) {
	s := v1Stand(t)
	const limit = 10_000_000_000
	var trend rss.Trend
	open := 0
	for at := 10 * time.Second; at < 40*time.Minute; at += 10 * time.Second {
		used := uint64(5.2e9 + 4.6e9*(1-math.Exp(-at.Seconds()/300)) + 2e7*math.Sin(at.Seconds()/70))
		s.v1("slurm/uid_1/job_7", used, limit, 0)
		snap, err := s.Scan(s.now.Add(at))
		must(t, err)
		trend.Add(at, rss.Bytes(used))
		_, _, most, meets := trend.ETA(limit)
		if meets && most == rss.Never {
			open++
		}
		if u := snap.Jobs[0].Use; u.Forecast != (meets && most < rss.Never) {
			t.Errorf("after %v: %v, full in %v at most", at, u.Forecast, most)
		}
	}
	if open == 0 {
		t.Error("the test proves nothing")
	}
}
