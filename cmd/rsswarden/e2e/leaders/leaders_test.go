// Package leaders asks the leaders of runs: status, top, recycle, checkpoint.
package leaders

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// binary is the program under test.
var binary string

func TestMain(m *testing.M) {
	os.Exit(wardentest.Main(m, map[string]*string{wardentest.Rsswarden: &binary}))
}

// leaderSource is a leader with given answers that notes what it is asked.
type leaderSource struct {
	status  control.Status
	results []control.Result
	refused *control.Refused
	hang    bool // a command never ends

	mu    sync.Mutex
	asked []control.Command
	left  chan struct{} // closed when who asked a hanging command has gone
}

func (s *leaderSource) Status(context.Context) (*control.Status, error) {
	now := s.status
	now.Time = time.Now()
	return &now, nil
}

func (s *leaderSource) Events(context.Context) (<-chan []byte, error) {
	return nil, &control.Refused{Reason: event.ReasonUnsupported}
}

func (s *leaderSource) Do(ctx context.Context, c control.Command) (<-chan control.Result, error) {
	s.mu.Lock()
	s.asked = append(s.asked, c)
	s.mu.Unlock()
	if s.refused != nil {
		return nil, s.refused
	}
	ch := make(chan control.Result, len(s.results))
	for _, r := range s.results {
		ch <- r
	}
	if s.hang {
		context.AfterFunc(ctx, func() {
			close(ch)
			close(s.left)
		})
		return ch, nil
	}
	close(ch)
	return ch, nil
}

// commands returns what was asked since the last call.
func (s *leaderSource) commands() []control.Command {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.asked
	s.asked = nil
	return c
}

// leaderStand is a node, or several on this machine, with leaders that the program
// under test finds: nothing of it needs Slurm.
type leaderStand struct {
	t   *testing.T
	tmp string
	env []string
}

func newLeaderStand(t *testing.T) *leaderStand {
	t.Helper()
	s := &leaderStand{t: t, tmp: t.TempDir()}
	s.env = append(slices.DeleteFunc(wardentest.Env(), func(kv string) bool {
		return strings.HasPrefix(kv, "TMPDIR=") || strings.HasPrefix(kv, "RSSWARDEN_") || strings.HasPrefix(kv, "PATH=")
	}), "TMPDIR="+s.tmp, "PATH="+filepath.Join(s.tmp, "bin")+":/usr/bin:/bin")
	s.program("scontrol", "echo none is installed >&2; exit 1")
	s.program("srun", "echo srun: error: none is installed >&2; exit 1")
	return s
}

// program puts a shell script on PATH.
func (s *leaderStand) program(name, script string) {
	s.t.Helper()
	wardentest.Write(s.t, filepath.Join(s.tmp, "bin", name), "#!/bin/sh\n"+script+"\n")
}

// lead has a leader answer: of a job on a node, or of a run outside Slurm where job
// is empty.
func (s *leaderStand) lead(job, node string, src *leaderSource) *control.Server {
	s.t.Helper()
	name := "lead." + job + "@" + node + ".0a1b2c3d"
	if job == "" {
		name = fmt.Sprintf("lead.run.%d.1", len(node)+1000)
	}
	dir := filepath.Join(s.tmp, "rsswarden-"+strconv.Itoa(os.Geteuid()), name)
	wardentest.NoError(s.t, os.MkdirAll(dir, 0o700))
	st := &src.status
	st.Node, st.Job, st.Version, st.Since = node, job, cmp.Or(st.Version, "test"), time.Now()
	if st.Leader == 0 {
		st.Leader = 800 + len(node)
	}
	src.left = make(chan struct{})
	f, err := os.Open(dir)
	wardentest.NoError(s.t, err)
	defer f.Close()
	server, err := control.Listen(f, control.SocketName, src)
	wardentest.NoError(s.t, err)
	s.t.Cleanup(server.Close)
	return server
}

