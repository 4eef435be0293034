package slurm

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// EndedJob is what Slurm says of a job: how it ended and what it had asked for. It is part
// of `report --json`. Times are those of the zone that Slurm's commands print in, this
// machine's.
type EndedJob struct {
	// Source is who said it: "sacct", or "scontrol show job" where the site
	// keeps no accounting.
	Source string `json:"source"`
	// ID is the number of the job, JobIDRaw: of an array task its own.
	ID   string `json:"-"`
	Name string `json:"name,omitempty"`
	// Dir is the directory that it ran in, NodeList its nodes as Slurm writes them: "n[1-3]".
	Dir      string `json:"work_dir,omitempty"`
	NodeList string `json:"node_list,omitempty"`
	State    string `json:"state"` // one word: "COMPLETED", "OUT_OF_MEMORY"
	// By is the user id in "CANCELLED by 1000", empty elsewhere.
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"` // empty where Slurm says None
	// ExitCode and DerivedExit, the highest of the steps that srun started, are
	// STATUS:SIGNAL as Slurm writes them, "0:9"; empty where it has none.
	ExitCode    string `json:"exit_code,omitempty"`
	DerivedExit string `json:"derived_exit_code,omitempty"`
	// ReqMem is as Slurm writes it: "400M", before 21.08 "400Mn" for each node
	// and "100Mc" for each CPU. sacct gives what was asked for in all;
	// scontrol gives "400M" for a node and "100Mc" for each CPU.
	ReqMem string `json:"req_mem,omitempty"`
	// Start and End are zero where Slurm does not know them.
	Start     time.Time `json:"start,omitzero"`
	End       time.Time `json:"end,omitzero"`
	TimeLimit string    `json:"time_limit,omitempty"` // as Slurm writes it: "1-00:00:00", "UNLIMITED"
	// Steps are sacct's. scontrol knows none of a job that has ended.
	Steps []EndedStep `json:"steps,omitempty"`
	// Nodes are those of the job, or of the last time it ran, as [JobNodes] says; nil where
	// that was not asked.
	Nodes []string `json:"nodes,omitempty"`
}

type EndedStep struct {
	ID string `json:"id"` // "12.batch", "12.0"
	// State is one word. It is CANCELLED wherever a signal ended the step,
	// SIGSEGV too; By is the user id that cancelled it: "0" for slurmstepd
	// (OverMemoryKill) or an administrator.
	State    string `json:"state"`
	By       string `json:"by,omitempty"`
	ExitCode string `json:"exit_code"` // STATUS:SIGNAL
	// MaxRSS is in bytes, 0 where it was never polled: the highest that slurmstepd
	// read for one task, which misses peaks between two polls. With jobacct_gather/cgroup, from 24.11 on, it is the peak of the
	// task's cgroup: memory.peak (v2, Linux 5.19) or memory.max_usage_in_bytes (v1),
	// page cache included.
	MaxRSS uint64 `json:"max_rss_bytes,omitempty"`
}

// Step is what Slurm says of one step, nil where it says nothing of it.
func (j *EndedJob) Step(job, step string) *EndedStep {
	i := slices.IndexFunc(j.Steps, func(e EndedStep) bool { return e.ID == job+"."+step })
	if i < 0 {
		return nil
	}
	return &j.Steps[i]
}

// Largest is the step whose task used most, as far as was polled; nil where none was.
func (j *EndedJob) Largest() (most *EndedStep) {
	for i := range j.Steps {
		if s := &j.Steps[i]; s.MaxRSS > 0 && (most == nil || s.MaxRSS > most.MaxRSS) {
			most = s
		}
	}
	return most
}

// KilledBySlurmstepd says that the step was ended the way OverMemoryKill does
// it: by SIGKILL, on root's behalf. Without step it is the whole job that was, with its batch
// script; the Reason differs between versions, and sacct may have none.
func (j *EndedJob) KilledBySlurmstepd(step *EndedStep) bool {
	if step != nil {
		return step.State == "CANCELLED" && step.By == "0" && strings.HasSuffix(step.ExitCode, ":9")
	}
	return j.State == "FAILED" && j.ExitCode == "0:9" && (j.Reason == "JobLaunchFailure" ||
		slices.ContainsFunc(j.Steps, func(s EndedStep) bool { return j.KilledBySlurmstepd(&s) }))
}

// ErrNoJob is wrapped by the error of [Ended] where Slurm does not know the job
// or no longer does.
var ErrNoJob = errors.New("slurm knows no such job")

