package limit_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
)

// step is a node with a Slurm step on it, made to measure:
//
//	slurmstepd 100 ─ batch shell 110 ─ holder 120 ─ command 4102 ─ worker 131
//	               │                 └ tee 115     ├ watcher 121 (of the holder)
//	               └ second task 150 ─ child 151
//
// and an orphan 140 of the command, a stranger 160.
func step(t *testing.T) rsstest.Tree {
	fs := rsstest.Empty(t)
	put := func(pid, parent int, comm string, anon, file rss.Bytes) {
		fs.Put(rsstest.Process{PID: pid, Parent: parent, Comm: comm, Start: uint64(pid), Anon: anon * rss.MiB, File: file * rss.MiB})
	}
	put(1, 0, "systemd", 10, 0)
	put(100, 1, "slurmstepd", 20, 0)
	put(110, 100, "slurm_script", 1, 2)
	put(115, 110, "tee", 1, 0)
	put(120, 110, "rsswarden", 3, 4)
	put(121, 120, "rsswarden", 5, 4)
	put(rsstest.Trainer, 120, "python", 100, 200)
	put(4131, rsstest.Trainer, "python", 50, 200)
	put(4140, rsstest.Trainer, "daemon", 600, 0)
	put(150, 100, "task1", 7, 0)
	put(151, 150, "child", 8, 0)
	put(160, 1, "stranger", 900, 0)
	fs.Write("proc/meminfo", "MemTotal: 8192000 kB\nMemFree: 4096000 kB\nMemAvailable: 6144000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n")
	fs.Write("proc/4102/limits", "Limit                     Soft Limit           Hard Limit           Units     \nMax resident set          1048576000           1048576000           bytes     \n")
	return fs
}

func self(c *limit.Config) { c.Self = []int{120, 121} }

func TestWhatSlurmstepdSums(t *testing.T) {
	const (
		tree   = 100 + 200 + 50 + 200
		beside = 3 + 1 + 7 + 9 + 7 + 8 // batch shell, tee, holder, watcher, second task, its child
		orphan = 600
	)
	for _, c := range []struct {
		name  string
		rules slurm.Enforcement
		want  rss.Bytes // MiB with the daemon still a child
		less  rss.Bytes // MiB that fall out once it is an orphan
		acc   event.Accounting
	}{
		{"rss", slurm.Enforcement{Gather: "linux"}, tree + beside + orphan, orphan, event.AccountingRSS},
		{"noshared", slurm.Enforcement{Gather: "linux", NoShared: true}, 150 + 1 + 1 + 3 + 5 + 7 + 8 + orphan, orphan, event.AccountingNoShared},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := step(t)
			s := newStand(t, fs, inJob, linuxKill, self)
			c.rules.Known, c.rules.OverMemoryKill, c.rules.Interval = true, true, time.Second
			s.set.SetEnforcement(c.rules, nil)
			l := get(t, s.read(), event.LimitSlurm)
			if l.Used != c.want*rss.MiB || l.Used != l.UsedMax || l.Accounting != c.acc || l.Scope != event.ScopeStep ||
				l.Limit != 1000*rss.MiB || l.LimitSource != "RLIMIT_RSS" || !strings.HasPrefix(l.Enforcer, "slurmstepd") {
				t.Errorf("got %+v", l)
			}
			fs.Put(rsstest.Process{PID: 4140, Parent: 1, Comm: "daemon", Start: 4140, Anon: 600 * rss.MiB})
			if l := get(t, s.read(), event.LimitSlurm); l.Used != (c.want-c.less)*rss.MiB {
				t.Errorf("with an orphan: used %v", l.Used)
			}
		})
	}
}

// Under hidepid slurmstepd itself cannot be seen: its number still can.
func TestSlurmstepdHidden(t *testing.T) {
	fs := step(t)
	fs.End(100)
	fs.End(1)
	fs.End(160)
	s := newStand(t, fs, inJob, linuxKill, self)
	if l := get(t, s.read(), event.LimitSlurm); l.Used != (550+35+600)*rss.MiB {
		t.Errorf("used %v", l.Used)
	}
}

