package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A job of one node that runs, as scontrol of 22.05 shows it.
const showRunning = `JobId=46 JobName=MinMemoryNode=1M JobState=PENDING UserId=nobody(65534) GroupId=nogroup(65534) MCS_label=N/A Priority=4294901758 Nice=0 Account=(null) QOS=(null) JobState=RUNNING Reason=None Dependency=(null) Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=0:0 RunTime=00:00:01 TimeLimit=01:00:00 TimeMin=N/A SubmitTime=2026-11-22T00:44:47 EligibleTime=2026-11-22T00:44:47 AccrueTime=2026-11-22T00:44:47 StartTime=2026-11-22T00:44:48 EndTime=2026-11-22T01:44:48 Deadline=N/A SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-11-22T00:44:48 Scheduler=Main Partition=debug AllocNode:Sid=vm:1 ReqNodeList=(null) ExcNodeList=(null) NodeList=n1 BatchHost=n1 NumNodes=1 NumCPUs=2 NumTasks=1 CPUs/Task=1 ReqB:S:C:T=0:0:*:* TRES=cpu=2,mem=300M,node=1,billing=2 Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=* MinCPUsNode=1 MinMemoryNode=300M MinTmpDiskNode=0 Features=(null) DelayBoot=00:00:00 OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null) Command=/home/u/script WorkDir=/home/u StdErr=/home/u/err StdIn=/dev/null StdOut=/home/u/out Power= 
`

func TestParseRunningJob(t *testing.T) {
	plain := RunningJob{
		ID: "46", Leader: "46", Part: "46", State: "RUNNING", Restarts: 2, Requeue: true, Batch: true,
		MiB: 300, CPUs: 2, Nodes: 1, Partition: "debug", NodeList: "n1",
	}
	with := func(change func(*RunningJob)) RunningJob {
		j := plain
		change(&j)
		return j
	}
	replaced := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(showRunning) }
	for _, c := range []struct {
		name, text, job string
		want            RunningJob
	}{
		{"a name that looks like fields", showRunning, "46", plain},
		{"--no-requeue", replaced("Requeue=1", "Requeue=0"), "46", with(func(j *RunningJob) { j.Requeue = false })},
		{"salloc", replaced("BatchFlag=1", "BatchFlag=0"), "46", with(func(j *RunningJob) { j.Batch = false })},
		{"a requeued one's BatchFlag counts its turns", replaced("BatchFlag=1", "BatchFlag=2"), "46", plain},
		{"--mem-per-cpu", replaced("MinMemoryNode=300M", "MinMemoryCPU=150M"), "46", with(func(j *RunningJob) { j.MiB, j.PerCPU = 150, true })},
		{"--mem=0", replaced("MinMemoryNode=300M", "MinMemoryNode=0"), "46", with(func(j *RunningJob) { j.MiB = 0 })},
		{"gigabytes", replaced("MinMemoryNode=300M", "MinMemoryNode=1.50G"), "46", with(func(j *RunningJob) { j.MiB = 1536 })},
		{"held", replaced("JobState=RUNNING Reason=None", "JobState=PENDING Reason=JobHeldUser"), "46", with(func(j *RunningJob) { j.State, j.Reason = "PENDING", "JobHeldUser" })},
		{"a task of an array", replaced("JobId=46 ", "JobId=47 ArrayJobId=46 ArrayTaskId=1 "), "47", with(func(j *RunningJob) { j.ID, j.Leader, j.Part = "47", "46_1", "46_1" })},
		{"a part of a heterogeneous job", replaced("JobId=46 ", "JobId=47 HetJobId=46 HetJobOffset=1 "), "47", with(func(j *RunningJob) { j.ID, j.Part = "47", "46+1" })},
		{"the last task of an array", replaced("JobId=46 ", "JobId=46 ArrayJobId=46 ArrayTaskId=2 "), "46", with(func(j *RunningJob) { j.Leader, j.Part = "46_2", "46_2" })},
		{"the first part of a heterogeneous job", replaced("JobId=46 ", "JobId=46 HetJobId=46 HetJobOffset=0 "), "46", with(func(j *RunningJob) { j.Part = "46+0" })},
		{"pending, with a range of nodes", replaced("NumNodes=1", "NumNodes=2-4", "NodeList=n1", "NodeList=(null)"), "46", with(func(j *RunningJob) { j.Nodes, j.NodeList = 2, "" })},
		{"behind another", strings.Replace(showRunning, "JobId=46", "JobId=45", 1) + showRunning, "46", plain},
	} {
		if got, err := ParseRunningJob([]byte(c.text), c.job); err != nil || got != c.want {
			t.Errorf("%s:\n%+v, %v, want\n%+v", c.name, got, err, c.want)
		}
	}
	for _, text := range []string{"", "\n", "slurm_load_jobs error: Invalid job id specified\n", "JobId=46", strings.Replace(showRunning, "JobId=46", "JobId=4", 1)} {
		if got, err := ParseRunningJob([]byte(text), "46"); err == nil {
			t.Errorf("%.40q: %+v", text, got)
		}
	}
}

