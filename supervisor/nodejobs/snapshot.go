package nodejobs

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// Snapshot is one look at all jobs.
type Snapshot struct {
	At   time.Time
	Took time.Duration
	Jobs []Job
	// Ended are the jobs that are gone since the look before.
	Ended []Ended
	// Where says what hierarchy the jobs were found in: "cgroup v2", "memory", or
	// another controller of v1. Memory says that it accounts memory. Found is false
	// where Slurm has made no directory at all.
	Where         string
	Found, Memory bool
	// Kills is how many processes of the node, in a job or not, the OOM killer ended since
	// the look before; 0 before Linux 4.13.
	Kills uint64
	// Unheard counts the steps with a memory cgroup for which the kernel does not report
	// at once that the OOM killer is at work, so that only their counters show it;
	// Why says why, if at all.
	Unheard int
	Why     error
	// Failures counts files that could not be read for another reason than that their
	// job ended; Failure is the last one.
	Failures int
	Failure  error
}

// Job is the part of a job on this node.
type Job struct {
	ID   string // a number, or the SLUID where directories are named by it and no slurmstepd tells the number
	Node string
	UID  int // -1 where the tree does not say
	Use
	Steps []Step
	// Over are steps that are gone and had kills; nothing else is known of them.
	Over []Step
	// KilledBy says how the kills are known, of all in the way that is least sure; empty
	// for none.
	KilledBy Source

	path string
	ino  uint64
}

type Step struct {
	ID string // a number, "batch", "extern", "interactive"
	Use
}

// Use is what a job or step uses and may use.
type Use struct {
	// Measured says that it has a memory cgroup; RSS is then 0, else all but RSS,
	// Processes and Since is.
	Measured bool
	// Charged is all that counts, page cache with it; Unreclaimable is what of it reclaim
	// cannot take back.
	Charged, Unreclaimable rss.Bytes
	// Used is what is compared with Limit, the least from here up to the root;
	// [cgroup.Unlimited] for none.
	Used, Limit rss.Bytes
	// OOMKills counts the processes that the OOM killer ended since we came.
	OOMKills  uint64
	Processes int
	RSS       rss.Bytes // summed over the processes

	PerSecond float64 // bytes, where Growing
	Growing   bool
	ETA       time.Duration // until Limit is met, where Forecast
	Forecast  bool

	Since time.Time     // when it was seen first
	Peak  rss.Bytes     // the most of Used that was seen
	Near  time.Duration // for how long nine tenths of Limit are used
}

// Ended is a job that is gone, as it was last seen.
type Ended struct {
	Job
	Last time.Time // when it was
	// Unseen says that no look saw it: it came and went in between. What is known is what
	// the kernel's notices tell: OOMKills at least, Since, and where they could be read
	// Limit, and Charged when memory ran out.
	Unseen bool
}

// Source says how a kill is known.
type Source string

// How kills are known, from sure to likely.
const (
	// ByCounter: oom_kill of the job's own cgroup counted them.
	ByCounter Source = "counter"
	// ByNotice: the kernel told that the step ran out of memory, the node's count rose, and
	// the cgroup was gone before its counter could be read. One kill, or more.
	ByNotice Source = "notice"
	// ByEnd: nothing could be told, the node's count rose, and this job alone ended just
	// then. One kill, or more, if it was this job's at all.
	ByEnd Source = "end"
)

// Sources lists all.
var Sources = []Source{ByCounter, ByNotice, ByEnd}

func (j *Job) stepKills(id string) uint64 {
	if s := j.step(id); s != nil {
		return s.OOMKills
	}
	return 0
}

// step finds a step, one that is gone too.
func (j *Job) step(id string) *Step {
	for _, list := range [][]Step{j.Steps, j.Over} {
		for i := range list {
			if list[i].ID == id {
				return &list[i]
			}
		}
	}
	return nil
}

// atLeast raises the kills of a step and its job, and returns by how many.
func (j *Job) atLeast(id string, kills uint64) (more uint64) {
	s := j.step(id)
	if s == nil {
		j.Over = append(j.Over, Step{ID: id})
		s = &j.Over[len(j.Over)-1]
	}
	more = kills - min(kills, s.OOMKills)
	s.OOMKills += more
	j.OOMKills += more
	return more
}

// worse is what is less sure of two.
func worse(a, b Source) Source {
	if slices.Index(Sources, b) > slices.Index(Sources, a) {
		return b
	}
	return a
}
