package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestExpandNodes(t *testing.T) {
	for list, want := range map[string]string{
		"":                      "",
		"vm":                    "vm",
		"n[1-2]":                "n1 n2",
		"n[1-2,05-07],login":    "n1 n2 n05 n06 n07 login",
		"n[098-101]":            "n098 n099 n100 n101",
		"rack[1-2]n[1,3]x":      "rack1n1x rack1n3x rack2n1x rack2n3x",
		"gpu-a-3,gpu-b[7]":      "gpu-a-3 gpu-b7",
		"n[2-1]":                "error",
		"n[1":                   "error",
		"n1]":                   "error",
		"n[a-b]":                "error",
		"n[]":                   "error",
		"n1,":                   "error",
		",n1":                   "error",
		"n 1":                   "error",
		"n[0-9999999]":          "error",
		"n[1-999]m[1-999]":      "error",
		"n[1-70000],m[1-70000]": "error",
	} {
		got, err := ExpandNodes(list)
		text := strings.Join(got, " ")
		if err != nil {
			if text = "error"; !errors.Is(err, errNodeList) {
				t.Errorf("%q: %v", list, err)
			}
		}
		if text != want {
			t.Errorf("%q is %q, want %q", list, text, want)
		}
	}
}

// TestJobNodes: the answers are those of 22.05 on two nodes.
func TestJobNodes(t *testing.T) {
	const shown = "JobId=7 JobName=a NodeList=x UserId=ann(1000) GroupId=ann(1000) MCS_label=N/A JobState=RUNNING ReqNodeList=(null) ExcNodeList=n9 NodeList=n[1-2] BatchHost=n1\n"
	for _, test := range []struct{ name, sacct, scontrol, job, want string }{
		{"sacct", "7|7|n[1-2]\n", "", "7", "n1 n2"},
		{"requeued: the last time counts", "7|7|n1\n7|7|n[3-4]\n", "", "7", "n3 n4"},
		{"a task of an array", "8|7_1|n1\n9|7_2|n2\n", "", "7_2", "n2"},
		{"not started, so scontrol", "7|7|None assigned\n", shown, "7", "n1 n2"},
		{"no accounting", "", shown, "7", "n1 n2"},
		{"unknown", "", "", "7", "error"},
		{"an option", "", "", "-h", "error"},
	} {
		names, err := JobNodes(t.Context(), func(_ context.Context, name string, args ...string) ([]byte, error) {
			if !slices.Contains(args, test.job) {
				t.Errorf("%s: %s was asked %q", test.name, name, args)
			}
			out := map[string]string{"sacct": test.sacct, "scontrol": test.scontrol}[name]
			if out == "" {
				return nil, errors.New("not there")
			}
			return []byte(out), nil
		}, test.job)
		got := strings.Join(names, " ")
		if err != nil {
			got = "error"
		}
		if got != test.want {
			t.Errorf("%s: %q, %v, want %q", test.name, got, err, test.want)
		}
	}
}

func FuzzExpandNodes(f *testing.F) {
	for _, list := range []string{"n[1-2,05-07],login", "rack[1-2]n[1,3]x", "n[", "n[0-99999]", "a[1][2][3]"} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		names, err := ExpandNodes(list)
		if err != nil {
			return
		}
		if len(names) > maxNodes {
			t.Fatalf("%d names", len(names))
		}
		for _, name := range names {
			if name == "" || strings.ContainsAny(name, "[],") {
				t.Fatalf("%q gives the name %q", list, name)
			}
		}
	})
}

const runningJob = "JobId=46 JobName=a JobState=FAILED NodeList=x UserId=u(1) GroupId=g(1) MCS_label=N/A Priority=1 JobState=RUNNING Reason=None ReqNodeList=(null) ExcNodeList=(null) NodeList=n[1-2] BatchHost=n1 NumNodes=2 Comment=NodeList=n9\n"

