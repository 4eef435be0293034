package proctree

import (
	"fmt"
	"strconv"

	"github.com/rsswarden/rsswarden/rss"
)

// Reader reads processes below one mount point of procfs. It remembers the
// population of the last [Reader.Tree] and keeps descriptors: of the mount
// point, of loadavg, and one for each process of the tree, of which there are
// 8,192 at most and a quarter of RLIMIT_NOFILE. Close gives them back.
type Reader struct {
	proc  string
	f     *files
	kept  kept
	forks forks

	roots  map[int]rss.ProcID // by PID
	first  rss.ProcID         // of the roots, as it was given
	known  map[int]*entry
	tick   uint64
	listed uint64 // tick of the last listing of /proc
	lists  uint64 // listings so far
	pids   []int  // of the last listing
	tree   []*entry
	// adopters are whose children orphans of the tree become, by PID.
	adopters map[int]Adopter
	unseen   int // processes of the tree that the last listing could not show
}

// New returns a reader of the procfs mounted at proc, "/proc" outside tests.
// It opens nothing yet.
func New(proc string) *Reader {
	return &Reader{proc: proc, f: newFiles(proc), known: map[int]*entry{}, adopters: map[int]Adopter{}}
}

// Close gives the reader's descriptors back. The reader opens them again if it
// is used again.
func (r *Reader) Close() {
	r.forgetAll()
	r.forks.close()
	r.f.close()
}

// StartTime returns the start time of a process in clock ticks since boot,
// field 22 of /proc/PID/stat.
func StartTime(proc string, pid int) (uint64, error) {
	// Not by newFiles, nor by package os, whose poller is told of each file: who
	// leads asks this of every rank each few seconds.
	var buf [2 << 10]byte
	n, err := readOnce(proc+"/"+strconv.Itoa(pid)+"/stat", buf[:])
	if err != nil {
		return 0, fmt.Errorf("cannot read stat of process %d: %w", pid, err)
	}
	s, err := parseStat(buf[:n])
	if err != nil {
		return 0, fmt.Errorf("cannot parse stat of process %d: %w", pid, err)
	}
	return s.start, nil
}

// One reads one process, by /proc/PID/stat and status.
func (r *Reader) One(pid int) (rss.Proc, error) {
	var e entry
	p, err := r.read(pid, &e)
	if err != nil {
		return rss.Proc{}, fmt.Errorf("cannot read process %d: %w", pid, err)
	}
	return p, nil
}

// Group reads the processes with these PIDs, in the order given; those that
// have vanished or cannot be read are left out and counted. The error says that
// we had no descriptor or memory left to read one: see [Reader.Trees].
func (r *Reader) Group(pids []int) ([]rss.Proc, rss.Gaps, error) {
	var gaps rss.Gaps
	procs := make([]rss.Proc, 0, len(pids))
	for _, pid := range pids {
		e := r.known[pid]
		if e == nil {
			e = new(entry)
		}
		p, err := r.read(pid, e)
		if shortage(err) {
			return nil, gaps, fmt.Errorf("cannot read process %d: %w", pid, err)
		}
		if err != nil {
			count(&gaps, err)
			continue
		}
		if !e.member {
			e.start, e.parent = p.ID.Start, p.Parent
		}
		procs = append(procs, p)
	}
	return procs, gaps, nil
}

// SumRSS returns the sum of RSS over the population of the last Tree, by
// /proc/PID/statm alone: nothing is discovered, and what has ended since
// counts 0. The fast tick's measure.
func (r *Reader) SumRSS() (rss.Bytes, error) {
	var sum rss.Bytes
	var failed error
	for _, e := range r.tree {
		if e.proc.RSS == 0 {
			continue
		}
		var n rss.Bytes
		b, err := r.readStatm(e)
		if err == nil {
			n, err = parseResident(b)
		}
		if err == nil {
			sum += n
		} else if !Vanished(err) && failed == nil {
			failed = fmt.Errorf("cannot read statm of process %d: %w", e.pid, err)
		}
	}
	return sum, failed
}

// read reads stat and status of one process. The name is kept in e, so that it
// is allocated once in a process's life.
func (r *Reader) read(pid int, e *entry) (rss.Proc, error) {
	b, err := r.f.read(pid, "stat")
	if err != nil {
		return rss.Proc{}, err
	}
	s, err := parseStat(b)
	if err != nil {
		return rss.Proc{}, err
	}
	if e.comm != string(s.comm) {
		e.comm = string(s.comm)
	}
	p := rss.Proc{
		ID:      rss.ProcID{PID: pid, Start: s.start},
		Parent:  s.parent,
		Group:   s.group,
		Reaped:  s.reaped,
		Comm:    e.comm,
		State:   s.state,
		Role:    role(e.comm),
		Threads: s.threads,
	}
	if b, err = r.f.read(pid, "status"); err != nil {
		return rss.Proc{}, err
	}
	u, err := parseStatus(b)
	if err != nil {
		return rss.Proc{}, err
	}
	if s.state == 'Z' && s.threads > 1 {
		if u, err = r.liveThread(pid, u); err != nil {
			return rss.Proc{}, err
		}
	}
	p.RSS, p.Anon, p.File, p.Shmem, p.Virtual = u.rss, u.anon, u.file, u.shmem, u.virtual
	p.Locked, p.Pinned = u.locked, u.pinned
	return p, nil
}

// liveThread returns what another thread of the process shows where its main
// thread has ended before the others: the memory is still there, and
// /proc/PID/status of the main thread no longer tells. Its error is a [shortage].
func (r *Reader) liveThread(pid int, u status) (status, error) {
	t := newFiles(fmt.Sprintf("%s/%d/task", r.proc, pid))
	defer t.close()
	tids, err := t.pids(nil)
	if shortage(err) {
		return u, err
	}
	for _, tid := range tids {
		if tid == pid {
			continue
		}
		b, err := t.read(tid, "status")
		if shortage(err) {
			return u, err
		}
		if err != nil {
			continue
		}
		if v, err := parseStatus(b); err == nil && v.rss > 0 {
			return v, nil
		}
	}
	return u, nil
}

func count(g *rss.Gaps, err error) {
	switch {
	case Vanished(err):
		g.Vanished++
	case Denied(err):
		g.Denied++
	default:
		g.Malformed++
	}
}
