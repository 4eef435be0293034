package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// names are checks that are printed in this order; others may stand between them.
var names = []string{
	NameProgram, NameSettings, NameRun, NameLimit, NameTree, NameCgroup, NameSlurm, NameAccounting, NameRelease, NameSignals, NamePlugin, NameTaskProlog, NamePtrace,
	NamePython, NameRunDir, NameHookDir, NameRecord, NameJournal, NameKernel, NameMaps, NameFDs, NameTasks, NameShm, NameAlert,
}

// want is what a case expects of one check: words of Found and Do, and of why it
// would be in part only.
type want struct {
	status           Status
	found, do, parts string
}

func (w want) check(t *testing.T, c Check) {
	t.Helper()
	if c.Status != w.status || !strings.Contains(c.Found, w.found) || !strings.Contains(c.Do, w.do) || !strings.Contains(c.part, w.parts) ||
		w.do == "" && c.Do != "" || w.parts == "" && c.part != "" {
		t.Errorf("%+v, want %+v", c, w)
	}
}

var (
	stepd = event.Limit{Name: event.LimitSlurm, Accounting: event.AccountingRSS, Used: rss.GiB, Limit: 3 * rss.GiB,
		Enforcer: "slurmstepd, by OverMemoryKill", LimitSource: "RLIMIT_RSS"}
	kernel = event.Limit{Name: event.LimitCgroup, Accounting: event.AccountingCgroup, Used: rss.GiB, Limit: 4 * rss.GiB,
		Enforcer: "kernel OOM killer", LimitSource: "/sys/fs/cgroup/memory.max"}
	node = event.Limit{Name: event.LimitNode, Used: rss.GiB, Limit: 64 * rss.GiB, LimitSource: "meminfo: MemTotal"}
	user = event.Limit{Name: event.LimitUser, Accounting: event.AccountingPSS, Limit: rss.GiB, LimitSource: "RSSWARDEN_LIMIT"}
	slow = event.Limit{Name: event.LimitThrottle, Used: rss.GiB, Limit: rss.GiB}
)

func TestLimit(t *testing.T) {
	for _, test := range []struct {
		name  string
		facts limitFacts
		want  want
	}{
		{"the least room, not the fullest", limitFacts{Limits: []event.Limit{slow, kernel, stepd, node}},
			want{OK, "slurm: 3.00 GiB, 33 % used; slurmstepd, by OverMemoryKill, on summed RSS; rsswarden limits shows 3 more", "", ""}},
		{"the user's", limitFacts{Limits: []event.Limit{user}}, want{OK, "rsswarden's own rules, on summed PSS", "", ""}},
		{"the node's alone", limitFacts{Limits: []event.Limit{node}}, want{Limited, "nothing limits this job's memory but the node: 64.0 GiB", "--limit SIZE", "no limit of this job's own"}},
		{"what slows down ends nothing", limitFacts{Limits: []event.Limit{slow}}, want{Limited, "nothing that limits memory", "--limit", "no limit"}},
		{"a container", limitFacts{Limits: []event.Limit{node}, Hidden: true}, want{Limited, "one of them may have a limit", "--limit", "no limit"}},
		{"assumed", limitFacts{Limits: []event.Limit{stepd}, Assumed: true}, want{Limited, "an assumption", "SLURM_CONF", "only assumed"}},
		{"the kernel's is no assumption", limitFacts{Limits: []event.Limit{kernel}, Assumed: true}, want{OK, "kernel OOM killer", "", ""}},
		{"not certain", limitFacts{Limits: []event.Limit{kernel}, Warnings: []string{"slurm: cannot tell"}}, want{Limited, "not certain: slurm: cannot tell", "rsswarden limits", "not every limit"}},
		{"unreadable", limitFacts{Err: errors.New("gone")}, want{Off, "gone", "--limit", "no limit can be read"}},
	} {
		t.Run(test.name, func(t *testing.T) { test.want.check(t, limitCheck(test.facts)) })
	}
}