func TestParseRunning(t *testing.T) {
	for _, c := range []struct {
		name, job, text string
		nodes           []string
		err             error
	}{
		{"running", "46", runningJob, []string{"n1", "n2"}, nil},
		{"by its SLUID", "s46HM84SHMGW00", runningJob, []string{"n1", "n2"}, nil},
		{"another job", "47", runningJob, nil, ErrNoJob},
		{"nothing", "46", "", nil, ErrNoJob},
		{"pending", "46", "JobId=46 JobState=PENDING Reason=Resources NodeList=(null)\n", nil, ErrNotRunning},
		{"ended", "46", "JobId=46 JobState=COMPLETED NodeList=n1\n", nil, ErrNotRunning},
		{"suspended", "46", "JobId=46 JobState=SUSPENDED NodeList=n1\n", []string{"n1"}, nil},
		{"a task of an array", "46_3", "JobId=49 ArrayJobId=46 ArrayTaskId=3 JobState=RUNNING NodeList=n7\n", []string{"n7"}, nil},
		{"an array", "46", "JobId=46 ArrayJobId=46 ArrayTaskId=4 JobState=RUNNING NodeList=n1\nJobId=49 ArrayJobId=46 ArrayTaskId=3 JobState=RUNNING NodeList=n7\n", nil, ErrArray},
		{"not a list", "46", "JobId=46 JobState=RUNNING NodeList=n[1-\n", nil, errNodeList},
	} {
		r, err := parseRunning([]byte(c.text), c.job)
		if !errors.Is(err, c.err) || err == nil && !slices.Equal(r.Nodes, c.nodes) {
			t.Errorf("%s: %+v, %v", c.name, r, err)
		}
	}
	if _, err := parseRunning(make([]byte, maxSaid+1), "46"); err == nil {
		t.Error("an answer without end was read")
	}
}

func TestFindRunning(t *testing.T) {
	var asked []string
	answer := func(out string, err error) func(context.Context, ...string) ([]byte, error) {
		return func(_ context.Context, args ...string) ([]byte, error) {
			asked = args
			return []byte(out), err
		}
	}
	if r, err := FindRunning(t.Context(), answer(runningJob, nil), "46"); err != nil || r.ID != "46" || r.List != "n[1-2]" || strings.Join(asked, " ") != "show job 46 -o" {
		t.Errorf("%+v, %v, %q", r, err, asked)
	}
	if _, err := FindRunning(t.Context(), answer("", errors.New("scontrol show job 46 -o: exit status 1: slurm_load_jobs error: Invalid job id specified")), "46"); !errors.Is(err, ErrNoJob) {
		t.Errorf("%v", err)
	}
	if r, err := FindRunning(t.Context(), answer("JobId=46 JobState=PENDING NodeList=(null)", nil), "46"); !errors.Is(err, ErrNotRunning) || r.State != "PENDING" {
		t.Errorf("%+v, %v", r, err)
	}
	asked = nil
	for _, job := range []string{"", "all", "46,47", "-v", "46.0"} {
		if _, err := FindRunning(t.Context(), answer(runningJob, nil), job); err == nil || asked != nil {
			t.Errorf("%q was asked about: %q", job, asked)
		}
	}
}

func TestOverlapArgs(t *testing.T) {
	r := Running{ID: "46", List: "n[1-2]", Nodes: []string{"n1", "n2"}}
	args := OverlapArgs(r, "", "/opt/rsswarden", "status", "--as-node")
	for _, want := range []string{"--jobid=46", "--overlap", "--mem=0", "--nodes=2", "--ntasks=2", "--nodelist=n[1-2]"} {
		if !slices.Contains(args, want) {
			t.Errorf("no %s in %q", want, args)
		}
	}
	// The command follows the first word that is no option.
	if i := slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") }); i < 0 || !slices.Equal(args[i:], []string{"/opt/rsswarden", "status", "--as-node"}) {
		t.Errorf("%q", args)
	}
	one := OverlapArgs(r, "n2", "true")
	for _, want := range []string{"--nodes=1", "--ntasks=1", "--nodelist=n2"} {
		if !slices.Contains(one, want) {
			t.Errorf("no %s in %q", want, one)
		}
	}
}

func TestOverlapEnv(t *testing.T) {
	env := []string{"PATH=/bin", "SLURM_JOB_ID=7", "SLURM_CONF=/etc/x", "SLURM_NTASKS=8", "SRUN_CPUS_PER_TASK=2", "SBATCH_MEM_PER_NODE=1", "SLURMD_NODENAME=n1", "PMI_RANK=0", "SLURM_JWT=x", "TMPDIR=/t"}
	if got := OverlapEnv(env); !slices.Equal(got, []string{"PATH=/bin", "SLURM_CONF=/etc/x", "SLURM_JWT=x", "TMPDIR=/t"}) {
		t.Errorf("%q", got)
	}
	if len(env) != 10 || env[1] != "SLURM_JOB_ID=7" {
		t.Error("the environment was changed")
	}
}