// Outside a step that can be seen, ourselves and the tree count.
func TestNoSlurmstepd(t *testing.T) {
	fs := step(t)
	fs.Replace("proc/100/stat", "slurmstepd", "containerd")
	s := newStand(t, fs, inJob, linuxKill, self)
	if l := get(t, s.read(), event.LimitSlurm); l.Used != (550+16+600)*rss.MiB {
		t.Errorf("used %v", l.Used)
	} else if !strings.Contains(l.Note, "no slurmstepd") {
		t.Errorf("note %q", l.Note)
	}
}

// The shell of salloc is in a job and in no step.
func TestSalloc(t *testing.T) {
	s := newStand(t, step(t), map[string]string{"SLURM_JOB_ID": "7", "SLURM_MEM_PER_NODE": "700"}, linuxKill, self)
	if got := names(s.read()); got != "node/node" || s.set.SumsByPPID() || s.set.LeftOpen() {
		t.Errorf("got %s", got)
	}
}

func TestVSizeFactor(t *testing.T) {
	fs := step(t)
	s := newStand(t, fs, inJob, linuxKill+"VSizeFactor=300\n", self)
	for _, l := range s.read() {
		if l.Accounting == event.AccountingVirtual {
			// The builder makes VmSize twice the RSS.
			if l.Limit != 3000*rss.MiB || l.Used != 2*(550+35+600)*rss.MiB || !strings.Contains(l.LimitSource, "VSizeFactor") {
				t.Errorf("got %+v", l)
			}
			return
		}
	}
	t.Error("no limit of virtual memory")
}

// jobacct_gather/cgroup sums the tasks' cgroups, anon alone on v1.
func TestGatherCgroup(t *testing.T) {
	conf := strings.Replace(linuxKill, "gather/linux", "gather/cgroup", 1)
	fs := rsstest.Unpack(t, "torch", "slurm-v1")
	s := newStand(t, fs, inJob, conf, nil)
	l := get(t, s.read(), event.LimitSlurm)
	if l.Accounting != event.AccountingCgroup || l.Used < 200*rss.MiB || l.Used > 260*rss.MiB || l.Used != l.UsedMax || s.set.SumsByPPID() {
		t.Errorf("v1: %+v", l)
	}

	fs = rsstest.Unpack(t, "torch", "slurm-v2")
	const thp = 100 * rss.MiB
	fs.Replace("sys/fs/cgroup/system.slice/n1_slurmstepd.scope/job_7/step_batch/user/task_0/memory.stat", "anon_thp 0\n", fmt.Sprintf("anon_thp %d\n", thp))
	s = newStand(t, fs, inJob, conf, nil)
	l = get(t, s.read(), event.LimitSlurm)
	if l.Used != 249233408 || l.UsedMax <= l.Used || !s.set.LeftOpen() || s.set.SumsByPPID() {
		t.Errorf("v2 of an unknown version: %+v, open %v", l, s.set.LeftOpen())
	}
	e := s.set.Enforcement()
	for version, want := range map[string]rss.Bytes{
		"22.05.8": l.Used + thp, "23.02.5": l.Used + thp, "23.02": l.Used + thp, "23.02.6": l.Used, "23.02.7": l.Used,
		"23.11.0": l.UsedMax, "25.05.1": l.UsedMax,
	} {
		e.Version = version
		s.set.SetEnforcement(e, nil)
		if l := get(t, s.read(), event.LimitSlurm); l.Used != want || l.UsedMax != want || s.set.LeftOpen() {
			t.Errorf("v2 of %s: %v to %v, want %v", version, l.Used, l.UsedMax, want)
		} else if whole := version >= "23.11"; (l.Used == l.Charged) != whole || l.Charged == 0 {
			t.Errorf("v2 of %s: used %v, charged %v, want that it is the whole charge: %v", version, l.Used, l.Charged, whole)
		}
	}
	e.NoFileCache = true
	s.set.SetEnforcement(e, nil)
	if got := get(t, s.read(), event.LimitSlurm).Used; got >= l.UsedMax || got <= l.Used {
		t.Errorf("without file cache: %v", got)
	}
}

func TestKillsWithoutKnownLimit(t *testing.T) {
	fs := step(t)
	fs.Remove("proc/4102/limits")
	s := newStand(t, fs, map[string]string{"SLURM_JOB_ID": "7", "SLURM_TASK_PID": "110"}, linuxKill, self)
	found := false
	for _, w := range s.warn {
		found = found || strings.Contains(w.Text, "is not known here")
	}
	if !found {
		t.Errorf("warnings %v", s.warn)
	}
	if got := names(s.read()); got != "node/node" {
		t.Errorf("got %s", got)
	}
}