func TestRoom(t *testing.T) {
	if room, ok := (limitFacts{Limits: []event.Limit{slow, kernel, stepd}}).Headroom(); !ok || room != 2*rss.GiB {
		t.Errorf("%v %v", room, ok)
	}
	if _, ok := (limitFacts{}).Headroom(); ok {
		t.Error("room where nothing is known")
	}
}

func TestTree(t *testing.T) {
	want{OK, "process 7 and its descendants can be read (3 now)", "", ""}.check(t, treeCheck(treeFacts{PID: 7, Procs: 3}))
	want{Limited, "2 may not be", "user", "may not be read"}.check(t, treeCheck(treeFacts{PID: 7, Gaps: rss.Gaps{Denied: 2}}))
	want{Off, "no /proc", "have /proc", "cannot be read"}.check(t, treeCheck(treeFacts{Err: errors.New("no /proc")}))
}

func TestSlurm(t *testing.T) {
	batch := slurm.Job{ID: "46", StepID: slurm.StepBatch}
	step := slurm.Job{ID: "46", StepID: "0"}
	rules := slurm.Enforcement{Known: true, Source: "/etc/slurm/slurm.conf", OverMemoryKill: true, UsePss: true, Gather: "linux", SelectMemory: true, SelectTypeParameters: "CR_Core_Memory"}
	open := rules
	open.Gather, open.Open = "", []string{"JobAcctGatherType"}
	for _, test := range []struct {
		name  string
		facts slurmFacts
		want  []want
	}{
		{"no job", slurmFacts{}, []want{{OK, "not in a Slurm job", "", ""}}},
		{"salloc", slurmFacts{InJob: true, Job: slurm.Job{ID: "46"}}, []want{{Limited, "in no step", "srun rsswarden run", ""}}},
		{"exec", slurmFacts{InJob: true, Job: batch, Rules: rules, Parent: "slurmstepd"}, []want{
			{OK, "job 46, step batch", "", ""},
			{OK, "JobAcctGatherType=jobacct_gather/linux, OverMemoryKill, UsePss, ConstrainRAMSpace=no: slurmstepd kills on summed pss", "", ""},
			{OK, "its signals arrive", "", ""},
		}},
		{"a batch shell", slurmFacts{InJob: true, Job: batch, Rules: rules, Parent: "bash", Text: "rsswarden run -- python\n"}, []want{
			{OK, "", "", ""}, {OK, "", "", ""}, {Limited, "started by bash", "exec rsswarden run", ""},
		}},
		{"a doctor before exec", slurmFacts{InJob: true, Job: batch, Rules: rules, Parent: "bash", Text: "#!/bin/bash\nrsswarden doctor\n  exec $HOME/bin/rsswarden run -- python\n"}, []want{
			{OK, "", "", ""}, {OK, "", "", ""}, {OK, "line 3 of the batch script", "", ""},
		}},
		{"a parent that is hidden", slurmFacts{InJob: true, Job: batch, Rules: rules}, []want{
			{OK, "", "", ""}, {OK, "", "", ""}, {Limited, "not known", "exec", ""},
		}},
		{"srun", slurmFacts{InJob: true, Job: step, Rules: rules, Parent: "bash"}, []want{
			{OK, "step 0", "", ""}, {OK, "", "", ""}, {OK, "every task of a step", "", ""},
		}},
		{"unknown", slurmFacts{InJob: true, Job: step}, []want{
			{OK, "", "", ""}, {Limited, "neither slurm.conf nor scontrol", "SLURM_CONF", ""}, {OK, "", "", ""},
		}},
		{"left open", slurmFacts{InJob: true, Job: step, Rules: open}, []want{
			{OK, "", "", ""}, {Limited, "left open: JobAcctGatherType", "scontrol", ""}, {OK, "", "", ""},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := slices.DeleteFunc(slurmChecks(test.facts), func(c Check) bool { return c.Name == NameRelease })
			if len(got) != len(test.want) {
				t.Fatalf("%+v, want %+v", got, test.want)
			}
			for i, w := range test.want {
				w.check(t, got[i])
			}
		})
	}
}

