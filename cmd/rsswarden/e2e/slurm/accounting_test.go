package slurm

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// reported is what `limits --json` prints.
type reported struct {
	Limits   []event.Limit
	Looked   []struct{ Where, Found string }
	Warnings []string
}

// UnmarshalJSON leaves the limits out that are none on summed memory: what other
// processes of the machine do is in them.
func (r *reported) UnmarshalJSON(b []byte) error {
	type plain reported
	if err := json.Unmarshal(b, (*plain)(r)); err != nil {
		return err
	}
	r.Limits = slices.DeleteFunc(r.Limits, func(l event.Limit) bool { return !l.Name.Memory() && l.Name != event.LimitTime })
	return nil
}

func (r reported) check(t *testing.T, want []wanted, total rss.Bytes) {
	t.Helper()
	if !firing(r.Limits) || len(r.Limits) > 0 && !r.Limits[0].Binding {
		t.Errorf("not in the order in which they would fire: %+v", r.Limits)
	}
	for _, w := range want {
		i := slices.IndexFunc(r.Limits, func(l event.Limit) bool {
			return l.Name == w.name && l.Scope == w.scope && l.Accounting == w.acc
		})
		if i < 0 {
			t.Errorf("no %s (%s) of the %s", w.name, w.acc, w.scope)
			continue
		}
		l := r.Limits[i]
		limit := w.mib * rss.MiB
		if w.mib == 0 && l.Limit > total-total/100 { // Slurm's RealMemory is in MiB
			limit = l.Limit
		}
		if l.Limit != limit || l.Enforcer != w.enforcer || !strings.HasSuffix(l.LimitSource, w.source) {
			t.Errorf("%s of the %s: %v by %q from %q, want %v by %q from %q",
				w.name, w.scope, l.Limit, l.Enforcer, l.LimitSource, limit, w.enforcer, w.source)
		}
		if l.Used < w.used[0]*rss.MiB || l.Used > w.used[1]*rss.MiB {
			t.Errorf("%s of the %s counts %v of %s, want %d to %d MiB", w.name, w.scope, l.Used, w.acc, w.used[0], w.used[1])
		}
	}
	if len(r.Limits) != len(want) {
		t.Errorf("%d limits, want %d: %+v", len(r.Limits), len(want), r.Limits)
	}
}

// memTotal is the node's memory.
func memTotal(t *testing.T) rss.Bytes {
	t.Helper()
	m := proctree.NewNode("/proc")
	defer m.Close()
	info, err := m.Read()
	wardentest.NoError(t, err)
	return info.Total
}

// accountingStand is a cluster with what the jobs here need.
type accountingStand struct {
	*slurmtest.Cluster
	rsswarden, hold, pool, file string
	always                      []wanted // limits there beside those of a row
	sums                        bool     // slurmd cancels a job by the sum of its steps
}

func startAccounting(t *testing.T, mode slurmtest.Mode) accountingStand {
	t.Helper()
	return startAccountingOn(t, mode, slurmtest.Options{})
}

func startAccountingOn(t *testing.T, mode slurmtest.Mode, options slurmtest.Options) accountingStand {
	t.Helper()
	wardentest.NeedPython(t)
	options.CPUs, options.RealMemory = 12, int(memTotal(t)/rss.MiB)
	if mode == slurmtest.LinuxVSize {
		options.RealMemory = 40000 // no job takes that much
	}
	c := slurmtest.Start(t, mode, options)
	s := accountingStand{Cluster: c, rsswarden: c.Install(t, binary)}
	if options.Suite != "" { // Slurm tells when the job ends from 23.02 on
		s.always = []wanted{{event.LimitTime, event.ScopeJob, "", 0, "Slurm", "SLURM_JOB_END_TIME", [2]rss.Bytes{}}}
		s.sums = slurm.Release{26, 5, 3}.In(c.Version(t))
	}
	s.hold = python + " " + c.Install(t, "testdata/accounting/hold.py")
	s.pool = python + " " + c.Install(t, "testdata/accounting/pool.py")
	s.file = filepath.Join(c.Dir(), "mapped")
	if _, err := os.Stat(s.file); err != nil {
		// Outside of any job, so that no job is charged for it.
		wardentest.NoError(t, os.WriteFile(s.file, make([]byte, 60<<20), 0o644))
	}
	return s
}

