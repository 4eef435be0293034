// Package diagnosis says why the memory of a training job grows: which of the findings of
// package event fits what was read, by which numbers, and what to write instead.
//
// It is code over readings: no clock, no files. The same [State] runs in the watcher, fed
// each look, and over a record afterwards. What it keeps is bounded: 48 points of the life of
// each trainer and worker, some 3 KiB. What does not show in what every look reads, as
// copy-on-write does not, a State asks for by [State.Wants]: such files hold up the process
// while they are read. An input that is not there lowers the confidence of a finding, or
// there is none.
//
// # What counts
//
// A growth is reported from 64 MiB on that are also 5 % of the memory limit, or, where none
// is known, of what the tree has. Start-up is left out: a worker's first 5 seconds, and all that
// a trainer does before it has workers.
//
// A leak has no end. It counts where the growth held in each quarter of the time looked at,
// never fell by a third of what it came to, and goes on, over 20 s at least: over the whole
// life of the process, or over its last half or quarter if these are longer than a minute and
// go above all that was before. So a growth that began late is reported once it has lasted for a
// third as long as the process lived before; a ramp that has flattened, a saw-tooth and a
// cache that is full are not reported. Mapped files, shared memory and pinned memory cost what
// they cost even where they have stopped growing, and are reported for that. Workers that are recycled
// end before: by how much they had grown counts, of two or more.
package diagnosis

