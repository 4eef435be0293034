package slurm

import (
	"context"
	"errors"
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
