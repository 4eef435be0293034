package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/control"
)

// TestStatusSlurm: of a job with two ranks on each of two nodes status tells of all
// four, from where the job was submitted and from its script, and what is asked of
// one rank reaches its leader alone.
func TestStatusSlurm(t *testing.T) {
	c := slurmtest.Start(t, slurmtest.Cgroup, slurmtest.Options{Nodes: 2, CPUs: 4})
	warden := c.Install(t, binary)
	run := c.Submit(t, fmt.Sprintf(`srun --ntasks-per-node=2 -n4 %[1]s run --record none -- sleep 300 &
until [ -e go ]; do sleep 0.05; done
%[1]s status --job $SLURM_JOB_ID --json >inside.json 2>inside.err; echo $? >inside
until [ -e end ]; do sleep 0.05; done
scancel $SLURM_JOB_ID.0; wait; true`, warden), "-N2", "--ntasks-per-node=2", "--mem=300")
	run.Running(t)
	// Who asks from outside makes steps of the job too: its own is to be the first.
	run.Until(t, time.Minute, func(slurmtest.Result) bool { return len(run.Processes("0")) >= 4 })

	type answer struct {
		Nodes  []control.Status
		Errors []struct{ Node, Error string }
	}
	ask := func(args ...string) (got answer, code int, stderr string) {
		cmd := c.Command(t.Context(), warden, append(args, "--json")...)
		var out, errs strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errs
		begun := time.Now()
		_ = cmd.Run() // the status is looked at
		t.Logf("%v took %v: %v\n%s", args, time.Since(begun).Round(time.Millisecond), cmd.ProcessState, &errs)
		if out.Len() > 0 {
			if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
				t.Fatalf("%v: %s", err, &out)
			}
		}
		return got, cmd.ProcessState.ExitCode(), errs.String()
	}
	check := func(got answer) {
		t.Helper()
		var tasks []int
		for i, n := range got.Nodes {
			if n.Node != c.Nodes()[i] || n.Job != run.ID || len(n.Limits) == 0 {
				t.Errorf("node %d: %q, job %q, %d limits", i, n.Node, n.Job, len(n.Limits))
			}
			for _, r := range n.Ranks {
				tasks = append(tasks, r.Task)
			}
		}
		if slices.Sort(tasks); !slices.Equal(tasks, []int{0, 1, 2, 3}) {
			t.Errorf("ranks %v", tasks)
		}
	}
	var got answer
	run.Until(t, time.Minute, func(slurmtest.Result) bool {
		var code int
		got, code, _ = ask("status", "--job", run.ID)
		n := 0
		for _, s := range got.Nodes {
			n += len(s.Ranks)
		}
		return code == 0 && len(got.Nodes) == 2 && n == 4
	})
	check(got)
	one, code, _ := ask("status", "--job", run.ID, "--node", c.Nodes()[1])
	if code != 0 || len(one.Nodes) != 1 || one.Nodes[0].Node != c.Nodes()[1] {
		t.Errorf("one node: %d, %+v", code, one)
	}
	// A sleep has nothing to give back, and rank 3 is on the second node alone.
	did, code, errs := ask("recycle", "--job", run.ID, "--rank", "3")
	if code != 1 || strings.Contains(errs, c.Nodes()[0]) || len(did.Nodes)+len(did.Errors) != 1 {
		t.Errorf("recycle of rank 3: %d, %+v, %s", code, did, errs)
	}
	if out := c.Do(t, "touch", run.Dir+"/go"); out.Code != 0 {
		t.Fatal(out)
	}
	run.Until(t, time.Minute, func(slurmtest.Result) bool { return written(run.Dir+"/inside") != "" })
	if code := written(run.Dir + "/inside"); code != "0\n" {
		t.Errorf("in the script: status %s%s", code, written(run.Dir+"/inside.err"))
	}
	var inside answer
	if err := json.Unmarshal([]byte(written(run.Dir+"/inside.json")), &inside); err != nil {
		t.Fatal(err)
	}
	check(inside)
	if out := c.Do(t, "touch", run.Dir+"/end"); out.Code != 0 {
		t.Fatal(out)
	}
	if r := run.Wait(t); r.State != "COMPLETED" {
		t.Errorf("%+v", r)
	}
	// Of a job that has ended nobody answers.
	cmd := c.Command(context.Background(), warden, "status", "--job", run.ID)
	out, _ := cmd.CombinedOutput() // the status is looked at
	if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "does not run, it is COMPLETED") {
		t.Errorf("%v: %s", cmd.ProcessState, out)
	}
}

// written is what stands in a file, nothing where there is none.
func written(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(b)
}