func TestRoom(t *testing.T) {
	nodes := "NodeName=n1 Arch=x86_64 CPUAlloc=0 RealMemory=8000 AllocMem=0 FreeMem=N/A Sockets=2\n" +
		"NodeName=n2 RealMemory=8000 MemSpecLimit=500 Comment=RealMemory=1\n"
	if got, want := ParseMaxMemory([]byte(nodes)), (MaxMemory{7500, "RealMemory of node n2"}); got != want {
		t.Errorf("%+v", got)
	}
	partition := "PartitionName=debug AllowGroups=ALL DefMemPerCPU=256 MaxMemPerNode=%s SelectTypeParameters=NONE\n"
	if got, want := ParseMaxMemory([]byte(strings.Replace(partition, "%s", "2000", 1))), (MaxMemory{2000, "MaxMemPerNode of partition debug"}); got != want {
		t.Errorf("%+v", got)
	}
	if got := ParseMaxMemory([]byte(strings.Replace(partition, "%s", "UNLIMITED", 1))); got != (MaxMemory{}) {
		t.Errorf("%+v", got)
	}
	if got := ParseMaxMemory([]byte("slurm_load_node error\n")); got != (MaxMemory{}) {
		t.Errorf("%+v", got)
	}
	a, b := MaxMemory{5, "a"}, MaxMemory{7, "b"}
	for _, r := range []MaxMemory{a.Least(b), b.Least(a), a.Least(MaxMemory{}), MaxMemory{}.Least(a)} {
		if r != a {
			t.Errorf("%+v", r)
		}
	}
}

