// Package slurm knows what Slurm says about the job a process is in: its ids, the memory it
// was given, and what slurmstepd does on this node when the job takes more.
//
// It reads the environment, RLIMIT_RSS and Slurm's configuration files, and asks scontrol only
// for what the files leave open. Every answer says where it was read, or that it is not known:
// the environment may be stale and the configuration unreadable. The package depends on the
// standard library only. What slurmstepd adds up, and when it kills, was measured: measured.md.
package slurm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// StepBatch is the StepID of the batch step: the script that sbatch was given.
const StepBatch = "batch"

// Job is the Slurm job and step that a process belongs to, as its environment
// tells (sbatch(1), srun(1): OUTPUT ENVIRONMENT VARIABLES). Numbers that are
// absent or malformed are 0.
type Job struct {
	// ID is SLURM_JOB_ID: of this component, where the job is heterogeneous. It is
	// digits alone, as commands of Slurm's take it for one.
	ID string
	// StepID is SLURM_STEP_ID: a number, or "batch", "extern", "interactive".
	// It is "batch" where a task of slurmstepd has no SLURM_STEP_ID, and empty
	// in the shell of salloc, which no step counts.
	StepID string

	Task    int // SLURM_PROCID: the rank within the step
	Tasks   int // SLURM_STEP_NUM_TASKS in a step that srun started, else SLURM_NTASKS
	LocalID int // SLURM_LOCALID: the rank among the tasks of this node
	NodeID  int // SLURM_NODEID
	Nodes   int // SLURM_STEP_NUM_NODES in a step that srun started, else SLURM_JOB_NUM_NODES

	NodeName  string // SLURMD_NODENAME; hostname(1) may say something else
	Cluster   string // SLURM_CLUSTER_NAME
	Partition string // SLURM_JOB_PARTITION
	Name      string // SLURM_JOB_NAME
	ConfFile  string // SLURM_CONF

	// Restarts is SLURM_RESTART_COUNT, which Slurm sets from the first requeue
	// on.
	Restarts int
	// End is SLURM_JOB_END_TIME, zero before Slurm 23.02.
	End time.Time

	ArrayJob  string // SLURM_ARRAY_JOB_ID, empty where the job is no array task
	ArrayTask string // SLURM_ARRAY_TASK_ID

	jobTasks, jobNodes int // Tasks and Nodes of the job, for InCgroup
}

// ArrayTask is how Slurm's commands name a task of an array, "46_3"; empty where the job is none.
func ArrayTask(job, task string) string {
	if job == "" || task == "" {
		return ""
	}
	return job + "_" + task
}

// FromEnv reads the job from the environment, and reports false where there
// is none, or what is there is no number. [Job.InCgroup] corrects the step.
func FromEnv(lookup func(string) (string, bool)) (Job, bool) {
	get := func(names ...string) string {
		for _, name := range names {
			if v, ok := lookup(name); ok && v != "" {
				return v
			}
		}
		return ""
	}
	number := func(names ...string) int {
		n, err := strconv.Atoi(get(names...))
		if err != nil || n < 0 {
			return 0
		}
		return n
	}
	j := Job{
		ID:        get("SLURM_JOB_ID", "SLURM_JOBID"),
		Task:      number("SLURM_PROCID"),
		LocalID:   number("SLURM_LOCALID"),
		NodeID:    number("SLURM_NODEID"),
		NodeName:  get("SLURMD_NODENAME"),
		Cluster:   get("SLURM_CLUSTER_NAME"),
		Partition: get("SLURM_JOB_PARTITION"),
		Name:      get("SLURM_JOB_NAME"),
		ConfFile:  get("SLURM_CONF"),
		Restarts:  number("SLURM_RESTART_COUNT"),
		ArrayJob:  get("SLURM_ARRAY_JOB_ID"),
		ArrayTask: get("SLURM_ARRAY_TASK_ID"),
	}
	if !isDigits(j.ID) {
		return Job{}, false
	}
	if !isDigits(j.ArrayJob) || !isDigits(j.ArrayTask) {
		j.ArrayJob, j.ArrayTask = "", ""
	}
	j.jobTasks = number("SLURM_NTASKS", "SLURM_NPROCS")
	j.jobNodes = number("SLURM_JOB_NUM_NODES", "SLURM_NNODES")
	j.Tasks, j.Nodes = j.jobTasks, j.jobNodes
	if step := stepName(get("SLURM_STEP_ID", "SLURM_STEPID")); isStep(step) {
		j.StepID = step
		if step != StepBatch { // which has an id from 26.05 on
			j.Tasks = number("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS")
			j.Nodes = number("SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES")
		}
	} else if get("SLURM_TASK_PID") != "" || j.NodeName != "" {
		j.StepID = StepBatch
	}
	if n, err := strconv.ParseInt(get("SLURM_JOB_END_TIME"), 10, 64); err == nil && n > 0 {
		j.End = time.Unix(n, 0)
	}
	return j, true
}

