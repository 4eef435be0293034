package saveratetest

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// Scale is the world that jobs are made for.
type Scale struct {
	Seeds uint64 // seeds are 1 to Seeds, of another stream for each scale
	Salt  uint64

	Workers           []int         // one of these
	Heap              [2]rss.Bytes  // from, to: logarithmic
	Libs, WorkerLibs  rss.Bytes     // of the trainer, of a worker
	Fresh             [2]rss.Bytes  // from, to
	Beside            rss.Bytes     // anonymous, of the batch shell and the like
	Duration          [2]float64    // seconds, without the ramp: logarithmic
	Step              [2]float64    // seconds: logarithmic
	LeastStep         time.Duration // …, where a job needs more steps than that
	Ramp              [2]float64    // seconds
	Polls             []time.Duration
	MostFill          float64   // of a curable job's limit by the oracle, at most
	MostGrowth        float64   // bare peak over the limit of a curable job, at most
	MostLeak, MostMap rss.Bytes // of one batch
	Accountings       []Accounting
	Steady            bool // all jobs are made [Steady]
}

// Simulated is jobs of the sizes that clusters see.
//
// The limit of a curable job is 1/0.97 to twice what the oracle says, even; it is
// killed bare at 1.1 to 2.2 times its limit. Leaks are no faster than workers can
// be replaced one after the other: in the time that it takes to replace all of
// them, 2·workers+3 steps each, what they leak meanwhile is no more than what the
// limit leaves above the oracle. No supervisor could hold a job that leaks faster.
var Simulated = Scale{
	Seeds: 500, Salt: 1,
	Workers: []int{1, 2, 2, 4, 4, 4, 6, 8, 8, 12, 16},
	Heap:    [2]rss.Bytes{256 * rss.MiB, 4 * rss.GiB}, Libs: 115 * rss.MiB, WorkerLibs: 17 * rss.MiB,
	Fresh: [2]rss.Bytes{4 * rss.MiB, 40 * rss.MiB}, Beside: 4 * rss.MiB,
	Duration: [2]float64{40, 300}, Step: [2]float64{0.02, 2}, LeastStep: 20 * time.Millisecond, Ramp: [2]float64{1, 15},
	Polls:    []time.Duration{time.Second, 10 * time.Second, 30 * time.Second, 30 * time.Second, 30 * time.Second},
	MostFill: 0.97, MostGrowth: 2.2, MostLeak: 64 * rss.MiB, MostMap: 256 * rss.MiB,
	Accountings: []Accounting{CgroupV1, CgroupV2, SlurmRSS, SlurmPSS},
}

// Steadies is jobs that grow no more once their workers have made three batches each,
// and stand above the rungs of the ladder: at 80 to 99 % of the limit, of which 32 MiB
// at the least are left, for rsswarden itself takes some. All could have their workers
// replaced, and none gains by it.
var Steadies = func() Scale {
	s := Simulated
	s.Seeds, s.Salt, s.Steady, s.Fresh[1] = 100, 3, true, 60*rss.MiB
	return s
}()

// Real is jobs that a small machine runs for real, a minute each at most: Python
// 3.11 with torch 1.13 has 113 MiB anonymous and 115 MiB of libraries, a worker
// that was just forked 17 MiB of these and 6 MiB of its own. At this size what does
// not shrink with the job takes a large part of the limit: rsswarden's own 12 MiB,
// the 16 MiB that a worker must have to be worth replacing, the 32 MiB of mapped
// pages that each may always keep. So a curable job's limit is 1.25 times to twice
// what the oracle says.
var Real = Scale{
	Seeds: 60, Salt: 2,
	Workers: []int{1, 2, 2, 3},
	Heap:    [2]rss.Bytes{180 * rss.MiB, 300 * rss.MiB}, Libs: 115 * rss.MiB, WorkerLibs: 17 * rss.MiB,
	Fresh: [2]rss.Bytes{6 * rss.MiB, 6 * rss.MiB}, Beside: 4 * rss.MiB,
	Duration: [2]float64{12, 24}, Step: [2]float64{0.02, 0.08}, LeastStep: 10 * time.Millisecond, Ramp: [2]float64{0, 0},
	Polls:    []time.Duration{time.Second},
	MostFill: 0.80, MostGrowth: 1.8, MostLeak: 16 * rss.MiB, MostMap: 16 * rss.MiB,
	Accountings: []Accounting{CgroupV1, SlurmRSS, SlurmPSS},
}

