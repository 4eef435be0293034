package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestStatusOfAJob: all nodes of a job, each asked for its own.
func TestStatusOfAJob(t *testing.T) {
	s := newLeaderStand(t)
	s.slurm("46")
	one := &leaderSource{
		status:  control.Status{Leader: 1, Ranks: []control.Rank{{Task: 0, PID: 10}, {Task: 1, PID: 11}}, Procs: make([]control.Proc, 400)},
		results: []control.Result{{PID: 12, Task: 0, OK: true, Freed: rss.MiB}, {Task: -1, OK: true, Done: true}},
	}
	two := &leaderSource{
		status:  control.Status{Leader: 2, Ranks: []control.Rank{{Task: 2, PID: 10}, {Task: 3, PID: 11}}, Procs: make([]control.Proc, 400)},
		results: []control.Result{{PID: 13, Task: 2, Reason: event.ReasonNothing}, {Task: -1, Done: true}},
	}
	s.lead("46", "n1", one)
	second := s.lead("46", "n2", two)

	var got struct {
		V      int
		Nodes  []control.Status
		Errors []struct{ Node, Error, Hint string }
	}
	out, errs := s.run(0, nil, "status", "--job", "46", "--json")
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Nodes) != 2 || errs != "" {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	for i, n := range got.Nodes {
		if n.Node != []string{"n1", "n2"}[i] || len(n.Ranks) != 2 || n.Ranks[0].Task != 2*i || len(n.Procs) != 400 {
			t.Errorf("node %d: %+v", i, n.Ranks)
		}
	}
	out, _ = s.run(0, nil, "status", "--job", "46", "--node", "n2")
	if has(t, out, "job 46 on n2"); strings.Contains(out, "n1") {
		t.Error(out)
	}
	out, _ = s.run(1, nil, "recycle", "--job", "46")
	has(t, out, "n1: process 12 of rank 0 recycled, 1.00 MiB given back\n", "n2: process 13 of rank 2 not recycled: nothing to give back\n", "1 of 2 processes recycled")
	one.commands()
	two.commands()
	s.run(1, nil, "recycle", "--job", "46", "--rank", "3")
	if a, b := one.commands(), two.commands(); a != nil || len(b) != 1 || !slices.Equal(b[0].Ranks, []int{3}) {
		t.Errorf("rank 3: %+v, %+v", a, b)
	}
	_, errs = s.run(1, nil, "recycle", "--job", "46", "--rank", "9")
	has(t, errs, "no leader that answered has a rank 9")
	_, errs = s.run(2, nil, "recycle", "--job", "46", "--pid", "10")
	has(t, errs, "job 46 runs on 2 nodes, and a PID means another process on each\nhint: say on which with --node")
	s.run(0, nil, "trim", "--job", "46", "--node", "n1")
	if a, b := one.commands(), two.commands(); len(a) != 1 || a[0].Do != event.ActionTrim || b != nil {
		t.Errorf("trim on n1: %+v, %+v", a, b)
	}
	_, errs = s.run(1, nil, "status", "--job", "46", "--node", "n3")
	has(t, errs, "error: job 46 does not run on n3\nhint: it runs on n[1-2]\n")
	_, errs = s.run(1, nil, "status", "--job", "99")
	has(t, errs, "error: no job 99 is known to Slurm\n")

	// One node without a leader is an error beside the other's answer.
	second.Close()
	out, errs = s.run(1, nil, "status", "--job", "46")
	has(t, out, "job 46 on n1")
	has(t, errs, "error: n2: no rsswarden run of the job is there now\nhint: it has ended")
	out, _ = s.run(1, nil, "status", "--job", "46", "--json")
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Nodes) != 1 || len(got.Errors) != 1 || got.Errors[0].Node != "n2" {
		t.Errorf("%v: %s", err, out)
	}

	// Where srun is not to be had, what is here is told, and what to do about the rest.
	for name, c := range map[string]struct{ script, says string }{
		"refused":       {"echo 'srun: error: Unable to create step for job 46: Access/permission denied' >&2; exit 1", "Unable to create step for job 46: Access/permission denied"},
		"says nothing":  {"exit 1", "exit status 1"},
		"not installed": {"", "srun is not installed here"},
		"no rsswarden":  {`echo "slurmstepd: error: execve(): /x/rsswarden: No such file or directory" >&2; exit 2`, "No such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &leaderStand{t: t, tmp: s.tmp, env: s.env}
			if c.script != "" {
				s.program("srun", c.script)
			} else {
				// Only what is needed, without the srun of this machine.
				if err := os.Remove(filepath.Join(s.tmp, "bin", "srun")); err != nil {
					t.Fatal(err)
				}
				s.env = append(slices.Clone(s.env), "PATH="+filepath.Join(s.tmp, "bin"))
			}
			out, errs := s.run(1, nil, "status", "--job", "46")
			has(t, out, "job 46 on n1")
			has(t, errs, "error: n2: cannot be asked by srun: ", c.says, "hint: ssh n2 rsswarden status")
			out, errs = s.run(1, nil, "recycle", "--job", "46")
			if has(t, errs, "error: n1, n2: cannot be asked by srun: "); out != "" {
				t.Error(out)
			}
			if one.commands() != nil {
				t.Error("some of it was done")
			}
			s.slurm("46")
		})
	}
}