// slurm has a job run on two nodes, both on this machine.
func (s *leaderStand) slurm(job string) {
	s.program("scontrol", `[ "$3" = `+job+` ] || { echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; }
echo "JobId=`+job+` JobName=x UserId=u(1) GroupId=g(1) MCS_label=N/A JobState=RUNNING NodeList=n[1-2] NumNodes=2"`)
	s.program("srun", `while [ "${1#--}" != "$1" ]; do
	case $1 in --nodelist=*) nodes=${1#*=} ;; --jobid=*) job=${1#*=} ;; esac
	shift
done
[ "$nodes" = 'n[1-2]' ] && nodes='n1 n2'
echo "Welcome to the cluster"
for n in $nodes; do SLURMD_NODENAME=$n SLURM_JOB_ID=$job "$@" & done
wait`)
}

// alone runs a command where it sees no other processes, and none of what they have
// in /tmp: other tests have leaders too.
const alone = `[ -d "$0" ] && /bin/mount -t tmpfs -o mode=0700 none "$0"; exec "$@"`

// run runs the program and wants an exit status.
func (s *leaderStand) run(status int, env []string, args ...string) (stdout, stderr string) {
	s.t.Helper()
	wardentest.NeedRoot(s.t, "needs root, for namespaces of its own")
	all := fmt.Sprintf("/tmp/rsswarden-%d", os.Geteuid())
	cmd := exec.Command("/usr/bin/unshare", append([]string{"--mount", "--pid", "--fork", "--mount-proc", "/bin/sh", "-c", alone, all, binary}, args...)...)
	cmd.Env = append(slices.Clone(s.env), env...)
	stdout, stderr, _ = wardentest.Run(cmd) // the status is looked at
	if code := cmd.ProcessState.ExitCode(); code != status {
		s.t.Errorf("%v: %v, want %d\n%s%s", args, cmd.ProcessState, status, stdout, stderr)
	}
	return stdout, stderr
}

func TestStatusHere(t *testing.T) {
	s := newLeaderStand(t)
	s.lead("46", "n1", &leaderSource{status: control.Status{Ranks: []control.Rank{{Task: 0, Step: "0", PID: 4711, Command: "python train.py", Hook: "recycle"}}}})
	s.lead("47", "n1", &leaderSource{})
	s.lead("", "n1", &leaderSource{status: control.Status{Leader: 77}})
	inJob := []string{"SLURM_JOB_ID=46", "SLURMD_NODENAME=n1"}

	out, errs := s.run(0, inJob, "status")
	wardentest.Says(t, out, "rsswarden   job 46 · train.py (4711) · n1 ")
	if strings.Contains(out, "47 ") || errs != "" {
		t.Errorf("in job 46 others are told of:\n%s%s", out, errs)
	}
	out, _ = s.run(0, inJob, "status", "--all")
	wardentest.Says(t, out, "… 46 ", "… 47 ", "… - ", "3 runs. Details: rsswarden status --job 46")
	out, _ = s.run(0, nil, "status", "--pid", "4711")
	if wardentest.Says(t, out, "job 46 · train.py (4711)"); strings.Contains(out, "runs.") {
		t.Error(out)
	}
	_, errs = s.run(1, nil, "status", "--pid", "4712")
	wardentest.Says(t, errs, "error: process 4712 is in no run of yours on this node\nhint: rsswarden status lists the runs\n")
	_, errs = s.run(2, nil, "top", "--pid", "x")
	wardentest.Says(t, errs, "error: --pid \"x\" is not a PID\nhint: give the number that ps shows: rsswarden top --pid 4711\n")

	var got struct {
		V     int
		Nodes []control.Status
	}
	out, _ = s.run(0, inJob, "status", "--json")
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.V != 1 || len(got.Nodes) != 1 || got.Nodes[0].Job != "46" || got.Nodes[0].Ranks[0].PID != 4711 {
		t.Errorf("%v: %s", err, out)
	}
	_, errs = s.run(1, []string{"SLURM_JOB_ID=99", "SLURMD_NODENAME=n1"}, "status")
	wardentest.Says(t, errs, "error: no rsswarden run of job 99 is on this node (n1) now\nhint: ", "--job 99")
	_, errs = s.run(1, inJob, "recycle", "--all", "--node", "n9")
	wardentest.Says(t, errs, "error: this node is n1, not n9\nhint: ")
}

