package saveratetest

import (
	"math"

	"github.com/rsswarden/rsswarden/rss"
)

// Memory is what a job has at one moment.
type Memory struct {
	Trainer, Libs rss.Bytes // of the trainer: anonymous, mapped from libraries
	Workers       []Worker
	File          rss.Bytes // size of the data file
	Beside        rss.Bytes
}

type Worker struct {
	Heap    rss.Bytes // the trainer's anonymous memory when it was forked, shared with it
	Copied  rss.Bytes // … of which it has a copy of its own
	Private rss.Bytes // anonymous, its own from the start and what it leaked
	Libs    rss.Bytes // mapped from libraries, shared with the trainer
	Mapped  rss.Bytes // mapped from the data file
}

// Sum is what an accounting adds up. PSS counts each page of the data file once
// that any worker has mapped, where each has mapped pages at random; so does the
// kernel, as page cache, which does not count here.
func (m *Memory) Sum(a Accounting) rss.Bytes {
	sum := m.Trainer + m.Beside
	if !a.Kernel() {
		sum += m.Libs
	}
	for i := range m.Workers {
		w := &m.Workers[i]
		if a == SlurmRSS {
			sum += w.Heap + w.Private + w.Libs + w.Mapped
		} else {
			sum += w.Copied + w.Private
		}
	}
	if a == SlurmPSS {
		sum += m.Touched()
	}
	return sum
}

// Touched is how much of the data file is mapped by at least one worker, where each
// has mapped pages at random.
func (m *Memory) Touched() rss.Bytes {
	if m.File == 0 {
		return 0
	}
	untouched := 1.0
	for i := range m.Workers {
		untouched *= 1 - math.Min(m.Workers[i].Mapped.Of(m.File), 1)
	}
	return m.File.Scale(1 - untouched)
}

// Bare is the job's memory after so many steps without actions.
func (s *Spec) Bare(step int) Memory {
	m := Memory{Trainer: s.Trainer(step), Libs: s.Libs, File: s.File, Beside: s.Beside}
	for k := range s.Workers {
		n := rss.Bytes(s.Batches(k, step))
		m.Workers = append(m.Workers, Worker{
			Heap: s.Heap, Copied: min(n*s.Copy, s.CopyMost), Private: s.Fresh + n*s.Leak,
			Libs: s.WorkerLibs, Mapped: min(n*s.Map, s.File),
		})
	}
	return m
}

// Peak is the most that the limit counts of the job, run bare without a limit.
func (s *Spec) Peak() rss.Bytes {
	return s.most(func(step int) rss.Bytes {
		m := s.Bare(step)
		return m.Sum(s.Accounting)
	})
}

// most is the greatest value of a function of the step. All that grows grows
// steadily but for the burst, so a few hundred steps and its edges tell.
func (s *Spec) most(of func(step int) rss.Bytes) (most rss.Bytes) {
	for i := range 257 {
		most = max(most, of(s.Steps*i/256))
	}
	if s.Burst > 0 {
		most = max(most, of(s.BurstAt), of(s.BurstAt+s.BurstFor-1))
	}
	return most
}
