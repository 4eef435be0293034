// Package view has what was seen last of processes and limits, as values.
package view

import (
	"iter"
	"sort"

	"github.com/rsswarden/rsswarden/rss"
)

// Lineage has the parent relations of the processes of a sample, in the order of
// proctree.Reader.Trees: by PID, but for the first.
type Lineage []rss.Proc

// Find returns the process that has a PID, nil for none.
func (l Lineage) Find(pid int) *rss.Proc {
	if len(l) == 0 {
		return nil
	}
	if l[0].ID.PID == pid {
		return &l[0]
	}
	i := 1 + sort.Search(len(l)-1, func(i int) bool { return l[i+1].ID.PID >= pid })
	if i == len(l) || l[i].ID.PID != pid {
		return nil
	}
	return &l[i]
}

// Up yields the process pid, its parent, and so on. The last is the first that is not
// in the sample: its process is nil.
func (l Lineage) Up(pid int) iter.Seq2[int, *rss.Proc] {
	return func(yield func(int, *rss.Proc) bool) {
		for range len(l) + 1 { // a torn reading could show a circle
			p := l.Find(pid)
			if !yield(pid, p) || p == nil {
				return
			}
			pid = p.Parent
		}
	}
}

// Below says whether the process pid descends from the other.
func (l Lineage) Below(pid, other int) bool {
	for up := range l.Up(pid) {
		if up == other && up != pid {
			return true
		}
	}
	return false
}

// Rank returns the index of the rank that a process belongs to, -1 for none, by the
// indices of the ranks' commands.
func (l Lineage) Rank(pid int, commands map[int]int) int {
	for up := range l.Up(pid) {
		if i, ok := commands[up]; ok {
			return i
		}
	}
	return -1
}
