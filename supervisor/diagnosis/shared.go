package diagnosis

import (
	"fmt"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// sharedMemory finds what waits in shared memory and what is page-locked.
type sharedMemory struct{ mounts []*mount }

type mount struct {
	of     rss.ProcID
	size   rss.Bytes
	base   rss.Bytes // what was in use before there were workers
	series series
	last   Shm // as segments were looked for last
	read   bool
}

func (h *sharedMemory) take(s *State, v *Shm) {
	if s.known[v.ID] == nil {
		return
	}
	i := slices.IndexFunc(h.mounts, func(m *mount) bool { return m.of == v.ID })
	if i < 0 {
		i = len(h.mounts)
		h.mounts = append(h.mounts, &mount{of: v.ID})
	}
	m := h.mounts[i]
	if !s.loads || m.series.n == 0 {
		m.base = v.Used
	}
	m.size = v.Size
	m.series.add(v.At, [measures]rss.Bytes{used: v.Used})
	if v.Read {
		m.last, m.read = *v, true
	}
}

// grown is what a /dev/shm holds more than before there were workers, leaving out
// what came and went in that time.
func (m *mount) grown(s *State, lasting time.Duration) rss.Bytes {
	if !s.loads || m.series.n == 0 || m.series.last.at-s.loading < lasting {
		return 0
	}
	return m.series.settled(used, lasting).Sub(m.base)
}

// queue finds batches that wait in shared memory.
func (h *sharedMemory) queue(s *State) {
	if !s.loads {
		return
	}
	for _, m := range h.mounts {
		d := event.Diagnosis{Finding: event.FindingPrefetch, Confidence: event.Certain, Role: rss.RoleWorker}
		filled := fmt.Sprintf("%v of %v in use (statvfs of /dev/shm)", m.series.last.v[used], m.size)
		if m.read {
			// What the trainer holds is no queue: see kept.
			d.Bytes = m.last.Torch - min(m.last.Trainer, m.last.Torch)
			how := "that have no name (the file_descriptor strategy)"
			if m.last.Visible*2 > m.last.Segments {
				how = "that have a name (the file_system strategy)"
			}
			d.Evidence = []string{
				fmt.Sprintf("%v wait in %s torch_* of shared memory %s and that no trainer holds (fd and maps of the processes), with %s",
					d.Bytes, text.Count(m.last.Segments, "segment"), how, filled),
				"no summed RSS shows it; a cgroup counts it",
			}
		} else {
			grown, kept := m.grown(s, warm), h.ofTrainers(s)
			if kept.Of(grown) >= mostly {
				continue
			}
			d.Confidence, d.Bytes = event.Possible, grown.Sub(kept)
			d.Evidence = []string{
				fmt.Sprintf("/dev/shm holds %v more than before the first worker, with %s, and RssShmem of the trainers %v more (status)", grown, filled, kept),
				"whose it is was not read: another job on the node may have filled it",
			}
		}
		if d.Bytes >= s.matters() {
			d.Advice = []string{
				"prefetch_factor=1, where it is 2 or more: num_workers times prefetch_factor batches wait",
				s.fewer(rss.RoleWorker, "each loads prefetch_factor batches ahead"),
				"a smaller batch_size, or samples as uint8 or float16 that the trainer converts",
				"recycle and trim give none of it back: it is in no worker's RSS",
			}
			s.tell(d)
			return
		}
	}
}

// ofTrainers is by how much RssShmem of all trainers grew.
func (h *sharedMemory) ofTrainers(s *State) (sum rss.Bytes) {
	for t := range s.of(rss.RoleTrainer) {
		sum += s.lasting(t, shmem)
	}
	return sum
}

// isBatches says that what a trainer has more of shared memory is batches: what
// /dev/shm holds grew with it, or the mappings say so.
func (h *sharedMemory) isBatches(s *State, t *track, gain rss.Bytes) bool {
	if f := s.files.shares[rss.RoleTrainer]; f != nil && f.pid == t.id.PID && f.unnamed+f.batches > 0 {
		return f.batches >= f.unnamed
	}
	for _, m := range h.mounts {
		if m.grown(s, settle).Of(gain) >= mostly {
			return true
		}
	}
	return false
}

// pin finds page-locked memory of trainers.
func (h *sharedMemory) pin(s *State) {
	var held, lock, shared group
	for t := range s.of(rss.RoleTrainer) {
		over := t.series.last.at - s.start(t)
		if v := s.lasting(t, pinned); v >= slight {
			held.add(t, v, over)
		}
		if v := s.lasting(t, locked); v >= slight {
			lock.add(t, v, over)
		}
		if v := s.lasting(t, shmem); v >= slight && over >= warm && !h.isBatches(s, t, v) {
			shared.add(t, v, over)
		}
	}
	cause, sure := h.cause(s)
	for _, c := range []struct {
		g          *group
		what, why  string
		confidence event.Confidence
	}{
		{&held, "VmPin", "VmPin is what drivers hold for their devices: it can neither be reclaimed nor moved", event.Certain},
		{&lock, "VmLck", "VmLck is what mlock(2) holds in memory", event.Likely},
		{&shared, "RssShmem", cause, sure},
	} {
		if c.g.n == 0 || c.g.sum < s.matters() {
			continue
		}
		grew := fmt.Sprintf("%s of %s grew by %v in %s (status of %s)", c.what, text.Count(c.g.n, "trainer"), c.g.sum, text.About(c.g.over.Seconds()), whose(c.g))
		s.tell(c.g.finding(event.FindingPinned, c.confidence, rss.RoleTrainer, []string{grew, c.why},
			"pin_memory=False in the DataLoader: page-locked buffers are kept for reuse and rounded up to powers of two",
			"a lower prefetch_factor and batch_size pin less",
			"tensors that were made with .pin_memory() are not given back while they are referred to: reuse one buffer and copy_ into it",
			"it counts in full in RSS and in the cgroup, and nothing can reclaim it: add it to --mem",
		))
		return
	}
}

// cause is why growth of the trainers' shared memory is attributed to pinning, and how
// far: CUDA's is no file of /dev/shm.
func (h *sharedMemory) cause(s *State) (string, event.Confidence) {
	if f := s.files.shares[rss.RoleTrainer]; f != nil && f.unnamed > f.batches {
		return fmt.Sprintf("%v of it is shared memory without a file, as CUDA makes for pinned buffers (smaps of process %d)", f.unnamed, f.pid), event.Likely
	}
	if len(h.mounts) > 0 {
		return "what /dev/shm holds did not grow with it (statvfs): it is shared memory without a file, as CUDA makes for pinned buffers", event.Likely
	}
	return "what /dev/shm holds was not read: batches that the program keeps would show alike", event.Possible
}

// managers finds the processes that the file_system strategy starts.
func managers(s *State) {
	var g group
	own := rss.Bytes(0)
	for t := range s.of(rss.RoleShmManager) {
		if s.now-t.since < settle {
			continue
		}
		g.add(t, t.rss, time.Second)
		own += t.series.last.v[anon]
	}
	if g.n == 0 || g.sum < s.matters() {
		return
	}
	s.tell(g.finding(event.FindingShmManagers, event.Certain, rss.RoleShmManager,
		[]string{fmt.Sprintf("%s of torch_shm_manager have an RSS of %v, %v of it anonymous (status of %s): the file_system strategy starts one for each process that shares tensors",
			text.Count(g.n, "process"), g.sum, own, whose(&g))},
		`torch.multiprocessing.set_sharing_strategy("file_descriptor"), the default on Linux, needs no managers; give it descriptors with ulimit -n, or --nofile`,
		"fewer workers (num_workers) have fewer managers",
		"most of a manager's pages are shared with the others: where sites count PSS (JobAcctGatherParams=UsePss) or by cgroup they cost little",
	))
}
