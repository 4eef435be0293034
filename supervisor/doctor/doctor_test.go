package doctor

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

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
	if !slices.Contains(Names, c.Name) && !strings.HasPrefix(c.Name, featurePrefix) {
		t.Errorf("%q is no name of the list", c.Name)
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
		facts LimitFacts
		want  want
	}{
		{"the least room, not the fullest", LimitFacts{Limits: []event.Limit{slow, kernel, stepd, node}},
			want{OK, "slurm: 3.00 GiB, 33 % used; slurmstepd, by OverMemoryKill, on summed RSS; rsswarden limits shows 3 more", "", ""}},
		{"the user's", LimitFacts{Limits: []event.Limit{user}}, want{OK, "rsswarden's own rules, on summed PSS", "", ""}},
		{"the node's alone", LimitFacts{Limits: []event.Limit{node}}, want{Limited, "nothing limits this job's memory but the node: 64.0 GiB", "--limit SIZE", "no limit of this job's own"}},
		{"what slows down ends nothing", LimitFacts{Limits: []event.Limit{slow}}, want{Limited, "nothing that limits memory", "--limit", "no limit"}},
		{"a container", LimitFacts{Limits: []event.Limit{node}, Hidden: true}, want{Limited, "one of them may have a limit", "--limit", "no limit"}},
		{"assumed", LimitFacts{Limits: []event.Limit{stepd}, Assumed: true}, want{Limited, "an assumption", "SLURM_CONF", "only assumed"}},
		{"the kernel's is no assumption", LimitFacts{Limits: []event.Limit{kernel}, Assumed: true}, want{OK, "kernel OOM killer", "", ""}},
		{"not certain", LimitFacts{Limits: []event.Limit{kernel}, Warnings: []string{"slurm: cannot tell"}}, want{Limited, "not certain: slurm: cannot tell", "rsswarden limits", "not every limit"}},
		{"unreadable", LimitFacts{Err: errors.New("gone")}, want{Off, "gone", "--limit", "no limit can be read"}},
	} {
		t.Run(test.name, func(t *testing.T) { test.want.check(t, Limit(test.facts)) })
	}
}

func TestRoom(t *testing.T) {
	if room, ok := (LimitFacts{Limits: []event.Limit{slow, kernel, stepd}}).Room(); !ok || room != 2*rss.GiB {
		t.Errorf("%v %v", room, ok)
	}
	if _, ok := (LimitFacts{}).Room(); ok {
		t.Error("room where nothing is known")
	}
}

func TestTree(t *testing.T) {
	want{OK, "process 7 and its descendants can be read (3 now)", "", ""}.check(t, Tree(TreeFacts{PID: 7, Procs: 3}))
	want{Limited, "2 may not be", "user", "may not be read"}.check(t, Tree(TreeFacts{PID: 7, Gaps: rss.Gaps{Denied: 2}}))
	want{Off, "no /proc", "have /proc", "cannot be read"}.check(t, Tree(TreeFacts{Err: errors.New("no /proc")}))
}

func TestSlurm(t *testing.T) {
	batch := slurm.Job{ID: "46", StepID: slurm.StepBatch}
	step := slurm.Job{ID: "46", StepID: "0"}
	rules := slurm.Enforcement{Known: true, Source: "/etc/slurm/slurm.conf", OverMemoryKill: true, UsePss: true, Gather: "linux", SelectMemory: true, SelectTypeParameters: "CR_Core_Memory"}
	open := rules
	open.Gather, open.Open = "", []string{"JobAcctGatherType"}
	for _, test := range []struct {
		name  string
		facts SlurmFacts
		want  []want
	}{
		{"no job", SlurmFacts{}, []want{{OK, "not in a Slurm job", "", ""}}},
		{"salloc", SlurmFacts{InJob: true, Job: slurm.Job{ID: "46"}}, []want{{Limited, "in no step", "srun rsswarden run", ""}}},
		{"exec", SlurmFacts{InJob: true, Job: batch, Rules: rules, Parent: "slurmstepd"}, []want{
			{OK, "job 46, step batch", "", ""},
			{OK, "JobAcctGatherType=jobacct_gather/linux, OverMemoryKill, UsePss, ConstrainRAMSpace=no: slurmstepd kills on summed pss", "", ""},
			{OK, "its signals arrive", "", ""},
		}},
		{"a batch shell", SlurmFacts{InJob: true, Job: batch, Rules: rules, Parent: "bash", Text: "rsswarden run -- python\n"}, []want{
			{OK, "", "", ""}, {OK, "", "", ""}, {Limited, "started by bash", "exec rsswarden run", ""},
		}},
		{"a doctor before exec", SlurmFacts{InJob: true, Job: batch, Rules: rules, Parent: "bash", Text: "#!/bin/bash\nrsswarden doctor\n  exec $HOME/bin/rsswarden run -- python\n"}, []want{
			{OK, "", "", ""}, {OK, "", "", ""}, {OK, "line 3 of the batch script", "", ""},
		}},
		{"a parent that is hidden", SlurmFacts{InJob: true, Job: batch, Rules: rules}, []want{
			{OK, "", "", ""}, {OK, "", "", ""}, {Limited, "not known", "exec", ""},
		}},
		{"srun", SlurmFacts{InJob: true, Job: step, Rules: rules, Parent: "bash"}, []want{
			{OK, "step 0", "", ""}, {OK, "", "", ""}, {OK, "every task of a step", "", ""},
		}},
		{"unknown", SlurmFacts{InJob: true, Job: step}, []want{
			{OK, "", "", ""}, {Limited, "neither slurm.conf nor scontrol", "SLURM_CONF", ""}, {OK, "", "", ""},
		}},
		{"left open", SlurmFacts{InJob: true, Job: step, Rules: open}, []want{
			{OK, "", "", ""}, {Limited, "left open: JobAcctGatherType", "scontrol", ""}, {OK, "", "", ""},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := slices.DeleteFunc(Slurm(test.facts), func(c Check) bool { return c.Name == NameRelease })
			if len(got) != len(test.want) {
				t.Fatalf("%+v, want %+v", got, test.want)
			}
			for i, w := range test.want {
				w.check(t, got[i])
			}
		})
	}
}

