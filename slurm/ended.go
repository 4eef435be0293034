package slurm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// EndedJob is what Slurm says of a job: how it ended and what it had asked for.
// Times are those of the zone that Slurm's commands print in, this machine's.
type EndedJob struct {
	// Source is who said it: "sacct", or "scontrol show job" where the site
	// keeps no accounting.
	Source string
	// ID is the number of the job, JobIDRaw: of an array task its own.
	ID string
	// State is one word: "COMPLETED", "OUT_OF_MEMORY". By is the user id in
	// "CANCELLED by 1000", empty elsewhere.
	State, By string
	// Reason is empty where Slurm says None.
	Reason string
	// ExitCode and DerivedExit, the highest of the steps that srun started, are
	// STATUS:SIGNAL as Slurm writes them, "0:9"; empty where it has none.
	ExitCode, DerivedExit string
	// ReqMem is as Slurm writes it: "400M", before 21.08 "400Mn" for each node
	// and "100Mc" for each CPU. sacct gives what was asked for in all;
	// scontrol gives "400M" for a node and "100Mc" for each CPU.
	ReqMem string
	// Start and End are zero where Slurm does not know them.
	Start, End time.Time
	// TimeLimit is as Slurm writes it: "1-00:00:00", "UNLIMITED".
	TimeLimit string
	// Steps are sacct's. scontrol knows none of a job that has ended.
	Steps []EndedStep
}

// EndedStep is what sacct says of one step.
type EndedStep struct {
	ID string // "12.batch", "12.0"
	// State is one word. It is CANCELLED wherever a signal ended the step,
	// SIGSEGV too; By is the user id where somebody had it cancelled: "0" where
	// slurmstepd did, by OverMemoryKill, or an administrator.
	State, By string
	// ExitCode is STATUS:SIGNAL.
	ExitCode string
	// MaxRSS is in bytes, 0 where nobody polled it: the most of one task that
	// slurmstepd saw when it looked, which misses what came and went between
	// two looks. With jobacct_gather/cgroup, from 24.11 on, it is the peak of the
	// task's cgroup: memory.peak (v2, Linux 5.19) or memory.max_usage_in_bytes (v1),
	// page cache included.
	MaxRSS uint64
}

// ErrNoJob is wrapped by the error of [Ended] where Slurm does not know the job
// or no longer does.
var ErrNoJob = errors.New("slurm knows no such job")

// mostSaid bounds what is read of an answer, in bytes. A job of some thousand
// steps is far below it.
const mostSaid = 4 << 20

// EndedFormat is the value of sacct's --format that [ParseSacct] reads.
const EndedFormat = "JobIDRaw,JobID,State,Reason,ExitCode,DerivedExitCode,ReqMem,MaxRSS,Start,End,Timelimit"

// Ended asks sacct how a job ended, and scontrol where sacct does not know: many
// sites keep no accounting, and slurmctld forgets a job some minutes after its
// end (MinJobAge). ask runs a command and returns its stdout; it bounds how long
// that may take. job is a number, "12_3" for an array task, or a SLUID.
func Ended(ctx context.Context, ask func(ctx context.Context, name string, args ...string) ([]byte, error), job string) (EndedJob, error) {
	if !isJobID(job) && !IsSLUID(job) {
		return EndedJob{}, fmt.Errorf("cannot ask about job %q: not a job id", job)
	}
	out, err := ask(ctx, "sacct", "-j", job, "--parsable2", "--noheader", "--units=K", "--format="+EndedFormat)
	if err == nil {
		var j EndedJob
		if j, err = ParseSacct(out, job, time.Local); err == nil {
			return j, nil
		}
	}
	err = fmt.Errorf("cannot ask sacct about job %s: %w", job, err)
	out, second := ask(ctx, "scontrol", "show", "job", job, "-o")
	if second == nil {
		var j EndedJob
		if j, second = ParseShowJob(out, job, time.Local); second == nil {
			return j, nil
		}
	}
	return EndedJob{}, errors.Join(err, fmt.Errorf("cannot ask scontrol about job %s: %w", job, second))
}

// isJobID keeps what is no job id, a list or an option from being asked for.
func isJobID(s string) bool {
	number, task, array := strings.Cut(s, "_")
	return isDigits(number) && (!array || isDigits(task))
}

func isDigits(s string) bool {
	return s != "" && len(s) <= 10 && strings.Trim(s, "0123456789") == ""
}

// known is a field without what Slurm writes for nothing.
func known(s string) string {
	switch s = strings.TrimSpace(s); s {
	case "None", "Unknown", "NONE", "(null)", "N/A", "INVALID":
		return ""
	}
	return s
}

// stateWord splits "CANCELLED by 1000". A "+" marks what a narrow column cut.
func stateWord(s string) (state, by string) {
	state, by, _ = strings.Cut(known(s), " by ")
	state, _, _ = strings.Cut(state, " ")
	return strings.TrimSuffix(state, "+"), strings.TrimSpace(by)
}

func slurmTime(s string, zone *time.Location) time.Time {
	t, err := parseWall(known(s), zone)
	if err != nil {
		return time.Time{}
	}
	return t
}
