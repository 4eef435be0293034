package observe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/population"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/probe/probetest"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/view"
	"github.com/rsswarden/rsswarden/supervisor/wake"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// PIDs above the kernel's greatest.
const (
	theHolder  = 5000000
	theCommand = 5000001
)

// stand is an observer of a made-up command of 100 MiB under --limit 1000M of summed RSS.
type stand struct {
	*Observer
	t   *testing.T
	fs  rsstest.Tree
	v   *view.View
	now time.Duration
}

func newStand(t *testing.T, change func(*settings.Policy, map[string]string)) *stand {
	t.Helper()
	s := &stand{t: t, fs: rsstest.Empty(t), v: &view.View{Watched: -1}}
	s.fs.Write("proc/meminfo", "MemTotal: 67108864 kB\nMemFree: 67108864 kB\nMemAvailable: 67108864 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n")
	set := &settings.Policy{UserLimit: settings.UserLimit{Limit: 1000 * rss.MiB, Accounting: event.AccountingRSS}}
	env := map[string]string{}
	if change != nil {
		change(set, env)
	}
	s.put(100 * rss.MiB)
	probes := new(probe.Set)
	s.Observer = New(Options{
		Settings: set, Proc: s.fs.Proc, Sys: s.fs.Sys, Self: theHolder + 9, Holder: theHolder,
		Command: rss.ProcID{PID: theCommand, Start: 10}, Probes: probes, Bell: wake.New(),
		Lookup:   func(k string) (string, bool) { v, ok := env[k]; return v, ok },
		Scontrol: func(context.Context, ...string) ([]byte, error) { return nil, errors.New("no scontrol here") },
		Start:    (*exec.Cmd).Start, Subreaper: func(bool) error { return nil },
	})
	s.Open(theHolder, theCommand, "")
	s.read()
	return s
}

// put gives the command so much.
func (s *stand) put(anon rss.Bytes) {
	s.fs.Put(rsstest.Process{PID: theCommand, Parent: theHolder, Start: 10, Comm: "python", Anon: anon})
}

// read takes a full read a second after the last, and returns its news.
func (s *stand) read() (news view.News) {
	s.now += time.Second
	s.v, news = s.Full(s.now, s.v)
	return news
}

// user is the reading of --limit.
func (s *stand) user() *event.Limit {
	s.t.Helper()
	l := s.v.Limit(event.LimitID{Name: event.LimitUser, Scope: event.ScopeTree, Accounting: s.opt.Settings.Accounting})
	if l == nil {
		s.t.Fatalf("no reading of --limit among %+v", s.v.Limits)
	}
	return l
}

// TestLimitSetLater: the kernel also reports a limit that was not set at the start.
func TestLimitSetLater(t *testing.T) {
	bell := wake.New()
	dir := t.TempDir()
	file := filepath.Join(dir, "memory.events")
	wardentest.NoError(t, os.WriteFile(file, []byte("max 0\n"), 0o600))
	o := &Observer{opt: Options{Bell: bell, LimitMet: 1}}
	wardentest.NoError(t, o.WatchLimits([]event.Limit{{Name: event.LimitUser}, {Level: t.TempDir()}, {Level: dir}, {Level: dir}}))
	wardentest.NoError(t, os.WriteFile(file, []byte("max 1\n"), 0o600))
	for end := time.After(10 * time.Second); ; {
		select {
		case <-bell.C():
			if bell.Causes()&1 != 0 {
				return
			}
		case <-end:
			t.Fatal("the bell did not ring")
		}
	}
}

func TestFull(t *testing.T) {
	s := newStand(t, nil)
	s.put(300 * rss.MiB)
	s.read()
	if s.v.Sample.Seq != 2 || len(s.v.Sample.Procs) != 1 || s.v.Sample.Procs[0].ID.PID != theCommand {
		t.Errorf("the sample is %+v", s.v.Sample)
	}
	if l := s.user(); l.Used != 300*rss.MiB || s.v.Latest(l) != float64(200*rss.MiB) || &s.v.Limits[s.v.Watched] != l {
		t.Errorf("%+v grows by %.0f bytes a second, want 200 MiB; %d is watched", l, s.v.Latest(l), s.v.Watched)
	}
}