// TestCommandHere: what is asked for arrives, each result is a line, and the exit
// status tells whether all was done.
func TestCommandHere(t *testing.T) {
	s := newLeaderStand(t)
	src := &leaderSource{
		status: control.Status{Ranks: []control.Rank{{Task: 0, PID: 10, Command: "python train.py"}, {Task: 1, PID: 20}}, Procs: []control.Proc{{PID: 10}, {PID: 11}, {PID: 20}}},
		results: []control.Result{
			{PID: 11, Task: 0, OK: true, Freed: 2 * rss.GiB, Duration: 0.25, Paused: 0.012},
			{PID: 21, Task: 1, Reason: event.ReasonRecent},
			{Task: -1, Done: true},
		},
	}
	s.lead("46", "n1", src)
	other := &leaderSource{status: control.Status{Procs: []control.Proc{{PID: 30}}}, results: []control.Result{{PID: 30, Task: -1, OK: true}, {Task: -1, OK: true, Done: true}}}
	s.lead("47", "n1", other)
	job := []string{"SLURM_JOB_ID=46", "SLURMD_NODENAME=n1"}

	out, errs := s.run(1, job, "recycle")
	if want := "n1: process 11 of rank 0 recycled, 2.00 GiB given back, in 250 ms, its trainer paused for 12 ms\n" +
		"n1: process 21 of rank 1 not recycled: worker recycled less than 30 s ago\n" +
		"1 of 2 processes recycled, 2.00 GiB given back in all\n"; out != want || errs != "" {
		t.Errorf("%s%s", out, errs)
	}
	if c := src.commands(); len(c) != 1 || c[0].Do != event.ActionRecycle || c[0].PIDs != nil || c[0].Ranks != nil || c[0].By == 0 {
		t.Errorf("%+v", c)
	}
	out, _ = s.run(1, job, "recycle", "--json", "--rank", "1", "--pid", "21")
	var got struct {
		V     int
		Nodes []struct {
			Node    string
			OK      bool
			Leader  int `json:"leader_pid"`
			Results []control.Result
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.V != 1 || len(got.Nodes) != 1 || got.Nodes[0].Node != "n1" || got.Nodes[0].OK ||
		len(got.Nodes[0].Results) != 2 || got.Nodes[0].Results[0].Freed != 2*rss.GiB {
		t.Errorf("%v: %s", err, out)
	}
	if c := src.commands(); len(c) != 1 || !slices.Equal(c[0].PIDs, []int{21}) || !slices.Equal(c[0].Ranks, []int{1}) {
		t.Errorf("%+v", c)
	}
	_, errs = s.run(1, job, "recycle", "--rank", "7")
	wardentest.Says(t, errs, "error: n1: no leader that answered has a rank 7\nhint: rsswarden status lists the ranks\n")
	if c := src.commands(); c != nil {
		t.Errorf("another rank was recycled: %+v", c)
	}
	for _, c := range [][2]string{
		{"KILL", `error: --signal "KILL": no process can catch this signal` + "\nhint: name one that a program can catch"},
		{"NOSUCH", `error: --signal "NOSUCH": unknown signal` + "\nhint: signals are written"},
	} {
		_, errs = s.run(2, job, "checkpoint", "--signal", c[0])
		if wardentest.Says(t, errs, c[1]); src.commands() != nil {
			t.Errorf("%s was asked for", c[0])
		}
	}
	s.run(1, job, "checkpoint", "--signal", "USR1", "--rank", "0")
	if c := src.commands(); len(c) != 1 || c[0].Do != event.ActionSignal || c[0].Signal != "USR1" {
		t.Errorf("%+v", c)
	}

	// Outside a job a run must be named; a PID does it.
	for _, args := range [][]string{{"recycle"}, {"recycle", "--rank", "0"}, {"recycle", "--node", "n1"}, {"checkpoint"}, {"trim"}, {"trim", "--rank", "0"}} {
		for _, env := range [][]string{nil, {"RSSWARDEN_DIR=/tmp/rsswarden-0/run.1.1"}} {
			_, errs = s.run(2, append([]string{"SLURMD_NODENAME=n1"}, env...), args...)
			wardentest.Says(t, errs, "error: outside a job "+args[0]+" needs --pid PID, --job ID or --all\n",
				"hint: your runs on this node:\n  "+fmt.Sprintf("%-30s", "rsswarden "+args[0]+" --job 46")+" python train.py\n  rsswarden "+args[0]+" --job 47\n")
		}
	}
	if c := append(src.commands(), other.commands()...); c != nil {
		t.Errorf("%+v", c)
	}
	out, _ = s.run(0, nil, "recycle", "--pid", "30")
	wardentest.Says(t, out, "n1: process 30 recycled, 0 B given back\n")
	if c := other.commands(); len(c) != 1 || src.commands() != nil {
		t.Errorf("%+v", c)
	}
	_, errs = s.run(1, nil, "recycle", "--pid", "99")
	wardentest.Says(t, errs, "error: ", "no leader knows 99\n")
	s.run(1, nil, "recycle", "--all")
	if len(src.commands()) != 1 || len(other.commands()) != 1 {
		t.Error("--all did not reach all")
	}

	// A trim asks who leads where an option says so, or outside a job.
	out, _ = s.run(1, job, "trim", "--rank", "0")
	wardentest.Says(t, out, "process 11 of rank 0 trimmed, 2.00 GiB given back")
	if c := src.commands(); len(c) != 1 || c[0].Do != event.ActionTrim || !slices.Equal(c[0].Ranks, []int{0}) {
		t.Errorf("%+v", c)
	}
	_, errs = s.run(2, job, "trim")
	wardentest.Says(t, errs, "job 46 has no process of yours on this node")
	if src.commands() != nil {
		t.Error("a trim in a job asked the leader")
	}
	_, errs = s.run(2, nil, "trim", "--pid", "99999999")
	wardentest.Says(t, errs, "there is no process 99999999")
	if src.commands() != nil || other.commands() != nil {
		t.Error("trim --pid asked a leader")
	}

	// A rank whose processes do it at once is one line.
	other.results = []control.Result{{Task: 0, OK: true, Freed: 67 * rss.MiB}, {Task: -1, Reason: event.ReasonNothing}, {Task: -1, Done: true}}
	out, _ = s.run(1, []string{"SLURM_JOB_ID=47", "SLURMD_NODENAME=n1"}, "trim", "--all")
	wardentest.Says(t, out, "n1: rank 0 trimmed, 67.0 MiB given back\n", "n1: all its processes not trimmed: nothing to give back\n")
	other.commands()
	src.commands()

	// A leader that ends meanwhile is neither suspended nor stopped.
	src.results = []control.Result{{PID: 11, Task: 0, OK: true}}
	out, errs = s.run(1, job, "recycle")
	wardentest.Says(t, out, "n1: process 11 of rank 0 recycled")
	wardentest.Says(t, errs, "error: n1: the leader of job 46 ended before all was done\nhint: where ranks are left")
	src.commands()

	src.refused = &control.Refused{Reason: event.ReasonNoWorker, Detail: "no worker said hello", Hint: "see why"}
	_, errs = s.run(1, job, "recycle")
	if errs != "error: n1: no worker said hello\nhint: see why\n" {
		t.Error(errs)
	}
	if _, errs = s.run(1, job, "recycle", "--rank", "1"); errs != "error: n1: no worker said hello\nhint: see why\n" {
		t.Error(errs)
	}
}

// TestCommandOfOneRun: a single run outside a job is not taken for the one meant, except
// by what that run itself has started.
func TestCommandOfOneRun(t *testing.T) {
	s := newLeaderStand(t)
	src := &leaderSource{status: control.Status{Ranks: []control.Rank{{Task: -1, PID: 10, Command: "python train.py"}}, Procs: []control.Proc{{PID: 10}}},
		results: []control.Result{{PID: 10, Task: -1, OK: true}, {Task: -1, OK: true, Done: true}}}
	s.lead("", "n1", src)
	within := []string{"RSSWARDEN_DIR=" + s.tmp + "/rsswarden-0/run.1002.1"} // as lead names it
	for _, name := range []string{"recycle", "checkpoint", "trim"} {
		_, errs := s.run(2, nil, name)
		wardentest.Says(t, errs, "error: outside a job "+name+" needs --pid PID, --job ID or --all\nhint: your runs on this node:\n  "+fmt.Sprintf("%-30s", "rsswarden "+name+" --pid 10")+" python train.py\n")
		if c := src.commands(); c != nil {
			t.Errorf("a bare %s was sent: %+v", name, c)
		}
		for _, c := range []struct {
			env  []string
			args []string
		}{{nil, []string{name, "--all"}}, {within, []string{name}}} {
			s.run(0, c.env, c.args...)
			if n := len(src.commands()); n != 1 {
				t.Errorf("%v with %v reached it %d times", c.args, c.env, n)
			}
		}
	}
}

// TestInterruptedCommand: a Ctrl-C tells what was done, calls off the rest, and
// rsswarden dies by it.
func TestInterruptedCommand(t *testing.T) {
	s := newLeaderStand(t)
	src := &leaderSource{hang: true, results: []control.Result{{PID: 11, Task: 0, OK: true}}}
	s.lead("46", "n1", src)
	cmd := exec.Command(binary, "recycle")
	cmd.Env = append(slices.Clone(s.env), "SLURM_JOB_ID=46", "SLURMD_NODENAME=n1")
	run := wardentest.StartTalk(t, cmd)
	wardentest.Says(t, run.Hear(), "n1: process 11 of rank 0 recycled")
	wardentest.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	wardentest.Says(t, run.Hear(), "1 of 1 process recycled")
	run.EndsWith(128 + int(syscall.SIGINT))
	select {
	case <-src.left:
	case <-time.After(10 * time.Second):
		t.Error("the leader was not told")
	}
}

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
	if wardentest.Says(t, out, "job 46 · 2 ranks · n2"); strings.Contains(out, "n1") {
		t.Error(out)
	}
	out, _ = s.run(1, nil, "recycle", "--job", "46")
	wardentest.Says(t, out, "n1: process 12 of rank 0 recycled, 1.00 MiB given back\n", "n2: process 13 of rank 2 not recycled: nothing to give back\n", "1 of 2 processes recycled")
	one.commands()
	two.commands()
	s.run(1, nil, "recycle", "--job", "46", "--rank", "3")
	if a, b := one.commands(), two.commands(); a != nil || len(b) != 1 || !slices.Equal(b[0].Ranks, []int{3}) {
		t.Errorf("rank 3: %+v, %+v", a, b)
	}
	_, errs = s.run(1, nil, "recycle", "--job", "46", "--rank", "9")
	wardentest.Says(t, errs, "no leader that answered has a rank 9")
	_, errs = s.run(2, nil, "recycle", "--job", "46", "--pid", "10")
	wardentest.Says(t, errs, "job 46 runs on 2 nodes, and a PID means another process on each\nhint: say on which with --node")
	s.run(0, nil, "trim", "--job", "46", "--node", "n1")
	if a, b := one.commands(), two.commands(); len(a) != 1 || a[0].Do != event.ActionTrim || b != nil {
		t.Errorf("trim on n1: %+v, %+v", a, b)
	}
	_, errs = s.run(1, nil, "status", "--job", "46", "--node", "n3")
	wardentest.Says(t, errs, "error: job 46 does not run on n3\nhint: it runs on n[1-2]\n")
	_, errs = s.run(1, nil, "status", "--job", "99")
	wardentest.Says(t, errs, "error: no job 99 is known to Slurm\n")

	// One node without a leader is an error beside the other's answer.
	second.Close()
	out, errs = s.run(1, nil, "status", "--job", "46")
	wardentest.Says(t, out, "job 46 · 2 ranks · n1 ")
	wardentest.Says(t, errs, "error: n2: no rsswarden run of the job is there now\nhint: it has ended")
	out, _ = s.run(1, nil, "status", "--job", "46", "--json")
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Nodes) != 1 || len(got.Errors) != 1 || got.Errors[0].Node != "n2" {
		t.Errorf("%v: %s", err, out)
	}

	// Without srun, what is here is printed, and what to do about the rest.
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
				wardentest.NoError(t, os.Remove(filepath.Join(s.tmp, "bin", "srun")))
				s.env = append(slices.Clone(s.env), "PATH="+filepath.Join(s.tmp, "bin"))
			}
			out, errs := s.run(1, nil, "status", "--job", "46")
			wardentest.Says(t, out, "job 46 · 2 ranks · n1 ")
			wardentest.Says(t, errs, "error: n2: cannot be asked by srun: ", c.says, "hint: ssh n2 rsswarden status")
			out, errs = s.run(1, nil, "recycle", "--job", "46")
			if wardentest.Says(t, errs, "error: n1, n2: cannot be asked by srun: "); out != "" {
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
	if wardentest.Says(t, out, "job 46 · n1 "); errs != "" {
		t.Error(errs)
	}
	// Of our own job the environment knows the nodes.
	s.program("scontrol", "exit 1")
	s.run(0, []string{"SLURM_JOB_ID=46", "SLURM_JOB_NODELIST=n1", "SLURMD_NODENAME=n1"}, "status", "--job", "46")
	// Where Slurm does not answer, that is said, and what is here answers.
	out, errs = s.run(0, nil, "status", "--job", "46")
	wardentest.Says(t, out, "job 46 · n1 ")
	wardentest.Says(t, errs, "cannot ask Slurm on which nodes job 46 runs", "only this node is asked")
}