import (
	"cmp"
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"
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
	bySlurm    bool      // slurmstepd compares it
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
		s.limit, s.accounting, s.bySlurm = l.Limit, l.Accounting, l.BySlurm
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
			s.leaks.end(t)
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
	judged := slices.Contains(judgedRoles, p.Role) || p.Role == rss.RoleShmManager
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
	if t.role.IsWorker() {
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
		for _, t := range s.tracks {
			if t.id.PID == who {
				t.dropped = max(t.dropped, e.Freed/rss.Bytes(max(e.Count, 1)))
			}
		}
	case event.LoaderRecycled:
		s.leaks.replaced(s, e.Worker)
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

// judgedRoles are those whose memory is judged.
var judgedRoles = []rss.Role{rss.RoleWorker, rss.RolePoolWorker, rss.RoleTrainer}

func (s *State) judge() {
	s.judged = s.now
	s.current = s.current[:0]
	if !s.begun {
		return
	}
	for _, role := range judgedRoles {
		s.files.judge(s, role)
	}
	copyOnWrite(s, rss.RoleWorker)
	copyOnWrite(s, rss.RolePoolWorker)
	s.leaks.fragmented(s)
	s.leaks.judge(s, rss.RoleWorker)
	s.leaks.judge(s, rss.RolePoolWorker)
	s.leaks.ofRecycled(s)
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
func (s *State) fewer(role rss.Role, why string) string {
	what := "num_workers"
	if role == rss.RolePoolWorker {
		what = "number of processes in the pool"
	}
	if n := s.count(role); n > 1 {
		return fmt.Sprintf("%s below the %d there are: %s", what, n, why)
	}
	return "a lower " + what + ": " + why
}

// Look is what was read at one moment. Only At and Procs are needed. What was not
// read is left out, never given as 0.
type Look struct {
	At time.Duration // on a clock that only goes forward
	// Procs is the tree with its roles. A process without the role of a trainer,
	// a worker or an shm manager is not judged: see [Guess].
	Procs []rss.Proc
	// Limit is the size of the memory limit that binds and Accounting what it
	// counts; 0 and empty where none is known. BySlurm says that it is slurmstepd's.
	Limit      rss.Bytes
	Accounting event.Accounting
	BySlurm    bool

	// What follows was read since the last look, by whatever plan.
	Parts   []Parts
	Files   []Files
	Shm     []Shm
	Counts  []Count
	Loaders []Loader // all that the hook has told, where it has
}

// Parts is one reading of /proc/PID/smaps_rollup, its At on the clock of Look.At.
type Parts struct {
	ID rss.ProcID
	rss.Parts
}

// Files is what a process has of the files it maps, as /proc/PID/smaps tells.
type Files struct {
	ID rss.ProcID
	At time.Duration
	rss.MappedFiles
}

// Shm is what one /dev/shm has, at one moment; one entry for each mount. Used
// alone is cheap and may come with each look.
type Shm struct {
	ID         rss.ProcID // a trainer that sees it
	At         time.Duration
	Used, Size rss.Bytes // statvfs(3)

	// Read says that segments were looked for: what processes of the tree hold
	// open or map, deleted or not, each counted once.
	Read     bool
	Torch    rss.Bytes // of segments named torch_*, in blocks
	Segments int       // how many those are
	Visible  int       // … and still have their names: the file_system strategy
	Trainer  rss.Bytes // of Torch, what a trainer holds
}

// Count is how many mappings and descriptors a process has, and may have; 0 for
// what is not known.
type Count struct {
	ID              rss.ProcID
	Maps, FDs       int
	MaxMaps, MaxFDs int
}

// Loader is what the hook reported about one DataLoader with workers.
type Loader struct {
	PID        int    // of the trainer
	Workers    int    // num_workers
	Method     string // "fork", "spawn" or "forkserver"; empty where not known
	Persistent bool   // persistent_workers
	Pool       string // class of a pool of processes; empty for a DataLoader

	// What follows is known of workers that are not forked.
	By     string      // who chose Method: "default", "parent", "set_start_method" or "multiprocessing_context"
	Python string      // the trainer's version
	Sent   int64       // bytes that the trainer wrote to start one worker, negative where not read
	Own    []rss.Bytes // private memory that came to each worker with the data set
	// CUDA says that the trainer uses it, Registered which InfiniBand device it has open.
	CUDA       bool
	Registered string
}

// Guess gives roles to processes where no process has one yet, as without the hook: workers
// are what torch names so since 2.5, else what Python has started of its own name; who
// started them is the trainer, or the first process of all. Procs is changed.
func Guess(procs []rss.Proc) {
	for i := range procs {
		if r := procs[i].Role; r == rss.RoleTrainer || r.IsWorker() {
			return
		}
	}
	byPID := make(map[int]*rss.Proc, len(procs))
	for i := range procs {
		byPID[procs[i].ID.PID] = &procs[i]
	}
	some := false
	for i := range procs {
		p, up := &procs[i], byPID[procs[i].Parent]
		if up == nil || up.Role == rss.RoleWorker || !plain(p) || !plain(up) || !loads(p.Comm, up.Comm) {
			continue
		}
		p.Role, up.Role, some = rss.RoleWorker, rss.RoleTrainer, true
	}
	if len(procs) > 0 && !some && plain(&procs[0]) && isPython(procs[0].Comm) {
		procs[0].Role = rss.RoleTrainer
	}
}

func plain(p *rss.Proc) bool {
	return p.Role == rss.RoleOther || p.Role == "" || p.Role == rss.RoleTrainer
}

// loads says that a process of that name, started by one of the other, is a loader worker.
func loads(comm, parent string) bool {
	return strings.HasPrefix(comm, "pt_data_worker") || strings.HasPrefix(comm, "pt_multiproces") ||
		isPython(comm) && isPython(parent)
}

func isPython(comm string) bool { return strings.HasPrefix(comm, "python") }

// unnamed says that shared memory is no file of /dev/shm: what MAP_ANONYMOUS
// makes, which the kernel shows as /dev/zero. So does pinned memory of CUDA.
func unnamed(file string) bool {
	return strings.HasPrefix(file, "/dev/zero") || strings.HasPrefix(file, "/dev/nvidia") || strings.HasPrefix(file, "/SYSV")
}

// batch says that shared memory is a tensor that torch sent to another process.
func batch(file string) bool { return strings.HasPrefix(path.Base(file), "torch_") }