// TestUnreadableTreeKeepsTheLast, and says so.
func TestUnreadableTreeKeepsTheLast(t *testing.T) {
	s := newStand(t, nil)
	s.Pop.Tree = proctree.New(filepath.Join(t.TempDir(), "none"))
	news := s.read()
	if len(s.v.Sample.Procs) != 1 || s.user().Used != 100*rss.MiB {
		t.Errorf("%d processes, used %v; want the last reading", len(s.v.Sample.Procs), s.user().Used)
	}
	if len(news) != 1 || news[0].(view.Fault).Part != "proctree" {
		t.Errorf("told %v", news)
	}
}

// TestFastRead reads the watched limit alone, and calls for a full one where that has met
// what it is judged at.
func TestFastRead(t *testing.T) {
	s := newStand(t, nil)
	for _, c := range []struct {
		anon rss.Bytes
		full bool
	}{{700 * rss.MiB, false}, {800 * rss.MiB, true}} {
		s.put(c.anon)
		v, full := s.Fast(s.now+time.Second, s.v, 800*rss.MiB)
		if l := &v.Limits[v.Watched]; l.Used != c.anon || full != c.full || v.Sample.Seq != s.v.Sample.Seq {
			t.Errorf("of %v it reads %v, a full read %v", c.anon, l.Used, full)
		}
	}
	other := *s.v
	other.Watched = len(s.v.Limits)
	other.Limits = append(other.Limits, event.Limit{Name: event.LimitSlurm})
	if _, full := s.Fast(s.now+time.Second, &other, rss.GiB); !full {
		t.Error("the counter of another limit is taken for that of the watched one")
	}
}

// TestLeastOf: what the anonymous memory of a trainer and its workers counts for certain, for
// a sum of PSS alone.
func TestLeastOf(t *testing.T) {
	s := newStand(t, func(set *settings.Policy, _ map[string]string) { set.Accounting = event.AccountingPSS })
	s.Loader = new(loader.Control)
	id := rss.ProcID{PID: 1, Start: 1}
	s.Workers.SetTrainers([]event.Trainer{{ID: id, CanRecycle: true, Loaders: []event.DataLoader{{N: 1, NumWorkers: 1, CanRecycle: true, Workers: []int{11}}}}})
	s.Workers.Update(&rss.Sample{Procs: []rss.Proc{
		{ID: id, State: 'S', RSS: rss.GiB, Anon: rss.GiB},
		{ID: rss.ProcID{PID: 11, Start: 1}, State: 'S', RSS: 2 * rss.GiB, Anon: rss.GiB + 100*rss.MiB},
	}}, nil)
	for a, want := range map[event.Accounting]rss.Bytes{event.AccountingPSS: rss.GiB + 100*rss.MiB, event.AccountingRSS: 0} {
		if got := s.LeastOf(&event.Limit{Name: event.LimitUser, Accounting: a}); got != want {
			t.Errorf("%s: %v, want %v", a, got, want)
		}
	}
}

// rungs is a ladder of one rung, at 80 %.
type rungs struct{}

func (rungs) NextRung(l *event.Limit) rss.Bytes {
	if at := l.Limit.Scale(0.8); l.Used < at {
		return at
	}
	return l.Limit
}
func (rungs) Rung(_ event.Action, l *event.Limit) (rss.Bytes, bool) { return l.Limit.Scale(0.8), true }
func (rungs) Uncertain([]event.Limit) bool                          { return false }
func (rungs) JobEndAhead() time.Duration                            { return 0 }

// TestReached: only a limit at its rung, or a new limit, calls for a full read.
func TestReached(t *testing.T) {
	at := func(used rss.Bytes) []event.Limit {
		return []event.Limit{{Name: event.LimitSHM, Scope: event.ScopeNode, Used: used, Limit: 1000}}
	}
	v := &view.View{Limits: at(100)}
	for _, c := range []struct {
		used rss.Bytes
		want bool
	}{{100, false}, {799, false}, {800, true}, {1000, true}} {
		if got := reached(v, at(c.used), rungs{}); got != c.want {
			t.Errorf("at %d: %v", c.used, got)
		}
	}
	v.Limits = at(960)
	if reached(v, at(990), rungs{}) || !reached(v, at(1000), rungs{}) {
		t.Error("above the last rung the next is the limit")
	}
	if !reached(v, []event.Limit{{Name: event.LimitTasks, Used: 1, Limit: 1000}}, rungs{}) {
		t.Error("what is new calls for none")
	}
}

