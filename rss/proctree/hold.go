package proctree

import (
	"fmt"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// This file predicts from size how long a reading would hold a process's
// mmap_lock, and so how it may be read, and whether.

const (
	// longestHold is how long mmap_lock may be held at a stretch: who faults,
	// maps or unmaps in the process waits meanwhile. Since Linux 5.10
	// smaps_rollup lets a waiting writer in between two mappings, before (RHEL 8)
	// it does not.
	longestHold = 50 * time.Millisecond
	// slowWalk and fastWalk are the most and the least that was measured for
	// 1 GiB in pages of 4 KiB. Huge pages take next to nothing, which tells
	// nothing about what will be mapped next.
	slowWalk = 21 * time.Millisecond
	fastWalk = 7 * time.Millisecond
	// safety is how much longer than the last a reading of the same may take.
	safety = 1.5
	// telling is the size from which on the walk makes up the cost of a reading.
	telling = 256 * rss.MiB
)

// Lengthy says that smaps_rollup may hold mmap_lock for more than 50 ms in a
// process with that RSS, of which nothing else is known: [Reader.PSSInPieces]
// is for it.
func Lengthy(size rss.Bytes) bool { return walk(size, slowWalk) > longestHold }

// walk is what it takes to walk size at a rate for 1 GiB.
func walk(size rss.Bytes, rate time.Duration) time.Duration {
	return time.Duration(float64(rate) * size.Of(rss.GiB))
}

// walked is what smaps_rollup would have taken where smaps was read in pieces:
// of many small mappings most of the cost is calls and text.
func walked(pss *rss.PSS, pieces bool) time.Duration {
	if !pieces {
		return pss.Cost
	}
	return max(pss.Held, min(pss.Cost, walk(pss.RSS, slowWalk)))
}

// learn takes a walk into the rate of the node: up at once, down by half of the
// difference, since the next process may be mapped otherwise.
func (b *PSSBudget) learn(size rss.Bytes, took time.Duration) {
	if size < telling {
		return
	}
	rate := time.Duration(float64(took) / size.Of(rss.GiB))
	b.rate = max(rate, (b.walkRate()+rate)/2, fastWalk)
}

func (b *PSSBudget) walkRate() time.Duration {
	if b.rate == 0 {
		return slowWalk
	}
	return b.rate
}

// hold predicts how long smaps_rollup would hold mmap_lock: what was there at
// the last reading costs what it did, all else what the node's processes do.
func (b *PSSBudget) hold(e *pssEntry, size rss.Bytes) time.Duration {
	rate := b.walkRate()
	if b.rate != 0 {
		rate = time.Duration(float64(rate) * safety)
	}
	if e.pss == nil || e.pss.RSS < telling {
		return walk(size, rate)
	}
	same := min(size, e.pss.RSS).Of(e.pss.RSS)
	return time.Duration(float64(e.walked)*safety*same) + walk(size.Sub(e.pss.RSS), rate)
}

// stretch is the longest hold of the last reading in pieces.
type stretch struct {
	held time.Duration
	size rss.Bytes // RSS then
}

// at predicts the longest hold with another RSS, 0 where nothing was read.
func (s stretch) at(size rss.Bytes) time.Duration {
	if s.size == 0 {
		return 0
	}
	return time.Duration(float64(s.held) * size.Of(s.size))
}

// most is the RSS up to which that hold is short enough.
func (s stretch) most() rss.Bytes {
	return s.size.Scale(longestHold.Seconds() / s.held.Seconds())
}

// forbid settles whether the process may be read at all, and keeps what is to
// be told of one that may not.
func (b *PSSBudget) forbid(e *pssEntry) {
	size, largest := e.now.RSS, b.Largest
	if largest == 0 {
		largest = 64 * rss.GiB
	}
	long, unread := e.longest.at(size), e.longest.size == 0
	e.forbidden = long > longestHold && e.longs > 1 || unread && size > largest
	if !e.forbidden || e.told {
		return
	}
	e.told = true
	if unread {
		b.told = append(b.told, fmt.Errorf("cannot read PSS of process %d: its %v could be one mapping, and its mmap_lock held for a second",
			e.now.ID.PID, size))
		return
	}
	b.told = append(b.told, fmt.Errorf("cannot read PSS of process %d any more: the walk of one mapping holds its mmap_lock for about %v, and %v are allowed; what was read last stands, as an interval, until its RSS is below %v",
		e.now.ID.PID, long.Round(time.Millisecond), longestHold, e.longest.most()))
}

// Told returns what a user should know and was not told before: an error for
// each process that is not read because that would hold its mmap_lock for more
// than 50 ms.
func (b *PSSBudget) Told() []error {
	told := b.told
	b.told = nil
	return told
}