// Nothing tells whether slurmstepd kills: neither a file nor scontrol.
func TestAssumed(t *testing.T) {
	const limits = "Limit                     Soft Limit           Hard Limit           Units     \nMax resident set          734003200            734003200            bytes     \n"
	settled := func(t *testing.T, fs rsstest.Tree) *stand {
		t.Helper()
		s := newStand(t, fs, inJob, "", self)
		if got := names(s.read()); strings.Contains(got, "slurm") {
			t.Errorf("scontrol may still answer, and there is %s", got)
		}
		s.set.SetEnforcement(slurm.Enforcement{}, errors.New("no answer"))
		return s
	}
	t.Run("no kernel limit", func(t *testing.T) {
		s := settled(t, step(t))
		l := get(t, s.read(), event.LimitSlurm)
		if l.Accounting != event.AccountingRSS || l.Limit != 1000*rss.MiB || l.Used != (550+35+600)*rss.MiB ||
			!strings.HasPrefix(l.Enforcer, "slurmstepd perhaps,") || !strings.HasPrefix(l.Note, "an assumption") {
			t.Errorf("got %+v", l)
		}
	})
	t.Run("scontrol is not asked", func(t *testing.T) {
		s := newStand(t, step(t), inJob, "", self)
		sample := s.sample()
		sample.Mono = time.Minute
		get(t, s.set.Read(sample), event.LimitSlurm)
	})
	t.Run("the kernel kills", func(t *testing.T) {
		fs := rsstest.Unpack(t, "torch", "slurm-v1")
		fs.Write("proc/4102/limits", limits)
		if got := names(settled(t, fs).read()); got != "cgroup/job cgroup/step" {
			t.Errorf("got %s", got)
		}
	})
	t.Run("a directory of jobacct_gather/cgroup", func(t *testing.T) {
		fs := rsstest.Unpack(t, "torch", "slurm-v1")
		fs.Write("proc/4102/limits", limits)
		for _, dir := range []string{"job_7/", "job_7/step_batch/"} {
			fs.Write("sys/fs/cgroup/memory/slurm_n1/uid_1000/"+dir+"memory.limit_in_bytes", "9223372036854771712\n")
		}
		if l := get(t, settled(t, fs).read(), event.LimitSlurm); l.Accounting != event.AccountingCgroup || l.Limit != 700*rss.MiB {
			t.Errorf("got %+v", l)
		}
	})
	t.Run("no limit of slurmstepd's", func(t *testing.T) {
		fs := step(t)
		fs.Remove("proc/4102/limits")
		if got := names(settled(t, fs).read()); got != "node/node" {
			t.Errorf("got %s", got)
		}
	})
}

// Without memory in SelectTypeParameters --mem is a wish.
func TestMemoryIsNoResource(t *testing.T) {
	fs := step(t)
	fs.Remove("proc/4102/limits")
	s := newStand(t, fs, inJob, strings.Replace(linuxKill, "CR_Core_Memory", "CR_Core", 1), self)
	if got := names(s.read()); got != "node/node" || s.set.SumsByPPID() {
		t.Errorf("got %s", got)
	}
	for _, w := range s.warn {
		if strings.Contains(w.Text, "slurmstepd kills") {
			t.Errorf("warning %v", w)
		}
	}
	// By default it may be one: then slurmstepd has set RLIMIT_RSS.
	for rlimit, want := range map[string]string{"unlimited": "node/node", "1048576000": "slurm/step node/node"} {
		fs := step(t)
		fs.Write("proc/4102/limits", strings.Replace(fs.Read("proc/4102/limits"), "1048576000", rlimit, 1))
		s := newStand(t, fs, inJob, strings.Replace(linuxKill, "SelectTypeParameters=CR_Core_Memory\n", "", 1), self)
		if got := names(s.read()); got != want {
			t.Errorf("RLIMIT_RSS %s: %s", rlimit, got)
		}
	}
}

