package slurm

import (
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
				User: "ann", Cluster: "lab", Partition: "debug", Name: "script",
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
			want: Job{ID: "11", StepID: "batch", HetSize: 2, NodeName: "n1"},
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
