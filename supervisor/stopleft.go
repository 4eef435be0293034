package supervisor

import (
	"fmt"
	"syscall"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// endLeft has what outlives a command that a stop of ours has ended go too: a shell and
// some launchers die of TERM and do not pass it on, and whoever tries the job again would
// have the old training beside the new one. Each gets TERM, as scancel(1) would send it,
// but for loader workers, which end with their trainer: that may be saving a checkpoint.
// Where several ranks run, and in a job, Slurm ends what is left.
func (w *watcher) endLeft() {
	if w.ofJob() || len(w.peers.others) > 0 {
		return
	}
	var left []*rss.Proc
	for i := range w.last.Procs {
		p := &w.last.Procs[i]
		if p.ID == w.command || p.Role == rss.RoleWorker || !living(p) || w.kill(p.ID, syscall.SIGTERM) != nil {
			continue // most have ended with the command
		}
		left = append(left, p)
	}
	if len(left) == 0 {
		return
	}
	text := fmt.Sprintf("%s outlived the command, and got TERM: %d (%s)", event.Many(len(left), "process"), left[0].ID.PID, command([]string{left[0].Comm}, 16))
	if len(left) > 1 {
		text += ", …"
	}
	w.voice.say(w.now(), "stop", text)
}