// carriage is a job of pool.py that its accounting kills bare, and that
// finishes under rsswarden; or one that nothing kills, and that rsswarden leaves
// alone.
type carriage struct {
	row   string
	mode  slurmtest.Mode
	mem   string
	pool  string // KIND UNITS SIZE_MB PAUSE_MS
	env   string
	state string          // bare
	limit event.LimitName // which one fires; empty where none does
}

const (
	// 720 MB in some five seconds, of their own or of a file, which each of the
	// two maps from its beginning: 560 MB are mapped in the end.
	poolAnon = "anon 90 8 100"
	// So slow that scontrol, asked after five seconds at most, answers before.
	poolSlow    = "anon 60 8 300"
	poolMap     = "map 140 8 80"
	poolVirtual = "virtual 100 1024 100"
	// The two map the same 240 MB each, which is more than 400 MB in RSS.
	poolShared = "map 60 8 80"
)

func carriages() []carriage {
	const failed, oom, fine = "FAILED 0:9", "OUT_OF_MEMORY 0:125", "COMPLETED 0:0"
	return []carriage{
		{"9", slurmtest.Linux, "400", poolMap, "", failed, event.LimitSlurm},
		{"13a", slurmtest.Linux, "400", poolSlow, blind, failed, event.LimitSlurm},
		{"10", slurmtest.LinuxPss, "400", poolAnon, "", failed, event.LimitSlurm},
		{"10", slurmtest.LinuxPss, "400", poolShared, "", fine, ""},
		{"10", slurmtest.LinuxNoShared, "400", poolAnon, "", failed, event.LimitSlurm},
		{"10", slurmtest.LinuxNoShared, "400", poolMap, "", fine, ""},
		{"12", slurmtest.LinuxVSize, "16400", poolVirtual, "", failed, event.LimitSlurm},
		{"13", slurmtest.LinuxOff, "400", poolAnon, "", fine, ""},
		{"8b", slurmtest.LinuxNoMemory, "400", poolAnon, "", fine, ""},
		{"11", slurmtest.CgroupKill, "400", poolAnon, "", failed, event.LimitSlurm},
		{"11", slurmtest.CgroupKill, "400", poolMap, "", fine, ""},
		{"7", slurmtest.Cgroup, "400", poolAnon, "", oom, event.LimitCgroup},
		{"7", slurmtest.Cgroup, "400", poolMap, "", fine, ""},
		{"7", slurmtest.CgroupSwap, "400", poolAnon, "", oom, event.LimitCgroup},
		{"2", slurmtest.CgroupSwap50, "400", poolAnon, "", oom, event.LimitCgroup},
		{"5", slurmtest.CgroupMemsw, "400", poolAnon, "", oom, event.LimitCgroup},
		{"3", slurmtest.Cgroup150, "400", poolAnon, "", oom, event.LimitCgroup},
		{"4", slurmtest.Cgroup50, "800", poolAnon, "", oom, event.LimitCgroup},
		{"7", slurmtest.CgroupLinux, "400", poolAnon, "", oom, event.LimitCgroup},
		{"8b", slurmtest.CgroupNoMem, "400", poolAnon, "", fine, ""},
	}
}

// TestAccountings asks `rsswarden limits` in a job of each accounting, and runs
// jobs that grow bare and wrapped, side by side.
func TestAccountings(t *testing.T) {
	accountingsOn(t, "", slurmtest.Modes)
}

// rows runs all that there is of a mode.
func (s accountingStand) rows(t *testing.T, mode slurmtest.Mode) {
	total := memTotal(t)
	var jobs []func(t *testing.T)
	for _, a := range accountings() {
		if a.mode == mode {
			jobs = append(jobs, s.ask(t, a, total))
		}
	}
	for _, c := range carriages() {
		if c.mode == mode {
			jobs = append(jobs, s.carry(t, c))
		}
	}
	if len(jobs) < 2 {
		t.Error("a mode without a row")
	}
	for _, job := range jobs {
		job(t)
	}
}