// maxSaid bounds what is read of an answer, in bytes. A job of some thousand
// steps is far below it.
const maxSaid = 4 << 20

// endedFormat is the value of sacct's --format that [parseSacct] reads.
const endedFormat = "JobIDRaw,JobID,State,Reason,ExitCode,DerivedExitCode,ReqMem,MaxRSS,Start,End,Timelimit,NodeList,WorkDir,JobName"

// Ask runs a command of Slurm's and returns its stdout; it bounds how long that may take.
type Ask = func(ctx context.Context, name string, args ...string) ([]byte, error)

// Ended asks sacct how a job ended, and scontrol where sacct does not know: many
// sites keep no accounting, and slurmctld forgets a job some minutes after its
// end (MinJobAge). job is a number, "12_3" for an array task, or a SLUID.
func Ended(ctx context.Context, ask Ask, job string) (EndedJob, error) {
	if !IsJob(job) {
		return EndedJob{}, fmt.Errorf("cannot ask about job %q: not a job id", job)
	}
	return askBoth(ctx, ask, job, "job "+job, []string{"--units=K", "--format=" + endedFormat},
		func(out []byte) (EndedJob, error) { return parseSacct(out, job, time.Local) },
		func(out []byte) (EndedJob, error) { return parseShowJob(out, job, time.Local) })
}

// askBoth asks sacct, and scontrol where sacct does not know.
func askBoth[T any](ctx context.Context, ask Ask, job, about string, options []string, parseSacct, parseShown func([]byte) (T, error)) (T, error) {
	out, err := ask(ctx, "sacct", append([]string{"-j", job, "--parsable2", "--noheader"}, options...)...)
	if err == nil {
		var v T
		if v, err = parseSacct(out); err == nil {
			return v, nil
		}
	}
	err = fmt.Errorf("cannot ask sacct about %s: %w", about, err)
	out, second := ask(ctx, "scontrol", "show", "job", job, "-o")
	var v T
	if second == nil {
		if v, second = parseShown(out); second == nil {
			return v, nil
		}
	}
	return v, errors.Join(err, fmt.Errorf("cannot ask scontrol about %s: %w", about, second))
}

// IsJob says whether a word can name a job.
func IsJob(s string) bool { return isJobID(s) || IsSLUID(s) }

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

// assigned is a list without what sacct writes for a job that never started.
func assigned(list string) string {
	if list = known(list); strings.HasPrefix(list, "None") {
		return ""
	}
	return list
}

// stateWord splits "CANCELLED by 1000". A "+" marks what a narrow column cut.
func stateWord(s string) (state, by string) {
	state, by, _ = strings.Cut(known(s), " by ")
	state, _, _ = strings.Cut(state, " ")
	return strings.TrimSuffix(state, "+"), strings.TrimSpace(by)
}

// slurmTime is zero for what is no time.
func slurmTime(s string, zone *time.Location) time.Time {
	t, _ := parseWall(known(s), zone)
	return t
}

// parseSacct reads what sacct prints with --parsable2 --noheader --units=K and
// [endedFormat]: a line for the job, then one for each step. Lines of other jobs
// are passed over: asked for an array, sacct lists all of its tasks.
func parseSacct(b []byte, job string, zone *time.Location) (EndedJob, error) {
	if err := bounded(b); err != nil {
		return EndedJob{}, err
	}
	columns := strings.Count(endedFormat, ",") + 1
	j := EndedJob{Source: "sacct"}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimRight(line, "\n"), "|", columns) // a job's name may have any character
		if len(f) != columns {
			continue
		}
		raw, rawStep, isStep := strings.Cut(f[0], ".")
		shown, _, _ := strings.Cut(f[1], ".")
		if IsSLUID(job) && raw != "" {
			job = raw // what is answered is that one job
		}
		if raw != job && shown != job || raw == "" {
			continue
		}
		if isStep {
			state, by := stateWord(f[2])
			j.Steps = append(j.Steps, EndedStep{ID: raw + "." + rawStep, State: state, By: by, ExitCode: known(f[4]), MaxRSS: sizeOf(f[7], 0)})
			continue
		}
		// Of a job that was requeued the last line is the last time it ran.
		j.ID = raw
		j.State, j.By = stateWord(f[2])
		j.Reason, j.ExitCode, j.DerivedExit, j.ReqMem = known(f[3]), known(f[4]), known(f[5]), known(f[6])
		j.Start, j.End, j.TimeLimit = slurmTime(f[8], zone), slurmTime(f[9], zone), known(f[10])
		j.NodeList, j.Dir, j.Name = assigned(f[11]), f[12], f[13]
		j.Steps = nil
	}
	if j.ID == "" || j.State == "" {
		return EndedJob{}, ErrNoJob
	}
	return j, nil
}

