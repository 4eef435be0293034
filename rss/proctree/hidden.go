package proctree

import (
	"bytes"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss/procfile"
)

// This file finds the processes of a tree that a procfs mounted with hidepid (proc(5))
// does not show: those that ptrace(2) would be refused, as another user's privileges were
// given to them by a setuid program, or as whoever runs their program may not read it.
// Their parents name them all the same.

// hidesOthers says that the procfs mounted at proc is mounted so.
func hidesOthers(proc string) bool {
	b, err := procfile.Read(proc+"/self/mountinfo", procfile.Table)
	if err != nil {
		return false
	}
	hides := false // by what is mounted last, on top
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) < 10 || string(f[4]) != proc {
			continue
		}
		hides = false
		for option := range bytes.SplitSeq(f[len(f)-1], []byte(",")) {
			if v, ok := bytes.CutPrefix(option, []byte("hidepid=")); ok && string(v) != "0" && string(v) != "off" {
				hides = true
			}
		}
	}
	return hides
}

// hidden counts the children of the tree's main threads that may not be looked at. What
// descends from those cannot be known.
func (r *Reader) hidden() (n int) {
	for _, e := range r.tree {
		pid := strconv.Itoa(e.pid)
		// The kernel gives out a page of it at a time, unlike the others here.
		b, err := procfile.Read(filepath.Join(r.proc, pid, "task", pid, "children"), procfile.Table)
		if err != nil {
			continue
		}
		for _, field := range bytes.Fields(b) {
			pid, err := strconv.Atoi(string(field))
			if err != nil {
				continue
			}
			if known := r.known[pid]; known != nil && known.member {
				continue
			}
			_, err = r.f.read(pid, "stat")
			if Denied(err) || Vanished(err) && unix.Kill(pid, 0) != unix.ESRCH {
				n++
			}
		}
	}
	return n
}
