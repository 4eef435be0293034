package slurm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrNoEnd says that Slurm sets the job no end.
var ErrNoEnd = errors.New("the job has no end")

// FindEnd asks scontrol when Slurm ends the job: EndTime= of `scontrol show
// job`. Before Slurm 23.02 the environment does not tell. The time is that of
// the node's zone, as scontrol prints it.
func FindEnd(ctx context.Context, j Job, scontrol func(ctx context.Context, args ...string) ([]byte, error)) (time.Time, error) {
	if !isJobID(j.ID) {
		return time.Time{}, fmt.Errorf("cannot ask about job %q: not a job id", j.ID)
	}
	out, err := scontrol(ctx, "show", "job", "-o", j.ID)
	if err != nil {
		return time.Time{}, fmt.Errorf("cannot find the end of job %s: %w", j.ID, err)
	}
	end, err := ParseEnd(out, time.Local)
	if err != nil {
		return time.Time{}, fmt.Errorf("cannot find the end of job %s: %w", j.ID, err)
	}
	return end, nil
}

// ParseEnd reads EndTime= from what `scontrol show job` prints:
// 2026-11-21T09:00:00, or Unknown or NONE where there is none.
func ParseEnd(b []byte, zone *time.Location) (time.Time, error) {
	for field := range strings.FieldsSeq(string(b)) {
		if text, ok := strings.CutPrefix(field, "EndTime="); ok {
			if text == "Unknown" || text == "NONE" {
				return time.Time{}, ErrNoEnd
			}
			return parseWall(text, zone)
		}
	}
	return time.Time{}, ErrNoEnd
}

// parseWall reads a time as Slurm prints it. That has no shorter form and no fraction of
// a second, which time.Parse would take.
func parseWall(text string, zone *time.Location) (time.Time, error) {
	const layout = "2006-01-02T15:04:05"
	if len(text) != len(layout) {
		return time.Time{}, fmt.Errorf("%q is no time", text)
	}
	return time.ParseInLocation(layout, text, zone)
}