// TestReleases: the differences of the installed Slurm release are printed, and a version
// that is unknown or newer than the known ones is called so.
func TestReleases(t *testing.T) {
	first := func(version string) (first Check, rest string) {
		t.Helper()
		got := releases(slurmFacts{Version: version, VersionSource: "scontrol"})
		for _, c := range got[1:] {
			want{OK, "", "", ""}.check(t, c)
			rest += c.Found + "\n"
		}
		return got[0], rest
	}
	c, old := first("24.11.5")
	want{OK, "Slurm 24.11.5", "", ""}.check(t, c)
	c, now := first("26.05.5")
	want{OK, "Slurm 26.05.5", "", ""}.check(t, c)
	if lines := len(slurm.Changes); strings.Count(old, "\n") != lines || strings.Count(now, "\n") != lines {
		t.Errorf("%d changes, said are\n%s\n%s", lines, old, now)
	}
	if strings.Contains(old, "cancels the whole job") || !strings.Contains(now, "cancels the whole job") {
		t.Errorf("of the sum of a job's steps is said\n%s\n%s", old, now)
	}
	c, next := first("26.11.0")
	want{Limited, "newer", "newer rsswarden", ""}.check(t, c)
	if next != now {
		t.Errorf("of a newer one is said\n%s", next)
	}
	c, none := first("")
	want{Limited, "not known", "scontrol", ""}.check(t, c)
	if none != "" {
		t.Errorf("of an unknown one is said\n%s", none)
	}
}

func TestRunLine(t *testing.T) {
	for script, want := range map[string]int{
		"exec rsswarden run -- python train.py\n":                  1,
		"module load x\nsrun -n 2 rsswarden run -- python\n":       2,
		"exec \"$HOME/my bin/rsswarden\" run --limit 3G -- python": 1,
		"# exec rsswarden run -- python\n":                         0,
		"rsswarden run -- python\n":                                0,
		"exec python train.py rsswarden runs\n":                    0,
		"":                                                         0,
	} {
		if got := runLine(script); got != want {
			t.Errorf("%q: line %d, want %d", script, got, want)
		}
	}
}

func TestPtrace(t *testing.T) {
	good := ptraceFacts{Supported: true, Arch: "amd64", Dumpable: true}
	with := func(change func(*ptraceFacts)) ptraceFacts {
		f := good
		change(&f)
		return f
	}
	want{OK, "no Yama", "", ""}.check(t, ptraceCheck(good))
	want{OK, "ptrace_scope is 1: rsswarden trim and attach", "", ""}.check(t, ptraceCheck(with(func(f *ptraceFacts) { f.Scope = "1" })))
	want{Off, "ptrace_scope is 2", "--trim hook", ""}.check(t, ptraceCheck(with(func(f *ptraceFacts) { f.Scope = "2" })))
	want{Off, "only ever run on amd64", "--trim hook", ""}.check(t, ptraceCheck(with(func(f *ptraceFacts) { f.Supported = false })))
	want{Off, "may not be trimmed: seccomp", "--trim hook", ""}.check(t, ptraceCheck(with(func(f *ptraceFacts) { f.Refused = "seccomp" })))
	want{Off, "PTRACE_SEIZE", "seccomp profile", ""}.check(t, ptraceCheck(with(func(f *ptraceFacts) { f.Failed = "PTRACE_SEIZE: EPERM" })))
	want{OK, "under 2 seccomp filters", "", ""}.check(t, ptraceCheck(with(func(f *ptraceFacts) { f.Seccomp, f.Filters = 2, 2 })))
	want{Limited, "not dumpable", "chmod a+r", ""}.check(t, ptraceCheck(with(func(f *ptraceFacts) { f.Dumpable = false })))
}