// inJob is an observer of a job that ends in so long, and scontrol by hand.
func inJob(t *testing.T, left time.Duration) (*stand, *probetest.ByHand[SlurmQuestion, SlurmAnswer]) {
	s := newStand(t, func(_ *settings.Policy, env map[string]string) {
		env["SLURM_JOB_ID"], env["SLURMD_NODENAME"], env["SLURM_LOCALID"] = "7", "n1", "1"
		env["SLURM_JOB_END_TIME"] = strconv.FormatInt(time.Now().Add(left).Unix(), 10)
	})
	hand := probetest.New[SlurmQuestion, SlurmAnswer](new(probe.Set))
	s.Slurm.Reader = hand.Reader
	return s, hand
}

// TestJobEnd is asked for once more shortly before a rule on it would fire, by one process
// of the node, and not again within minutes.
func TestJobEnd(t *testing.T) {
	for name, c := range map[string]struct {
		left, ahead time.Duration
		asks        bool
		want        bool
	}{
		"no rule":               {time.Minute, 0, true, false},
		"far":                   {time.Hour, 10 * time.Minute, true, false},
		"near":                  {10 * time.Minute, 10 * time.Minute, true, true},
		"near, another asks it": {10 * time.Minute, 10 * time.Minute, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, hand := inJob(t, c.left)
			s.Slurm.Asks = c.asks
			left, asking := s.JobEnd(s.now, s.v, c.ahead)
			if (left-c.left).Abs() > 2*time.Second || asking != c.want {
				t.Fatalf("%v are left, asking %v", left, asking)
			}
			if !asking {
				return
			}
			hand.Answer(t, SlurmAnswer{End: time.Now().Add(c.left)})
			if h := s.Hear(s.now, s.v, rungs{}); !h.Full || len(h.News) != 0 {
				t.Errorf("heard %+v", h)
			}
			if _, again := s.JobEnd(s.now+time.Minute, s.v, c.ahead); again {
				t.Error("asked again after a minute")
			}
			s.Slurm.Slept()
			if _, again := s.JobEnd(s.now+time.Minute, s.v, c.ahead); !again {
				t.Error("not asked again after the job was suspended")
			}
			hand.Answer(t, SlurmAnswer{})
		})
	}
}

// TestJobEndIsNotKnown: that scontrol does not say when is a fault where a rule waits for it.
func TestJobEndIsNotKnown(t *testing.T) {
	for _, c := range []struct {
		err   error
		ahead time.Duration
		tells bool
	}{{errors.New("no"), time.Minute, true}, {errors.New("no"), 0, false}, {slurm.ErrNoEnd, time.Minute, false}} {
		s, _ := inJob(t, time.Hour)
		var news view.News
		if s.heardSlurm(&SlurmAnswer{EndErr: c.err}, c.ahead, &news); len(news) > 0 != c.tells {
			t.Errorf("%v, a rule %v ahead: told %v", c.err, c.ahead, news)
		}
	}
}

// ofStep is the process of a step.
func ofStep(step int) rss.ProcID { return rss.ProcID{PID: 20 + step, Start: 1} }

// limitsOfSteps finds the limits of steps on a node where the processes of the first three live. tried gets the
// PIDs by which they are found, and each has a warning of its own.
func limitsOfSteps(t *testing.T) (l *stepLimits, tried *[]int, open func() int) {
	fs := rsstest.Empty(t)
	fs.Write("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 1000 kB\nMemAvailable: 1000 kB\n")
	for step := range 3 {
		fs.Put(rsstest.Process{PID: ofStep(step).PID, Parent: 1, Start: 1, Comm: "python"})
	}
	tried = new([]int)
	opt := Options{Settings: &settings.Policy{}, Proc: fs.Proc, Sys: fs.Sys}
	l = &stepLimits{proc: fs.Proc, probes: new(probe.Set), sets: map[string]*limit.Set{}}
	l.find = func(pid int) (*limit.Set, []limit.Warning) {
		*tried = append(*tried, pid)
		set, _ := opt.limitsOf(pid, nil, func(string) (string, bool) { return "", false })
		return set, []limit.Warning{{Part: "slurm", Text: fmt.Sprint("by ", pid)}}
	}
	return l, tried, func() (open int) {
		entries, err := os.ReadDir("/proc/self/fd")
		wardentest.NoError(t, err)
		for _, e := range entries {
			if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, fs.Proc) {
				open++
			}
		}
		return open
	}
}

func jobOfSteps(steps ...int) *population.Job {
	j := &population.Job{StepOf: map[rss.ProcID]string{}}
	for _, step := range steps {
		id, name := ofStep(step), fmt.Sprint(step)
		j.Roots, j.Steps, j.StepOf[id] = append(j.Roots, id), append(j.Steps, name), name
	}
	return j
}

