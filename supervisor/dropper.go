package supervisor

import (
	"cmp"
	"slices"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/trim"
)

// This file drops files from the page cache, on the side: it opens them, and
// those of a network file system that does not answer can hang.

// dropper answers one question at a time, on a goroutine that the first one
// starts.
type dropper struct {
	find func([]rss.ProcID) []action.File
	drop func(action.File) action.Dropped

	asks    chan func() dropAnswer
	answers chan dropAnswer
	busy    bool
	at      string // what it is busy with, for people
}

// dropAnswer is the answer to one question, either of the two.
type dropAnswer struct {
	found   *action.Found
	dropped []action.Dropped
}

// ask asks, unless another is not answered yet: none asks then who can wait.
func (d *dropper) ask(what string, question func() dropAnswer) {
	if d.busy {
		return
	}
	if d.asks == nil {
		d.asks, d.answers = make(chan func() dropAnswer, 1), make(chan dropAnswer, 1)
		go func(asks <-chan func() dropAnswer, answers chan<- dropAnswer) {
			for question := range asks {
				fault.Point("dropper")
				answers <- question()
			}
		}(d.asks, d.answers)
	}
	d.busy, d.at = true, what
	d.asks <- question
}

func (d *dropper) Find(ids []rss.ProcID) {
	find := d.find
	d.ask("the list of files", func() dropAnswer { return dropAnswer{found: &action.Found{Files: find(ids)}} })
}

func (d *dropper) Drop(f action.File) {
	drop := d.drop
	d.ask(f.Path, func() dropAnswer { return dropAnswer{dropped: []action.Dropped{drop(f)}} })
}

// arrived is the channel of answers to [watcher.foundOrDropped]; nil, which
// never yields, before the first question.
func (d *dropper) arrived() <-chan dropAnswer { return d.answers }

// foundOrDropped takes an answer in.
func (w *watcher) foundOrDropped(a dropAnswer) {
	w.dropper.busy = false
	w.came.found, w.came.dropped = a.found, append(w.came.dropped, a.dropped...)
}

// findFiles returns the files that these processes map shared and read-only, as
// a trim takes them, the longest first. It is called by the dropper's goroutine,
// and uses nothing that changes.
func (w *watcher) findFiles(ids []rss.ProcID) []action.File {
	type key struct{ dev, inode uint64 }
	byKey := map[key]*action.File{}
	mapped := map[key]rss.Bytes{} // by the one that maps most of it
	for _, id := range ids {
		list, _ := trim.Mapped(w.Proc, id) // who cannot be read is not trimmed, or has ended
		here := map[key]rss.Bytes{}
		for _, m := range list {
			k := key{m.Dev, m.Inode}
			if byKey[k] == nil {
				byKey[k] = &action.File{Path: m.Path, Dev: m.Dev, Inode: m.Inode}
			}
			if here[k] == 0 {
				byKey[k].Mappers = append(byKey[k].Mappers, id)
			}
			here[k] += rss.Bytes(m.Hi - m.Lo)
			mapped[k] = max(mapped[k], here[k])
		}
	}
	var files []action.File
	for k, f := range byKey {
		if mapped[k] >= trim.Least {
			files = append(files, *f)
		}
	}
	slices.SortFunc(files, func(a, b action.File) int {
		x, y := mapped[key{a.Dev, a.Inode}], mapped[key{b.Dev, b.Inode}]
		if x != y {
			return cmp.Compare(y, x)
		}
		return cmp.Compare(a.Inode, b.Inode)
	})
	return files
}

// dropFile drops one, by way of whoever maps it. It is called as findFiles is.
func (w *watcher) dropFile(f action.File) action.Dropped {
	d, err := trim.Drop(w.Proc, f.Mappers[0].PID, f.Path, f.Dev, f.Inode)
	return action.Dropped{Before: d.Before, After: d.After, Measured: d.Measured, Err: err}
}