// ask submits a job that asks, and returns what waits for it.
func (s accountingStand) ask(t *testing.T, a accounting, total rss.Bytes) func(*testing.T) {
	script := fmt.Sprintf(`%s held 120 %s & until [ -e held ]; do sleep 0.05; done; %s %s limits --json >limits; kill %%%%; true`,
		s.hold, s.file, a.env, s.rsswarden)
	if a.srun != "" {
		script = fmt.Sprintf("srun -n1 %s bash -c '%s'", a.srun, script)
	}
	run := s.Submit(t, script, append(strings.Fields(a.args), "--no-requeue")...)
	return func(t *testing.T) {
		t.Run(fmt.Sprintf("row %s, limits of %s %s%.3s", a.row, a.args, a.srun, a.env), func(t *testing.T) {
			got := run.Wait(t)
			b, err := os.ReadFile(filepath.Join(run.Dir, "limits"))
			var r reported
			if err != nil || json.Unmarshal(b, &r) != nil {
				t.Fatalf("%s %d:%d: %v\n%s\n%s", got.State, got.ExitCode, got.Signal, err, b, got.Stderr)
			}
			r.check(t, slices.Concat(a.want, s.always, s.jobSums(a)), total)
			blinded := slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, "cannot tell whether slurmstepd kills") })
			if blinded != (a.env == blind) || len(r.Warnings) > 1 {
				t.Errorf("warnings %q", r.Warnings)
			}
			if t.Failed() {
				t.Logf("%s", b)
			}
		})
	}
}

// jobSums are the limits of the whole job where slurmd cancels a job by the sum of its
// steps: one for each that slurmstepd holds the step to. Only the configuration tells.
func (s accountingStand) jobSums(a accounting) (more []wanted) {
	for _, w := range a.want {
		if !s.sums || w.name != event.LimitSlurm || a.env == blind {
			continue
		}
		w.scope, w.enforcer = event.ScopeJob, "slurmd, by OverMemoryKill, at each ping (SlurmdTimeout/3 to 2/3)"
		if a.srun != "" {
			w.mib, w.source = 900, "SLURM_MEM_PER_NODE"
		}
		more = append(more, w)
	}
	return more
}

// carry submits a job bare and wrapped, and returns what waits for both.
func (s accountingStand) carry(t *testing.T, c carriage) func(*testing.T) {
	// A file of its own for each: PSS divides by all who map it. Holes take
	// page cache as data do, and no disk.
	job := "exec %s" + fmt.Sprintf("%s %s file", s.pool, c.pool)
	const file = "truncate -s 600M file; "
	wrap := fmt.Sprintf("%s %s run --events $PWD/events --worker-signal TERM --worker-match 'pool.py .* worker' -- ", c.env, s.rsswarden)
	bare := s.Submit(t, file+fmt.Sprintf(job, ""), "--no-requeue", "--mem="+c.mem)
	wrapped := s.Submit(t, file+fmt.Sprintf(job, wrap), "--no-requeue", "--mem="+c.mem)
	return func(t *testing.T) {
		t.Run(fmt.Sprintf("row %s, %s in --mem=%s%.4s", c.row, c.pool, c.mem, c.env), func(t *testing.T) {
			state := func(r slurmtest.Result) string { return fmt.Sprintf("%s %d:%d", r.State, r.ExitCode, r.Signal) }
			alone, got := bare.Wait(t), wrapped.Wait(t)
			t.Logf("bare %s; wrapped %s\n%s%s", state(alone), state(got), got.Stdout, wardentest.Said(got.Stderr))
			if state(alone) != c.state {
				t.Errorf("bare %s, want %s: the test proves nothing\n%s", state(alone), c.state, alone.Stderr)
			}
			want := "none"
			if out := s.Do(t, "/bin/sh", "-c", s.pool+" anon "+strings.Fields(c.pool)[1]+" 0 0 x"); out.Code == 0 {
				want = wardentest.Checksum(out.Stdout)
			}
			if state(got) != "COMPLETED 0:0" || wardentest.Checksum(got.Stdout) != want {
				t.Errorf("wrapped %s, checksum %s, want COMPLETED 0:0 with %s\n%s", state(got), wardentest.Checksum(got.Stdout), want, got.Stderr)
			}
			for _, run := range []*slurmtest.JobRun{bare, wrapped} {
				os.Remove(filepath.Join(run.Dir, "file"))
			}
			said := wardentest.Events(t, filepath.Join(wrapped.Dir, "events"))
			for _, d := range said[event.NameDecision] {
				wardentest.Has(t, d, "limit", string(c.limit))
			}
			helped := slices.ContainsFunc(said[event.NameOutcome], func(o map[string]any) bool { return o["ok"] == true })
			if helped != (c.limit != "") {
				t.Errorf("an action worked: %v; %v", helped, said[event.NameOutcome])
			}
		})
	}
}

