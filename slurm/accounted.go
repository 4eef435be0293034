package slurm

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// AccountedJob is a job as sacct lists it among many.
type AccountedJob struct {
	ID, User      string // ID is JobIDRaw: of an array task its own number
	State, Reason string // as in [EndedJob]
	ExitCode      string
	Start         time.Time // zero where it never ran
	Ran           time.Duration
	Comment, Name string // Comment is AdminComment, which a site writes
}

// accountedFormat is the value of sacct's --format that [parseAccounted] reads. What may have
// any character is last.
const accountedFormat = "JobIDRaw,User,State,Reason,ExitCode,Start,ElapsedRaw,AdminComment,JobName"

// Accounted asks sacct about all jobs that ran since some time, those of all users where that is
// wanted, as far as the site lets this user see them, and hands over each as it comes.
// lines runs a command of Slurm's and hands over each line of its stdout.
func Accounted(ctx context.Context, lines func(ctx context.Context, each func(line string), name string, args ...string) error, since time.Time, all bool, each func(*AccountedJob)) error {
	args := []string{"-X", "--parsable2", "--noheader", "--starttime=" + since.Local().Format(wallTime), "--format=" + accountedFormat}
	if all {
		args = append(args, "--allusers")
	}
	err := lines(ctx, func(line string) {
		if j, ok := parseAccounted(line, time.Local); ok && !j.Start.Before(since) {
			each(&j)
		}
	}, "sacct", args...)
	if err != nil {
		return fmt.Errorf("cannot ask sacct about all jobs: %w", err)
	}
	return nil
}

// parseAccounted reads a line. ok is false for what is no job that ran.
func parseAccounted(line string, zone *time.Location) (j AccountedJob, ok bool) {
	f := strings.SplitN(strings.TrimRight(line, "\n"), "|", strings.Count(accountedFormat, ",")+1)
	if len(f) != strings.Count(accountedFormat, ",")+1 || !isDigits(f[0]) {
		return j, false
	}
	j = AccountedJob{ID: f[0], User: known(f[1]), Reason: known(f[3]), ExitCode: known(f[4]), Start: slurmTime(f[5], zone), Comment: f[7], Name: f[8]}
	j.State, _ = stateWord(f[2])
	seconds, err := strconv.ParseUint(f[6], 10, 31)
	j.Ran = time.Duration(seconds) * time.Second
	return j, err == nil && j.State != "" && !j.Start.IsZero()
}
