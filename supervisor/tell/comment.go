package tell

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/text"
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
	out     *events
	job     string                // whose, empty where it is not ours to write
	start   func(*exec.Cmd) error // of scontrol
	writing *writing              // the last, nil for none
	written int
	at      time.Duration // of the last for a warning
	warned  bool          // a rung of a warning is crossed
}

// CommentJob names the job whose comment a watcher writes: the first task of the first
// node does, or who leads there; empty for the others. alone says that no rank leads.
func CommentJob(job slurm.Job, alone bool) string {
	switch {
	case job.NodeID != 0, alone && job.Task != 0:
		return ""
	case job.ArrayJob != "" && job.ArrayTask != "":
		return job.ArrayJob + "_" + job.ArrayTask // see [slurm.SetComment]
	}
	return job.ID
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

// refused says that writing failed: a site that refuses the comment is asked once.
func (c *Comment) refused() bool {
	return c.writing != nil && c.Writing() == nil && c.writing.err != nil
}

// due takes in whether a rung of a warning is crossed, and says whether that is to be
// written: when it is first crossed, and not too often.
func (c *Comment) due(now time.Duration, crossed bool) bool {
	was := c.warned
	c.warned = crossed
	busy := c.Writing() != nil
	return crossed && (!was || c.written == 0) && !busy && !c.refused() &&
		c.written < mostComments && (c.written == 0 || now-c.at >= commentEvery)
}

// warning writes the limit of a warning into the comment; nil where none is
// crossed.
func (c *Comment) warning(now time.Duration, l *event.Limit, room alert.Headroom) {
	if c.job == "" || !c.due(now, l != nil) || room == alert.None {
		return
	}
	c.written, c.at = c.written+1, now
	words := fmt.Sprintf("memory %s of %s on %s at %s", text.Percent(l.Ratio()), l.Limit.Typed(), c.out.Run.Node, time.Now().Format(time.TimeOnly))
	if c.out.set.DryRun {
		c.out.Say(now, "comment", wouldComment(c.job, words))
		return
	}
	c.writing = c.write(words, slurm.ScontrolTimeout, &c.out.failed)
}

func wouldComment(job, text string) string {
	return "would set the comment of job " + job + ": " + slurm.Comment + text + " (dry run)"
}

// write writes the comment on the side. A failure goes to failed before it is over.
func (c *Comment) write(text string, within time.Duration, failed *failures) *writing {
	w, start := &writing{over: make(chan struct{})}, c.start
	scontrol := func(ctx context.Context, args ...string) ([]byte, error) {
		return slurm.ScontrolBy(ctx, start, args...)
	}
	go func() {
		defer close(w.over)
		fault.Point("comment")
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		if w.err = slurm.SetComment(ctx, scontrol, c.job, text); w.err != nil {
			failed.tell(commentPart, w.err.Error())
		}
	}()
	return w
}

// Last returns what writes the last words into the comment, in at most so long: how
// the job ended and what it needs. rank is ours where others go on, else -1: who leads
// after us writes its own words in place of ours, and ranks that end together have none who
// does.
func (c *Comment) Last(exit *event.Exit, rank int, within time.Duration) func() {
	if c.job == "" || c.refused() {
		return func() {}
	}
	words := "ended, " + string(exit.Outcome)
	if rank >= 0 {
		words = fmt.Sprintf("rank %d %s", rank, words)
	}
	if b := exit.Binding; b != nil {
		words += fmt.Sprintf("; at most %s of %s on %s", text.Percent(b.Ratio()), b.Limit.Typed(), c.out.Run.Node)
	}
	if exit.Advice != 0 {
		words += "; next time --mem=" + policy.MemArg(exit.Advice)
	}
	if c.out.set.DryRun {
		c.out.Info(wouldComment(c.job, words))
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
		last := c.write(words, within, nil)
		select {
		case <-last.over:
			if last.err != nil {
				c.out.Warn(fmt.Sprintf("%s: %v", commentPart, last.err))
			}
		case <-up:
		}
	}
}
