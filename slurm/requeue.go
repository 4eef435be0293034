package slurm

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// RunningJob is what `scontrol show job` says of a job that is to go back into
// the queue with more memory.
type RunningJob struct {
	ID string
	// Leader is the ID of the heterogeneous job that it is a part of, which alone
	// can be requeued; else ID.
	Leader string
	State  string // "RUNNING", "COMPLETING", "PENDING", …
	Reason string // "None", "JobHeldUser"; empty where Slurm says None
	// Restarts is how often it was requeued, by whomever.
	Restarts int
	// Requeue says that Slurm may requeue it: neither --no-requeue nor
	// JobRequeue=0. Batch says that it has a batch script, which alone can be
	// started again.
	Requeue, Batch bool
	// MiB is what it was given: for each CPU where PerCPU, else for each node.
	// 0 is all of the node, by --mem=0, or memory by GPU.
	MiB    uint64
	PerCPU bool
	// CPUs and Nodes are those of the whole job, at least 1.
	CPUs, Nodes         uint64
	Partition, NodeList string
}

// ParseRunningJob reads what `scontrol show job -o ID` prints. Of an array it is
// the task whose own JobId it is.
func ParseRunningJob(b []byte, job string) (RunningJob, error) {
	if len(b) > mostSaid {
		return RunningJob{}, fmt.Errorf("an answer of %d bytes", len(b))
	}
	for line := range strings.Lines(string(b)) {
		f := showFields(line)
		state, _ := stateWord(f["JobState"])
		if f["JobId"] != job || job == "" || state == "" {
			continue
		}
		j := RunningJob{
			ID: job, Leader: job, State: state, Reason: known(f["Reason"]),
			Requeue: f["Requeue"] == "1", Batch: f["BatchFlag"] != "" && f["BatchFlag"] != "0",
			CPUs: max(count(f["NumCPUs"]), 1), Nodes: max(count(f["NumNodes"]), 1),
			Partition: known(f["Partition"]), NodeList: known(f["NodeList"]),
		}
		j.Restarts, _ = strconv.Atoi(f["Restarts"])
		if leader := f["HetJobId"]; isDigits(leader) && leader != "0" {
			j.Leader = leader
		}
		j.MiB = shownMiB(f["MinMemoryNode"])
		if each, ok := f["MinMemoryCPU"]; ok && j.MiB == 0 {
			j.MiB, j.PerCPU = shownMiB(each), true
		}
		return j, nil
	}
	return RunningJob{}, ErrNoJob
}

// count reads a number, of "2-4" the first.
func count(s string) uint64 {
	first, _, _ := strings.Cut(s, "-")
	n, _ := strconv.ParseUint(first, 10, 32)
	return n
}

// shownMiB reads an amount of memory as scontrol shows it: "300M", "1.50G", or a
// number of MiB. What it does not know is 0. It rounds down.
func shownMiB(s string) uint64 {
	unit := 1.0
	for _, u := range []struct {
		name string
		size float64
	}{{"K", 1.0 / 1024}, {"M", 1}, {"G", 1 << 10}, {"T", 1 << 20}, {"P", 1 << 30}} {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			s, unit = rest, u.size
			break
		}
	}
	v, err := strconv.ParseFloat(s, 64)
	if v *= unit; err != nil || !(v >= 0) || v > math.MaxUint32 {
		return 0
	}
	return uint64(v)
}

// PerNode is what the job has on each node, in MiB; 0 where that is not known.
// The CPUs of several nodes are taken to be spread evenly.
func (j RunningJob) PerNode() uint64 { return j.MiB * j.share() }

// share is for how many times MiB a node has memory.
func (j RunningJob) share() uint64 {
	if !j.PerCPU {
		return 1
	}
	return (j.CPUs + j.Nodes - 1) / j.Nodes
}

// Room is the most memory that a node may give, in MiB, and who says so. Nobody
// says so where MiB is 0.
type Room struct {
	MiB  uint64
	Says string // "RealMemory of node n1"
}

// Least is the smaller of two.
func (r Room) Least(o Room) Room {
	if r.MiB == 0 || o.MiB != 0 && o.MiB < r.MiB {
		return o
	}
	return r
}

// ParseNodeRoom reads RealMemory less MemSpecLimit from what `scontrol show node
// -o` prints: that of the least of the nodes.
func ParseNodeRoom(b []byte) Room {
	var least Room
	for line := range strings.Lines(string(b)) {
		f := firstFields(line)
		mib, spec := shownMiB(f["RealMemory"]), shownMiB(f["MemSpecLimit"])
		if name := f["NodeName"]; name != "" && mib > spec {
			least = least.Least(Room{mib - spec, "RealMemory of node " + name})
		}
	}
	return least
}

// ParsePartitionRoom reads MaxMemPerNode from what `scontrol show partition -o`
// prints.
func ParsePartitionRoom(b []byte) Room {
	var least Room
	for line := range strings.Lines(string(b)) {
		f := firstFields(line)
		if mib := shownMiB(f["MaxMemPerNode"]); mib > 0 {
			least = least.Least(Room{mib, "MaxMemPerNode of partition " + f["PartitionName"]})
		}
	}
	return least
}

// firstFields are the fields of a line without free text in front.
func firstFields(line string) map[string]string {
	f := map[string]string{}
	for field := range strings.FieldsSeq(line) {
		name, value, ok := strings.Cut(field, "=")
		if _, twice := f[name]; ok && !twice {
			f[name] = value
		}
	}
	return f
}

// errAllOfNode says that there is no more to be had.
var errAllOfNode = errors.New("the job was given no amount of memory that could be raised (--mem=0, or memory by GPU)")

// Raise returns what the job is to be given so that it has so many bytes on each
// node, in MiB as in [RunningJob.MiB], rounded up; the most that room has where
// that is less. It is an error where it would not be more than now.
func (j RunningJob) Raise(bytes uint64, room Room) (mib uint64, err error) {
	now := j.PerNode()
	if now == 0 {
		return 0, errAllOfNode
	}
	want := (bytes-1)>>20 + 1
	if bytes == 0 {
		want = 0
	}
	if want <= now {
		return 0, fmt.Errorf("%d MiB is no more than the %d MiB that the job has", want, now)
	}
	each := j.share()
	mib = (want + each - 1) / each
	if room.MiB > 0 && mib*each > room.MiB {
		if mib = room.MiB / each; mib <= j.MiB {
			return 0, fmt.Errorf("the job has %d MiB, and no more is to be had: %d MiB by %s", now, room.MiB, room.Says)
		}
	}
	return mib, nil
}

// Setting is the value that `scontrol update` takes: "MinMemoryNode=375".
func (j RunningJob) Setting(mib uint64) string {
	if j.PerCPU {
		return "MinMemoryCPU=" + strconv.FormatUint(mib, 10)
	}
	return "MinMemoryNode=" + strconv.FormatUint(mib, 10)
}
