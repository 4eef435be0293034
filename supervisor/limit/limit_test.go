package limit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// stand is one machine as a test has it.
type stand struct {
	t    *testing.T
	fs   rsstest.Tree
	tree *proctree.Reader
	set  *limit.Set
	warn []limit.Warning
	seq  uint64
}

// inJob is the environment of a batch step.
var inJob = map[string]string{"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1", "SLURM_MEM_PER_NODE": "700"}

// config makes a search that finds conf as the only file, or none.
func config(conf string) slurm.Search {
	return slurm.Search{
		Paths: []string{"/etc/slurm/slurm.conf"},
		ReadFile: func(name string) ([]byte, error) {
			if name != "/etc/slurm/slurm.conf" || conf == "" {
				return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
			}
			return []byte(conf), nil
		},
	}
}

const (
	linuxKill = "JobAcctGatherType=jobacct_gather/linux\nJobAcctGatherParams=OverMemoryKill\nJobAcctGatherFrequency=task=30\nTaskPlugin=task/none\nProctrackType=proctrack/cgroup\nSelectTypeParameters=CR_Core_Memory\n"
	cgroupRAM = "JobAcctGatherType=jobacct_gather/cgroup\nTaskPlugin=task/cgroup\nProctrackType=proctrack/cgroup\nSelectTypeParameters=CR_Core_Memory\n"
)

func newStand(t *testing.T, fs rsstest.Tree, env map[string]string, conf string, change func(*limit.Config)) *stand {
	t.Helper()
	cfg := limit.Config{
		Proc: fs.Proc, Sys: fs.Sys, PID: rsstest.Trainer,
		Lookup: func(k string) (string, bool) { v, ok := env[k]; return v, ok },
		Slurm:  config(conf),
	}
	if change != nil {
		change(&cfg)
	}
	s := &stand{t: t, fs: fs, tree: proctree.New(fs.Proc)}
	t.Cleanup(s.tree.Close)
	s.set, s.warn = limit.Find(context.Background(), cfg)
	t.Cleanup(s.set.Close)
	return s
}

// sample reads the tree and what counts beside it.
func (s *stand) sample() *rss.Sample {
	s.t.Helper()
	procs, gaps, err := s.tree.Tree(rss.ProcID{PID: rsstest.Trainer})
	if err != nil {
		s.t.Fatal(err)
	}
	extra, more, err := s.set.Extra(s.tree, procs)
	if err != nil {
		s.t.Fatal(err)
	}
	s.seq++
	return &rss.Sample{
		Seq: s.seq, At: time.Unix(1_800_000_000, 0), Mono: time.Duration(s.seq) * time.Second,
		Procs: procs, Extra: extra, Gaps: gaps.Add(more),
	}
}

func (s *stand) read() []event.Limit {
	s.t.Helper()
	limits := s.set.Read(s.sample())
	for i, l := range limits {
		if l.Binding != (i == 0 && l.Name != event.LimitTime && l.Name != event.LimitThrottle) {
			s.t.Errorf("binding: %d %+v", i, l)
		}
		if l.Name != event.LimitTime && (l.UsedSource == "" || l.LimitSource == "" || l.Limit == 0 || l.UsedMax < l.Used) {
			s.t.Errorf("incomplete: %+v", l)
		}
		if l.Enforcer == "" || l.Scope == "" {
			s.t.Errorf("incomplete: %+v", l)
		}
	}
	return limits
}

func names(limits []event.Limit) string {
	var s []string
	for _, l := range limits {
		s = append(s, string(l.Name)+"/"+string(l.Scope))
	}
	return strings.Join(s, " ")
}

func get(t *testing.T, limits []event.Limit, name event.LimitName) event.Limit {
	t.Helper()
	return scoped(t, limits, name, "")
}

// scoped returns the first limit of that name, and of the scope where one is given.
func scoped(t *testing.T, limits []event.Limit, name event.LimitName, scope event.Scope) event.Limit {
	t.Helper()
	for _, l := range limits {
		if l.Name == name && (scope == "" || l.Scope == scope) {
			return l
		}
	}
	t.Fatalf("no %s of the %s among %s", name, scope, names(limits))
	return event.Limit{}
}

func total(procs ...[]rss.Proc) (n rss.Bytes) {
	for _, list := range procs {
		for _, p := range list {
			n += p.RSS
		}
	}
	return n
}