// TestDeadLeader: a killed leader leaves its socket, and counts as none.
func TestDeadLeader(t *testing.T) {
	s := newLeaderStand(t)
	s.lead("46", "n1", &leaderSource{})
	dir := filepath.Join(s.tmp, "rsswarden-"+strconv.Itoa(os.Geteuid()), "lead.46@n1.0a1b2c3d")
	kept := filepath.Join(s.tmp, "kept")
	// Another directory with a socket without a listener.
	wardentest.NoError(t, os.Mkdir(kept, 0o700))
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrUnix{Name: filepath.Join(kept, "control")})
	}
	wardentest.NoError(t, err)
	syscall.Close(fd)
	wardentest.NoError(t, os.Rename(kept, filepath.Join(filepath.Dir(dir), "lead.46@n1.ffffffff")))
	begun := time.Now()
	out, errs := s.run(0, []string{"SLURM_JOB_ID=46"}, "status")
	if wardentest.Says(t, out, "job 46 · n1 "); strings.Count(out, "peak ") != 1 || errs != "" {
		t.Errorf("%s%s", out, errs)
	}
	if d := time.Since(begun); d > 2*time.Second {
		t.Errorf("a dead leader was waited for %v", d)
	}
	// A directory that others can enter is not asked.
	wardentest.NoError(t, os.Chmod(dir, 0o750))
	s.run(1, []string{"SLURM_JOB_ID=46"}, "status")
}