func TestProgram(t *testing.T) {
	f := ProgramFacts{Version: "v1", Path: "/bin/rsswarden", Off: true}
	want{Off, "watches nothing", "unset RSSWARDEN", "RSSWARDEN=off"}.check(t, programChecks(f)[0])
	f.Off = false
	want{OK, "v1 at /bin/rsswarden", "", ""}.check(t, programChecks(f)[0])
	want{OK, "at their defaults", "", ""}.check(t, programChecks(f)[1])
	f.Chosen, f.Locked = []string{"limit=3G (environment)"}, []string{`trim="off"`}
	want{OK, `limit=3G (environment); locked by the site: trim="off"`, "", ""}.check(t, programChecks(f)[1])
	f.Warnings = []string{"x is not used"}
	want{Limited, "x is not used", "fix", ""}.check(t, programChecks(f)[1])
	f.Usage, f.Hint = errors.New("no size"), "give a size"
	want{Off, "run would start nothing: no size", "give a size", "run would start nothing"}.check(t, programChecks(f)[1])
}

func TestRun(t *testing.T) {
	want{OK, "took 50 ms", "", ""}.check(t, runCheck(runFacts{Watched: true, Took: "50 ms"}))
	want{Off, "not watched: too little is left of: x", "raise", "unwatched"}.check(t, runCheck(runFacts{Said: "too little is left of: x"}))
	want{Off, "killed", "rsswarden run -- true", "trial run failed"}.check(t, runCheck(runFacts{Err: errors.New("killed")}))
}

func TestConclude(t *testing.T) {
	good := Check{Name: NameLimit, Status: OK, Found: "3 GiB", Source: "RLIMIT_RSS", gain: "a limit"}
	bad := Check{Name: NamePython, Status: Off, Found: "none\x1b[2J\nthere", Do: "name one", part: "no hook"}
	there := Check{Name: "kernel-pidfd", Status: OK}
	head := Check{Name: NameKernel, Status: OK, Found: "Linux 6"}
	missing := Check{Name: "kernel-psi", Status: Limited, Found: "not there"}
	var b strings.Builder
	Conclude([]Check{good, head, there, missing}).Print(&b, text.Style{})
	if diff := cmp.Diff(`ok       limit       3 GiB (RLIMIT_RSS)
ok       kernel      Linux 6; has pidfd
limited  kernel      psi: not there

run would protect this job: a limit
`, b.String()); diff != "" {
		t.Error(diff)
	}
	r := Conclude([]Check{good, bad})
	if r.Protects || !slices.Equal(r.Why, []string{"no hook"}) {
		t.Errorf("%+v", r)
	}
	b.Reset()
	r.Print(&b, text.Style{})
	if diff := cmp.Diff(`ok       limit       3 GiB (RLIMIT_RSS)
off      python      none�[2J there
                     do: name one

run would protect this job only in part: no hook
`, b.String()); diff != "" {
		t.Error(diff)
	}
}

func TestCgroup(t *testing.T) {
	for _, test := range []struct {
		archive string
		pid     int
		want    want
		hidden  bool
	}{
		{"slurm-v1", rsstest.Trainer, want{OK, "v1, /slurm", "", ""}, false},
		{"slurm-v2", rsstest.Trainer, want{OK, "memory.events tells at once", "", ""}, false},
		{"namespaced-v1", rsstest.Trainer, want{Limited, "levels above cannot be seen", "--limit", ""}, true},
		{"namespaced-v2", rsstest.Trainer, want{Limited, "levels above cannot be seen", "--limit", ""}, true},
	} {
		t.Run(test.archive, func(t *testing.T) {
			tree := rsstest.Unpack(t, "torch", test.archive)
			c, hidden := cgroupCheck(tree.Proc, tree.Sys, test.pid)
			test.want.check(t, c)
			if hidden != test.hidden {
				t.Errorf("hidden is %v", hidden)
			}
		})
	}
	tree := rsstest.Empty(t)
	tree.Add("-- proc/7/cgroup --\n0::/\n-- proc/self/mountinfo --\n22 1 0:21 / /proc rw - proc proc rw\n")
	c, _ := cgroupCheck(tree.Proc, tree.Sys, 7)
	want{Off, "no memory cgroup can be seen", "--limit", ""}.check(t, c)
	c, _ = cgroupCheck(tree.Proc, tree.Sys, 8)
	want{Off, "cannot read the cgroup", "--limit", ""}.check(t, c)
}

