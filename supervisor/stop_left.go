package supervisor

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// endLeft has what outlives a command that a stop of ours has ended go too: a shell and
// some launchers die of TERM and do not pass it on, and whoever tries the job again would
// have the old training beside the new one. Each gets TERM, as scancel(1) would send it,
// but for loader workers, which end with their trainer: that may be saving a checkpoint.
// Where several ranks run, and in a job, Slurm ends what is left. It returns which got it.
func (w *watcher) endLeft() (ended []rss.ProcID) {
	if w.observe.Pop.IsJob() || len(w.node.Others) > 0 {
		return nil
	}
	var left []*rss.Proc
	for i := range w.view.Sample.Procs {
		p := &w.view.Sample.Procs[i]
		if p.ID == w.observe.Pop.Command || p.Role == rss.RoleWorker || !living(p) || w.kill(p.ID, syscall.SIGTERM) != nil {
			continue // most have ended with the command
		}
		left = append(left, p)
	}
	if len(left) == 0 {
		return nil
	}
	for _, p := range left {
		ended = append(ended, p.ID)
	}
	line := fmt.Sprintf("%s outlived the command, and got TERM: %d (%s)", text.Count(len(left), "process"), left[0].ID.PID, text.Cut(text.Plain(left[0].Comm), 16))
	if len(left) > 1 {
		line += ", …"
	}
	w.tell.Say(w.now(), "stop", line)
	return ended
}

// leftPatience is how long helpers that end with the command may take for it, as
// the resource tracker of Python's multiprocessing does, before they are named.
const leftPatience = 20 * time.Millisecond

// left is what of the tree still runs when the command has ended, by role, without
// what a stop of ours has ended. Where other ranks run on, theirs cannot be told
// from ours.
func (w *watcher) left(ended []rss.ProcID) []event.Left {
	if w.observe.Pop.IsJob() || len(w.node.Others) > 0 {
		return nil
	}
	var all []event.Left
	for end := time.Now().Add(leftPatience); ; time.Sleep(leftPatience / 8) {
		procs, _, err := w.observe.Pop.Read()
		if err != nil {
			return nil
		}
		all = all[:0]
		for i := range procs {
			p := &procs[i]
			if was := w.view.Sample.Find(p.ID.PID); was != nil && was.ID == p.ID {
				p.Role = was.Role
			}
			if p.ID != w.observe.Pop.Command && living(p) && !slices.Contains(ended, p.ID) {
				all = addLeft(all, p)
			}
		}
		if len(all) == 0 || time.Now().After(end) {
			return all
		}
	}
}

func addLeft(all []event.Left, p *rss.Proc) []event.Left {
	i := slices.IndexFunc(all, func(l event.Left) bool { return l.Role == p.Role })
	if i < 0 {
		i, all = len(all), append(all, event.Left{Role: p.Role})
	}
	l := &all[i]
	l.Procs++
	l.RSS += p.RSS
	if len(l.PIDs) < 8 {
		l.PIDs = append(l.PIDs, p.ID.PID)
	}
	return all
}

func living(p *rss.Proc) bool { return p.State != 'Z' && p.State != 'X' }
