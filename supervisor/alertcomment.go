package supervisor

import (
	"fmt"
	"time"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
)

// commentsJob says that it is ours to write: of the first node who leads.
func (w *watcher) commentsJob() (id string, ok bool) {
	job, in := w.limits.Job()
	if !in || !w.Settings.AlertComment || w.Attached != nil || job.NodeID != 0 || w.tell.Comment.Refused() {
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

// commentWarning writes the limit of a warning into the comment; nil where none is
// crossed.
func (w *watcher) commentWarning(now time.Duration, l *event.Limit, room alert.Room) {
	if !w.tell.Comment.Warned(now, l != nil) || room == alert.None {
		return
	}
	if id, ok := w.commentsJob(); ok {
		w.tell.CommentWarning(now, id, fmt.Sprintf("memory %s of %v on %s at %s", percent(l.Used, l.Limit), l.Limit, slurm.NodeName(w.Lookup), time.Now().Format(time.TimeOnly)))
	}
}

// lastComment is how the job ended and what it needs. Who leads after us writes its own in
// its place. Ranks that end together have none who does: so ours is about us.
func (w *watcher) lastComment(out *event.Exit) string {
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
	return text
}
