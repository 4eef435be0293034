package workers

import (
	"strconv"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
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

// environReader reads the environment of processes. What may not be read says nothing of a
// rank.
type environReader struct{ *programReader[ranks] }

func newEnvironReader(proc string) *environReader {
	return &environReader{newProgramReader("rank", noRanks, func(of program) ranks {
		vars, _ := proctree.Environ(proc, of.id.PID, isRank)
		return ranksOf(vars)
	})}
}

// of returns what the environment of a process says; known is false where it was
// not read yet.
func (k *environReader) of(p *rss.Proc) (r ranks, known bool) {
	e := k.at(p)
	return e.fact, e.known
}

// late says that the environment of a process should have been read by now.
func (k *environReader) late(p *rss.Proc, now time.Duration) bool {
	e := k.seen[programOf(p)]
	return e != nil && now-e.since >= settled
}
