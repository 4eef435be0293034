package diagnosis

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

const (
	// settle is how long after its start a worker warms up: what it imports, its
	// first batches. A trainer does so after its first workers came.
	settle = 5 * time.Second
	// every is how often findings are updated, rarely where nothing can have
	// changed by much: the 256th part of the time watched.
	every, rarely = time.Second, 10 * time.Second
	partOfTime    = 256
	// leastGrowth and leastShare are what a growth must come to: so many bytes, and such a part
	// of the limit, or of the tree's RSS where none is known. Less does not decide whether
	// a job lives, and is what libraries and batches come to.
	leastGrowth = 64 * rss.MiB
	leastShare  = 0.05
)

// State follows one job on one node. It belongs to one goroutine.
type State struct {
	now    time.Duration
	begun  bool
	began  time.Duration
	tick   uint64
	judged time.Duration

	limit      rss.Bytes // the least that has bound
	accounting event.Accounting
	tree       rss.Bytes // the most RSS that the tree had

	known  map[rss.ProcID]*track
	tracks []*track // by PID

	// loading is when the first workers were there, where loads says they were.
	loads   bool
	loading time.Duration

	files   mappedFiles
	leaks   leaks
	shm     sharedMemory
	loaders loaders

	current []event.Diagnosis
	past    map[key]event.Diagnosis
}

type key struct {
	finding event.Finding
	role    rss.Role
}

func New() *State {
	return &State{
		known:   map[rss.ProcID]*track{},
		files:   mappedFiles{shares: map[rss.Role]*share{}},
		leaks:   leaks{gave: map[int]given{}},
		loaders: loaders{sent: map[int]event.Sharing{}},
		past:    map[key]event.Diagnosis{},
	}
}

// Add takes in one look. It keeps nothing of it.
func (s *State) Add(l *Look) {
	if s.begun && l.At < s.now {
		return
	}
	s.leave(l)
	s.now = l.At
	if !s.begun {
		s.begun, s.began = true, s.now
	}
	// What has bound once is what the job has to fit into: as its processes end
	// another limit, the node's, may be the fullest.
	if l.Limit > 0 && (s.limit == 0 || l.Limit <= s.limit) {
		s.limit, s.accounting = l.Limit, l.Accounting
	}
	if len(l.Loaders) > 0 {
		s.loaders.all = append(s.loaders.all[:0], l.Loaders...)
		s.startLoading()
	}
	var sum rss.Bytes
	for i := range l.Procs {
		p := &l.Procs[i]
		sum += p.RSS
		s.follow(p)
	}
	s.tree = max(s.tree, sum)
	for i := range l.Parts {
		if t := s.known[l.Parts[i].ID]; t != nil {
			t.parts.add(&l.Parts[i])
		}
	}
	for i := range l.Files {
		s.files.take(s, &l.Files[i])
	}
	for i := range l.Shm {
		s.shm.take(s, &l.Shm[i])
	}
	for i := range l.Counts {
		if t := s.known[l.Counts[i].ID]; t != nil {
			t.counts.add(s.now, &l.Counts[i])
		}
	}
	if s.now-s.judged >= s.pause() {
		s.judge()
	}
}

// pause is how long findings stand.
func (s *State) pause() time.Duration {
	return min(rarely, max(every, (s.now-s.began)/partOfTime))
}

// leave drops ended processes. What was found of them stays.
func (s *State) leave(l *Look) {
	s.tick++
	for i := range l.Procs {
		if t := s.known[l.Procs[i].ID]; t != nil && l.Procs[i].RSS > 0 { // a zombie has ended
			t.seen = s.tick
		}
	}
	gone := map[rss.Role]bool{}
	for _, t := range s.tracks {
		if t.seen != s.tick {
			gone[t.role] = true
		}
	}
	if len(gone) == 0 {
		return
	}
	s.judge()
	for _, d := range s.current {
		if gone[d.Role] {
			s.keep(d)
		}
	}
	s.tracks = slices.DeleteFunc(s.tracks, func(t *track) bool {
		if t.seen != s.tick {
			delete(s.known, t.id)
		}
		return t.seen != s.tick
	})
	s.shm.mounts = slices.DeleteFunc(s.shm.mounts, func(m *mount) bool { return s.known[m.of] == nil })
}

// keep keeps a finding for good, the one that cost most.
func (s *State) keep(d event.Diagnosis) {
	k := key{d.Finding, d.Role}
	if old, ok := s.past[k]; !ok || d.Rank() > old.Rank() {
		s.past[k] = d
	}
}