// place makes a directory where leaders of a job meet on n1, without one.
func (s *leaderStand) place(job string) string {
	s.t.Helper()
	dir := filepath.Join(s.tmp, "rsswarden-"+strconv.Itoa(os.Geteuid()), "lead."+job+"@n1.0a1b2c3d")
	wardentest.NoError(s.t, os.MkdirAll(dir, 0o700))
	return dir
}

// saysRaw is a leader that takes whoever comes and answers with this, or never.
func (s *leaderStand) saysRaw(job, answer string) {
	s.t.Helper()
	l, err := net.Listen("unix", filepath.Join(s.place(job), control.SocketName))
	wardentest.NoError(s.t, err)
	s.t.Cleanup(func() { l.Close() })
	if answer == "" {
		return // as one that is stopped: the kernel takes who connects
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1<<10)) // what is asked does not matter
			_, _ = c.Write([]byte(answer))
			c.Close()
		}
	}()
}

// TestStoppedLeader: one that is stopped is named, by the name its node has for Slurm,
// and is not waited for long; nothing is said of ranks that it may have.
func TestStoppedLeader(t *testing.T) {
	s := newLeaderStand(t)
	s.saysRaw("46", "")
	job := []string{"SLURM_JOB_ID=46"}
	for _, args := range [][]string{{"status"}, {"top", "--once"}, {"checkpoint", "--rank", "1", "--signal", "USR1"}, {"trim", "--rank", "1"}} {
		begun := time.Now()
		_, errs := s.run(1, job, args...)
		if d := time.Since(begun); d > 3500*time.Millisecond {
			t.Errorf("%v took %v", args, d)
		}
		wardentest.Says(t, errs, "error: n1: the leader of job 46 does not answer\nhint: is the job suspended", "ps -C rss-watcher,rsswarden ")
		if strings.Count(errs, "error:") != 1 {
			t.Errorf("%v:\n%s", args, errs)
		}
	}
}

