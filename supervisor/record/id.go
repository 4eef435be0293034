package record

import (
	"fmt"
	"strings"
	"time"
)

// NewID names a run. The name begins with the time, so that names sort by it,
// and can be a file's on any file system.
func NewID(at time.Time, job *Job, node string, holder int) string {
	what := "run"
	if job != nil {
		what = job.ID
		if job.Step != "" {
			what += fmt.Sprintf(".%s.%d", job.Step, job.Task)
		}
	}
	clean := func(s string) string {
		return strings.Map(func(r rune) rune {
			if !inID(r) {
				return '_'
			}
			return r
		}, s)
	}
	return fmt.Sprintf("%s-%s-%s-%d", at.UTC().Format(idTime), clean(what), clean(node), holder)
}

const idTime = "20060102T150405Z"

// inID says whether a part of a name may have a character.
func inID(r rune) bool {
	return isDigit(r) || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || r == '_' || r == '.' || r == '+'
}

func isDigit(r rune) bool { return '0' <= r && r <= '9' }

// isID says whether a file's name is that of a run. It is no regexp: that would
// be compiled at the start of every process of ours.
func isID(name string) bool {
	parts := strings.Split(name, "-")
	if len(parts) != 4 || len(parts[0]) != len(idTime) || parts[1] == "" || parts[3] == "" {
		return false
	}
	for i, c := range []byte(parts[0]) {
		if like := idTime[i]; c != like && !(isDigit(rune(c)) && isDigit(rune(like))) {
			return false
		}
	}
	all := func(s string, is func(rune) bool) bool {
		return strings.IndexFunc(s, func(r rune) bool { return !is(r) }) < 0
	}
	return all(parts[1], inID) && all(parts[2], inID) && all(parts[3], isDigit)
}

// jobOfID returns the Slurm job of a run's name, empty where it has none.
func jobOfID(id string) string {
	_, rest, _ := strings.Cut(id, "-")
	what, _, _ := strings.Cut(rest, "-")
	job, _, _ := strings.Cut(what, ".")
	if job == "run" {
		return ""
	}
	return job
}