// TestLimitsNotByWhatHasEnded: nothing is found out of a process that ended meanwhile, and
// that all of a step have is no warning.
func TestLimitsNotByWhatHasEnded(t *testing.T) {
	l, tried, _ := limitsOfSteps(t)
	dead := ofStep(7)
	s := l.findStep("0", []rss.ProcID{dead, ofStep(0), ofStep(1)})
	if s.set == nil || fmt.Sprint(*tried) != "[27 20]" || len(s.warnings) != 1 || s.warnings[0].Text != "by 20" {
		t.Errorf("by %v, warnings %v", *tried, s.warnings)
	}
	if s = l.findStep("0", []rss.ProcID{dead}); s.set == nil || len(s.warnings) > 0 {
		t.Errorf("of the dead: warnings %v", s.warnings)
	}
}

// TestLimitsOfSteps: what is found of a step counts for as long as it lasts, and is closed
// with it; until something is found the last known stay.
func TestLimitsOfSteps(t *testing.T) {
	l, tried, open := limitsOfSteps(t)
	check := func(what string, names []string, want int) {
		t.Helper()
		var got []string
		for _, p := range l.parts("46.7") {
			got = append(got, p.Name)
		}
		if n := open(); fmt.Sprint(got) != fmt.Sprint(names) || n != want {
			t.Errorf("%s: parts %v, %d are open; want %v, %d", what, got, n, names, want)
		}
	}
	set := func(j *population.Job) {
		l.of(j, true)
		l.take()
	}
	set(jobOfSteps(0))
	u := limit.Join(l.parts("46")...)
	check("one step", []string{"46.0"}, 1)
	set(jobOfSteps(0, 1))
	u.Replace(l.parts("46"))
	u.Read(&rss.Sample{})
	check("two", []string{"46.0", "46.1"}, 2)
	if l.of(jobOfSteps(0, 1), true) || len(*tried) != 2 {
		t.Errorf("the same again: looked at %v", *tried)
	}
	l.of(jobOfSteps(2), false)
	<-l.probes.C()
	check("one that was looked for", nil, 3)
	u.Replace(l.parts("46"))
	set(jobOfSteps(1))
	u.Replace(l.parts("46"))
	check("gone meanwhile", []string{"46.1"}, 1)
	u.Close()

	// Alone our own step has no name.
	own := l.findStep("0", []rss.ProcID{ofStep(0)}).set
	l = &stepLimits{own: own, ownStep: "0", sets: map[string]*limit.Set{"1": own}, steps: []string{"0"}}
	if got := l.parts("46"); len(got) != 1 || got[0].Name != "" {
		t.Errorf("our own step has parts %v", got)
	}
	l.steps = []string{"0", "1"}
	if got := l.parts("46"); len(got) != 2 || got[0].Name != "46.0" || got[1].Name != "46.1" {
		t.Errorf("our own and another have parts %v", got)
	}
}

// TestVersionIsAskedAtOnce: what the version decides is known at once, for scontrol --version
// asks no daemon. slurmctld is asked later.
func TestVersionIsAskedAtOnce(t *testing.T) {
	job := slurm.Job{ID: "7", ConfFile: filepath.Join(t.TempDir(), "slurm.conf")}
	wardentest.NoError(t, os.WriteFile(job.ConfFile, []byte("JobAcctGatherType=jobacct_gather/linux\nJobAcctGatherParams=OverMemoryKill\n"), 0o600))
	for _, c := range []struct {
		name   string
		job    slurm.Job
		first  string
		atOnce bool
	}{
		{"the files leave the version open", job, "--version", true},
		{"the files cannot be read", slurm.Job{ID: "7", ConfFile: filepath.Join(t.TempDir(), "none")}, "show config", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked []string
				r := NewSlurm(new(probe.Set), func(string) (string, bool) { return "", false }, func(_ context.Context, args ...string) ([]byte, error) {
					asked = append(asked, strings.Join(args, " "))
					return []byte("slurm 22.05.8"), nil
				})
				r.Ask(SlurmQuestion{Job: c.job, Open: true}, false)
				r.Ask(SlurmQuestion{Job: c.job}, false)
				synctest.Wait()
				if _, ok := r.Take(); ok != c.atOnce || len(asked) > 1 {
					t.Errorf("answered %v, asked %q", ok, asked)
				}
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if len(asked) != 2 || asked[0] != c.first || asked[1] == c.first {
					t.Errorf("asked %q", asked)
				}
			})
		})
	}
}