// stepName turns the numbers that slurm.h reserves (SLURM_BATCH_SCRIPT and its
// neighbours) into the names that the commands show. Slurm prints them as %u, from
// 26.05 on as %d: the batch step is 4294967291 or -5 (common/env.c).
func stepName(id string) string {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return id
	}
	switch uint32(n) {
	case 1<<32 - 3:
		return "pending"
	case 1<<32 - 4:
		return "extern"
	case 1<<32 - 5:
		return StepBatch
	case 1<<32 - 6:
		return "interactive"
	}
	return id
}

// isStep knows what Slurm calls a step, and numbers of any size.
func isStep(name string) bool {
	_, ok := StepOfDir("step_" + name)
	return ok || name == "pending" || name != "" && strings.Trim(name, "0123456789") == ""
}

// String gives "JOB.STEP", or "JOB" outside a step.
func (j Job) String() string {
	if j.StepID == "" {
		return j.ID
	}
	return j.ID + "." + j.StepID
}

// ErrNoEnd says that Slurm sets the job no end.
var ErrNoEnd = errors.New("the job has no end")

// FindEnd asks scontrol when Slurm ends the job: EndTime= of `scontrol show
// job`. Before Slurm 23.02 the environment does not have it. The time is that of
// the node's zone, as scontrol prints it.
func FindEnd(ctx context.Context, j Job, scontrol func(ctx context.Context, args ...string) ([]byte, error)) (time.Time, error) {
	if !isJobID(j.ID) {
		return time.Time{}, fmt.Errorf("cannot ask about job %q: not a job id", j.ID)
	}
	out, err := scontrol(ctx, "show", "job", "-o", j.ID)
	if err != nil {
		return time.Time{}, fmt.Errorf("cannot find the end of job %s: %w", j.ID, err)
	}
	ended, err := parseShowJob(out, j.ID, time.Local)
	if err == nil && ended.End.IsZero() {
		err = ErrNoEnd
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("cannot find the end of job %s: %w", j.ID, err)
	}
	return ended.End, nil
}

// parseWall reads a time as Slurm prints it. That has no shorter form and no fraction of
// a second, which time.Parse would take.
func parseWall(text string, zone *time.Location) (time.Time, error) {
	if len(text) != len(wallTime) {
		return time.Time{}, fmt.Errorf("%q is no time", text)
	}
	return time.ParseInLocation(wallTime, text, zone)
}

// wallTime is how Slurm prints a time and reads one.
const wallTime = "2006-01-02T15:04:05"

// NodeName is what Slurm calls this node: SLURMD_NODENAME where it is set
// (srun(1)), else the host name up to its first dot, as slurmd takes it when
// slurm.conf(5) gives no NodeHostname. It is empty where the host has no name.
func NodeName(lookup func(string) (string, bool)) string {
	if name, ok := lookup("SLURMD_NODENAME"); ok && name != "" {
		return name
	}
	host, _ := os.Hostname()
	return short(host)
}

func short(host string) string {
	name, _, _ := strings.Cut(host, ".")
	return name
}

// Memory is an amount of memory that Slurm gave to a step or job on this node.
type Memory struct {
	Bytes  uint64
	Source string // where it was read: "RLIMIT_RSS", "SLURM_MEM_PER_NODE", …
	// Step says that the amount is certain to be the step's own. The
	// environment has the job's, and inside srun with its own --mem the step
	// has less.
	Step bool
}

// NoLimit is RLIM_INFINITY of getrlimit(2).
const NoLimit = math.MaxUint64

// RlimitRSS is the soft RLIMIT_RSS of this process in bytes, for [StepLimit];
// NoLimit where it cannot be read.
func RlimitRSS() uint64 {
	const rlimitRSS = 5 // asm-generic/resource.h; absent from package syscall
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(rlimitRSS, &limit); err != nil {
		return NoLimit
	}
	return limit.Cur
}