func TestOverlapRefused(t *testing.T) {
	for text, want := range map[string]string{
		"srun: warning: x\nsrun: error: Unable to create step for job 46: Job/step already completing\nsrun: error: y\n": "Unable to create step for job 46: Job/step already completing",
		"srun: fatal: Could not establish a configuration source\n":                                                      "Could not establish a configuration source",
		"srun: unrecognized option '--overlap'\n":                                                                        "srun: unrecognized option '--overlap'",
		"": "",
	} {
		if got := OverlapRefused([]byte(text)); got != want {
			t.Errorf("%q of %q", got, text)
		}
	}
}

func FuzzParseRunning(f *testing.F) {
	f.Add([]byte(runningJob), "46")
	f.Add([]byte("JobId=49 ArrayJobId=46 ArrayTaskId=3 JobState=RUNNING NodeList=n7\n"), "46_3")
	f.Fuzz(func(t *testing.T, b []byte, job string) {
		if r, err := parseRunning(b, job); err == nil && (r.ID == "" || len(r.Nodes) == 0) {
			t.Errorf("%+v", r)
		}
	})
}

func TestAtLeast(t *testing.T) {
	for _, c := range []struct {
		version string
		release Release
		want    bool
	}{
		{"26.05.3", Release{26, 5, 3}, true},
		{"26.05.10", Release{26, 5, 3}, true},
		{"26.11.0", Release{26, 5, 3}, true},
		{"26.05.2", Release{26, 5, 3}, false},
		{"26.05.4-pre", Release{26, 5, 3}, true},
		{"26.05", Release{26, 5, 3}, false},
		{"26.05", Release{26, 5, 0}, true},
		{"25.11.7", Release{26, 5, 0}, false},
		{"", Release{}, false},
		{"slurm", Release{}, false},
	} {
		if got := c.release.In(c.version); got != c.want {
			t.Errorf("%q is at least %v: %v", c.version, c.release, got)
		}
	}
}

func TestFindVersion(t *testing.T) {
	for _, c := range []struct{ says, want string }{
		{"slurm 26.05.5\n", "26.05.5"},
		{"slurm-wlm 24.11.5\n", "24.11.5"},
		{"slurm-wlm 22.05.8", "22.05.8"},
		{"", ""},
		{"\n", ""},
		{"slurm unknown\n", ""},
	} {
		got, err := FindVersion(t.Context(), func(_ context.Context, args ...string) ([]byte, error) {
			if !slices.Equal(args, []string{"--version"}) {
				return nil, errors.ErrUnsupported
			}
			return []byte(c.says), nil
		})
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("of %q: %q, %v", c.says, got, err)
		}
	}
	if _, err := FindVersion(t.Context(), func(context.Context, ...string) ([]byte, error) { return nil, exec.ErrNotFound }); !errors.Is(err, exec.ErrNotFound) {
		t.Error(err)
	}
}

// Of each change one span holds at a time, and what was run was run in its span.
func TestChanges(t *testing.T) {
	names := map[string]bool{}
	for _, c := range Changes {
		if names[c.What] || len(c.Spans) == 0 {
			t.Errorf("%q is there twice, or says nothing", c.What)
		}
		names[c.What] = true
		for i, s := range c.Spans {
			if i > 0 && slices.Compare(s.From[:], c.Spans[i-1].From[:]) <= 0 {
				t.Errorf("%s: %v comes after %v", c.What, s.From, c.Spans[i-1].From)
			}
			if i > 0 && s.Holds == c.Spans[i-1].Holds {
				t.Errorf("%s: %v changes nothing", c.What, s.From)
			}
			for version := range strings.SplitSeq(s.Run, ", ") {
				if s.Run != "" && c.At(version) != s {
					t.Errorf("%s: %s was run, and is not of the span from %v", c.What, version, s.From)
				}
			}
			if i > 0 && c.At(s.From.String()) != s {
				t.Errorf("%s: at %v holds %+v", c.What, s.From, c.At(s.From.String()))
			}
		}
	}
}

// What is decided by the version is what the list says of it.
func TestChangesAgree(t *testing.T) {
	for version, want := range map[string]bool{"22.05.8": false, "25.11.7": false, "26.05.2": false, "26.05.3": true, "26.05.5": true, "26.11.0": true} {
		e := Enforcement{Known: true, OverMemoryKill: true, Gather: "linux", SelectMemory: true, SelectTypeParameters: "CR_Core_Memory", Version: version}
		kills, known := e.JobKill()
		if said := strings.Contains(Changes[0].At(version).Holds, "cancels the whole job"); !known || kills != want || said != want {
			t.Errorf("%s: slurmd kills: %v, known %v; said %v, want %v", version, kills, known, said, want)
		}
	}
}