func TestWhichLimits(t *testing.T) {
	step := map[string]string{"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_JOB_END_TIME": "1800000600"}
	for _, c := range []struct {
		name    string
		archive string
		env     map[string]string
		conf    string
		change  func(*limit.Config)
		want    string
	}{
		{"v1, kernel kills", "slurm-v1", inJob, cgroupRAM, nil, "cgroup/job cgroup/step"},
		{"v1, both kill", "slurm-v1", inJob, linuxKill, nil, "slurm/step cgroup/job cgroup/step"},
		{"v2 with throttling and an end", "slurm-v2", step, cgroupRAM, nil,
			"cgroup/job cgroup/step throttle/job throttle/step time/job"},
		{"no cgroup at all", "", inJob, linuxKill, nil, "node/node"},
		{"hybrid", "hybrid", nil, "", nil, "cgroup/cgroup"},
		{"limit out of sight", "namespaced-v1", nil, "", nil, "cgroup/cgroup"},
		{"cgroup namespace", "namespaced-v2", nil, "", nil, "cgroup/cgroup"},
		{"nothing but the node", "", nil, "", nil, "node/node"},
		{"a limit of one's own", "", nil, "", func(c *limit.Config) { c.User = rss.GiB }, "user/tree node/node"},
	} {
		t.Run(c.name, func(t *testing.T) {
			archives := []string{"torch"}
			if c.archive != "" {
				archives = append(archives, c.archive)
			}
			fs := rsstest.Unpack(t, archives...)
			s := newStand(t, fs, c.env, c.conf, c.change)
			if c.name == "no cgroup at all" {
				// Without /proc/PID/limits the step's memory comes from the
				// environment.
				limits := s.read()
				if l := get(t, limits, event.LimitSlurm); l.Limit != 700*rss.MiB || l.LimitSource != "SLURM_MEM_PER_NODE" {
					t.Errorf("got %+v", l)
				}
				return
			}
			if got := names(s.read()); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestEmptiness(t *testing.T) {
	fs := rsstest.Empty(t)
	set, warnings := limit.Find(context.Background(), limit.Config{Proc: fs.Proc, Sys: fs.Sys, PID: 1})
	if len(warnings) == 0 {
		t.Error("no warning")
	}
	if got := set.Read(&rss.Sample{}); len(got) != 0 {
		t.Errorf("got %v", got)
	}
	if _, ok := set.Fast(0, 0, nil); ok {
		t.Error("a fast tick without a limit")
	}
	if kills := set.OOMKills(); len(kills) != 0 {
		t.Errorf("kills %v", kills)
	}
	if set.SumsByPPID() || set.NeedsPSS() || set.LeftOpen() {
		t.Error("a sum outside Slurm")
	}
}

// Page cache at the limit is no danger, and the note says so.
func TestPageCacheAtTheLimit(t *testing.T) {
	fs := rsstest.Unpack(t, "torch", "slurm-v2")
	job := "sys/fs/cgroup/system.slice/n1_slurmstepd.scope/job_7/"
	fs.Write(job+"memory.current", "807403520\n") // all of 770 MiB
	fs.Replace(job+"memory.stat", "inactive_file 429916160", "inactive_file 536039424")
	fs.Replace(job+"memory.stat", "\nfile 439463936", "\nfile 545587200")
	s := newStand(t, fs, inJob, cgroupRAM, nil)
	l := scoped(t, s.read(), event.LimitCgroup, event.ScopeJob)
	if l.Charged.Of(l.Limit) < 0.999 || l.Ratio() > 0.33 || !strings.Contains(l.Note, "kills nothing") {
		t.Errorf("got %+v", l)
	}

	fs.Replace(job+"memory.stat", "pgmajfault 315", "pgmajfault 5315")
	if l := scoped(t, s.read(), event.LimitCgroup, event.ScopeJob); !strings.Contains(l.Note, "thrashing") {
		t.Errorf("note %q", l.Note)
	}
}

func TestLimitShrinks(t *testing.T) {
	fs := rsstest.Unpack(t, "torch", "slurm-v1")
	s := newStand(t, fs, inJob, cgroupRAM, nil)
	if l := s.read()[0]; l.Limit != 700*rss.MiB {
		t.Fatalf("got %+v", l)
	}
	file := "sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7/step_batch/memory.limit_in_bytes"
	fs.Write(file, "314572800\n")
	if l := s.read()[0]; l.Limit != 300*rss.MiB || l.Scope != event.ScopeStep || !strings.HasSuffix(l.LimitSource, "step_batch/memory.limit_in_bytes") {
		t.Errorf("got %+v", l)
	}

	t.Run("unreadable", func(t *testing.T) {
		fs.Write(file, "nonsense")
		if l := s.read()[0]; l.Limit != 300*rss.MiB {
			t.Errorf("got %+v", l)
		}
		if w := s.set.Warnings(); len(w) != 1 {
			t.Errorf("warnings %v", w)
		}
		s.read()
		if w := s.set.Warnings(); len(w) != 0 {
			t.Errorf("said twice: %v", w)
		}
	})
	t.Run("no memory.stat", func(t *testing.T) {
		fs.Remove("sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7/step_batch/memory.stat")
		fs.Write(file, "314572800\n")
		s := newStand(t, fs, inJob, cgroupRAM, nil)
		if l := scoped(t, s.read(), event.LimitCgroup, event.ScopeStep); l.Used != l.Charged || l.Used == 0 {
			t.Errorf("all that is charged counts: %+v", l)
		}
		if w := s.set.Warnings(); len(w) != 1 {
			t.Errorf("warnings %v", w)
		}
	})
}

func TestHiddenLimit(t *testing.T) {
	s := newStand(t, rsstest.Unpack(t, "torch", "namespaced-v1"), nil, "", nil)
	l := s.read()[0]
	if l.Limit != 512*rss.MiB || !strings.Contains(l.LimitSource, "hierarchical_memory_limit") || !strings.Contains(l.Note, "at least") {
		t.Errorf("got %+v", l)
	}
}

// A cgroup's limit of nearly all memory does not keep the node from dying.
func TestNodeBesideCgroup(t *testing.T) {
	fs := rsstest.Unpack(t, "torch", "slurm-v1")
	s := newStand(t, fs, inJob, cgroupRAM, nil)
	if got := names(s.read()); strings.Contains(got, "node") {
		t.Errorf("got %s", got)
	}
	fs.Replace("proc/meminfo", "MemTotal:", "MemTotal:  716800 kB\nOldTotal:")
	l := get(t, s.read(), event.LimitNode)
	if l.Limit != 700*rss.MiB || !strings.Contains(l.Note, "all of the node's") {
		t.Errorf("got %+v", l)
	}
}

func TestOOMKills(t *testing.T) {
	fs := rsstest.Unpack(t, "torch", "slurm-v1")
	file := "sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7/step_batch/task_0/memory.oom_control"
	fs.Replace(file, "oom_kill 0", "oom_kill 3") // before we came
	s := newStand(t, fs, inJob, cgroupRAM, nil)
	fs.Replace(file, "oom_kill 3", "oom_kill 5")
	kills := s.set.OOMKills()
	if len(kills) != 3 {
		t.Fatalf("levels %+v", kills)
	}
	for _, k := range kills {
		if k.Kills != 2 {
			t.Errorf("%+v", k)
		}
	}
}

func TestByKernel(t *testing.T) {
	var all []limit.Kills
	for _, k := range []event.KernelKills{
		{Level: "/c/job_1", Scope: event.ScopeJob, Kills: 3},
		{Level: "/c", Scope: event.ScopeCgroup},
		{Level: "/c/job_1/step_0", Scope: event.ScopeStep, Kills: 2, Leaf: true},
		{Level: "/c/job_1/step_1", Scope: event.ScopeStep, Kills: 1},
	} {
		all = append(all, limit.Kills{KernelKills: k})
	}
	got := limit.ByKernel(all)
	want := []event.KernelKills{
		{Level: "/c/job_1/step_0", Scope: event.ScopeStep, Kills: 2, Leaf: true},
		{Level: "/c/job_1/step_1", Scope: event.ScopeStep, Kills: 1},
		{Level: "/c/job_1", Scope: event.ScopeJob, Kills: 3},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
}

func TestExplain(t *testing.T) {
	s := newStand(t, rsstest.Unpack(t, "torch", "slurm-v1"), inJob, linuxKill, nil)
	e := s.set.Explain(s.read(), s.warn)
	where := map[string]bool{}
	for _, l := range e.Looked {
		where[l.Where] = true
		if l.Found == "" {
			t.Errorf("nothing said about %s", l.Where)
		}
	}
	for _, w := range []string{"meminfo", "cgroup", "environment", "parents", "RLIMIT_RSS", "SLURM_MEM_PER_NODE", "/etc/slurm/slurm.conf"} {
		if !where[w] {
			t.Errorf("%s is not among %v", w, e.Looked)
		}
	}
	if len(e.Limits) != 3 || len(e.Warnings) != 0 {
		t.Errorf("got %+v", e)
	}
}

func TestEnforcementSettledLater(t *testing.T) {
	s := newStand(t, rsstest.Unpack(t, "torch"), inJob, "", nil)
	found := false
	for _, w := range s.warn {
		found = found || w.Part == "slurm" && strings.Contains(w.String(), "cannot tell whether slurmstepd kills")
	}
	if !found || !s.set.LeftOpen() || !s.set.SumsByPPID() {
		t.Errorf("warnings %v, open %v, by ppid %v", s.warn, s.set.LeftOpen(), s.set.SumsByPPID())
	}
	s.set.SetEnforcement(slurm.Enforcement{}, errors.New("no answer"))
	if !s.set.LeftOpen() {
		t.Error("still open")
	}
	s.set.SetEnforcement(slurm.Enforcement{Known: true, Source: "scontrol show config", OverMemoryKill: true, Gather: "linux", UsePss: true, Interval: time.Second, Version: "24.11.5"}, nil)
	if s.set.LeftOpen() || !s.set.NeedsPSS() || !s.set.SumsByPPID() {
		t.Error("settled by scontrol")
	}
	if l := get(t, s.read(), event.LimitSlurm); l.Accounting != event.AccountingPSS {
		t.Errorf("got %+v", l)
	}
	end := time.Unix(1_800_000_060, 0)
	s.set.SetEnd(end)
	if l := get(t, s.read(), event.LimitTime); l.ETA == nil || *l.ETA != 60 {
		t.Errorf("got %+v", l)
	}
}

// A set keeps a few descriptors however often it is read, and gives them back.
func TestDescriptors(t *testing.T) {
	open := func() int {
		d, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(d)
	}
	before := open()
	fs := rsstest.Unpack(t, "torch", "slurm-v1")
	s := newStand(t, fs, inJob, cgroupRAM, nil)
	// Some files are opened when two readings were the same, and stay open.
	read := func(times int) int {
		for range times {
			s.read()
			s.set.Fast(time.Hour, 1, nil)
			s.set.OOMKills()
		}
		return open()
	}
	few := read(3)
	if n := read(50); n != few {
		t.Errorf("%d descriptors after 3 readings, %d after 53", few, n)
	}
	s.set.Close()
	s.tree.Close()
	if n := open(); n != before {
		t.Errorf("%d descriptors before, %d after", before, n)
	}
}

// TestAgeOfPSS: a sum says how old the oldest reading is that it rests on, in
// the sample event too.
func TestAgeOfPSS(t *testing.T) {
	pss := strings.Replace(linuxKill, "OverMemoryKill", "OverMemoryKill,UsePss", 1)
	s := newStand(t, rsstest.Unpack(t, "torch"), inJob, pss, func(c *limit.Config) {
		c.User, c.Accounting = rss.GiB, event.AccountingPSS
	})
	read := func(sample *rss.Sample, want float64) {
		t.Helper()
		limits := s.set.Read(sample)
		for _, name := range []event.LimitName{event.LimitUser, event.LimitSlurm} {
			l := get(t, limits, name)
			if l.Accounting != event.AccountingPSS || l.Age != want {
				t.Errorf("%s, compared in %s: %v s old, want %v", name, l.Accounting, l.Age, want)
			}
			b, err := json.Marshal(l)
			if err != nil || strings.Contains(string(b), `"age_s":`) != (want > 0) {
				t.Errorf("%s, %v", b, err)
			}
		}
	}
	sample := s.sample()
	sample.Mono = 90 * time.Second
	read(sample, 0) // nothing was read
	for i, at := range []time.Duration{80 * time.Second, 50 * time.Second} {
		sample.Procs[i].PSS = &rss.PSS{PSS: rss.MiB, RSS: sample.Procs[i].RSS, At: at}
	}
	read(sample, 40)
}

func TestNoAgeWithoutPSS(t *testing.T) {
	s := newStand(t, rsstest.Unpack(t, "torch"), inJob, linuxKill, nil)
	sample := s.sample()
	sample.Mono = 90 * time.Second
	sample.Procs[0].PSS = &rss.PSS{PSS: rss.MiB, RSS: sample.Procs[0].RSS}
	if l := get(t, s.set.Read(sample), event.LimitSlurm); l.Accounting != event.AccountingRSS || l.Age != 0 {
		t.Errorf("compared in %s, %v s old", l.Accounting, l.Age)
	}
}

const container = "sys/fs/cgroup/"

func TestFastCgroup(t *testing.T) {
	fs := rsstest.Unpack(t, "torch", "namespaced-v2")
	s := newStand(t, fs, nil, "", nil)
	base := s.read()[0]
	now := time.Second
	// cached is what of page cache is inactive; the rest of it stays.
	cached := func(old, inactive rss.Bytes) {
		const rest = 439463936 - 429916160
		fs.Replace(container+"memory.stat", fmt.Sprintf("\ninactive_file %d\n", uint64(old)), fmt.Sprintf("\ninactive_file %d\n", uint64(inactive)))
		fs.Replace(container+"memory.stat", fmt.Sprintf("\nfile %d\n", uint64(old+rest)), fmt.Sprintf("\nfile %d\n", uint64(inactive+rest)))
	}
	set := func(usage rss.Bytes) { fs.Write(container+"memory.current", fmt.Sprintf("%12d\n", uint64(usage))) }
	threshold := base.Used + 50*rss.MiB

	t.Run("below the threshold one counter is read", func(t *testing.T) {
		cached(429916160, 440401920)
		set(base.Charged + 20*rss.MiB)
		now += 2 * time.Millisecond
		f, ok := s.set.Fast(now, threshold, nil)
		if !ok || f.Used == f.UsedMax || f.Used != base.Used+20*rss.MiB || f.UsedMax != base.Charged+20*rss.MiB {
			t.Errorf("%v: %+v", ok, f)
		}
	})
	t.Run("above the threshold memory.stat is read at once", func(t *testing.T) {
		set(base.Charged + 60*rss.MiB)
		f, ok := s.set.Fast(now, threshold, nil)
		if !ok || f.Used != f.UsedMax || f.Used != base.Used+50*rss.MiB || f.UsedMax != f.Used {
			t.Errorf("%v: used %v, base %v, %+v", ok, f.Used, base.Used, f)
		}
	})
	t.Run("at the limit not twice within 50 ms", func(t *testing.T) {
		set(base.Limit)
		now += 10 * time.Millisecond
		f, ok := s.set.Fast(now, 2*base.Limit, nil)
		if !ok || f.Used == f.UsedMax {
			t.Errorf("%v: %+v", ok, f)
		}
	})
	t.Run("at the limit cache may turn into anon unseen", func(t *testing.T) {
		set(base.Limit)
		cached(440401920, 1048576)
		now += 100 * time.Millisecond
		f, ok := s.set.Fast(now, base.Limit, nil)
		if !ok || f.Used != f.UsedMax || f.Ratio() < 0.9 {
			t.Errorf("%v: %+v", ok, f)
		}
	})
	t.Run("gone", func(t *testing.T) {
		fs.Write(container+"memory.current", "\n")
		if f, ok := s.set.Fast(now, 0, nil); ok {
			t.Errorf("%+v", f)
		}
	})
}

func TestFastSums(t *testing.T) {
	for _, c := range []struct {
		acc             event.Accounting
		grown, grownMax int // MiB after the tree grew by 10
		shrunk          int // MiB after it shrank by 10
	}{
		{event.AccountingRSS, 10, 10, -10},
		{event.AccountingNoShared, 0, 10, -10},
	} {
		t.Run(string(c.acc), func(t *testing.T) {
			s := newStand(t, rsstest.Unpack(t, "torch"), nil, "", func(cfg *limit.Config) {
				cfg.User, cfg.Accounting = rss.GiB, c.acc
			})
			sample := s.sample()
			base := s.set.Read(sample)[0]
			sum := total(sample.Procs)
			at := func(n rss.Bytes) event.Limit {
				f, ok := s.set.Fast(time.Second, 0, func() (rss.Bytes, error) { return n, nil })
				if !ok {
					t.Fatal("no reading")
				}
				return f
			}
			mib := func(a, b rss.Bytes) int { return (int(a) - int(b)) / int(rss.MiB) }
			f := at(sum + 10*rss.MiB)
			if g, m := mib(f.Used, base.Used), mib(f.UsedMax, base.UsedMax); g != c.grown || m != c.grownMax {
				t.Errorf("grown by %d to %d MiB", g, m)
			}
			if g := mib(at(sum-10*rss.MiB).Used, base.Used); g != c.shrunk {
				t.Errorf("shrunk by %d MiB", g)
			}
			if _, ok := s.set.Fast(0, 0, func() (rss.Bytes, error) { return 0, errors.New("no") }); ok {
				t.Error("a failed sum")
			}
		})
	}
}

// What slurmstepd sums of its tasks' cgroups moves with the tree's RSS until the
// next full look.
func TestFastTasks(t *testing.T) {
	conf := strings.Replace(linuxKill, "gather/linux", "gather/cgroup", 1)
	fs := rsstest.Unpack(t, "torch", "slurm-v1")
	for _, level := range []string{"", "/step_batch", "/step_batch/task_0"} {
		fs.Write("sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7"+level+"/memory.limit_in_bytes", "9223372036854771712\n")
	}
	s := newStand(t, fs, inJob, conf, nil)
	sample := s.sample()
	limits := s.set.Read(sample)
	base := get(t, limits, event.LimitSlurm)
	if !base.Binding {
		t.Fatalf("binding: %+v", limits[0])
	}
	grown := total(sample.Procs) + 10*rss.MiB
	f, ok := s.set.Fast(time.Second, 0, func() (rss.Bytes, error) { return grown, nil })
	if !ok || f.Used != base.Used+10*rss.MiB {
		t.Errorf("%v: %+v, was %v", ok, f, base.Used)
	}
}

func TestFastNode(t *testing.T) {
	fs := rsstest.Unpack(t, "torch")
	s := newStand(t, fs, nil, "", nil)
	base := s.read()[0]
	fs.Write("proc/meminfo", fmt.Sprintf("MemTotal: %d kB\nMemAvailable: 1024 kB\n", base.Limit/rss.KiB))
	f, ok := s.set.Fast(0, 0, nil)
	if !ok || f.Used != f.UsedMax || f.Name != event.LimitNode || f.Used != base.Limit-rss.MiB {
		t.Errorf("%v: %+v", ok, f)
	}
	fs.Write("proc/meminfo", "")
	if _, ok := s.set.Fast(0, 0, nil); ok {
		t.Error("without meminfo")
	}
}

func TestUserLimit(t *testing.T) {
	v1 := func() rsstest.Tree { return rsstest.Unpack(t, "torch", "slurm-v1") }
	for _, c := range []struct {
		name   string
		fs     rsstest.Tree
		conf   string
		env    map[string]string
		change func(*limit.Config)
		want   event.Accounting
		limit  rss.Bytes
	}{
		{"auto under a cgroup", v1(), cgroupRAM, inJob, func(c *limit.Config) { c.User = rss.GiB }, event.AccountingCgroup, rss.GiB},
		{"auto under slurmstepd", v1(), linuxKill, inJob, func(c *limit.Config) { c.User = rss.GiB }, event.AccountingRSS, rss.GiB},
		{"auto without any", rsstest.Unpack(t, "torch"), "", nil, func(c *limit.Config) { c.User = rss.GiB }, event.AccountingRSS, rss.GiB},
		{"asked", v1(), cgroupRAM, inJob, func(c *limit.Config) {
			c.User = rss.GiB
			c.Accounting = event.AccountingNoShared
		}, event.AccountingNoShared, rss.GiB},
		{"a share", v1(), cgroupRAM, inJob, func(c *limit.Config) { c.UserShare = 0.5 }, event.AccountingCgroup, 350 * rss.MiB},
		{"cgroup without one", rsstest.Unpack(t, "torch"), "", nil, func(c *limit.Config) {
			c.User = rss.GiB
			c.Accounting = event.AccountingCgroup
		}, event.AccountingRSS, rss.GiB},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStand(t, c.fs, c.env, c.conf, c.change)
			l := get(t, s.read(), event.LimitUser)
			if l.Accounting != c.want || l.Limit != c.limit || l.Used == 0 {
				t.Errorf("got %+v", l)
			}
		})
	}
	t.Run("pss is an interval", func(t *testing.T) {
		s := newStand(t, rsstest.Unpack(t, "torch"), nil, "", func(c *limit.Config) {
			c.User, c.Accounting = rss.GiB, event.AccountingPSS
		})
		if !s.set.NeedsPSS() {
			t.Error("needs PSS")
		}
		sample := s.sample()
		l := get(t, s.set.Read(sample), event.LimitUser)
		if l.Used != 0 || l.UsedMax != total(sample.Procs) {
			t.Errorf("never read: %v to %v", l.Used, l.UsedMax)
		}
		var want rss.Bytes
		for i := range sample.Procs {
			p, err := s.tree.PSS(sample.Procs[i].ID)
			wardentest.NoError(t, err)
			sample.Procs[i].PSS = &p
			want += p.PSS
		}
		l = get(t, s.set.Read(sample), event.LimitUser)
		if l.Used < want-rss.MiB || l.Used > want || l.UsedMax < l.Used || l.UsedMax >= total(sample.Procs) {
			t.Errorf("read: %v to %v, want %v", l.Used, l.UsedMax, want)
		}
	})
}

// secondStep adds a step 0 of the same job to the made-up node: a slurmstepd
// with one task.
const (
	secondStepd = 5100
	secondTask  = 5101
)

func secondStep(fs rsstest.Tree) {
	fs.Put(rsstest.Process{PID: secondStepd, Parent: 1, Comm: "slurmstepd", Anon: 8 * rss.MiB})
	fs.Put(rsstest.Process{PID: secondTask, Parent: secondStepd, Comm: "python", Anon: 145 * rss.MiB})
}

// steps makes the limits of both steps.
func steps(t *testing.T, fs rsstest.Tree, conf string, change func(*limit.Config)) (batch, zero *stand) {
	t.Helper()
	batch = newStand(t, fs, inJob, conf, change)
	zero = newStand(t, fs, map[string]string{"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_MEM_PER_NODE": "100"}, conf, func(c *limit.Config) {
		c.PID = secondTask
		if change != nil {
			change(c)
			c.PID = secondTask
		}
	})
	return batch, zero
}

// whole reads all trees of the job.
func whole(t *testing.T, s *stand, u *limit.Union) *rss.Sample {
	t.Helper()
	procs, _, err := s.tree.Trees([]rss.ProcID{{PID: rsstest.Trainer}, {PID: secondTask}})
	wardentest.NoError(t, err)
	extra, _, err := u.Extra(s.tree, procs)
	wardentest.NoError(t, err)
	seen := map[rss.ProcID]bool{}
	for _, list := range [][]rss.Proc{procs, extra} {
		for _, p := range list {
			if seen[p.ID] {
				t.Errorf("process %v is there twice", p.ID)
			}
			seen[p.ID] = true
		}
	}
	return &rss.Sample{Seq: 1, Mono: 1, Procs: procs, Extra: extra}
}

// TestUnionOfSteps: slurmstepd holds each step to its own sum.
func TestUnionOfSteps(t *testing.T) {
	fs := rsstest.Unpack(t, "torch")
	secondStep(fs)
	batch, zero := steps(t, fs, linuxKill, func(c *limit.Config) { c.User = rss.GiB })
	alone := get(t, batch.read(), event.LimitSlurm)

	u := limit.Join(limit.Part{Name: "7.batch", Set: batch.set}, limit.Part{Name: "7.0", Set: zero.set})
	sample := whole(t, batch, u)
	limits := u.Read(sample)
	of := map[string]event.Limit{}
	binding := 0
	for _, l := range limits {
		if l.Name == event.LimitSlurm {
			of[l.Level] = l
		}
		if l.Binding {
			binding++
		}
	}
	if got := of["7.batch"]; got.Used != alone.Used || got.Limit != 700*rss.MiB {
		t.Errorf("the batch step uses %v of %v, read alone %v", got.Used, got.Limit, alone.Used)
	}
	if got := of["7.0"]; got.Used != 145*rss.MiB || got.Limit != 100*rss.MiB || !got.Binding {
		t.Errorf("step 0: %+v", got)
	}
	if got := names(limits); got != "slurm/step slurm/step user/tree node/node" || binding != 1 {
		t.Errorf("limits %s, %d of them binding", got, binding)
	}
	if l := get(t, limits, event.LimitUser); l.Used != total(sample.Procs) {
		t.Errorf("--limit counts %v, all trees of the job have %v", l.Used, total(sample.Procs))
	}
	if !u.SumsByPPID() || u.NeedsPSS() || !u.LeftOpen() {
		t.Error("what follows from it")
	}
	if job, ok := u.Job(); !ok || job.ID != "7" {
		t.Errorf("job %v", job)
	}

	// The fast tick looks at the binding limit, which is step 0's.
	fast, ok := u.Fast(1, 150*rss.MiB, func() (rss.Bytes, error) { return total(sample.Procs) + 4*rss.MiB, nil })
	if !ok || fast.Level != "7.0" || fast.Used != 149*rss.MiB {
		t.Errorf("fast %+v, %v", fast, ok)
	}

	// Step 0 has ended, and none is known any more.
	u.Replace([]limit.Part{{Name: "7.batch", Set: batch.set}})
	for range 2 {
		limits = u.Read(whole(t, batch, u))
		if l := get(t, limits, event.LimitSlurm); l.Level != "7.batch" || strings.Count(names(limits), "slurm") != 1 {
			t.Errorf("without step 0: %s", names(limits))
		}
		u.Replace(nil)
	}
	u.SetEnforcement(slurm.Enforcement{Known: true, Source: "scontrol show config"}, nil)
	if got := names(u.Read(whole(t, batch, u))); strings.Contains(got, "slurm") {
		t.Errorf("no sum was expected: %s", got)
	}
	u.Close()
}

// TestUnionOfCgroups: a cgroup above both steps is listed once.
func TestUnionOfCgroups(t *testing.T) {
	fs := rsstest.Unpack(t, "torch", "slurm-v1")
	secondStep(fs)
	fs.Write("proc/5101/cgroup", strings.ReplaceAll(fs.Read("proc/4102/cgroup"), "step_batch", "step_0"))
	fs.Write("proc/5101/limits", fs.Read("proc/4102/limits"))
	job := "sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7/"
	for _, file := range []string{"usage_in_bytes", "limit_in_bytes", "stat", "memsw.limit_in_bytes", "memsw.usage_in_bytes", "oom_control", "failcnt"} {
		fs.Write(job+"step_0/memory."+file, fs.Read(job+"step_batch/memory."+file))
	}
	fs.Write(job+"step_0/memory.limit_in_bytes", "262144000\n") // of srun --mem=250
	batch, zero := steps(t, fs, cgroupRAM, nil)
	u := limit.Join(limit.Part{Name: "7.batch", Set: batch.set}, limit.Part{Name: "7.0", Set: zero.set})
	limits := u.Read(whole(t, batch, u))
	levels := map[string]int{}
	for _, l := range limits {
		if l.Name == event.LimitCgroup {
			levels[l.Level[strings.LastIndex(l.Level, "/")+1:]]++
		}
	}
	if levels["job_7"] != 1 || levels["step_batch"] != 1 || levels["step_0"] != 1 {
		t.Errorf("levels %v", levels)
	}
	if l := limits[0]; !strings.HasSuffix(l.Level, "step_0") || !l.Binding || l.Limit != 250*rss.MiB {
		t.Errorf("binding %+v", l)
	}
	if fast, ok := u.Fast(1, rss.GiB, nil); !ok || !strings.HasSuffix(fast.Level, "step_0") {
		t.Errorf("fast %+v, %v", fast, ok)
	}
	fs.Replace(job+"step_0/memory.oom_control", "oom_kill 0", "oom_kill 2")
	seen := map[string]bool{}
	for _, k := range u.OOMKills() {
		if seen[k.Level] || (k.Kills > 0) == strings.Contains(k.Level, "step_batch") {
			t.Errorf("%d kills at %s", k.Kills, k.Level)
		}
		if k.Leaf != (strings.HasSuffix(k.Level, "step_0") || strings.HasSuffix(k.Level, "task_0")) {
			t.Errorf("%s is a leaf: %v", k.Level, k.Leaf)
		}
		seen[k.Level] = true
	}
}

// TestUnionStep: of which step a limit is.
func TestUnionStep(t *testing.T) {
	fs := rsstest.Unpack(t, "torch", "slurm-v1")
	secondStep(fs)
	fs.Write("proc/5101/cgroup", strings.ReplaceAll(fs.Read("proc/4102/cgroup"), "step_batch", "step_0"))
	job := "sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7/"
	for _, file := range []string{"usage_in_bytes", "limit_in_bytes", "stat"} {
		fs.Write(job+"step_0/memory."+file, fs.Read(job+"step_batch/memory."+file))
	}
	batch, zero := steps(t, fs, linuxKill, func(c *limit.Config) { c.User = rss.GiB })
	u := limit.Join(limit.Part{Name: "7.batch", Set: batch.set}, limit.Part{Name: "7.0", Set: zero.set})
	got := map[string]string{}
	for _, l := range u.Read(whole(t, batch, u)) {
		got[string(l.Name)+" "+l.Level[strings.LastIndex(l.Level, "/")+1:]] = u.Step(&l)
	}
	for of, want := range map[string]string{
		"cgroup step_batch": "batch", "cgroup step_0": "0", "cgroup job_7": "",
		"slurm 7.batch": "batch", "slurm 7.0": "0", "user ": "",
	} {
		if step, there := got[of]; !there || step != want {
			t.Errorf("%s is of step %q (%v), want %q", of, step, there, want)
		}
	}
	task := event.Limit{Name: event.LimitCgroup, Scope: event.ScopeCgroup, Level: fs.Sys + strings.TrimPrefix(job, "sys") + "step_0/task_0"}
	if step := u.Step(&task); step != "0" {
		t.Errorf("a task's is of step %q", step)
	}
	if l := batch.read()[0]; limit.Join(limit.Part{Set: batch.set}).Step(&l) != "" {
		t.Error("one part alone is all there is")
	}
}

// TestStepEnds: a directory that went with its step is nothing to warn of; one
// that is there and cannot be read is.
func TestStepEnds(t *testing.T) {
	const job = "sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7"
	for name, c := range map[string]struct {
		remove string
		warns  bool
	}{
		"the task":    {job + "/step_batch/task_0", false},
		"the step":    {job + "/step_batch", false},
		"the job":     {job, false},
		"all of them": {"sys/fs/cgroup/memory/slurm_n1", true},
		"a file only": {job + "/step_batch/memory.limit_in_bytes", true},
	} {
		t.Run(name, func(t *testing.T) {
			fs := rsstest.Unpack(t, "torch", "slurm-v1")
			s := newStand(t, fs, inJob, cgroupRAM, nil)
			s.read()
			s.set.Warnings()
			fs.Remove(c.remove)
			s.set.Close() // the kernel's files end with the directory, these do not
			s.read()
			s.set.OOMKills()
			if w := s.set.Warnings(); (len(w) > 0) != c.warns {
				t.Errorf("warnings %v", w)
			}
		})
	}
}
