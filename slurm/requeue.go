package slurm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// RunningJob is what `scontrol show job` says of a job that is to go back into
// the queue with more memory.
type RunningJob struct {
	ID string
	// Leader is what requeuehold and release take: the ID of the heterogeneous job that it is
	// a part of, which alone can be requeued; of an array "46_2", since the number of the
	// array, which its last task has too, means all tasks; else ID.
	Leader string
	// Part is what update takes: Leader, but of a heterogeneous job "46+1", since its ID
	// means all parts.
	Part   string
	State  string // "RUNNING", "COMPLETING", "PENDING", …
	Reason string // "None", "JobHeldUser"; empty where Slurm says None
	// Restarts counts its requeues, ours and others.
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
	f, err := shownOf(b, job)
	if err != nil {
		return RunningJob{}, err
	}
	state, _ := stateWord(f["JobState"])
	if state == "" {
		return RunningJob{}, ErrNoJob
	}
	j := RunningJob{
		ID: job, Leader: job, State: state, Reason: known(f["Reason"]),
		Requeue: f["Requeue"] == "1", Batch: f["BatchFlag"] != "" && f["BatchFlag"] != "0",
		CPUs: max(count(f["NumCPUs"]), 1), Nodes: max(count(f["NumNodes"]), 1),
		Partition: known(f["Partition"]), NodeList: known(f["NodeList"]),
		MiB: shownMiB(f["MinMemoryNode"]),
	}
	j.Restarts, _ = strconv.Atoi(f["Restarts"])
	if array, task := f["ArrayJobId"], f["ArrayTaskId"]; isDigits(array) && isDigits(task) {
		j.Leader = array + "_" + task
	}
	j.Part = j.Leader
	if leader, offset := f["HetJobId"], f["HetJobOffset"]; isDigits(leader) && leader != "0" {
		j.Leader = leader
		if isDigits(offset) {
			j.Part = leader + "+" + offset
		}
	}
	if each, ok := f["MinMemoryCPU"]; ok && j.MiB == 0 {
		j.MiB, j.PerCPU = shownMiB(each), true
	}
	return j, nil
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
	if mib := sizeOf(s, 20) >> 20; mib <= math.MaxUint32 {
		return mib
	}
	return 0
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

// MaxMemory is the most memory that a node may give, in MiB, and the source. MiB is 0 where it
// is unknown.
type MaxMemory struct {
	MiB  uint64
	Says string // "RealMemory of node n1"
}

func (r MaxMemory) Least(o MaxMemory) MaxMemory {
	if r.MiB == 0 || o.MiB != 0 && o.MiB < r.MiB {
		return o
	}
	return r
}

// ParseMaxMemory reads what `scontrol show node -o` and `scontrol show partition -o` print:
// RealMemory less MemSpecLimit, or MaxMemPerNode, of the least of them.
func ParseMaxMemory(b []byte) (least MaxMemory) {
	for line := range strings.Lines(string(b)) {
		f := fieldsOf(line)
		mib, spec := shownMiB(f["RealMemory"]), shownMiB(f["MemSpecLimit"])
		if name := f["NodeName"]; name != "" && mib > spec {
			least = least.Least(MaxMemory{mib - spec, "RealMemory of node " + name})
		}
		if mib := shownMiB(f["MaxMemPerNode"]); mib > 0 && f["PartitionName"] != "" {
			least = least.Least(MaxMemory{mib, "MaxMemPerNode of partition " + f["PartitionName"]})
		}
	}
	return least
}

// errAllOfNode says that the job has all memory of its node already.
var errAllOfNode = errors.New("the job was given no amount of memory that could be raised (--mem=0, or memory by GPU)")

// Raise returns what the job is to be given so that it has so many bytes on each
// node, in MiB as in [RunningJob.MiB], rounded up; the most that room has where
// that is less. It is an error where it would not be more than now.
func (j RunningJob) Raise(bytes uint64, room MaxMemory) (mib uint64, err error) {
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
			return 0, fmt.Errorf("the job has %d MiB, and can get no more: %d MiB by %s", now, room.MiB, room.Says)
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

// The steps that put a job back into the queue with more memory.
const (
	StepLook    = "show job"    // is it still running? another process may have been first
	StepHold    = "requeuehold" // from here on Slurm ends the job: CONT, TERM, and KILL after KillWait
	StepUpdate  = "update"      // Slurm raises the memory of a job that does not run, and of no other; from 26.05 on it lowers a running one's
	StepRelease = "release"     // a job that stays held never starts again
)

type RequeueStep struct {
	Step  string        `json:"step"`
	OK    bool          `json:"ok"`
	Tries int           `json:"tries"`
	Took  time.Duration `json:"took_ns"`
	Error string        `json:"error,omitempty"`
}

// String is the step for a sentence: "requeuehold 31 ms", "update failed: …".
func (s RequeueStep) String() string {
	text := s.Step
	if s.OK {
		text += fmt.Sprintf(" %.0f ms", s.Took.Seconds()*1e3)
	} else {
		text += " failed: " + s.Error
	}
	if s.Tries > 1 {
		text += fmt.Sprintf(" (%d tries)", s.Tries)
	}
	return text
}

// Requeue puts a job back into the queue with more memory.
type Requeue struct {
	Job RunningJob // as it was seen last
	MiB uint64     // of [RunningJob.Raise]
	// StartIn is when it may start again, if it has ended by then; else, and where
	// StartIn is 0, Slurm has it wait for requeue_delay of SchedulerParameters (25.11
	// and newer), else for cred_expire of AuthInfo, 2 minutes.
	StartIn time.Duration
	// Again says that an earlier process may have held the job and stopped there.
	Again bool
	// Scontrol runs scontrol, for as long as the context lasts; see [Scontrol].
	Scontrol func(ctx context.Context, args ...string) ([]byte, error)
	// Told is called after each step; it may be nil.
	Told func(RequeueStep)
	// Patience is for how long each step is tried; the zero value is what a real
	// slurmctld wants.
	Patience RequeuePatience
}

// RequeuePatience bounds the steps. A step is tried again until its time is over,
// and at least twice.
type RequeuePatience struct {
	Call, Pause           time.Duration // of one try, and after the first: twice as long after each, 1 s at most
	Hold, Update, Release time.Duration
}

// requeuePatience: while a requeuehold is waited for the job's memory grows on; after it
// KillWait runs, 30 s by default, and the release must have its turn.
var requeuePatience = RequeuePatience{
	Call: 5 * time.Second, Pause: 100 * time.Millisecond,
	Hold: 2 * time.Second, Update: 4 * time.Second, Release: time.Minute,
}

type RequeueResult struct {
	// Requeued says that the job was put back by this. Gone says that it did not
	// run any more and nothing was done.
	Requeued, Gone bool
	// Raised says that it has the new memory. Held says that it could not be released
	// and waits for `scontrol release`.
	Raised, Held bool
	// Why is what went wrong, for people; empty where nothing did.
	Why string
}

// errGone says that the job does not run any more, and not by our doing.
var errGone = errors.New("the job does not run any more")

// Run takes the steps. Cancel the context only to give the job up as it is: what
// has been held is to be released.
func (q *Requeue) Run(ctx context.Context) RequeueResult {
	if q.Patience == (RequeuePatience{}) {
		q.Patience = requeuePatience
	}
	var job RunningJob
	err := q.try(ctx, StepLook, q.Patience.Hold, func(ctx context.Context, _ int) (err error) {
		job, err = q.look(ctx)
		return err
	})
	gone := RequeueResult{Gone: true, Why: "job " + q.Job.ID + " is " + job.State}
	switch {
	case err != nil:
		return RequeueResult{Why: err.Error()}
	case q.Again && job.held():
	case job.State != "RUNNING":
		return gone
	default:
		err := q.step(ctx, StepHold, q.Patience.Hold, func(j RunningJob) (bool, error) {
			if j.State != "RUNNING" && !j.held() {
				gone.Why = "job " + j.ID + " is " + j.State
				return false, errGone
			}
			return j.held(), nil
		}, func(int) []string { return []string{"requeuehold", q.Job.Leader} })
		if errors.Is(err, errGone) {
			return gone
		}
		if err != nil {
			return RequeueResult{Why: err.Error()}
		}
	}
	r := RequeueResult{Requeued: true}
	err = q.step(ctx, StepUpdate, q.Patience.Update, func(j RunningJob) (bool, error) {
		return j.MiB == q.MiB && j.PerCPU == q.Job.PerCPU, nil
	}, func(try int) []string {
		args := []string{"update", "JobId=" + q.Job.Part, q.Job.Setting(q.MiB)}
		if q.StartIn > 0 && try == 1 { // only a wish
			args = append(args, fmt.Sprintf("StartTime=now+%.0f", q.StartIn.Seconds()))
		}
		return args
	})
	if err != nil {
		r.Why = err.Error()
	} else {
		r.Raised = true
	}
	err = q.step(ctx, StepRelease, q.Patience.Release, func(j RunningJob) (bool, error) {
		return !j.held(), nil
	}, func(int) []string { return []string{"release", q.Job.Leader} })
	if err != nil {
		r.Held = true
		r.Why = strings.TrimPrefix(r.Why+"; "+err.Error(), "; ")
	}
	return r
}

// held says that a job waits until it is released: Slurm has several words for it,
// "JobHeldUser" and "job_requeued_in_held_state".
func (j RunningJob) held() bool {
	return strings.Contains(strings.ToLower(j.Reason), "held")
}

func (q *Requeue) look(ctx context.Context) (RunningJob, error) {
	out, err := q.Scontrol(ctx, "show", "job", "-o", q.Job.ID)
	if err != nil {
		return RunningJob{}, err
	}
	return ParseRunningJob(out, q.Job.ID)
}

// step runs a command of scontrol. Where that complains the job may be as it should be all the
// same: a command may have been carried out and not been answered, another node may have been
// first, and what scontrol says may be a warning about something else.
func (q *Requeue) step(ctx context.Context, name string, within time.Duration, is func(RunningJob) (bool, error), args func(try int) []string) error {
	return q.try(ctx, name, within, func(ctx context.Context, try int) error {
		_, err := q.Scontrol(ctx, args(try)...)
		if err == nil {
			return nil
		}
		job, lookErr := q.look(ctx)
		if lookErr != nil {
			return err
		}
		done, final := is(job)
		if done {
			return nil
		}
		return errors.Join(final, err)
	})
}

// try does something until it succeeds, its time is over, or its error is errGone.
func (q *Requeue) try(ctx context.Context, name string, within time.Duration, do func(ctx context.Context, try int) error) error {
	began, pause := time.Now(), q.Patience.Pause
	s := RequeueStep{Step: name}
	var err error
	for {
		s.Tries++
		call, cancel := context.WithTimeout(ctx, q.Patience.Call)
		err = do(call, s.Tries)
		cancel()
		if err == nil || errors.Is(err, errGone) || ctx.Err() != nil || time.Since(began) >= within && s.Tries > 1 {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, time.Second)
	}
	s.OK, s.Took = err == nil, time.Since(began)
	if err != nil {
		s.Error = strings.ReplaceAll(err.Error(), "\n", ": ")
	}
	if q.Told != nil {
		q.Told(s)
	}
	return err
}
