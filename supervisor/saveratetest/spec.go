// Package saveratetest makes up training jobs and says which of them rsswarden must
// carry through: the yardstick of its save rate. It knows nothing of the ladder,
// and what it says of a job follows from the job's [Spec] alone, so no job can be
// labelled again once it has been run.
//
// [New] makes a job from a seed: its sizes, how it grows, who limits it, what its
// loader can do. [Spec.Bare] is what the limit counts of it, step by step, without
// actions and limits. [Spec.Oracle] is the least that it can do
// with: the peak of that, less what workers leak or have mapped and can give
// back, plus fresh workers. [Spec.Label] puts the two beside the limit.
//
//	fits      the oracle or the bare peak is within the limit: it must complete
//	innocent  the bare peak is at most 80 % of the limit, the mildest rung of the
//	          ladder: nothing may be done to it
//
// Innocents stay below the ladder. [Steadies] tell whether it acts uselessly above its
// rungs: jobs that stay where they began, at 80 to 99 % of the limit.
//
// The labels of all seeds that are run lie in testdata. They were written before
// the first of these jobs was run under rsswarden.
//
// What is measured with it: supervisor's TestSaveRate, in simulation with the
// live watcher; TestEnduranceSaveRate of cmd/rsswarden, in a real Slurm with a
// real PyTorch.
package saveratetest

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// Accounting is who compares which sum with the limit.
type Accounting string

// The accountings. The kernel kills in the moment in which what cannot be
// reclaimed exceeds the limit; slurmstepd at its next poll, each [Spec.Poll].
const (
	CgroupV1 Accounting = "cgroup-v1"
	CgroupV2 Accounting = "cgroup-v2"
	SlurmRSS Accounting = "slurm-rss" // jobacct_gather/linux, OverMemoryKill
	SlurmPSS Accounting = "slurm-pss" // … with UsePss
)

// Kernel says that the kernel enforces it.
func (a Accounting) Kernel() bool { return a == CgroupV1 || a == CgroupV2 }

// CountsMapped says that pages which are mapped from files count, so that a trim
// lowers the sum. To the kernel they are page cache, which it takes back.
func (a Accounting) CountsMapped() bool { return !a.Kernel() }

// Support is what the job's loader can do for us.
type Support string

// What a loader can do.
const (
	Recycle Support = "recycle" // trim and recycle
	Trim    Support = "trim"    // trim alone: a torch with unknown internals
	None    Support = "none"    // there is no hook: python -I, a container without it
)

// Class is what a job was made for. It is no label: that follows from the numbers.
type Class string

// The classes and how many of a hundred jobs are made for each.
const (
	Innocent Class = "innocent" // 38: stays at 40 to 80 % of its limit
	Tight    Class = "tight"    // 8: stays at 80 to 99 %
	Curable  Class = "curable"  // 44: is killed bare, by what its workers could give back
	Steady   Class = "steady"   // in [Steadies] alone: stays where it began, at 80 to 99 %
	Hopeless Class = "hopeless" // 10: is killed bare, by what cannot be given back
)

// Spec is one job: a trainer that takes Steps batches from the DataLoader of its
// Workers, one each Step. Each worker makes every Workers-th batch. All sizes are
// in bytes. As JSON it is what the script of the real jobs is given.
type Spec struct {
	Seed  uint64 `json:"seed"`
	Class Class  `json:"class"`

	Accounting Accounting    `json:"accounting"`
	Limit      rss.Bytes     `json:"limit"`
	Poll       time.Duration `json:"poll"` // of slurmstepd, 0 for the kernel

	Ramp    time.Duration `json:"ramp"` // in which the trainer builds Heap, before there are workers
	Step    time.Duration `json:"step"`
	Steps   int           `json:"steps"`
	Workers int           `json:"workers"`
	Support Support       `json:"support"`

	Heap       rss.Bytes `json:"heap"`        // anonymous, of the trainer; workers share it after fork
	Libs       rss.Bytes `json:"libs"`        // mapped from libraries by the trainer
	WorkerLibs rss.Bytes `json:"worker_libs"` // … by a worker
	Fresh      rss.Bytes `json:"fresh"`       // anonymous, of a worker's own from its third batch on
	Beside     rss.Bytes `json:"beside"`      // anonymous, of the batch shell and what else is in the step

	// What grows. Each is 0 in a job that does not grow that way.
	File     rss.Bytes `json:"file"`      // size of the data file
	Map      rss.Bytes `json:"map"`       // of it mapped with each batch by the worker that makes it, up to File
	Leak     rss.Bytes `json:"leak"`      // kept of each batch by that worker
	Copy     rss.Bytes `json:"copy"`      // of Heap copied with each batch by that worker, up to CopyMost
	CopyMost rss.Bytes `json:"copy_most"` // per worker
	Cache    rss.Bytes `json:"cache"`     // page cache read with each batch
	Grow     rss.Bytes `json:"grow"`      // kept by the trainer of each batch
	Burst    rss.Bytes `json:"burst"`     // held by the trainer from step BurstAt, for BurstSteps
	BurstAt  int       `json:"burst_at"`
	BurstFor int       `json:"burst_for"`
}

func (s *Spec) Duration() time.Duration { return s.Ramp + time.Duration(s.Steps)*s.Step }

// Trainer is what of the trainer is anonymous after so many steps.
func (s *Spec) Trainer(step int) rss.Bytes {
	n := s.Heap + rss.Bytes(step)*s.Grow
	if step >= s.BurstAt && step < s.BurstAt+s.BurstFor {
		n += s.Burst
	}
	return n
}

// Batches is how many batches a worker has made after so many steps of all.
func (s *Spec) Batches(worker, step int) int { return (step + s.Workers - 1 - worker) / s.Workers }

// CurableLeak says that what workers leak can be given back.
func (s *Spec) CurableLeak() bool { return s.Leak > 0 && s.Support == Recycle }

// CurableMap says that what workers have mapped counts and can be given back.
func (s *Spec) CurableMap() bool {
	return s.Map > 0 && s.Support != None && s.Accounting.CountsMapped()
}