func TestStepOfCgroup(t *testing.T) {
	for _, test := range []struct {
		name, text string
		job, step  string
		ok         bool
	}{
		{"none", "4:memory:/user.slice\n0::/\n", "", "", false},
		{"v1", "9:name=systemd:/\n6:freezer:/slurm_n1/uid_1000/job_46/step_batch\n", "46", "batch", true},
		{"v1, task", "4:memory:/slurm/uid_0/job_4/step_0/task_3\n", "4", "0", true},
		{"v2", "0::/system.slice/slurmstepd.scope/job_7/step_extern/user/task_special\n", "7", "extern", true},
		{"26.05", "0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_batch/user/task_0", "sEKNKTV3WPV500", "batch", true},
		{"job without a step", "0::/x/job_7\n", "", "", false},
		{"step without a job", "0::/x/step_7\n", "", "", false},
		{"empty names", "0::/job_/step_\n", "", "", false},
		{"a colon in the path", "0::/a:b/job_7/step_0\n", "7", "0", true},
		{"junk", "\x00\n::\n", "", "", false},
	} {
		job, step, ok := StepOfCgroup([]byte(test.text))
		if job != test.job || step != test.step || ok != test.ok {
			t.Errorf("%s: %q %q %v", test.name, job, step, ok)
		}
	}
}

func FuzzStepOfCgroup(f *testing.F) {
	f.Add("6:freezer:/slurm_n1/uid_1000/job_46/step_batch\n0::/sEKNKTV3WPV500/step_batch")
	f.Fuzz(func(t *testing.T, text string) {
		job, step, ok := StepOfCgroup([]byte(text))
		if ok != (job != "" && step != "") || strings.ContainsAny(job+step, "/\n") {
			t.Errorf("%q: %q %q %v", text, job, step, ok)
		}
	})
}

func TestNamesOfDirs(t *testing.T) {
	for name, want := range map[string]string{
		"job_46": "46", "sEKNKTV3WPV500": "sEKNKTV3WPV500", "job_4294967295": "4294967295", "job_4294967296": "", "job_": "", "job_+1": "",
		"job_-1": "", "job_007": "", "job_7 ": "", "step_0": "", "": "", "sEKNKTV3WPV50é": "",
	} {
		if got, ok := JobOfDir(name); got != want || ok != (want != "") {
			t.Errorf("job of %q: %q, %v", name, got, ok)
		}
	}
	for name, want := range map[string]string{
		"step_0": "0", "step_batch": "batch", "step_extern": "extern", "step_interactive": "interactive", "step_3+1": "3+1",
		"step_": "", "step_3+": "", "step_+1": "", "step_x": "", "step_batch ": "", "job_7": "",
	} {
		if got, ok := StepOfDir(name); ok != (want != "") || ok && got != want {
			t.Errorf("step of %q: %q, %v", name, got, ok)
		}
	}
}

