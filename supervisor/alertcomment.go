package supervisor

import (
	"context"
	"fmt"
	"time"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/policy"
)

// This file writes the job's comment, which squeue, scontrol and, where the site
// stores it, sacct show. What the user wrote there stays in front; ours is behind it,
// and stays when the job has ended: it is there to be read then.

const (
	// mostComments is how often it is written for warnings in one run, and
	// commentEvery how long it is left alone in between: slurmctld serves all jobs.
	mostComments = 3
	commentEvery = 5 * time.Minute
)

// commenting is the loop's side of it.
type commenting struct {
	done    chan error // of what is being written; nil for nothing
	written int
	at      time.Duration // when it was written last
	warned  bool          // a rung of a warning is crossed
	refused bool          // it did not work once, and is not tried again
}

// commentsJob says that it is ours to write: of the first node who leads.
func (w *watcher) commentsJob() (id string, ok bool) {
	job, in := w.limits.Job()
	if !in || !w.Settings.AlertComment || w.Attached != nil || job.NodeID != 0 || w.comments.refused {
		return "", false
	}
	if w.peers.post == nil && job.Task != 0 {
		return "", false
	}
	if job.ArrayJob != "" && job.ArrayTask != "" {
		return job.ArrayJob + "_" + job.ArrayTask, true // see [slurm.SetComment]
	}
	return job.ID, true
}

// comment writes the limit of a warning into the comment, when it is first crossed;
// nil where none is.
func (w *watcher) comment(l *event.Limit) {
	c := &w.comments
	if !w.Settings.AlertComment {
		return
	}
	was := c.warned
	c.warned = l != nil
	if l == nil || was && c.written > 0 {
		return
	}
	id, ok := w.commentsJob()
	now := w.now()
	if !ok || c.done != nil || w.tight() || c.written >= mostComments || c.written > 0 && now-c.at < commentEvery {
		return
	}
	c.written, c.at = c.written+1, now
	text := fmt.Sprintf("memory %s of %v on %s at %s", percent(l.Used, l.Limit), l.Limit, slurm.NodeName(w.Lookup), time.Now().Format(time.TimeOnly))
	if w.Settings.DryRun {
		w.tell.Say(now, "comment", "would write into the comment of job "+id+": "+slurm.Comment+text+" (dry run)")
		return
	}
	c.done = w.writeComment(id, text, slurm.ScontrolTimeout)
}

// writeComment has it written on the side.
func (w *watcher) writeComment(id, text string, patience time.Duration) chan error {
	done := make(chan error, 1)
	scontrol := func(ctx context.Context, args ...string) ([]byte, error) {
		return slurm.ScontrolStrictBy(ctx, w.Link.Start, args...)
	}
	go func() {
		fault.Point("comment")
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		done <- slurm.SetComment(ctx, scontrol, id, text)
	}()
	return done
}

// commented takes in what came of it. A site that refuses it is asked once.
func (w *watcher) commented(err error) {
	w.comments.done = nil
	if err != nil {
		w.comments.refused = true
		w.fault("alert-comment", err)
	}
}

// endComment returns what writes the last words into the comment of job id: how it ended
// and what it needs. It takes lastPatience at most. Who leads after us writes its own in
// their place. Ranks that end together have none who does: so what we say is about us.
func (w *watcher) endComment(id string, out *event.Exit) func() {
	text := "ended, " + string(out.Verdict)
	if len(w.peers.others) > 0 {
		text = fmt.Sprintf("rank %d %s", w.peers.me.Task, text)
	}
	if b := out.Binding; b != nil {
		text += fmt.Sprintf("; at most %s of %v on %s", percent(b.Used, b.Limit), b.Limit, slurm.NodeName(w.Lookup))
	}
	if out.Advice != 0 {
		text += "; next time --mem=" + policy.MemArg(out.Advice)
	}
	if w.Settings.DryRun {
		w.tell.Info("would write into the comment of job " + id + ": " + slurm.Comment + text + " (dry run)")
		return func() {}
	}
	before := w.comments.done
	return func() {
		up := time.After(lastPatience)
		if before != nil {
			select { // two that write at once would undo each other
			case <-before:
			case <-up:
				return
			}
		}
		select {
		case err := <-w.writeComment(id, text, lastPatience):
			if err != nil {
				w.tell.Warn(fmt.Sprintf("alert-comment: %v", err))
			}
		case <-up:
		}
	}
}