// sizeOf reads a size as Slurm prints it, in bytes: "146380K", "1.50G", or a number alone,
// in units of 1<<alone. 0 where there is none.
func sizeOf(s string, alone int) uint64 {
	s = known(s)
	if n := len(s); n > 0 {
		if i := strings.IndexByte("KMGTP", s[n-1]); i >= 0 {
			alone, s = 10*(i+1), s[:n-1]
		}
	}
	v, err := strconv.ParseFloat(s, 64)
	v *= math.Exp2(float64(alone))
	if err != nil || !(v >= 0 && v < math.MaxInt64) {
		return 0
	}
	return uint64(v)
}

// parseShowJob reads what `scontrol show job ID -o` prints: a line for each job,
// "Name=Value" separated by blanks. A value may hold blanks too, and what looks
// like a name: the job's name, which comes before all that is read here, is
// taken out, and of the others the first counts.
func parseShowJob(b []byte, job string, zone *time.Location) (EndedJob, error) {
	f, err := shownOf(b, job)
	if err != nil {
		return EndedJob{}, err
	}
	state, by := stateWord(f["JobState"])
	if state == "" {
		return EndedJob{}, ErrNoJob
	}
	j := EndedJob{
		Source: "scontrol show job", ID: f["JobId"], State: state, By: by,
		Reason: known(f["Reason"]), ExitCode: known(f["ExitCode"]), DerivedExit: known(f["DerivedExitCode"]),
		ReqMem: known(f["MinMemoryNode"]), Start: slurmTime(f["StartTime"], zone), End: slurmTime(f["EndTime"], zone),
		TimeLimit: known(f["TimeLimit"]), NodeList: assigned(f["NodeList"]), Dir: known(f["WorkDir"]),
	}
	if each := known(f["MinMemoryCPU"]); j.ReqMem == "" && each != "" {
		j.ReqMem = each + "c"
	}
	if j.ReqMem == "0" { // --mem=0, which asks for all of the node
		j.ReqMem = ""
	}
	return j, nil
}

// bounded is the error of an answer that is too long.
func bounded(b []byte) error {
	if len(b) > maxSaid {
		return fmt.Errorf("an answer of %d bytes", len(b))
	}
	return nil
}

// shownJob is one line of what scontrol shows with -o, by the names of its fields.
type shownJob map[string]string

// is says that it is of that job, or of that task of an array.
func (f shownJob) is(job string) bool {
	return f["JobId"] == job || f["ArrayJobId"]+"_"+f["ArrayTaskId"] == job
}

// shownJobs yields what `scontrol show job -o` prints of each job.
func shownJobs(b []byte) iter.Seq[shownJob] {
	return func(yield func(shownJob) bool) {
		for line := range strings.Lines(string(b)) {
			if !yield(showFields(line)) {
				return
			}
		}
	}
}

// shownOf is what `scontrol show job -o` prints of one job. A SLUID stands for the one job
// that is answered.
func shownOf(b []byte, job string) (shownJob, error) {
	if err := bounded(b); err != nil {
		return nil, err
	}
	for f := range shownJobs(b) {
		if isDigits(f["JobId"]) && (f.is(job) || IsSLUID(job)) {
			return f, nil
		}
	}
	return nil, ErrNoJob
}

func showFields(line string) shownJob { return fieldsOf(unnamed(line)) }

// unnamed is a line of scontrol's without the job's name.
func unnamed(line string) string {
	if front, rest, named := strings.Cut(line, " JobName="); named {
		// Behind the name comes "UserId=name(uid) GroupId=…". A name that holds the same is
		// its owner's own doing: the last is Slurm's. A comment, a working directory and file
		// names come later still, all of them behind JobState.
		end := strings.Index(rest, " MCS_label=")
		if end < 0 {
			end = len(rest)
		}
		if i := strings.LastIndex(rest[:end], " UserId="); i >= 0 {
			rest = rest[i:]
		}
		line = front + " " + rest
	}
	return line
}

// fieldsOf are the fields of a line without free text in front.
func fieldsOf(line string) shownJob {
	f := make(shownJob)
	for field := range strings.FieldsSeq(line) {
		name, value, ok := strings.Cut(field, "=")
		if _, twice := f[name]; ok && !twice {
			f[name] = value
		}
	}
	return f
}