// TestReleases: of what differs between releases of Slurm, that of the version found is
// said, and a version that is unknown or newer than what was looked at is said to be.
func TestReleases(t *testing.T) {
	first := func(version string) (first Check, rest string) {
		t.Helper()
		got := releases(SlurmFacts{Version: version, VersionSource: "scontrol"})
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
	good := PtraceFacts{Supported: true, Arch: "amd64", Dumpable: true}
	with := func(change func(*PtraceFacts)) PtraceFacts {
		f := good
		change(&f)
		return f
	}
	want{OK, "no Yama", "", ""}.check(t, Ptrace(good))
	want{OK, "ptrace_scope is 1: rsswarden trim and attach", "", ""}.check(t, Ptrace(with(func(f *PtraceFacts) { f.Scope = "1" })))
	want{Off, "ptrace_scope is 2", "--trim hook", ""}.check(t, Ptrace(with(func(f *PtraceFacts) { f.Scope = "2" })))
	want{Off, "only ever run on amd64", "--trim hook", ""}.check(t, Ptrace(with(func(f *PtraceFacts) { f.Supported = false })))
	want{Off, "may not be trimmed: seccomp", "--trim hook", ""}.check(t, Ptrace(with(func(f *PtraceFacts) { f.Refused = "seccomp" })))
	want{Off, "PTRACE_SEIZE", "seccomp profile", ""}.check(t, Ptrace(with(func(f *PtraceFacts) { f.Failed = "PTRACE_SEIZE: EPERM" })))
	want{OK, "under 2 seccomp filters", "", ""}.check(t, Ptrace(with(func(f *PtraceFacts) { f.Seccomp, f.Filters = 2, 2 })))
	want{Limited, "not dumpable", "chmod a+r", ""}.check(t, Ptrace(with(func(f *PtraceFacts) { f.Dumpable = false })))
}

func TestProgram(t *testing.T) {
	f := ProgramFacts{Version: "v1", Path: "/bin/rsswarden", Off: true}
	want{Off, "watches nothing", "unset RSSWARDEN", "RSSWARDEN=off"}.check(t, Program(f)[0])
	f.Off = false
	want{OK, "v1 at /bin/rsswarden", "", ""}.check(t, Program(f)[0])
	want{OK, "at their defaults", "", ""}.check(t, Program(f)[1])
	f.Chosen, f.Locked = []string{"limit=3G (environment)"}, []string{`trim="off"`}
	want{OK, `limit=3G (environment); locked by the site: trim="off"`, "", ""}.check(t, Program(f)[1])
	f.Warnings = []string{"x is not used"}
	want{Limited, "x is not used", "mend", ""}.check(t, Program(f)[1])
	f.Usage, f.Hint = errors.New("no size"), "give a size"
	want{Off, "run would start nothing: no size", "give a size", "run would start nothing"}.check(t, Program(f)[1])
}

func TestRun(t *testing.T) {
	want{OK, "took 50 ms", "", ""}.check(t, Run(RunFacts{Watched: true, Took: "50 ms"}))
	want{Off, "not watched: too little is left of: x", "raise", "unwatched"}.check(t, Run(RunFacts{Said: "too little is left of: x"}))
	want{Off, "killed", "rsswarden run -- true", "trial run failed"}.check(t, Run(RunFacts{Err: errors.New("killed")}))
}

func TestConclude(t *testing.T) {
	good := Check{Name: NameLimit, Status: OK, Found: "3 GiB", Source: "RLIMIT_RSS", gain: "a limit"}
	bad := Check{Name: NamePython, Status: Off, Found: "none\x1b[2J\nthere", Do: "name one", part: "no hook"}
	there := Check{Name: "kernel-pidfd", Status: OK}
	head := Check{Name: NameKernel, Status: OK, Found: "Linux 6"}
	missing := Check{Name: "kernel-psi", Status: Limited, Found: "not there"}
	var b strings.Builder
	Conclude([]Check{good, head, there, missing}).Print(&b)
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
	r.Print(&b)
	if diff := cmp.Diff(`ok       limit       3 GiB (RLIMIT_RSS)
off      python      none�[2J there
                     do: name one

run would protect this job only in part: no hook
`, b.String()); diff != "" {
		t.Error(diff)
	}
}