// Which limit kills, which counter is compared with it and who does it, for
// each way in which a site can have Slurm count memory. Rows are those of the
// table of Slurm's accountings that this project was designed by:
//
//	 1  v2, ConstrainRAMSpace                     not here: the memory controller is cgroup v1's; rows 7
//	 2  … with AllowedSwapSpace                   on v1
//	 3  … AllowedRAMSpace above 100               on v1, where nothing throttles; v2's memory.high not here
//	 4  … AllowedRAMSpace below 100               on v1
//	 5  … ConstrainSwapSpace alone                on v1
//	 6  v2, nothing constrained                   not here; 13 is the same on v1
//	 7  v1, ConstrainRAMSpace, and with swap
//	 8  --mem=0; 8b no memory in SelectTypeParameters
//	 9  OverMemoryKill, RSS;  10 NoShared, UsePss;  11 jobacct_gather/cgroup
//	12  VSizeFactor
//	13  nothing enforced;  13a no configuration to be read;  13b no Slurm
//	14  a limit that shrinks under a running job  Slurm 26.05's --mem-update not here: root lowers it
//	15  several steps on a node
//	16  ROCm's hipMalloc, which nothing charges   not here: no such hardware
//	A.3, A.4  --mem-per-cpu; srun --mem in a bigger job
//
// The layouts of v2 that are not here are text archives in the tests of
// supervisor/limit and rss/cgroup.
type accounting struct {
	row  string
	mode slurmtest.Mode
	args string // of sbatch
	srun string // options of srun; rsswarden runs in that step
	env  string // put before rsswarden
	want []wanted
}

// wanted is one limit. used is what the counter must show of what hold.py
// takes in a job of its own: 120 MiB of memory, and two maps of one file of 60.
type wanted struct {
	name     event.LimitName
	scope    event.Scope
	acc      event.Accounting
	mib      rss.Bytes // 0: MemTotal, or nearly so
	enforcer string
	source   string // end of
	used     [2]rss.Bytes
}

var (
	usedRSS      = [2]rss.Bytes{240, 290}
	usedPSS      = [2]rss.Bytes{180, 225}
	usedNoShared = [2]rss.Bytes{120, 155}
	usedCgroup   = [2]rss.Bytes{120, 165}
	usedAny      = [2]rss.Bytes{1, 1 << 30}
)

// stepd is a limit that slurmstepd holds the step to.
func stepd(acc event.Accounting, mib rss.Bytes, used [2]rss.Bytes) wanted {
	return wanted{event.LimitSlurm, event.ScopeStep, acc, mib, "slurmstepd, by OverMemoryKill", "RLIMIT_RSS", used}
}

// kernel are the limits of the job's and the step's cgroup.
func kernel(job, step rss.Bytes) []wanted {
	const end = "/memory.limit_in_bytes"
	return []wanted{
		{event.LimitCgroup, event.ScopeJob, event.AccountingCgroup, job, "kernel OOM killer", end, usedCgroup},
		{event.LimitCgroup, event.ScopeStep, event.AccountingCgroup, step, "kernel OOM killer", "/step_batch" + end, usedCgroup},
	}
}

var node = wanted{event.LimitNode, event.ScopeNode, "", 0, "kernel OOM killer of the node", "meminfo: MemTotal", usedAny}

// blind hides everything that tells what Slurm does.
const blind = "env SLURM_CONF=/nonexistent PATH=/nonexistent"