// StepLimit returns the memory that the step was given on this node, from the
// most trusted source that says anything: the first of [StepLimits].
func StepLimit(lookup func(string) (string, bool), rlimitRSS uint64) (Memory, bool) {
	all := StepLimits(lookup, rlimitRSS)
	if len(all) == 0 {
		return Memory{}, false
	}
	return all[0], true
}

// StepLimits returns every amount of memory that the process can see to have been given to its
// step or job on this node, the most trusted first.
//
// The soft RLIMIT_RSS is set by slurmstepd to the memory of the step, in every accounting mode,
// and is what OverMemoryKill compares with; Linux does not enforce it. SLURM_MEM_PER_NODE, _CPU
// and _GPU (in MiB) come from the job: srun does not replace them, and --mem=0 sets none of
// them. rlimitRSS is in bytes; RLIM_INFINITY and 0 say nothing.
func StepLimits(lookup func(string) (string, bool), rlimitRSS uint64) []Memory {
	if id, ok := lookup("SLURM_JOB_ID"); !ok || id == "" {
		if id, ok = lookup("SLURM_JOBID"); !ok || id == "" {
			return nil
		}
	}
	var all []Memory
	if rlimitRSS != 0 && rlimitRSS != NoLimit {
		all = append(all, Memory{Bytes: rlimitRSS, Source: "RLIMIT_RSS", Step: true})
	}
	step, inStep := lookup("SLURM_STEP_ID")
	own := !inStep || stepName(step) == StepBatch
	if n, ok := mebibytes(lookup, "SLURM_MEM_PER_NODE", 1); ok {
		all = append(all, Memory{n, "SLURM_MEM_PER_NODE", own})
	}
	if cpus, from := cpusOnNode(lookup); cpus > 0 {
		if n, ok := mebibytes(lookup, "SLURM_MEM_PER_CPU", cpus); ok {
			all = append(all, Memory{n, "SLURM_MEM_PER_CPU times " + from, own})
		}
	}
	if gpus, from := gpusOnNode(lookup); gpus > 0 {
		if n, ok := mebibytes(lookup, "SLURM_MEM_PER_GPU", gpus); ok {
			all = append(all, Memory{n, "SLURM_MEM_PER_GPU times " + from, own})
		}
	}
	return all
}

// mebibytes reads a variable in MiB, times a count, as bytes.
func mebibytes(lookup func(string) (string, bool), name string, times uint64) (uint64, bool) {
	v, _ := lookup(name)
	n, err := strconv.ParseUint(strings.TrimSpace(v), 10, 64)
	if err != nil || n == 0 || times == 0 || n > math.MaxInt64>>20/times {
		return 0, false
	}
	return n * times << 20, true
}

func countOf(lookup func(string) (string, bool), name string) (n uint64, ok bool) {
	if v, set := lookup(name); set {
		n, err := strconv.ParseUint(v, 10, 32)
		return n, err == nil
	}
	return 0, false
}

func cpusOnNode(lookup func(string) (string, bool)) (uint64, string) {
	if n, ok := countOf(lookup, "SLURM_CPUS_ON_NODE"); ok {
		return n, "SLURM_CPUS_ON_NODE"
	}
	v, _ := lookup("SLURM_JOB_CPUS_PER_NODE")
	node, _ := countOf(lookup, "SLURM_NODEID")
	return uint64(perNode(v, int(node))), "SLURM_JOB_CPUS_PER_NODE"
}

func gpusOnNode(lookup func(string) (string, bool)) (uint64, string) {
	if n, ok := countOf(lookup, "SLURM_GPUS_ON_NODE"); ok {
		return n, "SLURM_GPUS_ON_NODE"
	}
	for _, name := range []string{"SLURM_STEP_GPUS", "SLURM_JOB_GPUS"} {
		if v, _ := lookup(name); v != "" {
			return uint64(strings.Count(v, ",") + 1), name
		}
	}
	return 0, ""
}

// TasksHere is how many tasks the step has on this node, 0 where that is not known.
func TasksHere(lookup func(string) (string, bool)) int {
	job, in := FromEnv(lookup)
	if !in || job.StepID == "" {
		return 0
	}
	if !isDigits(job.StepID) { // the batch script, or a shell
		return 1
	}
	list, _ := lookup("SLURM_STEP_TASKS_PER_NODE")
	return perNode(list, job.NodeID)
}