func TestRaise(t *testing.T) {
	const mib = 1 << 20
	job := func(m uint64) RunningJob { return RunningJob{ID: "46", MiB: m, CPUs: 2, Nodes: 1} }
	cpu := func(m, cpus, nodes uint64) RunningJob {
		return RunningJob{ID: "46", MiB: m, PerCPU: true, CPUs: cpus, Nodes: nodes}
	}
	room := MaxMemory{8000, "RealMemory of node n1"}
	for _, c := range []struct {
		name    string
		job     RunningJob
		bytes   uint64
		room    MaxMemory
		want    uint64
		setting string
		err     string
	}{
		{"a quarter more", job(300), 375 * mib, room, 375, "MinMemoryNode=375", ""},
		{"rounded up", job(300), 375*mib + 1, room, 376, "MinMemoryNode=376", ""},
		{"as much as there is", job(7000), 8750 * mib, room, 8000, "MinMemoryNode=8000", ""},
		{"no room known", job(7000), 8750 * mib, MaxMemory{}, 8750, "MinMemoryNode=8750", ""},
		{"all of the node already", job(8000), 10000 * mib, room, 0, "", "can get no more: 8000 MiB by RealMemory of node n1"},
		{"less than now", job(300), 200 * mib, room, 0, "", "200 MiB is no more than the 300 MiB that the job has"},
		{"as much as now", job(300), 300 * mib, room, 0, "", "no more than"},
		{"nothing", job(300), 0, room, 0, "", "no more than"},
		{"--mem=0", job(0), 300 * mib, room, 0, "", "--mem=0"},
		{"for each CPU", cpu(150, 2, 1), 375 * mib, room, 188, "MinMemoryCPU=188", ""},
		{"CPUs of several nodes", cpu(100, 8, 2), 500 * mib, room, 125, "MinMemoryCPU=125", ""},
		{"for each CPU, as much as there is", cpu(1000, 7, 1), 9000 * mib, room, 1142, "MinMemoryCPU=1142", ""},
		{"for each CPU, no more", cpu(1142, 7, 1), 9000 * mib, room, 0, "", "can get no more"},
	} {
		got, err := c.job.Raise(c.bytes, c.room)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %d, %v", c.name, got, err)
			}
			continue
		}
		if err != nil || got != c.want || c.job.Setting(got) != c.setting {
			t.Errorf("%s: %d, %v (%s)", c.name, got, err, c.job.Setting(got))
		}
	}
}

func FuzzParseRunningJob(f *testing.F) {
	f.Add([]byte(showRunning), uint64(375<<20), uint64(8000))
	f.Add([]byte("JobId=46 JobState=RUNNING MinMemoryCPU=1.5T NumCPUs=7 NumNodes=0"), uint64(1), uint64(0))
	f.Add([]byte("JobId=46 JobName= UserId= MCS_label= JobState=RUNNING"), uint64(0), uint64(1))
	f.Fuzz(func(t *testing.T, text []byte, bytes, most uint64) {
		ParseMaxMemory(text)
		ParseMaxMemory(text)
		j, err := ParseRunningJob(text, "46")
		if err != nil {
			return
		}
		if j.ID != "46" || j.State == "" || j.CPUs == 0 || j.Nodes == 0 {
			t.Fatalf("%+v", j)
		}
		if mib, err := j.Raise(bytes, MaxMemory{MiB: most % (1 << 40), Says: "x"}); err == nil && mib <= j.MiB {
			t.Fatalf("%d MiB of %+v", mib, j)
		}
	})
}

// controller plays slurmctld for one job.
type controller struct {
	state, reason string
	memory        string
	calls         []string
	// fails is how often each command still fails, -1 for always; lost has a
	// requeuehold done but not answered.
	fails map[string]int
	lost  bool
	// warns has what scontrol did complain of all the same.
	warns bool
}

func (c *controller) scontrol(ctx context.Context, args ...string) ([]byte, error) {
	c.calls = append(c.calls, strings.Join(args, " "))
	name := args[0]
	if name == "requeuehold" && c.lost {
		c.state, c.reason = "COMPLETING", "job_requeued_in_held_state"
	}
	if n := c.fails[name]; n != 0 {
		c.fails[name] = n - 1
		return nil, errors.New("slurmctld said no to " + name)
	}
	switch name {
	case "show":
		text := strings.Replace(showRunning, "JobState=RUNNING Reason=None", "JobState="+c.state+" Reason="+c.reason, 1)
		if c.memory != "" {
			text = strings.Replace(text, "MinMemoryNode=300M", c.memory+"M", 1)
		}
		return []byte(text), nil
	case "requeuehold":
		if c.state != "RUNNING" {
			return nil, errors.New("job is pending execution")
		}
		c.state, c.reason = "COMPLETING", "job_requeued_in_held_state"
	case "update":
		if c.state == "RUNNING" {
			return nil, errors.New("job is running")
		}
		c.memory = args[2]
	case "release":
		c.reason = "BeginTime"
	default:
		return nil, fmt.Errorf("unexpected %q", args)
	}
	if c.warns {
		return nil, errors.New("a line of slurm.conf is out of date")
	}
	return nil, nil
}

