package slurm

import (
	"strings"
	"testing"
)

// A job of one node that runs, as scontrol of 22.05 shows it.
const showRunning = `JobId=46 JobName=MinMemoryNode=1M JobState=PENDING UserId=nobody(65534) GroupId=nogroup(65534) MCS_label=N/A Priority=4294901758 Nice=0 Account=(null) QOS=(null) JobState=RUNNING Reason=None Dependency=(null) Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=0:0 RunTime=00:00:01 TimeLimit=01:00:00 TimeMin=N/A SubmitTime=2026-11-22T00:44:47 EligibleTime=2026-11-22T00:44:47 AccrueTime=2026-11-22T00:44:47 StartTime=2026-11-22T00:44:48 EndTime=2026-11-22T01:44:48 Deadline=N/A SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-11-22T00:44:48 Scheduler=Main Partition=debug AllocNode:Sid=vm:1 ReqNodeList=(null) ExcNodeList=(null) NodeList=n1 BatchHost=n1 NumNodes=1 NumCPUs=2 NumTasks=1 CPUs/Task=1 ReqB:S:C:T=0:0:*:* TRES=cpu=2,mem=300M,node=1,billing=2 Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=* MinCPUsNode=1 MinMemoryNode=300M MinTmpDiskNode=0 Features=(null) DelayBoot=00:00:00 OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null) Command=/home/u/script WorkDir=/home/u StdErr=/home/u/err StdIn=/dev/null StdOut=/home/u/out Power= 
`

func TestParseRunningJob(t *testing.T) {
	plain := RunningJob{
		ID: "46", Leader: "46", State: "RUNNING", Restarts: 2, Requeue: true, Batch: true,
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
		{"a task of an array", replaced("JobId=46 ", "JobId=47 ArrayJobId=46 ArrayTaskId=1 "), "47", with(func(j *RunningJob) { j.ID, j.Leader = "47", "47" })},
		{"a part of a heterogeneous job", replaced("JobId=46 ", "JobId=47 HetJobId=46 HetJobOffset=1 "), "47", with(func(j *RunningJob) { j.ID = "47" })},
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
	if got, want := ParseNodeRoom([]byte(nodes)), (Room{7500, "RealMemory of node n2"}); got != want {
		t.Errorf("%+v", got)
	}
	partition := "PartitionName=debug AllowGroups=ALL DefMemPerCPU=256 MaxMemPerNode=%s SelectTypeParameters=NONE\n"
	if got, want := ParsePartitionRoom([]byte(strings.Replace(partition, "%s", "2000", 1))), (Room{2000, "MaxMemPerNode of partition debug"}); got != want {
		t.Errorf("%+v", got)
	}
	if got := ParsePartitionRoom([]byte(strings.Replace(partition, "%s", "UNLIMITED", 1))); got != (Room{}) {
		t.Errorf("%+v", got)
	}
	if got := ParseNodeRoom([]byte("slurm_load_node error\n")); got != (Room{}) {
		t.Errorf("%+v", got)
	}
	a, b := Room{5, "a"}, Room{7, "b"}
	for _, r := range []Room{a.Least(b), b.Least(a), a.Least(Room{}), Room{}.Least(a)} {
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
	room := Room{8000, "RealMemory of node n1"}
	for _, c := range []struct {
		name    string
		job     RunningJob
		bytes   uint64
		room    Room
		want    uint64
		setting string
		err     string
	}{
		{"a quarter more", job(300), 375 * mib, room, 375, "MinMemoryNode=375", ""},
		{"rounded up", job(300), 375*mib + 1, room, 376, "MinMemoryNode=376", ""},
		{"as much as there is", job(7000), 8750 * mib, room, 8000, "MinMemoryNode=8000", ""},
		{"no room known", job(7000), 8750 * mib, Room{}, 8750, "MinMemoryNode=8750", ""},
		{"all of the node already", job(8000), 10000 * mib, room, 0, "", "no more is to be had: 8000 MiB by RealMemory of node n1"},
		{"less than now", job(300), 200 * mib, room, 0, "", "200 MiB is no more than the 300 MiB that the job has"},
		{"as much as now", job(300), 300 * mib, room, 0, "", "no more than"},
		{"nothing", job(300), 0, room, 0, "", "no more than"},
		{"--mem=0", job(0), 300 * mib, room, 0, "", "--mem=0"},
		{"for each CPU", cpu(150, 2, 1), 375 * mib, room, 188, "MinMemoryCPU=188", ""},
		{"CPUs of several nodes", cpu(100, 8, 2), 500 * mib, room, 125, "MinMemoryCPU=125", ""},
		{"for each CPU, as much as there is", cpu(1000, 7, 1), 9000 * mib, room, 1142, "MinMemoryCPU=1142", ""},
		{"for each CPU, no more", cpu(1142, 7, 1), 9000 * mib, room, 0, "", "no more is to be had"},
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
		ParseNodeRoom(text)
		ParsePartitionRoom(text)
		j, err := ParseRunningJob(text, "46")
		if err != nil {
			return
		}
		if j.ID != "46" || j.State == "" || j.CPUs == 0 || j.Nodes == 0 {
			t.Fatalf("%+v", j)
		}
		if mib, err := j.Raise(bytes, Room{MiB: most % (1 << 40), Says: "x"}); err == nil && mib <= j.MiB {
			t.Fatalf("%d MiB of %+v", mib, j)
		}
	})
}
