package slurm

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// ParseSacct reads what sacct prints with --parsable2 --noheader --units=K and
// [EndedFormat]: a line for the job, then one for each step. Lines of other jobs
// are passed over: asked for an array, sacct lists all of its tasks.
func ParseSacct(b []byte, job string, zone *time.Location) (EndedJob, error) {
	if len(b) > mostSaid {
		return EndedJob{}, fmt.Errorf("an answer of %d bytes", len(b))
	}
	columns := strings.Count(EndedFormat, ",") + 1
	j := EndedJob{Source: "sacct"}
	for line := range strings.Lines(string(b)) {
		f := strings.Split(strings.TrimRight(line, "\n"), "|")
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
			j.Steps = append(j.Steps, EndedStep{ID: raw + "." + rawStep, State: state, By: by, ExitCode: known(f[4]), MaxRSS: sacctSize(f[7])})
			continue
		}
		// Of a job that was requeued the last line is the last time it ran.
		j.ID = raw
		j.State, j.By = stateWord(f[2])
		j.Reason, j.ExitCode, j.DerivedExit, j.ReqMem = known(f[3]), known(f[4]), known(f[5]), known(f[6])
		j.Start, j.End, j.TimeLimit = slurmTime(f[8], zone), slurmTime(f[9], zone), known(f[10])
		j.Steps = nil
	}
	if j.ID == "" || j.State == "" {
		return EndedJob{}, ErrNoJob
	}
	return j, nil
}

// sacctSize reads a size as sacct prints it: "146380K", "1.50G", a number alone
// in bytes. 0 where there is none.
func sacctSize(s string) uint64 {
	s = known(s)
	shift := 0
	if n := len(s); n > 0 {
		if i := strings.IndexByte("KMGTP", s[n-1]); i >= 0 {
			shift, s = 10*(i+1), s[:n-1]
		}
	}
	v, err := strconv.ParseFloat(s, 64)
	v *= math.Exp2(float64(shift))
	if err != nil || !(v >= 0 && v < math.MaxInt64) {
		return 0
	}
	return uint64(v)
}