func TestRequeueSteps(t *testing.T) {
	show, hold, release := "show job -o 46", "requeuehold 46", "release 46"
	update, again := "update JobId=46 MinMemoryNode=375 StartTime=now+40", "update JobId=46 MinMemoryNode=375"
	all := []string{show, hold, update, release}
	each := []string{show, hold, update, again, release}
	for _, c := range []struct {
		name       string
		controller controller
		want       RequeueResult // Why as a part of it
		calls      []string      // each once, however often it was tried, the looks in between left out
		memory     string
		reason     string // that Slurm has in the end
	}{
		{"all is well", controller{}, RequeueResult{Requeued: true, Raised: true}, all, "MinMemoryNode=375", "BeginTime"},
		{"each step fails twice", controller{fails: map[string]int{"show": 2, "requeuehold": 2, "update": 2, "release": 2}},
			RequeueResult{Requeued: true, Raised: true}, each, "MinMemoryNode=375", "BeginTime"},
		{"scontrol complains of something else", controller{warns: true}, RequeueResult{Requeued: true, Raised: true}, all, "MinMemoryNode=375", "BeginTime"},
		{"no answer", controller{fails: map[string]int{"show": -1}}, RequeueResult{Why: "no to show"}, []string{show}, "", "None"},
		{"requeuehold is refused", controller{fails: map[string]int{"requeuehold": -1}},
			RequeueResult{Why: "no to requeuehold"}, []string{show, hold}, "", "None"},
		{"requeuehold was done without an answer", controller{lost: true, fails: map[string]int{"requeuehold": -1}},
			RequeueResult{Requeued: true, Raised: true}, all, "MinMemoryNode=375", "BeginTime"},
		{"the size is refused: it is released all the same", controller{fails: map[string]int{"update": -1}},
			RequeueResult{Requeued: true, Why: "no to update"}, each, "", "BeginTime"},
		{"it cannot be released", controller{fails: map[string]int{"release": -1}},
			RequeueResult{Requeued: true, Raised: true, Held: true, Why: "no to release"}, all, "MinMemoryNode=375", "job_requeued_in_held_state"},
		{"neither", controller{fails: map[string]int{"update": -1, "release": -1}},
			RequeueResult{Requeued: true, Held: true, Why: "no to update; slurmctld said no to release"}, each, "", "job_requeued_in_held_state"},
		{"another node was first", controller{state: "PENDING", reason: "BeginTime"},
			RequeueResult{Gone: true, Why: "job 46 is PENDING"}, []string{show}, "", "BeginTime"},
		{"it was cancelled", controller{state: "CANCELLED"}, RequeueResult{Gone: true, Why: "CANCELLED"}, []string{show}, "", "None"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctl := c.controller
			if ctl.state == "" {
				ctl.state = "RUNNING"
			}
			if ctl.reason == "" {
				ctl.reason = "None"
			}
			job, err := ParseRunningJob([]byte(showRunning), "46")
			must(t, err)
			var steps []RequeueStep
			q := Requeue{
				Job: job, MiB: 375, StartIn: 40 * time.Second, Scontrol: ctl.scontrol, Told: func(s RequeueStep) { steps = append(steps, s) },
				Patience: RequeuePatience{Call: time.Minute, Pause: time.Microsecond, Hold: 100 * time.Millisecond, Update: 100 * time.Millisecond, Release: 100 * time.Millisecond},
			}
			got := q.Run(context.Background())
			why := got.Why
			got.Why = c.want.Why
			if got != c.want || !strings.Contains(why, c.want.Why) || c.want.Why == "" && why != "" {
				t.Errorf("%+v, %q, want %+v", got, why, c.want)
			}
			if calls := distinct(ctl.calls); !slices.Equal(calls, c.calls) {
				t.Errorf("asked for %q, want %q", calls, c.calls)
			}
			if ctl.memory != c.memory || ctl.reason != c.reason {
				t.Errorf("memory %q, reason %q", ctl.memory, ctl.reason)
			}
			if last := steps[len(steps)-1]; len(steps) > 4 || last.OK != (c.want.Requeued && !c.want.Held || c.want.Gone) {
				t.Errorf("steps %v", steps)
			}
			for _, s := range steps {
				if s.Tries < 1 || s.OK != (s.Error == "") || s.String() == "" {
					t.Errorf("told %+v", s)
				}
			}
		})
	}
}