func accountings() []accounting {
	rssKills := stepd(event.AccountingRSS, 400, usedRSS)
	perhaps := func(w wanted) wanted { w.enforcer = "slurmstepd perhaps, by OverMemoryKill"; return w }
	inStep := func(w []wanted, step string) []wanted {
		w[1].source = "/step_" + step + "/memory.limit_in_bytes"
		return w
	}
	virtual := stepd(event.AccountingVirtual, 4000, usedAny)
	virtual.source = "RLIMIT_RSS times VSizeFactor=400 %"
	anon := stepd(event.AccountingCgroup, 400, usedCgroup)
	return []accounting{
		{"9", slurmtest.Linux, "--mem=400", "", "", []wanted{rssKills, node}},
		{"A.3", slurmtest.Linux, "--mem-per-cpu=200 -c2", "", "", []wanted{rssKills, node}},
		{"A.4", slurmtest.Linux, "--mem=900", "--mem=400", "", []wanted{rssKills, node}},
		{"8", slurmtest.Linux, "--mem=0", "", "", []wanted{node, stepd(event.AccountingRSS, 0, usedRSS)}},
		{"13a", slurmtest.Linux, "--mem=400", "", blind, []wanted{perhaps(rssKills), node}},
		{"10", slurmtest.LinuxPss, "--mem=400", "", "", []wanted{stepd(event.AccountingPSS, 400, usedPSS), node}},
		{"10", slurmtest.LinuxNoShared, "--mem=400", "", "", []wanted{stepd(event.AccountingNoShared, 400, usedNoShared), node}},
		{"12", slurmtest.LinuxVSize, "--mem=1000", "", "", []wanted{stepd(event.AccountingRSS, 1000, usedRSS), virtual, node}},
		{"13", slurmtest.LinuxOff, "--mem=400", "", "", []wanted{node}},
		{"8b", slurmtest.LinuxNoMemory, "--mem=400", "", "", []wanted{node}},
		{"11", slurmtest.CgroupKill, "--mem=400", "", "", []wanted{anon, node}},
		{"13a", slurmtest.CgroupKill, "--mem=400", "", blind, []wanted{perhaps(anon), node}},
		{"7", slurmtest.Cgroup, "--mem=400", "", "", kernel(400, 400)},
		{"A.3", slurmtest.Cgroup, "--mem-per-cpu=200 -c2", "", "", kernel(400, 400)},
		{"A.4", slurmtest.Cgroup, "--mem=900", "--mem=400", "", inStep(kernel(900, 400), "0")},
		{"8", slurmtest.Cgroup, "--mem=0", "", "", append(kernel(0, 0), node)},
		{"13a", slurmtest.Cgroup, "--mem=400", "", blind, kernel(400, 400)},
		{"7", slurmtest.CgroupSwap, "--mem=400", "", "", kernel(400, 400)},
		{"2", slurmtest.CgroupSwap50, "--mem=400", "", "", kernel(400, 400)},
		{"5", slurmtest.CgroupMemsw, "--mem=400", "", "", kernel(600, 600)},
		{"3", slurmtest.Cgroup150, "--mem=400", "", "", kernel(600, 600)},
		{"4", slurmtest.Cgroup50, "--mem=400", "", "", kernel(200, 200)},
		{"7", slurmtest.CgroupLinux, "--mem=400", "", "", kernel(400, 400)},
		{"8b", slurmtest.CgroupNoMem, "--mem=400", "", "", append(kernel(0, 0), node)},
	}
}

