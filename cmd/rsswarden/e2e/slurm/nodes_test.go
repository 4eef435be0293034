package slurm

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// stand4 is a cluster of two nodes, with what four ranks of it train.
type stand4 struct {
	stand
	options []string // of rsswarden
	want    string   // checksum of each rank
}

// rankShape is a training that computes between its batches, as all do: four that only
// read, on a machine of two processors, leak as fast as it reads.
var rankShape = []string{"--persistent", "--workers", "2", "--epochs", "3", "--step-ms", "15"}

func rankNodes(t *testing.T, options ...string) stand4 {
	t.Helper()
	wardentest.NeedTorch(t)
	s := trainStandOn(t, slurmtest.Cgroup, slurmtest.Usual)
	return stand4{s, options, s.reference(t, rankShape...)}
}

// fourRanks is a job of two tasks on each of two nodes, of which those of the second
// leak in their loader workers.
type fourRanks struct {
	stand4
	run *slurmtest.JobRun
}

func (s stand4) start(t *testing.T) fourRanks {
	t.Helper()
	// A file is written whole before the other tasks see it.
	script := fmt.Sprintf(`cat > task.sh <<'EOF'
leak=
if [ $SLURM_NODEID = 1 ]; then leak="--leak-worker 60"; fi
export OMP_NUM_THREADS=1
exec %s run --events $PWD/events.$SLURM_PROCID --record $PWD/records %s -- %s $leak
EOF
srun bash task.sh`, s.rsswarden, strings.Join(s.options, " "), s.training(rankShape...))
	return fourRanks{s, s.Submit(t, script, "-N2", "-n4", "--ntasks-per-node=2", memory(1500, 900), "--no-requeue")}
}

// log is what a rank's rsswarden has said so far. A line that is being written is
// left out.
func (j fourRanks) log(task int) (all wardentest.Log) {
	b, _ := os.ReadFile(filepath.Join(j.run.Dir, fmt.Sprintf("events.%d", task)))
	return wardentest.ParseLog(b)
}

// rankNews are the rank events of a log that say something.
func rankNews(all wardentest.Log, what event.RankNews) (some wardentest.Log) {
	for _, e := range all.Of(event.NameRank) {
		if e["what"] == string(what) {
			some = append(some, e)
		}
	}
	return some
}

// leader waits until the watcher of one of the tasks leads, but for one of that PID, and
// returns which task's, and its PID.
func (j fourRanks) leader(t *testing.T, tasks []int, but int) (task, pid int, since time.Time) {
	t.Helper()
	wardentest.Until(t, fmt.Sprintf("one of tasks %v leads", tasks), func() bool {
		for _, task = range tasks {
			if news := rankNews(j.log(task), event.RankLeads); len(news) > 0 && int(news[len(news)-1]["leader"].(float64)) != but {
				var err error
				last := news[len(news)-1]
				pid = int(last["leader"].(float64))
				since, err = time.Parse(time.RFC3339Nano, last["time"].(string))
				wardentest.NoError(t, err)
				return true
			}
		}
		return false
	})
	return task, pid, since
}

// ended wants the job to have ended well, with the data that each rank should have.
func (j fourRanks) ended(t *testing.T) slurmtest.Result {
	t.Helper()
	got := j.run.Wait(t)
	if got.State != "COMPLETED" || got.ExitCode != 0 {
		t.Errorf("%s %s %d:%d, want COMPLETED\n%s", got.State, got.Reason, got.ExitCode, got.Signal, got.Stderr)
	}
	sums := wardentest.Checksums(got.Stdout)
	if len(sums) != 4 {
		t.Fatalf("%d checksums\n%s", len(sums), got.Stdout)
	}
	for _, m := range sums {
		if m != j.want {
			t.Errorf("checksum %s, want %s", m, j.want)
		}
	}
	return got
}

