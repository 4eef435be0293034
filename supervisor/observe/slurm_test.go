package observe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/population"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/probe/probetest"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/view"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

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
