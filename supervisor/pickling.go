package supervisor

import (
	"fmt"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// This file meets a DataLoader that is about to send its data set to workers that
// are not forked. torch.multiprocessing then moves each tensor to shared memory
// by itself, and thousands of small ones run out of mappings or descriptors
// within seconds, long before they run out of memory.

// picklingFor is for how long the process is counted often after it has said so:
// 60,000 mappings take six seconds.
const picklingFor = 30 * time.Second

// pickling passes the warning on and looks closely for a while.
func (w *watcher) pickling(s *loader.Said) {
	if s.Sharing == nil {
		return
	}
	w.counts.hurry(s.PID, w.now()+picklingFor)
	w.tell.Say(w.now(), "pickling", phrase.Sharing(s.PID, s.Sharing))
	w.sum.Sharing(s.PID, s.Sharing, w.now())
}

// raised tells that the hook has raised a limit, by --nofile.
func (w *watcher) raised(s *loader.Said) {
	if s.Sharing == nil {
		return
	}
	c := event.Cure{
		Remedy: event.RemedyNoFile, PID: s.PID, OK: s.Reason == "",
		Before: int64(s.Sharing.Before), After: int64(s.Sharing.MaxFDs), Reason: s.Reason,
	}
	line := fmt.Sprintf("--nofile: process %d may have %s descriptors now, %s before", s.PID, text.Digits(uint64(c.After)), text.Digits(uint64(c.Before)))
	if !c.OK {
		line = fmt.Sprintf("--nofile: the descriptors of process %d could not be raised from %s: %s", s.PID, text.Digits(uint64(c.Before)), c.Reason)
	} else if s.Sharing.FDs > s.Sharing.MaxFDs {
		line += fmt.Sprintf("; it will need %s", text.Digits(uint64(s.Sharing.FDs)))
	}
	w.cured(c, line)
}

// cured tells of a cure, on stderr and as an event.
func (w *watcher) cured(c event.Cure, text string) {
	w.tell.Put(event.NameCure, func(h event.Head) any { c.Head = h; return c })
	if w.tell.Once("cure", text) {
		w.sum.Cure(text)
		w.tell.Say(w.now(), "cure", text)
	}
}