// recycled are the workers that were replaced by ladder or client, in the words of
// all leaders of a node together.
func (j fourRanks) recycled(tasks ...int) (pids []int) {
	for _, task := range tasks {
		for _, e := range j.log(task).Of(event.NameLoader) {
			if e["what"] == string(event.LoaderRecycled) {
				pids = append(pids, int(e["worker"].(float64)))
			}
		}
	}
	return pids
}

// TestTwoNodesFourRanks: one watcher of each node leads. Over the limit on the second
// node only, only its workers are recycled; when who leads there is killed in the
// midst of that, another watcher there leads within 2 s, and no worker is recycled twice.
// The job completes with the data that each rank should have.
func TestTwoNodesFourRanks(t *testing.T) { rankNodes(t).train(t, true) }

// train runs the job and looks at what came of it.
func (s stand4) train(t *testing.T, kill bool) {
	t.Helper()
	j := s.start(t)
	tasks := []int{2, 3}
	if kill {
		j.killLeader(t, tasks)
	}
	got := j.ended(t)
	t.Log(wardentest.Said(got.Stderr))
	for node, tasks := range [][]int{{0, 1}, {2, 3}} {
		leads := 0
		for _, task := range tasks {
			all := j.log(task)
			if rankNews(all, event.RankFollows) == nil {
				leads++ // from the start
			} else if n := len(all.Of(event.NameDecision)); n > 0 && rankNews(all, event.RankLeads) == nil {
				t.Errorf("task %d stood by and decided %d times", task, n)
			}
		}
		if want := 1; leads != want && !(kill && node == 1 && leads == 0) {
			t.Errorf("%d lead on node %d from the start", leads, node+1)
		}
		pids := j.recycled(tasks...)
		if (len(pids) > 0) != (node == 1) {
			t.Errorf("%d workers were recycled on node %d", len(pids), node+1)
		}
		slices.Sort(pids)
		if twice := len(pids) - len(slices.Compact(slices.Clone(pids))); twice > 0 {
			t.Errorf("%d workers were recycled twice: %v", twice, pids)
		}
		t.Logf("node %d: %d workers recycled", node+1, len(pids))
	}
	j.reported(t)
}

// killLeader kills the watcher that leads once it has begun to act.
func (j fourRanks) killLeader(t *testing.T, tasks []int) {
	t.Helper()
	first, pid, _ := j.leader(t, tasks, -1)
	wardentest.Until(t, "three decisions", func() bool { return len(j.log(first).Of(event.NameDecision)) >= 3 })
	killed := time.Now()
	wardentest.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	second, successor, since := j.leader(t, tasks, pid)
	if since.Sub(killed) > 2*time.Second {
		t.Errorf("the lead was taken over %v after the kill", since.Sub(killed))
	}
	t.Logf("task %d, watcher %d, killed; task %d, watcher %d, led %v after", first, pid, second, successor, since.Sub(killed))
}

