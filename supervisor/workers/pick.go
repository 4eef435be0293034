package workers

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Usage is what one worker holds, as the budget and the choice among workers see it.
type Usage struct {
	ID      rss.ProcID
	Trainer int // PID of its trainer, 0 for a pool's worker
	// Mapped is RssFile of /proc/PID/status: what the worker itself compares
	// with its budget.
	Mapped rss.Bytes
	// Counted is what the limit counts of the worker in all, of a [Workers.Recyclable]
	// above a fresh one, and CountedMapped what it counts of Mapped at most: all of it
	// under rss, a share under pss, nothing under noshared and cgroup. CountedSure is
	// what of that was read: under pss alone it differs.
	Counted, CountedMapped, CountedSure rss.Bytes
	// Kept is what of Mapped no trim takes, libraries above all, and CountedKept
	// what the limit counts of that.
	Kept, CountedKept rss.Bytes
	// RecycledAgo is how long ago this worker's place was last recycled, 0 for
	// never.
	RecycledAgo time.Duration
	// RankServed is when a worker of the same rank was recycled last, by any clock
	// that all share, 0 for never.
	RankServed time.Duration
}

const (
	// RecycleEvery is how often at most one worker's place is recycled.
	RecycleEvery = 30 * time.Second
	// LongPause is the pause of the trainer above which a recycle waits.
	LongPause = 200 * time.Millisecond
	// aboutAsMuch is the share of the most that another worker gives for the two to
	// count alike.
	aboutAsMuch = 0.75
)

// Pick returns the index of the worker to recycle next and how much that is expected to give
// back: the one that counts most, not recycled in the last [RecycleEvery], with at least
// worth. Of those that give about as much it is one of the rank recycled least recently: in a
// training in step all ranks wait for the one whose loader is busy. Without one: -1 and the
// reason.
func Pick(workers []Usage, worth rss.Bytes) (index int, gain rss.Bytes, reason event.Reason) {
	if len(workers) == 0 {
		return -1, 0, event.ReasonNoWorker
	}
	index, reason = -1, event.ReasonNothing
	able := func(u *Usage) bool {
		if u.Counted < worth {
			return false
		}
		if u.RecycledAgo > 0 && u.RecycledAgo < RecycleEvery {
			reason = event.ReasonRecent
			return false
		}
		return true
	}
	for i := range workers {
		if u := &workers[i]; able(u) && u.Counted > gain {
			index, gain = i, u.Counted
		}
	}
	if index < 0 {
		return -1, 0, reason
	}
	enough := gain.Scale(aboutAsMuch)
	for i := range workers {
		if u := &workers[i]; able(u) && u.Counted >= enough && u.RankServed < workers[index].RankServed {
			index, gain = i, u.Counted
		}
	}
	return index, gain, event.ReasonNone
}

// RecycleMode returns [event.Swap] where headroom, the bytes left before the limit,
// holds two fresh workers, else [event.Drain], as where it is not known what a fresh
// worker takes.
func RecycleMode(headroom, fresh rss.Bytes) event.Mode {
	if fresh > 0 && headroom/2 >= fresh {
		return event.Swap
	}
	return event.Drain
}

// ForkPause forecasts how long a trainer stands still while one worker is
// recycled: 15 ms, and 9 ms for each GiB of its anonymous memory, whose page
// tables fork copies.
func ForkPause(anon rss.Bytes) time.Duration {
	return 15*time.Millisecond + time.Duration(float64(9*time.Millisecond)*float64(anon)/float64(rss.GiB))
}
