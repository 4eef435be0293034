package slurm

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const mib = 1 << 20

func TestStepLimits(t *testing.T) {
	for _, test := range []struct {
		name, env string
		rss       uint64
		want      []Memory
	}{
		{"no job, whatever RLIMIT_RSS is", "SLURM_MEM_PER_NODE=300", 100 * mib, nil},
		{"batch step", "SLURM_JOB_ID=1 SLURM_MEM_PER_NODE=300", 300 * mib,
			[]Memory{{300 * mib, "RLIMIT_RSS", true}, {300 * mib, "SLURM_MEM_PER_NODE", true}}},
		{"srun with a --mem of its own: the environment is stale", "SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_MEM_PER_NODE=300", 100 * mib,
			[]Memory{{100 * mib, "RLIMIT_RSS", true}, {300 * mib, "SLURM_MEM_PER_NODE", false}}},
		{"batch step of 26.05: its environment is its own", "SLURM_JOB_ID=1 SLURM_STEP_ID=-5 SLURM_MEM_PER_NODE=300", 300 * mib,
			[]Memory{{300 * mib, "RLIMIT_RSS", true}, {300 * mib, "SLURM_MEM_PER_NODE", true}}},
		{"--mem=0: the node's memory", "SLURM_JOB_ID=1", 8000 * mib, []Memory{{8000 * mib, "RLIMIT_RSS", true}}},
		{"per CPU", "SLURM_JOB_ID=1 SLURM_MEM_PER_CPU=120 SLURM_CPUS_ON_NODE=2", NoLimit,
			[]Memory{{240 * mib, "SLURM_MEM_PER_CPU times SLURM_CPUS_ON_NODE", true}}},
		{"per CPU, by the node's place in the job", "SLURM_JOB_ID=1 SLURM_MEM_PER_CPU=100 SLURM_JOB_CPUS_PER_NODE=4(x2),2 SLURM_NODEID=2", NoLimit,
			[]Memory{{200 * mib, "SLURM_MEM_PER_CPU times SLURM_JOB_CPUS_PER_NODE", true}}},
		{"per GPU", "SLURM_JOB_ID=1 SLURM_MEM_PER_GPU=1000 SLURM_JOB_GPUS=0,2,3", NoLimit,
			[]Memory{{3000 * mib, "SLURM_MEM_PER_GPU times SLURM_JOB_GPUS", true}}},
		{"nothing known", "SLURM_JOB_ID=1", NoLimit, nil},
		{"junk and overflow say nothing",
			"SLURM_JOB_ID=1 SLURM_MEM_PER_NODE=0 SLURM_MEM_PER_CPU=9000000000000 SLURM_CPUS_ON_NODE=4000000000 SLURM_MEM_PER_GPU=1G", 0, nil},
	} {
		if diff := cmp.Diff(test.want, StepLimits(env(test.env), test.rss)); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
		first, ok := StepLimit(env(test.env), test.rss)
		if ok != (len(test.want) > 0) || ok && first != test.want[0] {
			t.Errorf("%s: StepLimit says %+v, %v", test.name, first, ok)
		}
	}
}

func TestRlimitRSS(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", `ulimit -m 12345 && exec "$0" -test.run='^$'`, os.Args[0])
	cmd.Env = append(os.Environ(), "PRINT_RLIMIT_RSS=1")
	out, err := cmd.Output()
	if err != nil || string(out) != fmt.Sprintln(12345<<10) {
		t.Errorf("under ulimit -m 12345: %q, %v", out, err)
	}
}

func TestMain(m *testing.M) {
	if os.Getenv("PRINT_RLIMIT_RSS") != "" {
		fmt.Println(RlimitRSS())
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestPerNode(t *testing.T) {
	for _, test := range []struct {
		list string
		node int
		want int
	}{
		{"4", 0, 4}, {"4", 1, 0}, {"4(x2),2", 1, 4}, {"4(x2),2", 2, 2}, {"4(x2),2", 3, 0},
		{"1,2,3", 1, 2}, {"", 0, 0}, {"4(x", 0, 0}, {"4(x2", 0, 0}, {"4(x0)", 0, 0}, {"-1", 0, 0}, {"4", -1, 0}, {",4", 1, 0},
	} {
		if got := perNode(test.list, test.node); got != test.want {
			t.Errorf("node %d of %q: %d, want %d", test.node, test.list, got, test.want)
		}
	}
}

func FuzzPerNode(f *testing.F) {
	f.Add("4(x2),2", 2)
	f.Add("4(x99999999999),2", 1)
	f.Fuzz(func(t *testing.T, list string, node int) {
		if got := perNode(list, node); got < 0 {
			t.Errorf("node %d of %q: %d", node, list, got)
		}
	})
}
