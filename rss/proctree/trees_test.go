package proctree_test

import (
	"slices"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

// trees reads the trees of roots and returns their PIDs in order.
func trees(t *testing.T, r *proctree.Reader, roots ...int) []int {
	t.Helper()
	var ids []rss.ProcID
	for _, pid := range roots {
		ids = append(ids, rss.ProcID{PID: pid, Start: uint64(pid)})
	}
	procs, _, err := r.Trees(ids)
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, p := range procs {
		pids = append(pids, p.ID.PID)
		if p.Orphan && slices.Contains(roots, p.ID.PID) {
			t.Errorf("root %d is an orphan", p.ID.PID)
		}
	}
	return pids
}

// TestTrees: several roots, one below another, that come and go.
func TestTrees(t *testing.T) {
	fs := rsstest.Empty(t)
	put := func(pid, parent int) { fs.Put(rsstest.Process{PID: pid, Parent: parent, Start: uint64(pid)}) }
	put(10, 1)
	put(11, 10)
	put(12, 11)
	put(20, 1)
	put(21, 20)
	put(30, 1)
	put(31, 30)
	r := reader(t, fs.Proc)
	same := func(what string, got []int, want ...int) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	same("two, the first first", trees(t, r, 20, 10), 20, 10, 11, 12, 21)
	same("one below another counts once", trees(t, r, 20, 10, 11), 20, 10, 11, 12, 21)
	// Seen at every reading so far as none of the tree, with a child.
	same("a third that was there before", trees(t, r, 20, 30, 10), 20, 10, 11, 12, 21, 30, 31)
	put(13, 10)
	put(32, 31)
	same("children of them", trees(t, r, 20, 30, 10), 20, 10, 11, 12, 13, 21, 30, 31, 32)
	put(11, 1) // its parent has ended
	fs.End(10)
	same("without its parent", trees(t, r, 20, 30), 20, 11, 12, 13, 21, 30, 31, 32)
	same("others alone", trees(t, r, 12), 12)
	put(12, 1)
	same("again", trees(t, r, 12), 12)
}

// TestTreesOfReusedPID: a root is a process, not a PID.
func TestTreesOfReusedPID(t *testing.T) {
	fs := rsstest.Empty(t)
	fs.Put(rsstest.Process{PID: 10, Parent: 1, Start: 10})
	fs.Put(rsstest.Process{PID: 20, Parent: 1, Start: 99})
	r := reader(t, fs.Proc)
	if got := trees(t, r, 10, 20); !slices.Equal(got, []int{10}) {
		t.Errorf("with the start time of another process: %v", got)
	}
	fs.Put(rsstest.Process{PID: 20, Parent: 1, Start: 20})
	for range 40 { // a PID that was read is looked at again after some readings
		trees(t, r, 10, 20)
	}
	if got := trees(t, r, 10, 20); !slices.Equal(got, []int{10, 20}) {
		t.Errorf("once it is the one that was meant: %v", got)
	}
}

// TestAdopted: what the subreaper above the root has adopted is of the tree, with its
// children, and what the subreaper has for other reasons is not.
func TestAdopted(t *testing.T) {
	fs := rsstest.Empty(t)
	put := func(pid, parent int) { fs.Put(rsstest.Process{PID: pid, Parent: parent, Start: uint64(pid)}) }
	put(5, 1)   // the subreaper
	put(8, 5)   // came by exec
	put(10, 5)  // the root
	put(11, 5)  // the subreaper's own
	put(12, 11) // … and its child
	put(20, 5)  // an orphan
	put(21, 20) // … and its child
	put(30, 1)  // another's
	r := reader(t, fs.Proc)
	same := func(what string, want ...int) {
		t.Helper()
		if got := trees(t, r, 10); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	same("without an adopter", 10)
	r = reader(t, fs.Proc)
	r.Adopt(proctree.Adopter{PID: 5, Root: rss.ProcID{PID: 10, Start: 10}, Own: 11})
	same("orphans that were there first", 10, 20, 21)
	put(40, 5)
	put(41, 40)
	same("orphans that come later", 10, 20, 21, 40, 41)
	put(12, 5) // 11 has ended
	fs.End(11)
	put(50, 5)
	for range 40 { // until every PID outside is read again
		put(60, 1)
		same("what another left behind", 10, 20, 21, 40, 41, 50)
		fs.End(60)
	}
	put(41, 5)
	fs.End(40)
	same("a member's child is adopted", 10, 20, 21, 41, 50)
	fs.End(10)
	same("the root has ended", 20, 21, 41, 50)
}