func (s *State) follow(p *rss.Proc) {
	t := s.known[p.ID]
	judged := p.Role == rss.RoleTrainer || p.Role == rss.RoleWorker || p.Role == rss.RoleShmManager
	if t == nil {
		if !judged || p.RSS == 0 {
			return
		}
		t = &track{id: p.ID, role: p.Role, since: s.now, seen: s.tick}
		s.known[p.ID] = t
		at, _ := slices.BinarySearchFunc(s.tracks, t, func(a, b *track) int { return cmp.Compare(a.id.PID, b.id.PID) })
		s.tracks = slices.Insert(s.tracks, at, t)
	}
	if judged {
		t.role = p.Role
	}
	if p.RSS == 0 {
		return
	}
	t.parent = p.Parent
	t.rss = p.RSS
	v := [measures]rss.Bytes{anon: p.Anon, file: p.File, shmem: p.Shmem, pinned: p.Pinned, locked: p.Locked}
	t.series.add(s.now, v)
	if !t.based && s.now >= s.start(t) {
		t.base, t.based = v, true
	}
	if t.role == rss.RoleWorker {
		s.startLoading()
		if p.PSS != nil && p.PSS.PSS > 0 {
			t.pss = *p.PSS
		}
	}
}

func (s *State) startLoading() {
	if s.loads {
		return
	}
	s.loads, s.loading = true, s.now
	for _, t := range s.tracks {
		t.based = t.based && t.role != rss.RoleTrainer
	}
}

// Tell takes in what the loader hook, or a trim without it, has reported, and ignores what
// it does not need.
func (s *State) Tell(at time.Duration, e *event.LoaderSaid) {
	s.now = max(s.now, at)
	who := cmp.Or(e.Worker, e.PID)
	switch e.What {
	case event.LoaderIter:
		s.startLoading()
	case event.LoaderTrimmed:
		s.files.trims += max(e.Count, 1)
		s.files.trimmed += e.Freed
		for _, t := range s.tracks {
			if t.id.PID == who {
				t.dropped = max(t.dropped, e.Freed/rss.Bytes(max(e.Count, 1)))
			}
		}
	case event.LoaderCollected:
		s.leaks.collected(s, who, e.Freed)
		s.judged = s.now - rarely // with the next look
	case event.LoaderPickling:
		if e.Sharing != nil && len(s.loaders.sent) < manyTold {
			s.loaders.sent[e.PID] = *e.Sharing
			s.judged = s.now - rarely
		}
	}
}

// manyTold bounds what is kept of what processes tell, some of which have ended.
const manyTold = 1024

func (s *State) judge() {
	s.judged = s.now
	s.current = s.current[:0]
	if !s.begun {
		return
	}
	s.files.judge(s, rss.RoleWorker)
	s.files.judge(s, rss.RoleTrainer)
	copyOnWrite(s)
	s.leaks.fragmented(s)
	s.leaks.judge(s, rss.RoleWorker)
	s.leaks.judge(s, rss.RoleTrainer)
	s.shm.queue(s)
	s.shm.pin(s)
	managers(s)
	s.loaders.judge(s)
	copies(s)
}

// tell adds a finding. What was measured has cost what it cost, and stays: a
// process that ends has less with each look. A leak is one as long as it goes on.
func (s *State) tell(d event.Diagnosis) {
	s.current = append(s.current, d)
	endless := d.Finding == event.FindingWorkerLeak || d.Finding == event.FindingTrainerLeak
	if !endless && d.Confidence != event.Possible {
		s.keep(d)
	}
}

func (s *State) of(r rss.Role) iter.Seq[*track] {
	return func(yield func(*track) bool) {
		for _, t := range s.tracks {
			if t.role == r && !yield(t) {
				return
			}
		}
	}
}

func (s *State) count(r rss.Role) (n int) {
	for range s.of(r) {
		n++
	}
	return n
}

// Findings returns what was found, the weightiest first, as events without heads. Looks
// update them, each second at first and each 10 s later. A nil State finds nothing.
func (s *State) Findings() []event.Diagnosis {
	if s == nil {
		return nil
	}
	out := slices.Clone(s.current)
	for k, old := range s.past {
		i := slices.IndexFunc(out, func(d event.Diagnosis) bool { return key{d.Finding, d.Role} == k })
		switch {
		case i < 0:
			out = append(out, old)
		case old.Rank() > out[i].Rank():
			out[i] = old
		}
	}
	slices.SortFunc(out, func(a, b event.Diagnosis) int {
		return cmp.Or(cmp.Compare(b.Weigh(s.tree, s.accounting), a.Weigh(s.tree, s.accounting)), cmp.Compare(a.Finding, b.Finding), cmp.Compare(a.Role, b.Role))
	})
	return out
}

// matters is from how many bytes on a growth counts.
func (s *State) matters() rss.Bytes {
	return max(leastGrowth, cmp.Or(s.limit, s.tree).Scale(leastShare))
}

// countsMapped says that the limit counts pages of mapped files for each process,
// as far as is known.
func (s *State) countsMapped() bool {
	return s.accounting != event.AccountingCgroup && s.accounting != event.AccountingNoShared
}

// fewer is the advice to have fewer workers, with how many there are.
func (s *State) fewer(why string) string {
	if n := s.count(rss.RoleWorker); n > 1 {
		return fmt.Sprintf("num_workers below the %d there are: %s", n, why)
	}
	return "a lower num_workers: " + why
}
