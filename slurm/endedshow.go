package slurm

import (
	"fmt"
	"strings"
	"time"
)

// ParseShowJob reads what `scontrol show job ID -o` prints: a line for each job,
// "Name=Value" separated by blanks. A value may hold blanks too, and what looks
// like a name: the job's name, which stands in front of all that is read here, is
// taken out, and of the others the first stands.
func ParseShowJob(b []byte, job string, zone *time.Location) (EndedJob, error) {
	if len(b) > mostSaid {
		return EndedJob{}, fmt.Errorf("an answer of %d bytes", len(b))
	}
	for line := range strings.Lines(string(b)) {
		f := showFields(line)
		task := f["ArrayJobId"] + "_" + f["ArrayTaskId"]
		state, by := stateWord(f["JobState"])
		if IsSLUID(job) && f["JobId"] != "" {
			job = f["JobId"] // what is answered is that one job
		}
		if f["JobId"] == "" || f["JobId"] != job && task != job || state == "" {
			continue
		}
		j := EndedJob{
			Source: "scontrol show job", ID: f["JobId"], State: state, By: by,
			Reason: known(f["Reason"]), ExitCode: known(f["ExitCode"]), DerivedExit: known(f["DerivedExitCode"]),
			ReqMem: known(f["MinMemoryNode"]), Start: slurmTime(f["StartTime"], zone), End: slurmTime(f["EndTime"], zone),
			TimeLimit: known(f["TimeLimit"]),
		}
		if each := known(f["MinMemoryCPU"]); j.ReqMem == "" && each != "" {
			j.ReqMem = each + "c"
		}
		// --mem=0, which asks for all of the node.
		if j.ReqMem == "0" {
			j.ReqMem = ""
		}
		return j, nil
	}
	return EndedJob{}, ErrNoJob
}

func showFields(line string) map[string]string {
	front, rest, named := strings.Cut(line, " JobName=")
	if named {
		// Behind the name comes "UserId=name(uid) GroupId=…". A name that holds
		// the same is its owner's own doing: the last that GroupId follows is
		// Slurm's.
		if i := lastUserID(rest); i >= 0 {
			rest = rest[i:]
		}
		line = front + " " + rest
	}
	f := make(map[string]string)
	for field := range strings.FieldsSeq(line) {
		name, value, ok := strings.Cut(field, "=")
		if _, twice := f[name]; ok && !twice {
			f[name] = value
		}
	}
	return f
}

func lastUserID(s string) int {
	// A comment, a working directory and file names come later still, all of
	// them behind JobState.
	end := strings.Index(s, " MCS_label=")
	if end < 0 {
		end = len(s)
	}
	return strings.LastIndex(s[:end], " UserId=")
}