// New makes the job of a seed. The same seed makes the same job for ever.
func New(seed uint64, scale *Scale) Spec {
	g := generator{rand.New(rand.NewPCG(seed, scale.Salt)), scale}
	s := Spec{
		Seed: seed, Accounting: pick(g, scale.Accountings), Workers: pick(g, scale.Workers), Support: Recycle,
		Heap: g.bytes(scale.Heap), Libs: scale.Libs, WorkerLibs: scale.WorkerLibs,
		Fresh: scale.Fresh[0] + rss.Bytes(g.Float64()*float64(scale.Fresh[1]-scale.Fresh[0])), Beside: scale.Beside,
	}
	s.Ramp = seconds(g.between(scale.Ramp[0], scale.Ramp[1])).Round(time.Millisecond)
	if poll := pick(g, scale.Polls); !s.Accounting.Kernel() {
		s.Poll = poll
	}
	length := g.log(scale.Duration)
	s.Step = seconds(g.log(scale.Step)).Round(time.Millisecond)
	s.Steps = max(int(length/s.Step.Seconds()), 8*s.Workers)
	switch n := g.IntN(100); {
	case scale.Steady:
		s.Class = Steady
		if g.IntN(4) == 0 {
			s.Cache = s.Heap / rss.Bytes(s.Steps)
		}
		s.Limit = max(s.Peak().Scale(1/g.between(0.80, 0.99)), s.Peak()+32*rss.MiB)
	case n < 38:
		s.Class = Innocent
		g.anything(&s)
		s.Limit = s.Peak().Scale(1 / g.between(0.40, 0.80))
	case n < 46:
		s.Class = Tight
		g.anything(&s)
		s.Limit = s.Peak().Scale(1 / g.between(0.80, 0.99))
	case n < 90:
		s.Class = Curable
		g.curable(&s)
	default:
		s.Class = Hopeless
		g.hopeless(&s)
	}
	return s
}

type generator struct {
	*rand.Rand
	scale *Scale
}

// anything has the job grow in one way, or not at all.
func (g generator) anything(s *Spec) {
	s.Support = pick(g, []Support{Recycle, Recycle, Recycle, Trim, None})
	amount := s.Heap.Scale(g.between(0.2, 2))
	switch g.IntN(8) {
	case 0: // it stays as it began
	case 1:
		g.maps(s, amount)
	case 2:
		g.leaks(s, amount)
	case 3:
		g.copies(s)
	case 4:
		g.bursts(s, amount)
	case 5:
		s.Grow = amount / rss.Bytes(s.Steps)
	case 6:
		s.Cache = (4 * amount) / rss.Bytes(s.Steps)
	case 7:
		g.maps(s, amount/2)
		g.copies(s)
	}
}

// curable has it grow by what its workers can give back, in one job of four beside
// something that they cannot.
func (g generator) curable(s *Spec) {
	switch g.IntN(12) {
	case 0:
		g.copies(s)
	case 1:
		g.bursts(s, s.Heap.Scale(g.between(0.1, 0.5)))
	case 2:
		s.Grow = s.Heap.Scale(g.between(0.1, 0.5)) / rss.Bytes(s.Steps)
	}
	leaks, maps := true, false
	if s.Accounting.CountsMapped() {
		switch g.IntN(3) {
		case 0:
			leaks, maps = false, true
			s.Support = pick(g, []Support{Recycle, Recycle, Trim})
		case 1:
			maps = true
		}
	} else if g.IntN(4) == 0 {
		s.Cache = s.Heap / rss.Bytes(s.Steps)
	}
	// What it needs is known once it is known how it grows, not by how much.
	if leaks {
		s.Leak = 1
	}
	need := s.Oracle()
	s.Leak = 0
	s.Limit = need.Scale(1 / g.between(0.50, g.scale.MostFill))
	growth := s.Limit.Scale(g.between(1.1, g.scale.MostGrowth)).Sub(s.Peak())
	switch {
	case leaks && maps:
		part := g.between(0.2, 0.8)
		g.slows(s, growth.Scale(part), need)
		g.leaks(s, growth.Scale(part))
		g.maps(s, growth.Scale(1-part))
	case leaks:
		g.slows(s, growth, need)
		g.leaks(s, growth)
	default:
		g.maps(s, growth)
	}
}

