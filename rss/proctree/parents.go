package proctree

import (
	"errors"
	"fmt"
	"iter"

	"github.com/rsswarden/rsswarden/rss"
)

// maxParents bounds the walk of [Parents]: deeper than launchers nest, and an end to
// the circle that PIDs given out again during the walk could show.
const maxParents = 64

var errTooDeep = errors.New("too many parents")

// Parents yields the process pid, its parent, and so on up to the topmost process that
// proc shows. The walk ends early with an error, and the ID of the process it is about:
// [Vanished] where that has ended or is hidden from us, also where its PID is another's
// by now, which is then younger than its child.
func Parents(proc string, pid int) iter.Seq2[Identity, error] {
	return func(yield func(Identity, error) bool) {
		f := newFiles(proc)
		defer f.close()
		var child Identity
		for range maxParents {
			i, err := f.identity(pid)
			if err == nil && child.ID.PID != 0 && i.ID.Start > child.ID.Start {
				i, err = Identity{ID: rss.ProcID{PID: pid}}, fmt.Errorf("cannot read process %d: %w", pid, errGone)
			}
			if !yield(i, err) || err != nil || i.Parent == 0 {
				return
			}
			child, pid = i, i.Parent
		}
		yield(Identity{ID: rss.ProcID{PID: pid}}, fmt.Errorf("cannot read process %d: %w", pid, errTooDeep))
	}
}