// distinct are the calls in order, each once.
func distinct(calls []string) (list []string) {
	for _, c := range calls {
		if !slices.Contains(list, c) {
			list = append(list, c)
		}
	}
	return list
}

// TestRequeueAgain: the process that had held the job was killed. Another one of
// the same goes on from there; without its mark a job held by hand is left alone.
func TestRequeueAgain(t *testing.T) {
	job, err := ParseRunningJob([]byte(showRunning), "46")
	must(t, err)
	ctl := controller{state: "PENDING", reason: "JobHeldUser"}
	q := Requeue{Job: job, MiB: 375, Scontrol: ctl.scontrol}
	if got := q.Run(context.Background()); !got.Gone || got.Requeued || ctl.reason != "JobHeldUser" {
		t.Errorf("%+v, reason %s", got, ctl.reason)
	}
	q.Again = true
	if got := q.Run(context.Background()); !got.Requeued || !got.Raised || ctl.reason != "BeginTime" {
		t.Errorf("%+v, reason %s", got, ctl.reason)
	}
}

// TestRequeueOfTwo: the leaders of two nodes see their rung crossed at once. The
// one whose requeuehold comes second leaves the job as the first has put it.
func TestRequeueOfTwo(t *testing.T) {
	ctl := controller{state: "RUNNING", reason: "None"}
	job, err := ParseRunningJob([]byte(showRunning), "46")
	must(t, err)
	patience := RequeuePatience{Call: time.Minute, Pause: time.Microsecond, Hold: time.Millisecond, Update: time.Millisecond, Release: time.Millisecond}
	second := Requeue{Job: job, MiB: 500, Patience: patience}
	var first RequeueResult
	second.Scontrol = func(ctx context.Context, args ...string) ([]byte, error) {
		if args[0] == "requeuehold" && first == (RequeueResult{}) {
			// The first does all of it between the second's look and its step.
			q := Requeue{Job: job, MiB: 375, Patience: patience, Scontrol: ctl.scontrol}
			first = q.Run(ctx)
		}
		return ctl.scontrol(ctx, args...)
	}
	got := second.Run(context.Background())
	if !first.Requeued || !first.Raised || !got.Gone || got.Requeued || ctl.memory != "MinMemoryNode=375" || ctl.reason != "BeginTime" {
		t.Errorf("%+v, then %+v; memory %s, reason %s", first, got, ctl.memory, ctl.reason)
	}
}

// TestRequeueCallsEnd: a scontrol that hangs is ended, and tried again.
func TestRequeueCallsEnd(t *testing.T) {
	ctl := controller{state: "RUNNING", reason: "None"}
	hung := map[string]bool{}
	job, _ := ParseRunningJob([]byte(showRunning), "46")
	q := Requeue{Job: job, MiB: 375, Patience: RequeuePatience{Call: 20 * time.Millisecond, Pause: time.Microsecond, Hold: time.Minute, Update: time.Minute, Release: time.Minute}}
	q.Scontrol = func(ctx context.Context, args ...string) ([]byte, error) {
		if !hung[args[0]] {
			hung[args[0]] = true
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return ctl.scontrol(ctx, args...)
	}
	if got := q.Run(context.Background()); got != (RequeueResult{Requeued: true, Raised: true}) || len(hung) != 4 {
		t.Errorf("%+v, hung %v", got, hung)
	}
}
