package main_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/slurm/slurmtest"
)

// TestTopSlurm: from outside the job all ranks of both nodes are seen, once and
// live, and nothing of it is left behind.
func TestTopSlurm(t *testing.T) {
	c := slurmtest.Start(t, slurmtest.Linux, slurmtest.Options{Nodes: 2})
	warden := c.Install(t, binary)
	run := c.Submit(t, fmt.Sprintf("srun %s run --quiet -- sleep 600", warden), "-N2", "-n4", "--ntasks-per-node=2", "--mem=300")
	run.Running(t)
	nodes := c.Nodes()
	var out []byte
	var err error
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		cmd := c.Command(t.Context(), warden, "top", "--once", "--job", run.ID)
		if out, err = cmd.CombinedOutput(); err == nil && strings.Contains(string(out), "RANKS 4") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v\n%s\n%s", err, out, run.Log())
		}
	}
	t.Logf("\n%s", out)
	for _, text := range []string{"job " + run.ID, nodes[0], nodes[1], "RANKS 4", "sleep 600"} {
		if !strings.Contains(string(out), text) {
			t.Errorf("%q is not shown", text)
		}
	}
	live := c.Command(t.Context(), warden, "top", "--job", run.ID)
	live.Env = append(live.Env, "TERM=xterm")
	s := topOn(t, live)
	s.await("RANKS 4")
	s.out.await(t, "\x1b[1;", 3) // three times the clock
	s.send("q")
	if how, text := s.ended(); how != "exit 0" {
		t.Errorf("%s\n%q", how, text)
	}
	run.Until(t, time.Minute, func(slurmtest.Result) bool {
		steps := c.Do(t, "squeue", "--noheader", "--steps", "--job", run.ID, "--format=%i").Stdout
		return len(strings.Fields(steps)) <= 2 // the batch step and srun's own
	})
	c.Cancel(t, run.ID)
}
