package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/event"
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
	if err != nil {
		t.Fatal(err)
	}
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
	if _, err := os.Stat(python); err != nil {
		t.Skip(err)
	}
	options.CPUs, options.RealMemory = 12, int(memTotal(t)/rss.MiB)
	if mode == slurmtest.LinuxVSize {
		options.RealMemory = 40000 // nobody takes that much
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
		if err := os.WriteFile(s.file, make([]byte, 60<<20), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// carriage is a job of pool.py that its accounting kills bare, and that
// finishes under rsswarden; or one that nobody kills, and that rsswarden leaves
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
	for _, mode := range slurmtest.Modes {
		t.Run(string(mode), func(t *testing.T) { startAccounting(t, mode).rows(t, mode) })
	}
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
			t.Logf("bare %s; wrapped %s\n%s%s", state(alone), state(got), got.Stdout, said(got.Stderr))
			if state(alone) != c.state {
				t.Errorf("bare %s, want %s: the test proves nothing\n%s", state(alone), c.state, alone.Stderr)
			}
			want := "none"
			if out := s.Do(t, "/bin/sh", "-c", s.pool+" anon "+strings.Fields(c.pool)[1]+" 0 0 x"); out.Code == 0 {
				want = checksum(out.Stdout)
			}
			if state(got) != "COMPLETED 0:0" || checksum(got.Stdout) != want {
				t.Errorf("wrapped %s, checksum %s, want COMPLETED 0:0 with %s\n%s", state(got), checksum(got.Stdout), want, got.Stderr)
			}
			for _, run := range []*slurmtest.JobRun{bare, wrapped} {
				os.Remove(filepath.Join(run.Dir, "file"))
			}
			said := events(t, filepath.Join(wrapped.Dir, "events"))
			for _, d := range said[event.NameDecision] {
				if d["limit"] != string(c.limit) {
					t.Errorf("decided on %v", d)
				}
			}
			helped := slices.ContainsFunc(said[event.NameOutcome], func(o map[string]any) bool { return o["ok"] == true })
			if helped != (c.limit != "") {
				t.Errorf("an action worked: %v; %v", helped, said[event.NameOutcome])
			}
		})
	}
}
