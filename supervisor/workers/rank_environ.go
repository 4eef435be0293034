package workers

import (
	"strconv"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/probe"
)

// ranks is what the environment that a process was started with says of its place among
// others, -1 where it does not.
type ranks struct {
	rank  int // RANK, of torchrun and the like
	local int // LOCAL_RANK
	task  int // SLURM_PROCID
}

var noRanks = ranks{-1, -1, -1}

// zero says whether the process is rank 0 of all, where that is known. RANK
// alone tells; without it, LOCAL_RANK and SLURM_PROCID must both be 0 or unset:
// several local ranks may have grown from one task.
func (r ranks) zero() (zero, known bool) {
	if r.rank >= 0 {
		return r.rank == 0, true
	}
	return r.local <= 0 && r.task <= 0, r.local >= 0 || r.task >= 0
}

const (
	rankVariable  = "RANK"
	localVariable = "LOCAL_RANK"
	taskVariable  = "SLURM_PROCID"
)

func isRank(name string) bool {
	return name == rankVariable || name == localVariable || name == taskVariable
}

// ranksOf takes what is no number for not there.
func ranksOf(vars map[string]string) ranks {
	number := func(name string) int {
		n, err := strconv.ParseUint(vars[name], 10, 31)
		if err != nil {
			return -1
		}
		return int(n)
	}
	return ranks{number(rankVariable), number(localVariable), number(taskVariable)}
}

// environReader reads the environment of processes by a probe: the kernel takes a process's
// mmap_lock for it, and that can hang.
type environReader struct {
	*probe.Reader[program, ranksAnswer]
	seen map[program]*programRanks
}

// program names one program of one process: execve(2) gives it another
// environment and, nearly always, another name.
type program struct {
	id   rss.ProcID
	comm string
}

type programRanks struct {
	ranks
	since time.Duration // when the program was first seen
	next  time.Duration // when it is to be read (again)
	asked bool          // an answer is on its way
	known bool          // it was read once
	final bool          // it is not to be read again
}

type ranksAnswer struct {
	key program
	ranks
}

func newEnvironReader(proc string) *environReader {
	return &environReader{seen: map[program]*programRanks{}, Reader: probe.NewQueue(nil, mostAsked, func(key program) ranksAnswer {
		fault.Point("rank")
		// What may not be read says nothing of a rank.
		vars, _ := proctree.Environ(proc, key.id.PID, isRank)
		return ranksAnswer{key, ranksOf(vars)}
	})}
}

// update takes in what was read and asks about those processes that are new.
// One that is young is asked about again: between fork and exec it still shows
// its parent's environment.
func (k *environReader) update(s *rss.Sample) {
	now := s.Mono
	for a, ok := k.Take(); ok; a, ok = k.Take() {
		if e := k.seen[a.key]; e != nil {
			e.ranks, e.known, e.asked = a.ranks, true, false
		}
	}
	alive := make(map[program]*programRanks, len(s.Procs))
	for i := range s.Procs {
		key := program{s.Procs[i].ID, s.Procs[i].Comm}
		e := k.seen[key]
		if e == nil {
			e = &programRanks{ranks: noRanks, since: now, next: now}
		}
		alive[key] = e
		if e.asked || e.final || now < e.next {
			continue
		}
		if !k.Ask(key, false) {
			continue // the reader hangs; ask again at the next look
		}
		e.asked = true
		// 0.1 s, 0.4 s, 1.3 s and 4 s after the first time.
		e.next, e.final = now+2*(now-e.since)+100*time.Millisecond, now-e.since >= settled
	}
	k.seen = alive
}

// of returns what the environment of a process says; known is false where it was
// not read yet.
func (k *environReader) of(p *rss.Proc) (r ranks, known bool) {
	if e := k.seen[program{p.ID, p.Comm}]; e != nil {
		return e.ranks, e.known
	}
	return noRanks, false
}

// late says that the environment of a process should have been read by now.
func (k *environReader) late(p *rss.Proc, now time.Duration) bool {
	e := k.seen[program{p.ID, p.Comm}]
	return e != nil && now-e.since >= settled
}
