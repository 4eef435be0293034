package policy

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

const (
	// RecycleEvery is how often at most one worker's place is recycled.
	RecycleEvery = 30 * time.Second
	// LongPause is the forecast pause above which a recycle waits for the
	// epoch's end.
	LongPause = 200 * time.Millisecond
)

// RecycleMode returns [event.Swap] where headroom, the bytes left before the limit,
// holds two fresh workers, else [event.Drain]. Where nobody knows what a fresh
// worker takes, it is Drain.
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

// WaitForEpoch says whether a recycle with that forecast pause is put off to
// the end of the epoch. It is where the pause exceeds [LongPause], unless the
// limit comes first. eta is the time to the limit, 0 where none is forecast;
// toEpoch the time to the epoch's end, 0 where unknown: then any eta counts as
// the shorter. Where use rises fast the caller passes headroom over fill rate
// for a forecast that does not stand yet.
func WaitForEpoch(pause, eta, toEpoch time.Duration) bool {
	if pause <= LongPause {
		return false
	}
	return eta <= 0 || toEpoch > 0 && eta > toEpoch
}

// aboutAsMuch is the share of the most that another worker gives for the two to
// count alike.
const aboutAsMuch = 0.75

// PickWorker returns the index of the worker to recycle next and how much that
// is expected to give back: the one that counts most above a fresh worker, not
// recycled in the last [RecycleEvery], and gives back at least worth.
// Of those that give about as much the rank's turn it is that was served longest
// ago: in a training in step all ranks wait for the one whose loader is busy.
// Where there is none it returns -1 and the reason.
func PickWorker(workers []Worker, fresh, worth rss.Bytes) (index int, gain rss.Bytes, reason event.Reason) {
	index, reason = -1, event.ReasonNoWorker
	recent := false
	for i, w := range workers {
		g := w.Counted.Sub(fresh)
		if reason == event.ReasonNoWorker {
			reason = event.ReasonNothing
		}
		if g < worth {
			continue
		}
		if w.RecycledAgo > 0 && w.RecycledAgo < RecycleEvery {
			recent = true
			continue
		}
		if g > gain {
			index, gain = i, g
		}
	}
	if index >= 0 {
		best := gain
		for i, w := range workers {
			g := w.Counted.Sub(fresh)
			recent := w.RecycledAgo > 0 && w.RecycledAgo < RecycleEvery
			if !recent && g >= worth && g >= best.Scale(aboutAsMuch) && w.RankServed < workers[index].RankServed {
				index, gain = i, g
			}
		}
	}
	switch {
	case index >= 0:
		return index, gain, event.ReasonNone
	case recent:
		return -1, 0, event.ReasonRecent
	}
	return -1, 0, reason
}