// perNode reads a list such as "4(x2),2" and returns the count of one node;
// 0 where the list is malformed or too short.
func perNode(list string, node int) int {
	if node < 0 {
		return 0
	}
	for part := range strings.SplitSeq(list, ",") {
		count, times, repeated := strings.Cut(part, "(x")
		repeat := 1
		if repeated {
			r, err := strconv.Atoi(strings.TrimSuffix(times, ")"))
			if err != nil || r < 1 || !strings.HasSuffix(times, ")") {
				return 0
			}
			repeat = r
		}
		n, err := strconv.Atoi(count)
		if err != nil || n < 0 {
			return 0
		}
		if node < repeat {
			return n
		}
		node -= repeat
	}
	return 0
}

// Comment marks our part of a job's comment; all before it is the user's.
const Comment = "rsswarden: "

const (
	// maxTheirs is the longest comment of a user's that is written again with ours
	// behind it, in bytes, and maxOurs bounds ours.
	maxTheirs = 512
	maxOurs   = 200
)

var (
	errCommentLong  = errors.New("the job's own comment is too long to be kept beside ours")
	errCommentLines = errors.New("the job's own comment has several lines, which cannot be separated from what scontrol prints after it")
	errComment      = errors.New("not the output of scontrol show job")
)

// SetComment writes text behind what the user has in the comment of a job, in the
// place of what we wrote before. It reads the comment first: what is the user's stays.
// job is a number, "12_3" for an array task: the number of an array's last task is also
// that of the array, and means all of its tasks.
func SetComment(ctx context.Context, scontrol func(context.Context, ...string) ([]byte, error), job, text string) error {
	if !isJobID(job) {
		return fmt.Errorf("cannot write the comment of job %q: not a job id", job)
	}
	out, err := scontrol(ctx, "show", "job", job)
	var was string
	if err == nil {
		was, err = parseComment(out, job)
	}
	var is string
	if err == nil {
		is, err = withComment(was, text)
	}
	if err == nil && is != was {
		_, err = scontrol(ctx, "update", "JobId="+job, "Comment="+is)
	}
	if err != nil {
		return fmt.Errorf("cannot write the comment of job %s: %w", job, err)
	}
	return nil
}

// withComment puts text behind what the user has.
func withComment(was, text string) (string, error) {
	theirs := was
	if i := strings.Index(was, Comment); i >= 0 && (i == 0 || strings.HasSuffix(was[:i], "; ")) {
		theirs = strings.TrimSuffix(was[:i], "; ")
	}
	if len(theirs) > maxTheirs {
		return "", errCommentLong
	}
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '"' || r == '\'' || r == '`' || r == '\\' {
			return ' '
		}
		return r
	}, text)
	if len(text) > maxOurs {
		text = strings.ToValidUTF8(text[:maxOurs-3], "") + "..."
	}
	if theirs != "" {
		return theirs + "; " + Comment + text, nil
	}
	return Comment + text, nil
}

// parseComment reads the comment from what `scontrol show job ID` prints, where it
// has a line of its own; empty where there is none.
func parseComment(b []byte, job string) (string, error) {
	if len(b) > maxSaid || strings.Count("\n"+string(b), "\nJobId=") != 1 {
		return "", errComment // none, or several: a comment that begins like a job is none of ours
	}
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	if !strings.HasPrefix(lines[0], "JobId=") || !showFields(lines[0]).is(job) {
		return "", errComment
	}
	comment := ""
	for i, line := range lines {
		if text, ok := strings.CutPrefix(line, "   Comment="); ok {
			comment = strings.TrimRight(text, " ")
		}
		if i > 0 && !showLine(line) {
			return "", errCommentLines
		}
	}
	return comment, nil
}

// showLine says that a line begins as each of scontrol's does but the first: three
// spaces, a name and "=".
func showLine(line string) bool {
	rest, ok := strings.CutPrefix(line, "   ")
	if !ok {
		return false
	}
	name, _, ok := strings.Cut(rest, "=")
	if !ok {
		// "   Nodes=..." with -d alone has none; an empty line of spaces does.
		return strings.TrimSpace(rest) == ""
	}
	return name != "" && !strings.ContainsAny(name, " \t")
}