func TestKernel(t *testing.T) {
	features := []Feature{{Name: "pidfd", Since: "5.3", Err: unix.ENOSYS, Without: "SIGCHLD tells"}, {Name: "psi"}}
	got := kernelChecks("4.18", features)
	want{OK, "Linux 4.18", "", ""}.check(t, got[0])
	want{Limited, "not there (function not implemented; Linux 5.3 has it): SIGCHLD tells", "", ""}.check(t, got[1])
	want{OK, "there", "", ""}.check(t, got[2])
}

// TestProbeFeatures: what an old kernel's procfs lacks is seen, and a real one is
// asked without harm.
func TestProbeFeatures(t *testing.T) {
	tree := rsstest.Empty(t)
	tree.Add("-- proc/self/status --\nName:\tx\nVmRSS:\t4 kB\n")
	for _, f := range probeFeatures(tree.Proc) {
		if missing := strings.Contains("rss-parts smaps-rollup psi fd-count pagemap-scan procmap-query", f.Name); missing != (f.Err != nil) && (missing || f.Name == "inotify") {
			t.Errorf("%s: %v", f.Name, f.Err)
		}
	}
	for _, f := range probeFeatures("/proc") {
		switch {
		case f.Name == "rss-parts" && f.Err != nil, f.Name == "inotify" && f.Err != nil:
			t.Errorf("%s: %v", f.Name, f.Err)
		case f.Err != nil && !errors.Is(f.Err, errAbsent):
			var errno unix.Errno
			if !errors.As(f.Err, &errno) || errno == unix.EFAULT || errno == unix.EINVAL {
				t.Errorf("%s was asked wrongly: %v", f.Name, f.Err)
			}
		}
	}
}

func TestNumbers(t *testing.T) {
	good := Counts{MaxMaps: 65530, Files: 65536, HardFiles: 65536, FilesKnown: true, UserKnown: true, Shm: rss.MiB, ShmSize: rss.GiB}
	for _, c := range countChecks(good) {
		if c.Status != OK {
			t.Errorf("%+v", c)
		}
	}
	for _, test := range []struct {
		name   string
		change func(*Counts)
		index  int
		want   want
	}{
		{"mappings unknown", func(n *Counts) { n.MaxMaps = 0 }, 0, want{Limited, "cannot be read", "", ""}},
		{"few files", func(n *Counts) { n.Files = 1024 }, 1, want{Limited, "1024 open files a process, at most 65536", "rsswarden run --nofile 65536, or before it: ulimit -n 65536", ""}},
		{"few files, hard", func(n *Counts) { n.Files, n.HardFiles = 1024, 1024 }, 1, want{Limited, "", "greater hard limit", ""}},
		{"files without end", func(n *Counts) { n.HardFiles = 1<<64 - 1 }, 1, want{OK, "at most any number of", "", ""}},
		{"files unknown", func(n *Counts) { n.FilesKnown = false }, 1, want{Limited, "not known", "", ""}},
		{"tasks", func(n *Counts) { n.Tasks, n.MaxTasks, n.TasksFile = 79, 100, "pids.max" }, 2, want{OK, "79 of 100 in the cgroup (pids.max)", "", ""}},
		{"tasks, crowded", func(n *Counts) { n.Tasks, n.MaxTasks = 80, 100 }, 2, want{Limited, "80 of 100", "pids.max", ""}},
		{"tasks of the user", func(n *Counts) { n.UserTasks, n.MaxUser = 4000, 4096 }, 2, want{Limited, "4000 of 4096 of this user", "ulimit -u", ""}},
		{"tasks unknown", func(n *Counts) { n.UserKnown = false }, 2, want{Limited, "not known", "", ""}},
		{"shm", func(n *Counts) { n.Shm = 900 * rss.MiB }, 3, want{Limited, "900 MiB of 1.00 GiB used", "SIGBUS", ""}},
		{"no shm", func(n *Counts) { n.ShmErr = os.ErrNotExist }, 3, want{Off, "cannot be used", "have one mounted", ""}},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := good
			test.change(&n)
			test.want.check(t, countChecks(n)[test.index])
		})
	}
}