// TestJobOnOneNode: it is asked directly, whatever Slurm allows.
func TestJobOnOneNode(t *testing.T) {
	s := newLeaderStand(t)
	s.lead("46", "n1", &leaderSource{})
	s.program("scontrol", `echo "JobId=46 JobName=x UserId=u(1) GroupId=g(1) MCS_label=N/A JobState=RUNNING NodeList=n1"`)
	out, errs := s.run(0, nil, "status", "--job", "46")
	if has(t, out, "job 46 on n1"); errs != "" {
		t.Error(errs)
	}
	// Of our own job the environment knows the nodes.
	s.program("scontrol", "exit 1")
	s.run(0, []string{"SLURM_JOB_ID=46", "SLURM_JOB_NODELIST=n1", "SLURMD_NODENAME=n1"}, "status", "--job", "46")
	// Where Slurm does not answer, that is said, and what is here answers.
	out, errs = s.run(0, nil, "status", "--job", "46")
	has(t, out, "job 46 on n1")
	has(t, errs, "cannot ask Slurm on which nodes job 46 runs", "only this node is asked")
}

// TestDeadLeader: one that was killed leaves its socket, and is nobody.
func TestDeadLeader(t *testing.T) {
	s := newLeaderStand(t)
	s.lead("46", "n1", &leaderSource{})
	dir := filepath.Join(s.tmp, "rsswarden-"+strconv.Itoa(os.Geteuid()), "lead.46@n1.0a1b2c3d")
	kept := filepath.Join(s.tmp, "kept")
	// Another directory with a socket behind which nobody is.
	if err := os.Mkdir(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrUnix{Name: filepath.Join(kept, "control")})
	}
	if err != nil {
		t.Fatal(err)
	}
	syscall.Close(fd)
	if err := os.Rename(kept, filepath.Join(filepath.Dir(dir), "lead.46@n1.ffffffff")); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	out, errs := s.run(0, []string{"SLURM_JOB_ID=46"}, "status")
	if has(t, out, "job 46 on n1"); strings.Count(out, "led by") != 1 || errs != "" {
		t.Errorf("%s%s", out, errs)
	}
	if d := time.Since(begun); d > 2*time.Second {
		t.Errorf("a dead leader was waited for %v", d)
	}
	// A directory that others can enter is not asked.
	if err := os.Chmod(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	s.run(1, []string{"SLURM_JOB_ID=46"}, "status")
}
