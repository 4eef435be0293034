package main

import (
	"maps"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/loader"
)

func TestWhyBare(t *testing.T) {
	const gib, none = 1 << 30, 1<<64 - 1 // RLIM_INFINITY
	task := map[string]string{"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_TASK_PID": "9", "SLURM_NODEID": "1", "SLURM_STEP_TASKS_PER_NODE": "64,2(x2)"}
	batch := map[string]string{"SLURM_JOB_ID": "7", "SLURM_TASK_PID": "9", "SLURM_TASKS_PER_NODE": "64", "SLURM_MEM_PER_NODE": "1024"}
	for _, test := range []struct {
		name     string
		env, add map[string]string
		resident uint64
		want     string // empty for watched
	}{
		{"a batch script", batch, nil, none, ""},
		{"one that was given less", batch, nil, gib - 1, "its step has 1024 MiB for each task, watched are tasks with 1.00 GiB or more"},
		{"two tasks, before their limits are set", task, nil, 0, ""},
		{"with enough", task, nil, 2 * gib, ""},
		{"with too little", task, nil, gib, "its step has 512 MiB for each task, watched are tasks with 1.00 GiB or more"},
		{"17 tasks, memory not known", task, map[string]string{"SLURM_STEP_TASKS_PER_NODE": "2,17"}, none, "its step has 17 tasks on this node"},
		{"17 tasks with enough", task, map[string]string{"SLURM_STEP_TASKS_PER_NODE": "2,17"}, 17 * gib, ""},
		{"65 tasks", task, map[string]string{"SLURM_STEP_TASKS_PER_NODE": "2,65"}, 65 * gib, "its step has 65 tasks on this node"},
		{"tasks not known", task, map[string]string{"SLURM_STEP_TASKS_PER_NODE": ""}, none, "the number of its step's tasks on this node is not known"},
		{"off", task, map[string]string{"RSSWARDEN": "off"}, 2 * gib, "RSSWARDEN=off is in the environment"},
		{"a container", task, map[string]string{"SLURM_CONTAINER": "/x"}, 2 * gib, "it is in a container"},
		{"no job", nil, nil, none, "this is no task of Slurm's"},
	} {
		env := maps.Clone(test.env)
		if env == nil {
			env = map[string]string{}
		}
		maps.Copy(env, test.add)
		got := ""
		if err := whyBare(func(name string) (string, bool) { v, ok := env[name]; return v, ok }, test.resident); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// The path of the user's stays as it is behind the hook, which is there once.
func TestExports(t *testing.T) {
	for path, want := range map[string]string{
		"": "/hook", "/a:": "/hook:/a:", "/hook": "/hook", "/hook:/a": "/hook:/a", "/hook2:/a": "/hook:/hook2:/a",
	} {
		got := exports(loader.Prepared{Dir: "/dir", Hook: "/hook"}, path)
		if got != "export PYTHONPATH="+want+"\nexport RSSWARDEN_DIR=/dir\n" {
			t.Errorf("%q: %q", path, got)
		}
	}
}