// hopeless has it grow by what no process can give back.
func (g generator) hopeless(s *Spec) {
	before := s.Peak()
	amount := s.Heap.Scale(g.between(0.5, 3))
	switch g.IntN(4) {
	case 0:
		s.Grow = amount / rss.Bytes(s.Steps)
	case 1:
		g.bursts(s, amount)
	case 2:
		s.Support = Trim
		g.leaks(s, amount)
	case 3:
		s.Support = None
		g.leaks(s, amount/2)
		g.maps(s, amount/2)
	}
	s.Limit = before + s.Peak().Sub(before).Scale(g.between(0.3, 0.9))
}

// slows lets the job take more steps, so that its leak is no faster than its workers
// can be replaced; see [Simulated].
func (g generator) slows(s *Spec, growth, need rss.Bytes) {
	most := min(s.Limit.Sub(need)/rss.Bytes(s.Workers*(2*s.Workers+3)), g.scale.MostLeak)
	least := int(growth/max(most, 1)) + 1
	if least <= s.Steps {
		return
	}
	more := float64(least) / float64(s.Steps)
	s.Step = max(seconds(s.Step.Seconds()/more), g.scale.LeastStep).Round(time.Millisecond)
	s.Steps = least
	// What else grows takes as much longer.
	s.Grow, s.Copy, s.Cache = s.Grow.Scale(1/more), s.Copy.Scale(1/more), s.Cache.Scale(1/more)
	s.BurstAt, s.BurstFor = int(float64(s.BurstAt)*more), int(float64(s.BurstFor)*more)
}

// leaks has the workers keep so much in all.
func (g generator) leaks(s *Spec, amount rss.Bytes) {
	s.Leak = max(amount/rss.Bytes(s.Steps), 1)
}

// maps has the workers map so much in all, as the limit counts it.
func (g generator) maps(s *Spec, amount rss.Bytes) {
	each := amount / rss.Bytes(s.Workers)
	s.File = each.Scale(g.between(1, 2))
	if s.Accounting == SlurmPSS {
		s.File = amount.Scale(g.between(1.2, 2))
		each = s.File.Scale(1 - math.Pow(1-amount.Of(s.File), 1/float64(s.Workers)))
	}
	// It may be mapped soon, and all stands still then, or take as long as the job.
	batches := max(rss.Bytes(float64(s.Steps/s.Workers)*g.between(0.3, 1)), 1)
	s.Map = min(each/batches, g.scale.MostMap)
}

// copies has each worker make copies of the trainer's heap.
func (g generator) copies(s *Spec) {
	s.CopyMost = s.Heap.Scale(g.between(0.1, 0.9))
	s.Copy = s.CopyMost / max(rss.Bytes(float64(s.Steps/s.Workers)*g.between(0.2, 1)), 1)
}

// bursts has the trainer hold so much once, for 2 to 30 % of the job.
func (g generator) bursts(s *Spec, amount rss.Bytes) {
	s.Burst = amount
	s.BurstFor = max(int(float64(s.Steps)*g.between(0.02, 0.3)), 1)
	s.BurstAt = int(float64(s.Steps-s.BurstFor) * g.between(0.1, 0.9))
}

func (g generator) between(from, to float64) float64 { return from + g.Float64()*(to-from) }

func (g generator) log(r [2]float64) float64 {
	return math.Exp(g.between(math.Log(r[0]), math.Log(r[1])))
}

func (g generator) bytes(r [2]rss.Bytes) rss.Bytes {
	return rss.Bytes(g.log([2]float64{float64(r[0]), float64(r[1])})) / rss.MiB * rss.MiB
}

func pick[T any](g generator, list []T) T { return list[g.IntN(len(list))] }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
