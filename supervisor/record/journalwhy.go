package record

import (
	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// This file bounds what a journal keeps of why something grew and of what was
// changed in time. Each line is a kilobyte of sentences, and a leak that goes on for
// days is told again each time it has doubled.

const (
	// mostWhy is the bytes of findings in a journal, mostAgain those after which
	// only what was not told yet is written.
	mostWhy   = 40 << 10
	mostAgain = 20 << 10
	// mostCures bounds what was changed, of each remedy: recycling makes workers
	// by the thousand.
	mostCures = 8
	// mostPickling bounds warnings of a data set that is about to be sent: they
	// come with each epoch, and the first is mostly the last.
	mostPickling = 32
)

// whys is what was written of it. The zero value is ready.
type whys struct {
	told   map[whyKey]bool
	size   int
	cures  map[cureKey]int
	warned int
}

type whyKey struct {
	finding event.Finding
	role    rss.Role
}

type cureKey struct {
	remedy event.Remedy
	ok     bool
}

// diagnosis says whether a finding is written, in a line of so many bytes.
func (w *whys) diagnosis(d *event.Diagnosis, size int) bool {
	key := whyKey{d.Finding, d.Role}
	if w.size+size > mostWhy || w.size > mostAgain && w.told[key] {
		return false
	}
	if w.told == nil {
		w.told = map[whyKey]bool{}
	}
	w.told[key] = true
	w.size += size
	return true
}

func (w *whys) cure(c *event.Cure) bool {
	if w.cures == nil {
		w.cures = map[cureKey]int{}
	}
	key := cureKey{c.Remedy, c.OK}
	w.cures[key]++
	return w.cures[key] <= mostCures
}

// pickling says whether a report of the loader's is such a warning, and written.
func (w *whys) pickling(s *event.LoaderSaid) bool {
	if s.What != event.LoaderPickling {
		return false
	}
	w.warned++
	return w.warned <= mostPickling
}
