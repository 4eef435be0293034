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

	minGain      = 16 * rss.MiB
	minGainShare = 0.05
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

// MinGain is the least that an action must give back to be worth it where need
// bytes are wanted: 16 MiB or 5 % of need, whichever is more.
func MinGain(need rss.Bytes) rss.Bytes {
	return max(minGain, need.Scale(minGainShare))
}

// Worth is the least that a rule's action must give back to be worth it. A recycle
// gives back one worker's part of what is wanted, and the next another's: of many
// workers none has 5 % of it. Of a trim as much is enough as is left for certain.
func (r Rule) Worth(l *event.Limit) rss.Bytes {
	worth := MinGain(r.Need(l))
	switch r.Action {
	case event.ActionRecycle:
		return MinRecycle(l)
	case event.ActionTrim:
		return min(worth, max(MinRecycle(l), surelyLeft(l)))
	}
	return worth
}

// Again is what a trim that helped must be able to give back for it to be repeated though
// its rung was not left, where PSS is summed and nobody knows what use stood at after it:
// as much as use must have grown by where that is known, 5 points of the limit, or half of
// what is left for certain. Trims hold a job that maps and maps, and the rest may be mapped
// long before the rung would be tried again.
func (r Rule) Again(l *event.Limit) rss.Bytes { return max(r.Worth(l), again(l)) }

func again(l *event.Limit) rss.Bytes { return min(l.Limit.Scale(hysteresis/100), surelyLeft(l)/2) }

// surelyLeft is what is left of a limit for certain.
func surelyLeft(l *event.Limit) rss.Bytes { return l.Limit.Sub(max(l.Used, l.UsedMax)) }

// MinRecycle is the least that one worker must give back to be worth replacing where
// the job is about to be killed: 16 MiB, or 0.5 % of a limit below 3.2 GiB. Sixteen
// workers that may each keep 16 MiB keep a quarter of a limit of 1 GiB.
// Of a limit of which nobody knows the size it is 16 MiB.
func MinRecycle(l *event.Limit) rss.Bytes {
	if l.Limit == 0 {
		return minGain
	}
	return min(minGain, l.Limit/200)
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