// TestMain lets the test binary be an eater, and in a Slurm job a process that
// holds memory or one that reads limits.
func TestMain(m *testing.M) {
	rsstest.BeEater()
	if len(os.Args) == 3 && os.Args[1] == "hold" {
		n, _ := strconv.Atoi(os.Args[2])
		b, err := syscall.Mmap(-1, 0, n<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			os.Exit(1)
		}
		for i := range b {
			b[i] = 1
		}
		waitForStop(nil)
	}
	if len(os.Args) == 2 && os.Args[1] == "count" {
		count()
	}
	code := m.Run()
	if err := slurmtest.Shutdown(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// waitForStop ends the process once there is a file "stop"; do runs each time
// it was looked for.
func waitForStop(do func()) {
	for {
		if _, err := os.Stat("stop"); err == nil {
			os.Exit(0)
		}
		if do != nil {
			do()
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// count is rsswarden in small: it reads the slurm limit of the step it is in
// and puts it into the file "seen".
func count() {
	set, _ := limit.Find(context.Background(), limit.Config{
		Proc: "/proc", Sys: "/sys", PID: os.Getpid(), Lookup: os.LookupEnv, Slurm: slurm.Search{Lookup: os.LookupEnv},
	})
	tree := proctree.New("/proc")
	began := time.Now()
	waitForStop(func() {
		procs, _, err := tree.Tree(rss.ProcID{PID: os.Getpid()})
		if err != nil {
			return
		}
		extra, _, _ := set.Extra(tree, procs)
		if set.NeedsPSS() {
			for _, list := range [][]rss.Proc{procs, extra} {
				for i := range list {
					if p, err := tree.PSS(list[i].ID); err == nil {
						list[i].PSS = &p
					}
				}
			}
		}
		for _, l := range set.Read(&rss.Sample{Mono: time.Since(began), Procs: procs, Extra: extra}) {
			if l.Name == event.LimitSlurm {
				os.WriteFile("seen.new", fmt.Appendf(nil, "%s %d %d %s", l.Accounting, l.Used, l.Limit, l.LimitSource), 0o644)
				os.Rename("seen.new", "seen")
			}
		}
	})
}

var usedLine = regexp.MustCompile(`memory used:(\d+) limit:(\d+) B`)

// TestRealSlurmstepd compares our number with the one slurmstepd writes into
// its log, in a step with a child, one in a session of its own and an orphan.
func TestRealSlurmstepd(t *testing.T) {
	if testing.Short() {
		t.Skip("starts Slurm four times")
	}
	for mode, acc := range map[slurmtest.Mode]event.Accounting{
		slurmtest.Linux:         event.AccountingRSS,
		slurmtest.LinuxPss:      event.AccountingPSS,
		slurmtest.LinuxNoShared: event.AccountingNoShared,
		slurmtest.CgroupKill:    event.AccountingCgroup,
	} {
		t.Run(string(mode), func(t *testing.T) {
			c := slurmtest.Start(t, mode, slurmtest.Options{})
			run := c.Submit(t, fmt.Sprintf("( ( %[1]s hold 40 & ) )\nsetsid %[1]s hold 30 &\n%[1]s hold 20 &\n%[1]s count\n", c.InstallSelf(t)), "--mem=500")
			stop := filepath.Join(run.Dir, "stop")
			t.Cleanup(func() { os.WriteFile(stop, nil, 0o644) })
			var ours, theirs uint64
			var seen string
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
				b, _ := os.ReadFile(filepath.Join(run.Dir, "seen"))
				seen = string(b)
				var word, source string
				var max uint64
				fmt.Sscan(seen, &word, &ours, &max, &source)
				all := usedLine.FindAllStringSubmatch(run.Log(), -1)
				if len(all) > 0 && word == string(acc) && max == 500<<20 && source == "RLIMIT_RSS" {
					theirs, _ = strconv.ParseUint(all[len(all)-1][1], 10, 64)
					// Both are at the peak: 20 and 30 MiB at the least.
					if theirs > 50<<20 && diff(ours, theirs) <= 1<<20 {
						t.Logf("%s: slurmstepd %d, ours %d", strings.TrimSpace(seen), theirs, ours)
						return
					}
				}
				if time.Now().After(deadline) {
					t.Fatalf("slurmstepd %d, ours %q", theirs, seen)
				}
			}
		})
	}
}

func diff(a, b uint64) uint64 { return max(a, b) - min(a, b) }
