package rsstest

import (
	"fmt"
	"iter"
	"os"

	"github.com/rsswarden/rsswarden/rss"
)

// Process is a process to be written. What is left zero gets a value that a
// process may have: state S, one thread, a start time that grows with the PID,
// its own process group.
type Process struct {
	PID, Parent, Group int
	Start              uint64
	Comm               string
	State              byte
	Threads            int

	Anon, File, Shmem, Virtual rss.Bytes
	Locked, Pinned             rss.Bytes
	UID                        int // real, and all others
}

// Put writes stat, statm and status of a process as the kernel prints them, a
// zombie's without sizes.
func (tr Tree) Put(p Process) {
	tr.t.Helper()
	for name, text := range p.Files() {
		tr.Write(fmt.Sprintf("proc/%d/%s", p.PID, name), text)
	}
}

// Files yields what [Tree.Put] writes: the names of the files and what is in them.
func (p Process) Files() iter.Seq2[string, string] {
	if p.State == 0 {
		p.State = 'S'
	}
	if p.Threads == 0 {
		p.Threads = 1
	}
	if p.Start == 0 {
		p.Start = 1000 + uint64(p.PID)
	}
	if p.Group == 0 {
		p.Group = p.PID
	}
	if p.Virtual == 0 {
		p.Virtual = 2 * (p.Anon + p.File + p.Shmem)
	}
	if p.State == 'Z' {
		p.Anon, p.File, p.Shmem, p.Virtual, p.Locked, p.Pinned = 0, 0, 0, 0, 0, 0
	}
	page := rss.Bytes(os.Getpagesize())
	total := p.Anon + p.File + p.Shmem
	return func(yield func(string, string) bool) {
		stat := fmt.Sprintf("%d (%s) %c %d %d %d 0 -1 4194304 10 0 0 0 0 0 0 0 20 0 %d 0 %d %d %d 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
			p.PID, p.Comm, p.State, p.Parent, p.Group, p.Group, p.Threads, p.Start, p.Virtual, total/page)
		statm := fmt.Sprintf("%d %d %d 1 0 1 0\n", p.Virtual/page, total/page, (p.File+p.Shmem)/page)
		sizes := ""
		if p.State != 'Z' {
			sizes = fmt.Sprintf("VmSize:\t%8d kB\nVmLck:\t%8d kB\nVmPin:\t%8d kB\nVmRSS:\t%8d kB\nRssAnon:\t%8d kB\nRssFile:\t%8d kB\nRssShmem:\t%8d kB\n",
				p.Virtual/rss.KiB, p.Locked/rss.KiB, p.Pinned/rss.KiB, total/rss.KiB, p.Anon/rss.KiB, p.File/rss.KiB, p.Shmem/rss.KiB)
		}
		status := fmt.Sprintf("Name:\t%s\nUmask:\t0022\nState:\t%c\nTgid:\t%d\nPid:\t%d\nPPid:\t%d\nUid:\t%d\t%d\t%d\t%d\nGroups:\t0 \n%sThreads:\t%d\n",
			escape(p.Comm), p.State, p.PID, p.PID, p.Parent, p.UID, p.UID, p.UID, p.UID, sizes, p.Threads)
		_ = yield("stat", stat) && yield("statm", statm) && yield("status", status)
	}
}

// escape writes a name as status does: newline and backslash are escaped there,
// and in no other file.
func escape(comm string) string {
	var b []byte
	for i := range len(comm) {
		switch c := comm[i]; c {
		case '\n':
			b = append(b, `\n`...)
		case '\\':
			b = append(b, `\\`...)
		default:
			b = append(b, c)
		}
	}
	return string(b)
}