func FuzzNamesOfDirs(f *testing.F) {
	f.Add("job_46")
	f.Add("step_3+1")
	f.Fuzz(func(t *testing.T, name string) {
		job, isJob := JobOfDir(name)
		step, isStep := StepOfDir(name)
		if isJob && isStep || isJob && strings.Trim(job, "s0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" ||
			isStep && strings.Trim(step, "+0123456789abcdefghijklmnopqrstuvwxyz") != "" {
			t.Errorf("%q: %q %v, %q %v", name, job, isJob, step, isStep)
		}
	})
}

func TestInCgroup(t *testing.T) {
	job, _ := FromEnv(env("SLURM_JOB_ID=2 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1 SLURM_NTASKS=2 SLURM_STEP_NUM_NODES=1 SLURM_JOB_NUM_NODES=3"))
	got := job.InCgroup([]byte("6:freezer:/slurm/uid_1/job_2/step_batch\n"))
	if got.StepID != StepBatch || got.Tasks != 2 || got.Nodes != 3 {
		t.Errorf("a job submitted from a step: %+v", got)
	}
	got = job.InCgroup([]byte("0::/sEKNKTV3WPV500/step_batch\n"))
	if got.StepID != StepBatch {
		t.Errorf("by SLUID: %+v", got)
	}
	for _, text := range []string{"", "0::/job_1/step_batch\n", "0::/job_2/step_0\n"} {
		if got := job.InCgroup([]byte(text)); got != job {
			t.Errorf("%q: %+v, want no change", text, got)
		}
	}
}

func TestStepOfTitle(t *testing.T) {
	for title, want := range map[string]string{
		"slurmstepd: [46.batch]\x00\x00": "46.batch", "slurmstepd: [46.0]": "46.0", "slurmstepd: [46.extern] ": "46.extern",
		"slurmstepd: [46.0+1]": "46.0+1", "slurmstepd: [46]": "", "slurmstepd: [-Mevil.0]": "", "slurmstepd: [46.x]": "",
		"/usr/sbin/slurmstepd infinity": "", "slurmstepd: [46.0]\x00--more": "", "sh: [46.0]": "", "": "",
	} {
		job, step, ok := StepOfTitle([]byte(title))
		if ok != (want != "") || ok && job+"."+step != want {
			t.Errorf("%q: %q, %q, %v; want %q", title, job, step, ok, want)
		}
	}
}

// TestJobOfSLUID: the title of slurmstepd tells which job a SLUID is. A process that only
// has such a title is not believed.
func TestJobOfSLUID(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("directories must be root's")
	}
	const sluid, batch = "s8ANM84T9X1C00", "/system.slice/localhost_slurmstepd.scope/s8ANM84T9X1C00/step_batch/slurm"
	type process struct {
		title, cgroup, uids string
	}
	stepd := process{"slurmstepd: [17.batch]\x00\x00", "0::" + batch + "\n", "0\t0\t0\t0"}
	for _, c := range []struct {
		name   string
		change func(p *process)
		owner  int    // of step_batch/slurm
		listed string // its cgroup.procs
		want   string
	}{
		{"as Slurm makes it", nil, 0, "700\n", "17"},
		{"beside one of another PID namespace", nil, 0, "0\n700\n", "17"},
		{"a user's process", func(p *process) { p.uids = "1000\t1000\t1000\t1000" }, 0, "700\n", ""},
		{"a set-user-ID program of a user's", func(p *process) { p.uids = "1000\t0\t0\t0" }, 0, "700\n", ""},
		{"a directory of a user's", nil, 1000, "700\n", ""},
		{"a task with that title", func(p *process) {
			p.cgroup = "0::/system.slice/localhost_slurmstepd.scope/" + sluid + "/step_batch/user/task_0\n"
		}, 0, "700\n", ""},
		{"in another job", func(p *process) { p.cgroup = "0::/system.slice/s0000000000000/step_batch/slurm\n" }, 0, "700\n", ""},
		{"of another step", func(p *process) { p.title = "slurmstepd: [99.0]" }, 0, "700\n", ""},
		{"before it has a title", func(p *process) { p.title = "/usr/sbin/slurmstepd\x00" }, 0, "700\n", ""},
		{"no job's", func(p *process) { p.title = "slurmstepd: [../x.batch]" }, 0, "700\n", ""},
		{"it has ended", nil, 0, "701\n", ""},
		{"PIDs that are none", nil, 0, "../700\n-1\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			p := stepd
			if c.change != nil {
				c.change(&p)
			}
			dir := filepath.Join(root, sluid)
			inner := filepath.Join(dir, "step_batch", "slurm")
			proc := filepath.Join(root, "proc")
			for _, d := range []string{inner, filepath.Join(dir, "step_batch", "user"), filepath.Join(proc, "700")} {
				must(t, os.MkdirAll(d, 0o755))
			}
			for name, text := range map[string]string{
				inner + "/cgroup.procs": c.listed, proc + "/700/cmdline": p.title, proc + "/700/cgroup": p.cgroup,
				proc + "/700/status": fmt.Sprintf("Name:\tslurmstepd\nUid:\t%s\nGid:\t0\t0\t0\t0\n", p.uids),
			} {
				must(t, os.WriteFile(name, []byte(text), 0o644))
			}
			must(t, os.Chown(inner, c.owner, 0))
			if got, ok := JobOfSLUID(proc, dir); got != c.want || ok != (c.want != "") {
				t.Errorf("got %q, %v, want %q", got, ok, c.want)
			}
			if got, ok := JobOfSLUID(proc, filepath.Join(root, "job_17")); ok {
				t.Errorf("of a directory with a number: %q", got)
			}
		})
	}
}
