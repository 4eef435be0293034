package tell

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/fault"
)

const (
	// mostComments is how often the comment is written for warnings in one run, and
	// commentEvery how long it is left alone in between: slurmctld serves all jobs.
	mostComments = 3
	commentEvery = 5 * time.Minute
	commentPart  = "alert-comment"
)

// Comment is the job's comment, which squeue, scontrol and, where the site stores it,
// sacct show. What the user wrote there stays in front; ours is behind it and stays when
// the job has ended, to be read then.
type Comment struct {
	Start   func(*exec.Cmd) error // of scontrol
	DryRun  bool
	writing *writing // the last, nil for none
	written int
	at      time.Duration // of the last for a warning
	warned  bool          // a rung of a warning is crossed
	refused bool          // it failed once, and is not tried again
}

// writing is a call of scontrol; err is set once over is closed.
type writing struct {
	over chan struct{}
	err  error
}

// Writing returns a channel that is closed when what is being written is over; nil where
// nothing is.
func (c *Comment) Writing() <-chan struct{} {
	if c.writing == nil {
		return nil
	}
	select {
	case <-c.writing.over:
		return nil
	default:
		return c.writing.over
	}
}

// Refused says that the comment failed once.
func (c *Comment) Refused() bool { return c.refused }

// Warned takes in whether a rung of a warning is crossed, and says whether that is to be
// written: when it is first crossed, and not too often.
func (c *Comment) Warned(now time.Duration, crossed bool) bool {
	was := c.warned
	c.warned = crossed
	busy := c.Writing() != nil
	c.refused = c.refused || !busy && c.writing != nil && c.writing.err != nil
	return crossed && (!was || c.written == 0) && !c.refused && !busy &&
		c.written < mostComments && (c.written == 0 || now-c.at >= commentEvery)
}

// CommentWarning writes a warning into the comment of a job.
func (f *Fan) CommentWarning(now time.Duration, job, text string) {
	c := &f.Comment
	c.written, c.at = c.written+1, now
	if c.DryRun {
		f.Say(now, "comment", wouldComment(job, text))
		return
	}
	c.writing = c.write(job, text, slurm.ScontrolTimeout, &f.failed)
}

func wouldComment(job, text string) string {
	return "would write into the comment of job " + job + ": " + slurm.Comment + text + " (dry run)"
}

// write writes the comment on the side. A failure is told to failed before it is over.
func (c *Comment) write(job, text string, within time.Duration, failed *failures) *writing {
	w, start := &writing{over: make(chan struct{})}, c.Start
	scontrol := func(ctx context.Context, args ...string) ([]byte, error) {
		return slurm.ScontrolStrictBy(ctx, start, args...)
	}
	go func() {
		defer close(w.over)
		fault.Point("comment")
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		if w.err = slurm.SetComment(ctx, scontrol, job, text); w.err != nil {
			failed.tell(commentPart, w.err.Error())
		}
	}()
	return w
}

// LastComment returns what writes the last words into the comment of a job, in at most so
// long.
func (f *Fan) LastComment(job, text string, within time.Duration) func() {
	c := &f.Comment
	if c.DryRun {
		f.Info(wouldComment(job, text))
		return func() {}
	}
	before := c.Writing()
	return func() {
		up := time.After(within)
		if before != nil {
			select { // two that write at once would undo each other
			case <-before:
			case <-up:
				return
			}
		}
		last := c.write(job, text, within, nil)
		select {
		case <-last.over:
			if last.err != nil {
				f.Warn(fmt.Sprintf("%s: %v", commentPart, last.err))
			}
		case <-up:
		}
	}
}