func TestParseLimits(t *testing.T) {
	const text = "Limit                     Soft Limit           Hard Limit           Units     \n" +
		"Max processes             95873                unlimited            processes \n" +
		"Max open files            1024                 1048576              files     \n"
	if soft, hard, ok := parseLimits(text, "Max open files"); soft != 1024 || hard != 1048576 || !ok {
		t.Errorf("%d %d %v", soft, hard, ok)
	}
	if soft, hard, ok := parseLimits(text, "Max processes"); soft != 95873 || hard != 1<<64-1 || !ok {
		t.Errorf("%d %d %v", soft, hard, ok)
	}
	for _, bad := range []string{"", "Max open files", "Max open files x y\n", "Max open files 1 y\n"} {
		if _, _, ok := parseLimits(bad, "Max open files"); ok {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestCgroupTasks(t *testing.T) {
	tree := rsstest.Empty(t)
	tree.Add(`-- proc/7/cgroup --
0::/a/b
-- proc/self/mountinfo --
30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw
-- sys/fs/cgroup/a/pids.max --
100
-- sys/fs/cgroup/a/pids.current --
90
-- sys/fs/cgroup/a/b/pids.max --
50
-- sys/fs/cgroup/a/b/pids.current --
3
`)
	tasks, most, file := cgroupTasks(tree.Proc, tree.Sys, 7)
	if tasks != 90 || most != 100 || !strings.HasSuffix(file, "/a/pids.max") {
		t.Errorf("%d of %d, %s: not the level with the least room", tasks, most, file)
	}
	if _, most, _ := cgroupTasks(tree.Proc, tree.Sys, 8); most != 0 {
		t.Error("a limit that no cgroup has")
	}
}

func TestPlaces(t *testing.T) {
	good := Place{Dir: "/tmp", FS: "tmpfs", Free: rss.GiB, Need: rss.MiB}
	full, broken, off, passed := good, Place{Err: errors.New("read-only")}, Place{Off: "the option"}, good
	full.Free = 0
	passed.Passed = []error{errors.New("TMPDIR=/nfs: not node-local")}
	for _, test := range []struct {
		name  string
		check placeCheck
		place Place
		want  want
	}{
		{"run", runDir, good, want{OK, "/tmp, tmpfs, 1.00 GiB free", "", ""}},
		{"run, full", runDir, full, want{Limited, "nearly full", "RSSWARDEN_RUNTIME", ""}},
		{"run, passed", runDir, passed, want{Limited, "passed over: TMPDIR=/nfs", "RSSWARDEN_RUNTIME", ""}},
		{"run, broken", runDir, broken, want{Off, "read-only", "RSSWARDEN_RUNTIME", ""}},
		{"run, off", runDir, off, want{Off, "none is made", "", ""}},
		{"hook", hookDir, good, want{OK, "tmpfs", "", ""}},
		{"hook, passed", hookDir, passed, want{Limited, "each run writes it again", "XDG_CACHE_HOME", ""}},
		{"hook, broken", hookDir, broken, want{Off, "read-only", "XDG_CACHE_HOME", ""}},
		{"hook, off", hookDir, off, want{Off, "none is needed", "", ""}},
		{"record", recordDir, good, want{OK, "tmpfs", "", ""}},
		{"record, passed", recordDir, passed, want{OK, "passed over", "", ""}},
		{"record, broken", recordDir, broken, want{Off, "read-only", "--record DIR", ""}},
		{"record, off", recordDir, off, want{Off, "no record is kept", "auto", ""}},
		{"journal, full", journalDir, full, want{Limited, "nearly full", "free some", ""}},
		{"journal, passed", journalDir, passed, want{Limited, "passed over", "submit from", ""}},
		{"journal, broken", journalDir, broken, want{Off, "read-only", "submit from", ""}},
	} {
		t.Run(test.name, func(t *testing.T) { test.want.check(t, test.check.judge(test.place)) })
	}
}

// TestFirst: less must be free on tmpfs, where a full record is smaller.
func TestFirst(t *testing.T) {
	dir := "/dev/shm"
	if name, used, size, err := statFS(dir); err != nil || name != "tmpfs" || size.Sub(used) < inMemory {
		t.Skip("needs a tmpfs with some room at /dev/shm")
	}
	fits := func(string) error { return nil }
	if p := first([]string{dir}, onDisk, fits); p.Err != nil || p.Need != inMemory {
		t.Errorf("%+v", p)
	}
	// Mounts of the kernel's have no room at all.
	if p := first([]string{"/proc", dir}, onDisk, fits); p.Err != nil || p.Dir != dir || len(p.Passed) != 1 {
		t.Errorf("%+v", p)
	}
}

// TestExamine makes all checks but the trial run, with a Python that has no torch.
func TestExamine(t *testing.T) {
	dir := t.TempDir()
	python := filepath.Join(dir, "python")
	script := "#!/bin/sh\necho noise\necho '" + answerMark + `{"version":"3.11.2","implementation":"cpython","armed":true,"missing":"No module named torch"}` + "'\n"
	if err := os.WriteFile(python, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	env := []string{"TMPDIR=" + dir, "XDG_CACHE_HOME=" + dir, "HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	lookup := func(name string) (string, bool) {
		for _, kv := range env {
			if v, ok := strings.CutPrefix(kv, name+"="); ok {
				return v, true
			}
		}
		return "", false
	}
	setup := Setup{
		Program: ProgramFacts{Version: "v1", Off: true}, Lookup: lookup, Environ: env, Stderr: os.Stderr, Ends: make(chan os.Signal), PID: os.Getpid(),
		Pythons: []string{python}, Patience: 10 * time.Second, TryAlerts: true,
		Settings: settings.Settings{
			Outputs: settings.Outputs{Record: dir},
			Policy: settings.Policy{
				Rules:   []event.Rule{{Limit: event.LimitFDs, Action: event.ActionWarn}},
				Workers: settings.Workers{Loader: true, Trim: settings.TrimHook},
			},
		},
		Origin:   func(option string) string { return option },
		Prepare:  func() (loader.Prepared, error) { return loader.Prepare(loader.Options{Env: env, Owner: os.Getpid()}) },
		LookPath: func(name string) (string, error) { return name, nil },
		Sample: func(*limit.Set, string, int) (*rss.Sample, error) {
			return &rss.Sample{At: time.Now(), Procs: []rss.Proc{{ID: rss.ProcID{PID: os.Getpid()}}}}, nil
		},
		CommandLine: func(int) []string { return nil },
		Counts:      func(int, []rss.Proc) []event.Limit { return []event.Limit{{Name: event.LimitFDs}} },
	}
	found := func(r Report, name string) (list []Check) {
		last := 0
		for _, c := range r.Checks {
			i := slices.IndexFunc(names, func(n string) bool { return n == c.Name || strings.HasPrefix(c.Name, featurePrefix) && n == NameKernel })
			if i >= 0 && i < last {
				t.Errorf("%s comes too late", c.Name)
			}
			if last = max(i, last); c.Name == name {
				list = append(list, c)
			}
		}
		return list
	}
	r := Examine(setup)
	for _, name := range names {
		if optional := name == NameSettings || name == NameRun || name == NameAccounting || name == NameRelease || name == NameSignals || name == NamePlugin || name == NameTaskProlog; !optional && len(found(r, name)) == 0 {
			t.Errorf("no check %s", name)
		}
	}
	want{Limited, "has no torch", "PYTHON", ""}.check(t, found(r, NamePython)[0])
	want{OK, dir, "", ""}.check(t, found(r, NameRecord)[0])
	if left, _ := filepath.Glob(filepath.Join(dir, "rsswarden-*", "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	setup.Loader, setup.Record = false, "none"
	r = Examine(setup)
	want{Off, "the loader hook is off", "auto", "switched off"}.check(t, found(r, NamePython)[0])
	want{Off, "no journal is kept", "", ""}.check(t, found(r, NameJournal)[0])
}
