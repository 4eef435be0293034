package supervisor

import (
	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// This file keeps the processes that carry alerts from being what ends the job.

// carrierRoom is what must be left before a limit that kills, or that fails what the
// job asks for, for the process that carries an alert. By https it has 14 MiB of RSS,
// which Slurm sums. 2 MiB of that are no page cache, and of the rest only page tables and
// stacks are counted by a cgroup beside it: this is twice that. Tasks are numbers.
var carrierRoom = map[event.LimitName]rss.Bytes{
	event.LimitSlurm:  16 * rss.MiB,
	event.LimitCgroup: 6 * rss.MiB,
	// It has 4 to 6 threads, and the job starts some meanwhile. Where the last are
	// taken the job's own calls fail.
	event.LimitTasks: 16,
}

// alertRoom is how much is left for it, of what counts that process too.
func (w *watcher) alertRoom() alert.Room {
	room := alert.Plenty
	for i := range w.readings {
		l := &w.readings[i]
		need := carrierRoom[l.Name]
		if need == 0 || l.Limit == 0 {
			continue
		}
		switch left := l.Limit.Sub(max(l.Used, l.UsedMax)); {
		case left < need:
			return alert.None
		case left < max(4*need, l.Limit/4):
			room = alert.Near
		}
	}
	return room
}