// reported wants one report of both nodes, with the second as the one that bound.
func (j fourRanks) reported(t *testing.T) {
	t.Helper()
	out, errs, err := wardentest.Output(binary, "report", "--json", filepath.Join(j.run.Dir, "records"))
	if err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	var r struct {
		Binding struct{ Node string }
		Nodes   []struct {
			Node     string
			Recycled int
		}
		Ranks []struct {
			Task int
			Node string
			Code *int
		}
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	nodes := j.Nodes()
	if len(r.Nodes) != 2 || r.Binding.Node != nodes[1] {
		t.Errorf("nodes %+v, bound by %q, want %q", r.Nodes, r.Binding.Node, nodes[1])
	}
	for _, n := range r.Nodes {
		if (n.Recycled > 0) != (n.Node == nodes[1]) {
			t.Errorf("the report has %d recycled on %s", n.Recycled, n.Node)
		}
	}
	if len(r.Ranks) != 4 {
		t.Errorf("ranks %+v", r.Ranks)
	}
	for i, rank := range r.Ranks {
		if rank.Task != i || rank.Node != nodes[i/2] {
			t.Errorf("rank %+v, want task %d on %s", rank, i, nodes[i/2])
		}
	}
	text, _, err := wardentest.Output(binary, "report", filepath.Join(j.run.Dir, "records"))
	wardentest.NoError(t, err)
	t.Log(text)
}

// TestBatchPrefix: rsswarden before srun in the batch script watches the tasks that
// srun starts on its node, which are no descendants of its command, and acts on them.
func TestBatchPrefix(t *testing.T) {
	t.Parallel()
	for _, mode := range []slurmtest.Mode{slurmtest.Cgroup, slurmtest.Linux} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			c, rsswarden := cluster(t, mode)
			run := c.Submit(t, fmt.Sprintf(`cat > task.py <<'EOF'
import signal, sys, time
def asked(*_):
    print("asked", flush=True)
    sys.exit(0)
signal.signal(signal.SIGUSR1, asked)
kept = bytearray(120 << 20)
time.sleep(60)
EOF
exec %s run --events $PWD/events --record none --at '48%%:signal=USR1' -- srun -n2 python3 task.py`, rsswarden), "-n2", "--mem=500")
			got := run.Wait(t)
			if got.State != "COMPLETED" || strings.Count(got.Stdout, "asked") != 2 {
				t.Errorf("%s, printed %q, want both tasks to have been asked\n%s", got.State, got.Stdout, got.Stderr)
			}
			all := wardentest.ReadLog(t, filepath.Join(run.Dir, "events"))
			exit := all[len(all)-1]
			peaks := exit["peaks"].(map[string]any)
			if most, _ := peaks["rss_bytes"].(float64); most < 240<<20 {
				t.Errorf("peaks %v, want both tasks in them", peaks)
			}
			wardentest.Has(t, exit, "outcome", string(event.RunOK))
			t.Log(wardentest.Said(got.Stderr))
		})
	}
}

// TestLoneTaskOfAStep: what srun started is one command to its rsswarden, which is
// none of the job's processes itself, however long it lasts.
func TestLoneTaskOfAStep(t *testing.T) {
	t.Parallel()
	c, rsswarden := cluster(t, slurmtest.Cgroup)
	run := c.Submit(t, fmt.Sprintf(`cat > task.py <<'EOF'
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
until = time.time() + 100
while not os.path.exists("looked") and time.time() < until:
    time.sleep(0.1)
kept = bytearray(240 << 20)
time.sleep(60)
EOF
srun -n1 %[1]s run --record none --at '40%%:stop' --stop-status 83 -- python3 task.py &
until %[1]s status; do sleep 0.2; done
sleep 4 # steps without rsswarden are looked for each second
%[1]s status --json > status.json
touch looked
wait $!`, rsswarden), "-n2", "--mem=500")
	if got := run.Wait(t); got.ExitCode != 83 {
		t.Errorf("%s, exit status %d, want that of --stop-status\n%s", got.State, got.ExitCode, got.Stderr)
	}
	data := wardentest.ReadFile(t, filepath.Join(run.Dir, "status.json"))
	var st struct {
		Nodes []control.Status
	}
	if err := json.Unmarshal(data, &st); err != nil || len(st.Nodes) != 1 {
		t.Fatalf("%v in %s", err, data)
	}
	if n := st.Nodes[0]; len(n.Procs) != 1 || len(n.Ranks) != 1 {
		t.Errorf("%d processes of %d ranks are watched\n%s", len(n.Procs), len(n.Ranks), data)
	}
}

