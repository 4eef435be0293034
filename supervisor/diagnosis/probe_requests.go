package diagnosis

import (
	"cmp"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

type Reading string

// The readings, from cheap to expensive.
const (
	WantSpace Reading = "statvfs"      // Shm without segments: how full a /dev/shm is
	WantShm   Reading = "shm"          // Shm with segments, of the /dev/shm that the process sees
	WantParts Reading = "smaps_rollup" // Parts: 7 to 21 ms for each GiB, under mmap_lock
	WantFiles Reading = "smaps"        // Files: as much, and more with many mappings
)

type Want struct {
	Reading Reading
	ID      rss.ProcID
}

// samples is of how many workers of a trainer smaps_rollup is wanted: they do the
// same work.
const samples = 2

// forked is from which RssAnon on a worker can have shared much.
const forked = 64 * rss.MiB

// after is how long after its first reading a process is read again; the last
// distance goes on.
var after = []time.Duration{10 * time.Second, 30 * time.Second, 2 * time.Minute, 7 * time.Minute}

const apart = 5 * time.Minute

// due is when the next reading after n of them is wanted.
func due(first, last time.Duration, n int) time.Duration {
	switch {
	case n == 0:
		return 0
	case n <= len(after):
		return max(first+after[n-1], last+time.Second)
	}
	return last + apart
}

// wish is a want, and when the reading was there last.
type wish struct {
	Want
	read bool
	last time.Duration
}

// Wants returns the readings that would tell something, until they are there: a caller may
// pass over what its budget does not allow, and one that takes the first each time starves
// none. What costs nothing comes before what was never read, which is gone soon, and that
// before what was read longest ago. None is wanted of a process that is small and still.
func (s *State) Wants() []Want {
	wishes := s.wantParts()
	for _, role := range judgedRoles {
		if w, ok := s.wantFiles(role); ok {
			wishes = append(wishes, w)
		}
	}
	wishes = append(wishes, s.wantShm()...)
	order := func(w *wish) time.Duration {
		switch {
		case w.Reading == WantSpace:
			return -2
		case !w.read:
			return -1
		}
		return w.last
	}
	slices.SortStableFunc(wishes, func(a, b wish) int { return cmp.Compare(order(&a), order(&b)) })
	var out []Want
	for _, w := range wishes {
		out = append(out, w.Want)
	}
	return out
}

func (s *State) wantParts() (out []wish) {
	taken := map[int]int{}
	for _, t := range s.tracks {
		if !t.role.IsWorker() || t.series.n == 0 || t.series.points[0].v[anon] < forked && !t.growing[anon] {
			continue
		}
		if taken[t.parent]++; taken[t.parent] > samples {
			continue
		}
		p := &t.parts
		if s.now >= due(p.first.At, p.last.At, p.n) {
			out = append(out, wish{Want{WantParts, t.id}, p.n > 0, p.last.At})
		}
	}
	return out
}

// wantFiles asks for the files of the process of a role that gained most, where
// they may matter.
func (s *State) wantFiles(role rss.Role) (wish, bool) {
	var sum, top rss.Bytes
	var most *track
	for _, t := range s.tracks {
		if t.role != role || t.series.n == 0 || t.series.last.at < s.start(t) {
			continue
		}
		gain := s.filesGain(t)
		if role == rss.RoleTrainer {
			gain += s.lasting(t, shmem)
		}
		sum += gain
		if gain > top {
			top, most = gain, t
		}
	}
	if most == nil || sum < s.matters()/2 || top < slight {
		return wish{}, false
	}
	// Where files were read of one the others do the same.
	if h := s.files.shares[role]; h != nil && most.id.PID != h.pid && h.data >= mostly {
		return wish{}, false
	}
	now := most.series.last.v[file] + most.series.last.v[shmem]
	if most.filesRead && (s.now-most.filesAt < 10*time.Second || now < most.filesHad+most.filesHad/2 && s.now-most.filesAt < apart) {
		return wish{}, false
	}
	return wish{Want{WantFiles, most.id}, most.filesRead, most.filesAt}, true
}

const (
	// soon is when a loader's queue is full, and how long a reading counts
	// where much has come since.
	soon = 10 * time.Second
	// stale is how old the filling of a /dev/shm may be: it costs one statvfs(3).
	stale = 15 * time.Second
)

// wantShm asks for the /dev/shm of trainers: how full it is before there are workers and then
// now and then, and whose that is once when the queue must be full, and where it has grown.
func (s *State) wantShm() (out []wish) {
	if len(s.shm.mounts) == 0 {
		for t := range s.of(rss.RoleTrainer) {
			return []wish{{Want: Want{WantSpace, t.id}}}
		}
	}
	for _, m := range s.shm.mounts {
		age := s.now - m.last.At
		full := s.loads && s.now-s.loading >= soon
		missed := m.grown(s, settle) >= s.matters()/2 && m.last.Torch < m.grown(s, settle)/2
		switch {
		case full && (!m.read || m.last.At < s.loading+soon || age >= apart || age >= soon && missed):
			out = append(out, wish{Want{WantShm, m.of}, m.read, m.last.At})
		case s.now-m.series.last.at >= stale:
			out = append(out, wish{Want{WantSpace, m.of}, true, m.series.last.at})
		}
	}
	return out
}
