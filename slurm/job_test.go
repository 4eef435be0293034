package slurm

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// env makes a lookup function of "NAME=value" pairs.
func env(pairs map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := pairs[name]; return v, ok }
}

func TestFromEnv(t *testing.T) {
	for _, test := range []struct {
		name string
		env  map[string]string
		want Job
		ok   bool
	}{
		{name: "no job", env: map[string]string{"SLURM_CONF": "/x"}},
		{name: "empty id", env: map[string]string{"SLURM_JOB_ID": ""}},
		{name: "an option for an id", env: map[string]string{"SLURM_JOB_ID": "-Mevil"}},
		{name: "a list for an id", env: map[string]string{"SLURM_JOB_ID": "46,47"}},
		{name: "a path for an id", env: map[string]string{"SLURM_JOB_ID": "../46"}},
		{
			name: "options for all but the id",
			env: map[string]string{
				"SLURM_JOB_ID": "46", "SLURM_STEP_ID": "-Mevil", "SLURM_ARRAY_JOB_ID": "-Mevil", "SLURM_ARRAY_TASK_ID": "1",
			},
			want: Job{ID: "46"},
			ok:   true,
		},
		{
			name: "batch step of 22.05 has no step id",
			env: map[string]string{
				"SLURM_JOB_ID": "7", "SLURM_JOBID": "7", "SLURM_TASK_PID": "99", "SLURMD_NODENAME": "n1", "SLURM_CONF": "/etc/s.conf",
				"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_NTASKS": "2", "SLURM_NNODES": "1",
				"SLURM_JOB_USER": "ann", "SLURM_CLUSTER_NAME": "lab", "SLURM_JOB_PARTITION": "debug", "SLURM_JOB_NAME": "script",
			},
			want: Job{
				ID: "7", StepID: "batch", NodeName: "n1", ConfFile: "/etc/s.conf", Tasks: 2, Nodes: 1,
				Cluster: "lab", Partition: "debug", Name: "script",
			},
			ok: true,
		},
		{
			name: "task of srun",
			env: map[string]string{
				"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "3", "SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NODEID": "2",
				"SLURM_NTASKS": "16", "SLURM_STEP_NUM_TASKS": "6", "SLURM_JOB_NUM_NODES": "8", "SLURM_STEP_NUM_NODES": "3",
			},
			want: Job{ID: "7", StepID: "3", Task: 5, LocalID: 1, NodeID: 2, Tasks: 6, Nodes: 3},
			ok:   true,
		},
		{
			name: "interactive step by its number",
			env:  map[string]string{"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "4294967290"},
			want: Job{ID: "7", StepID: "interactive"},
			ok:   true,
		},
		{
			name: "batch step of 26.05 has a negative step id",
			env: map[string]string{
				"SLURM_JOB_ID": "5", "SLURM_STEP_ID": "-5", "SLURM_STEPID": "-5", "SLURM_TASK_PID": "1", "SLURMD_NODENAME": "x",
				"SLURM_NTASKS": "4", "SLURM_NNODES": "2",
			},
			want: Job{ID: "5", StepID: "batch", NodeName: "x", Tasks: 4, Nodes: 2},
			ok:   true,
		},
		{
			name: "extern step of 26.05",
			env:  map[string]string{"SLURM_JOB_ID": "5", "SLURM_STEP_ID": "-4"},
			want: Job{ID: "5", StepID: "extern"},
			ok:   true,
		},
		{
			name: "interactive step of 26.05",
			env:  map[string]string{"SLURM_JOB_ID": "5", "SLURM_STEP_ID": "-6"},
			want: Job{ID: "5", StepID: "interactive"},
			ok:   true,
		},
		{
			name: "a step id that is no number",
			env:  map[string]string{"SLURM_JOB_ID": "5", "SLURM_STEP_ID": "99999999999999999999"},
			want: Job{ID: "5", StepID: "99999999999999999999"},
			ok:   true,
		},
		{
			name: "shell of salloc is in no step",
			env:  map[string]string{"SLURM_JOB_ID": "7", "SLURM_NNODES": "1"},
			want: Job{ID: "7", Nodes: 1},
			ok:   true,
		},
		{
			name: "array task, requeued, with an end",
			env: map[string]string{
				"SLURM_JOB_ID": "9", "SLURM_TASK_PID": "1", "SLURM_ARRAY_JOB_ID": "8", "SLURM_ARRAY_TASK_ID": "12",
				"SLURM_RESTART_COUNT": "2", "SLURM_JOB_END_TIME": "1790000000",
			},
			want: Job{ID: "9", StepID: "batch", ArrayJob: "8", ArrayTask: "12", Restarts: 2, End: time.Unix(1790000000, 0)},
			ok:   true,
		},
		{
			name: "component of a heterogeneous job",
			env:  map[string]string{"SLURM_JOB_ID": "11", "SLURM_HET_SIZE": "2", "SLURMD_NODENAME": "n1"},
			want: Job{ID: "11", StepID: "batch", NodeName: "n1"},
			ok:   true,
		},
		{
			name: "malformed numbers are 0",
			env: map[string]string{
				"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "x", "SLURM_LOCALID": "-1",
				"SLURM_RESTART_COUNT": "99999999999999999999", "SLURM_JOB_END_TIME": "soon",
			},
			want: Job{ID: "7", StepID: "0"},
			ok:   true,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, ok := FromEnv(env(test.env))
			if ok != test.ok {
				t.Errorf("found %v, want %v", ok, test.ok)
			}
			if diff := cmp.Diff(test.want, got, cmpopts.IgnoreUnexported(Job{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestJobString(t *testing.T) {
	for want, job := range map[string]Job{"7": {ID: "7"}, "7.batch": {ID: "7", StepID: "batch"}} {
		if got := job.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestFindEnd(t *testing.T) {
	scontrol := func(_ context.Context, args ...string) ([]byte, error) {
		if args[len(args)-1] != "46" {
			return nil, errors.New("no such job")
		}
		return []byte("JobId=46 JobName=a StartTime=2026-11-20T10:00:00 EndTime=2026-11-20T11:30:00 Deadline=N/A"), nil
	}
	end, err := FindEnd(t.Context(), Job{ID: "46"}, scontrol)
	if want := time.Date(2026, 11, 20, 11, 30, 0, 0, time.Local); err != nil || !end.Equal(want) {
		t.Errorf("end %v, %v, want %v", end, err, want)
	}
	if _, err := FindEnd(t.Context(), Job{ID: "47"}, scontrol); err == nil {
		t.Error("no error although scontrol failed")
	}
}

func FuzzParseEnd(f *testing.F) {
	for _, text := range []string{"", "EndTime=Unknown", "EndTime=", "EndTime=2026-11-20T11:30:00", "x EndTime=NONE y", "EndTime=2026-13-40T99:99:99"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		end, err := ParseEnd(b, time.UTC)
		if err == nil && !bytes.Contains(b, []byte(end.Format("EndTime=2006-01-02T15:04:05"))) {
			t.Errorf("%q: read %v, which is not there", b, end)
		}
	})
}

// TestNodeName: runs and the node's daemon say the same name of a node, inside
// Slurm and outside.
func TestNodeName(t *testing.T) {
	host, err := os.Hostname()
	must(t, err)
	for want, vars := range map[string]map[string]string{
		"n1":        {"SLURMD_NODENAME": "n1"},
		"n1.site":   {"SLURMD_NODENAME": "n1.site"}, // as slurm.conf has it
		short(host): {"SLURMD_NODENAME": ""},
	} {
		if got := NodeName(env(vars)); got != want {
			t.Errorf("%v: %q, want %q", vars, got, want)
		}
	}
	if got := short("n1.site.org"); got != "n1" {
		t.Errorf("%q", got)
	}
}

// must ends the test where there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
