package record

import (
	"fmt"
	"regexp"
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
	clean := func(s string) string { return unclean.ReplaceAllString(s, "_") }
	return fmt.Sprintf("%s-%s-%s-%d", at.UTC().Format(idTime), clean(what), clean(node), holder)
}

const idTime = "20060102T150405Z"

var (
	unclean = regexp.MustCompile(`[^A-Za-z0-9_.+]`)
	anID    = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}Z-[A-Za-z0-9_.+]+-[A-Za-z0-9_.+]*-[0-9]+$`)
)

// isID says whether a file's name is that of a run.
func isID(name string) bool { return anID.MatchString(name) }

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