// TestLeaderOfAnotherVersion: what it says is not taken for a status.
func TestLeaderOfAnotherVersion(t *testing.T) {
	s := newLeaderStand(t)
	s.saysRaw("46", "HTTP/1.1 200 OK\r\n\r\n"+`{"v":77,"version":"9.9"}`)
	out, errs := s.run(1, []string{"SLURM_JOB_ID=46"}, "status")
	if wardentest.Says(t, errs, "error: n1: the leader of job 46 is not understood: it answers in version 77", "hint: ask with the rsswarden that the run was started with, version 9.9"); out != "" {
		t.Error(out)
	}
}

// rank lays down what a member of a place that lives does: this process.
func rank(t *testing.T, dir string) {
	t.Helper()
	start, err := proctree.StartTime("/proc", os.Getpid())
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, fmt.Sprintf("rank.%d.%d", os.Getpid(), start)), nil, 0o600)
	}
	wardentest.NoError(t, err)
}

// TestMovingLead: while the lead goes from one to the next it is waited for; where none
// takes it, the error says that, and not that no run is there.
func TestMovingLead(t *testing.T) {
	s := newLeaderStand(t)
	ask := func() (string, error) {
		cmd := exec.Command(binary, "status") // where PIDs are those of this process
		cmd.Env = append(slices.Clone(s.env), "SLURM_JOB_ID=463512", "SLURMD_NODENAME=n1")
		b, err := cmd.CombinedOutput()
		return string(b), err
	}
	dir := s.place("463512")
	if out, err := ask(); err == nil || !strings.Contains(out, "no rsswarden run of job 463512 is on this node (n1) now") {
		t.Errorf("no rank lives: %v, %s", err, out)
	}
	rank(t, dir)
	begun := time.Now()
	out, err := ask()
	if d := time.Since(begun); err == nil || d > 3500*time.Millisecond {
		t.Errorf("%v after %v", err, d)
	}
	wardentest.Says(t, out, "error: n1: the rsswarden that watched this node of job 463512 has ended, and the next one is about to take over\nhint: ask again in a moment")

	// A leader that closes the connection ends; the next one answers.
	l, err := net.Listen("unix", filepath.Join(dir, control.SocketName))
	wardentest.NoError(t, err)
	next := make(chan struct{})
	go func() {
		defer close(next)
		for range 2 {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1<<10)) // what is asked does not matter
			c.Close()
		}
		l.Close()
		s.lead("463512", "n1", &leaderSource{})
	}()
	if out, err = ask(); err != nil {
		t.Error(err)
	}
	wardentest.Says(t, out, "job 463512 · n1 ")
	<-next
}