// TestStatusSlurm: of a job with two ranks on each of two nodes status tells of all
// four, from where the job was submitted and from its script, and what is asked of
// one rank reaches its leader alone.
func TestStatusSlurm(t *testing.T) {
	t.Parallel()
	c, warden := cluster(t, slurmtest.Cgroup)
	run := c.Submit(t, fmt.Sprintf(`srun --ntasks-per-node=2 -n4 %[1]s run --record none -- sleep 300 &
until [ -e go ]; do sleep 0.05; done
%[1]s status --job $SLURM_JOB_ID --json >inside.json 2>inside.err; echo $? >inside
until [ -e end ]; do sleep 0.05; done
scancel $SLURM_JOB_ID.0; wait; true`, warden), "-N2", "--ntasks-per-node=2", "--mem=300")
	run.Running(t)
	// Who asks from outside makes steps of the job too: its own is to be the first.
	run.Until(t, rsstest.Patience, func(slurmtest.Result) bool { return len(run.Processes("0")) >= 4 })

	type answer struct {
		Nodes  []control.Status
		Errors []struct{ Node, Error string }
	}
	ask := func(args ...string) (got answer, code int, stderr string) {
		cmd := c.Command(t.Context(), warden, append(args, "--json")...)
		out, errs, _ := wardentest.Run(cmd) // the status is looked at
		t.Logf("%v: %v\n%s", args, cmd.ProcessState, errs)
		if out != "" {
			wardentest.NoError(t, json.Unmarshal([]byte(out), &got))
		}
		return got, cmd.ProcessState.ExitCode(), errs
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
	run.Until(t, rsstest.Patience, func(slurmtest.Result) bool {
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
	run.Until(t, rsstest.Patience, func(slurmtest.Result) bool { return wardentest.Read(run.Dir+"/inside") != "" })
	if code := wardentest.Read(run.Dir + "/inside"); code != "0\n" {
		t.Errorf("in the script: status %s%s", code, wardentest.Read(run.Dir+"/inside.err"))
	}
	var inside answer
	wardentest.NoError(t, json.Unmarshal([]byte(wardentest.Read(run.Dir+"/inside.json")), &inside))
	check(inside)
	if out := c.Do(t, "touch", run.Dir+"/end"); out.Code != 0 {
		t.Fatal(out)
	}
	if r := run.Wait(t); r.State != "COMPLETED" {
		t.Errorf("%+v", r)
	}
	// For a job that has ended there is no answer.
	cmd := c.Command(context.Background(), warden, "status", "--job", run.ID)
	out, _ := cmd.CombinedOutput() // the status is looked at
	if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "does not run, it is COMPLETED") {
		t.Errorf("%v: %s", cmd.ProcessState, out)
	}
}

// TestTopSlurm: from outside the job all ranks of both nodes are seen, once and
// live, and nothing of it is left behind.
func TestTopSlurm(t *testing.T) {
	t.Parallel()
	c, warden := cluster(t, slurmtest.Linux)
	run := c.Submit(t, fmt.Sprintf("srun %s run --quiet -- sleep 600", warden), "-N2", "-n4", "--ntasks-per-node=2", "--mem=300")
	run.Running(t)
	nodes := c.Nodes()
	var out []byte
	wardentest.Until(t, "all ranks in one frame", func() (ok bool) {
		var err error
		out, err = c.Command(t.Context(), warden, "top", "--once", "--job", run.ID).CombinedOutput()
		return err == nil && strings.Contains(string(out), "RANKS 4")
	})
	t.Logf("\n%s", out)
	wardentest.Says(t, string(out), "job "+run.ID, nodes[0], nodes[1], "RANKS 4", "sleep 600")
	live := c.Command(t.Context(), warden, "top", "--job", run.ID)
	live.Env = append(live.Env, "TERM=xterm")
	s := wardentest.OnTerminal(t, live)
	s.Await("RANKS 4")
	s.Shown.Await(t, "\x1b[1;", 3) // three times the clock
	s.Send("q")
	if how, text := s.Ended(); how != "exit 0" {
		t.Errorf("%s\n%q", how, text)
	}
	run.Until(t, rsstest.Patience, func(slurmtest.Result) bool {
		steps := c.Do(t, "squeue", "--noheader", "--steps", "--job", run.ID, "--format=%i").Stdout
		return len(strings.Fields(steps)) <= 2 // the batch step and srun's own
	})
	c.Cancel(t, run.ID)
}