// firing is the order in which limits would fire at this use.
func firing(limits []event.Limit) bool {
	return slices.IsSortedFunc(limits, func(a, b event.Limit) int {
		switch x, y := a.UsedMax.Of(a.Limit), b.UsedMax.Of(b.Limit); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
}

// TestSeveralSteps is row 15: each step has its limit, the job's binds them
// all, and slurmstepd sums the steps apart.
func TestSeveralSteps(t *testing.T) {
	t.Parallel()
	s := startAccounting(t, slurmtest.Cgroup)
	run := s.Submit(t, fmt.Sprintf(`%[1]s batch 200 %[2]s &
srun -n1 --overlap --mem=300 bash -c '%[1]s step 120 %[2]s & until [ -e batch ] && [ -e step ]; do sleep 0.05; done; %[3]s limits --json >limits; kill %%%%; true'`,
		s.hold, s.file, s.rsswarden), "--mem=600", "--no-requeue")
	run.Wait(t)
	b, err := os.ReadFile(filepath.Join(run.Dir, "limits"))
	var r reported
	if err != nil || json.Unmarshal(b, &r) != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	want := kernel(600, 300)
	want[0].used = [2]rss.Bytes{320, 400} // both steps
	want[1].source = "/step_0/memory.limit_in_bytes"
	r.check(t, want, memTotal(t))
}

// TestLimitShrinksUnderAJob is row 14: Slurm 26.05 can lower the limit of a
// running job. The watcher reads it again, says so, and acts by it.
func TestLimitShrinksUnderAJob(t *testing.T) {
	t.Parallel()
	s := startAccounting(t, slurmtest.Cgroup)
	run := s.Submit(t, fmt.Sprintf("exec %s run --interval 200ms --events $PWD/events -- %s held 120 %s", s.rsswarden, s.hold, s.file), "--mem=900", "--no-requeue")
	held := filepath.Join(run.Dir, "held")
	run.Until(t, rsstest.Patience, func(r slurmtest.Result) bool {
		_, err := os.Stat(held)
		return err == nil || r.Over()
	})
	for _, dir := range []string{run.MemoryCgroup("batch"), run.MemoryCgroup("")} {
		wardentest.NoError(t, os.WriteFile(filepath.Join(dir, "memory.limit_in_bytes"), []byte("160M"), 0))
	}
	got := run.Until(t, rsstest.Patience, func(r slurmtest.Result) bool {
		return r.Over() || strings.Contains(r.Stderr, "limit cgroup is now 160 MiB, was 900 MiB") && strings.Contains(r.Stderr, " % of 160 MiB")
	})
	s.Cancel(t, run.ID)
	run.Wait(t)
	if got.Over() {
		t.Fatalf("%s %d:%d\n%s", got.State, got.ExitCode, got.Signal, got.Stderr)
	}
	found := false
	for _, e := range wardentest.Events(t, filepath.Join(run.Dir, "events"))[event.NameLimit] {
		found = found || e["limit"] == "cgroup" && e["limit_bytes"] == float64(160<<20)
	}
	if !found {
		t.Errorf("no limit event\n%s", got.Stderr)
	}
}

// TestNoSlurm is row 13b: a plain cgroup, a container's view of one, and
// nothing but the node.
func TestNoSlurm(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"SLURM_JOB_ID", "SLURM_JOBID"} {
		if os.Getenv(name) != "" {
			t.Skip("this is a Slurm job")
		}
	}
	if _, err := exec.LookPath("unshare"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs root and unshare")
	}
	const memory = "/sys/fs/cgroup/memory"
	if _, err := os.Stat(memory + "/cgroup.procs"); err != nil {
		t.Skip("no cgroup v1:", err)
	}
	dir, err := rsstest.GroupDir(memory)
	if err != nil {
		t.Skip("cannot make a cgroup:", err)
	}
	inner := filepath.Join(dir, "docker", "0123abcd")
	t.Cleanup(func() {
		for _, d := range []string{inner, filepath.Dir(inner), dir} {
			if err := os.Remove(d); err != nil {
				t.Error(err)
			}
		}
	})
	wardentest.NoError(t, os.MkdirAll(inner, 0o755))
	for d, limit := range map[string]string{dir: "300M", inner: "500M"} {
		wardentest.NoError(t, os.WriteFile(filepath.Join(d, "memory.limit_in_bytes"), []byte(limit), 0))
	}
	limits := func(t *testing.T, script string) reported {
		t.Helper()
		cmd := exec.Command("sh", "-c", script, "sh", binary, inner, memory)
		cmd.Stderr = os.Stderr
		b, err := cmd.Output()
		var r reported
		if err != nil || json.Unmarshal(b, &r) != nil {
			t.Fatalf("%v\n%s", err, b)
		}
		return r
	}
	plain := func(mib rss.Bytes, source string) wanted {
		return wanted{event.LimitCgroup, event.ScopeCgroup, event.AccountingCgroup, mib, "kernel OOM killer", source, [2]rss.Bytes{0, 100}}
	}
	t.Run("nested cgroups", func(t *testing.T) {
		r := limits(t, `echo $$ >$2/cgroup.procs; $1 limits --json`)
		outer := plain(300, filepath.Base(dir)+"/memory.limit_in_bytes")
		if len(r.Limits) != 2 || r.Limits[0].Level != dir || r.Limits[1].Level != inner {
			t.Errorf("want the outer, then the inner: %+v", r.Limits)
		}
		reported{Limits: r.Limits[:1]}.check(t, []wanted{outer}, 0)
	})
	// As Docker has it on v1: the container's own directory is mounted over the
	// hierarchy, and mountinfo tells where it lies.
	t.Run("container", func(t *testing.T) {
		r := limits(t, `echo $$ >$2/cgroup.procs; exec unshare -m --propagation private sh -c 'mount --bind $2 $3 && $1 limits --json' sh "$@"`)
		hidden := plain(300, "memory.stat: hierarchical_memory_limit")
		if len(r.Limits) != 2 || r.Limits[0].Limit != 300*rss.MiB || r.Limits[1].Limit != 500*rss.MiB {
			t.Errorf("want the one that is hidden, then the container's own: %+v", r.Limits)
		}
		reported{Limits: r.Limits[:1]}.check(t, []wanted{hidden}, 0)
		wardentest.Says(t, r.Limits[0].Note, "cannot be seen")
	})
	t.Run("node", func(t *testing.T) {
		r := limits(t, `echo $$ >$3/cgroup.procs; $1 limits --json`)
		r.check(t, []wanted{node}, memTotal(t))
	})
}

// TestVirtualMemoryOfOurs is row 12 for a job that is small beside the address
// space that two Go programs reserve: Slurm would count that as the job's.
func TestVirtualMemoryOfOurs(t *testing.T) {
	s := startAccounting(t, slurmtest.LinuxVSize)
	job := fmt.Sprintf("%s virtual 60 64 40 x", s.pool) // 3.75 GiB of 4.9 in the end
	bare := s.Submit(t, "exec "+job, "--mem=1250")
	got := s.Submit(t, "exec "+s.rsswarden+" run -- "+job, "--mem=1250").Wait(t)
	if r := bare.Wait(t); r.State != "COMPLETED" {
		t.Errorf("bare %s %d:%d: the test proves nothing\n%s", r.State, r.ExitCode, r.Signal, r.Stderr)
	}
	if got.State != "COMPLETED" || !strings.Contains(got.Stderr, "VSizeFactor") {
		t.Errorf("wrapped %s %d:%d\n%s", got.State, got.ExitCode, got.Signal, got.Stderr)
	}
}

// TestTrainingThatSharesItsPages: the job that slurmstepd kills where it sums
// RSS is far from its limit where it sums PSS, or leaves shared pages out.
// Nothing is decided then. A batch takes 20 ms, as of a real training: where four workers map
// a gigabyte a second each, that is before anything can have read their PSS.
func TestTrainingThatSharesItsPages(t *testing.T) {
	options := []string{"--persistent", "--workers", "4", "--epochs", "4", "--step-ms", "20"}
	want := ""
	modes := []slurmtest.Mode{slurmtest.LinuxPss, slurmtest.LinuxNoShared}
	for _, mode := range modes[:wardentest.Few(len(modes), 1)] {
		t.Run(string(mode), func(t *testing.T) {
			s := trainStand(t, mode)
			if want == "" {
				want = s.reference(t, options...)
			}
			path := filepath.Join(s.Dir(), "events-"+string(mode))
			s.carried(t, want, s.script(s.rsswarden+" run --events "+path+" --", options...), memory(3000, 1700))
			said := wardentest.Events(t, path)
			for _, d := range slices.Concat(said[event.NameDecision], said[event.NameOutcome]) {
				t.Errorf("decided on %v", d)
			}
			for _, e := range said[event.NameLoader] {
				if e["what"] == string(event.LoaderTrimmed) {
					t.Errorf("trimmed: %v", e)
				}
			}
			exit := said[event.NameExit][0]
			binding := exit["binding"].(map[string]any)
			if exit["outcome"] != string(event.RunOK) || binding["limit"] != string(event.LimitSlurm) {
				t.Errorf("outcome %v on %v, want ok on slurm", exit["outcome"], binding["limit"])
			}
		})
	}
}
