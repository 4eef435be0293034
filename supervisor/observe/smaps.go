package observe

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/shm"
	"github.com/rsswarden/rsswarden/supervisor/diagnosis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Smaps reads on the side what a diagnosis wants beside the samples:
// smaps_rollup, smaps, the segments in /dev/shm. The kernel holds mmap_lock of
// the process for the first, and all of them are expensive: they may take smapsShare
// of a core, and what would hold up a process for long is not read.
type Smaps struct {
	*probe.Reader[smapsQuestion, smapsAnswer]
	costs probe.Bucket // which holds nothing: what was spent is paid before the next
	// failed is when a reading last gave nothing: then the next one that is wanted goes
	// before it.
	failed map[diagnosis.Want]time.Duration
}

// smapsQuestion is one reading that is wanted.
type smapsQuestion struct {
	want     diagnosis.Want
	now      time.Duration
	all      []int // the tree
	trainers []int
}

// smapsAnswer is its result.
type smapsAnswer struct {
	want  diagnosis.Want
	found diagnosis.Look // empty where it could not be read
	whole bool           // it has all that was wanted
	cost  time.Duration
}

const (
	// smapsShare is the part of a core for such readings.
	smapsShare = 0.002
	// smapsRetry is how long what could not be read is left alone.
	smapsRetry = time.Minute
)

// NewSmaps reads below proc.
func NewSmaps(proc string) *Smaps {
	tree := proctree.New(proc)
	return &Smaps{costs: probe.Bucket{Share: smapsShare}, failed: map[diagnosis.Want]time.Duration{}, Reader: probe.New(nil, func(ask smapsQuestion) smapsAnswer {
		fault.Point("closelook")
		return ask.read(tree, proc)
	})}
}

// TakeInto puts what was read into the look, if anything was since.
func (r *Smaps) TakeInto(now time.Duration, into *diagnosis.Look) {
	got, ok := r.Take()
	if !ok {
		return
	}
	r.costs.Fill(now)
	r.costs.Spend(got.cost)
	if !got.whole {
		r.failed[got.want] = now
	}
	into.Parts = append(into.Parts, got.found.Parts...)
	into.Files = append(into.Files, got.found.Files...)
	into.Shm = append(into.Shm, got.found.Shm...)
}

// AskFirst asks for the first of these that may be read now.
func (r *Smaps) AskFirst(now time.Duration, wants []diagnosis.Want, s *rss.Sample) {
	if r.Busy() || r.costs.Fill(now) < 0 {
		return
	}
	maps.DeleteFunc(r.failed, func(_ diagnosis.Want, at time.Duration) bool { return now-at >= smapsRetry })
	i := slices.IndexFunc(wants, func(w diagnosis.Want) bool {
		p := s.Find(w.ID.PID)
		if p == nil || p.ID != w.ID || p.State == 'D' || p.State == 'Z' {
			return false
		}
		if _, failed := r.failed[w]; failed {
			return false
		}
		// smaps gives mmap_lock back between two mappings: the largest may be all
		// of what is mapped from files.
		return !(w.Reading == diagnosis.WantParts && proctree.Lengthy(p.RSS) || w.Reading == diagnosis.WantFiles && proctree.Lengthy(p.File+p.Shmem))
	})
	if i < 0 {
		return
	}
	ask := smapsQuestion{want: wants[i], now: now}
	if ask.want.Reading == diagnosis.WantShm {
		for i := range s.Procs {
			p := &s.Procs[i]
			ask.all = append(ask.all, p.ID.PID)
			if p.Role == rss.RoleTrainer {
				ask.trainers = append(ask.trainers, p.ID.PID)
			}
		}
	}
	r.Ask(ask, false)
}

func (a *smapsQuestion) read(tree *proctree.Reader, proc string) (r smapsAnswer) {
	r.want = a.want
	switch a.want.Reading {
	case diagnosis.WantParts:
		p, err := tree.Parts(a.want.ID)
		r.cost, p.At = p.Cost, a.now
		if r.whole = err == nil; r.whole {
			r.found.Parts = []diagnosis.Parts{{ID: a.want.ID, Parts: p}}
		}
	case diagnosis.WantFiles:
		m, cost, err := tree.MappedFiles(a.want.ID)
		r.cost = cost
		if r.whole = err == nil; r.whole {
			r.found.Files = []diagnosis.Files{{ID: a.want.ID, At: a.now, MappedFiles: m}}
		}
	case diagnosis.WantSpace, diagnosis.WantShm:
		a.segments(proc, &r)
	}
	return r
}

// segments reads how full a /dev/shm is and, where that is wanted, what of the
// tree's is in it.
func (a *smapsQuestion) segments(proc string, r *smapsAnswer) {
	space, err := shm.Usage(proc, a.want.ID.PID)
	if err != nil {
		return
	}
	out := diagnosis.Shm{ID: a.want.ID, At: a.now, Used: space.Used, Size: space.Size}
	r.whole = a.want.Reading == diagnosis.WantSpace
	defer func() { r.found.Shm = []diagnosis.Shm{out} }()
	if r.whole {
		return
	}
	held, err := shm.Segments(proc, a.all)
	if r.cost = held.Cost; err != nil {
		return
	}
	out.Read, r.whole = true, true
	for i := range held.Segments {
		s := &held.Segments[i]
		if s.Kind != shm.Torch || s.Dev != space.Dev {
			continue
		}
		out.Segments++
		out.Torch += s.Size
		if !s.Deleted {
			out.Visible++
		}
		if slices.ContainsFunc(s.Holders, func(pid int) bool { return slices.Contains(a.trainers, pid) }) {
			out.Trainer += s.Size
		}
	}
}

// SHMUsers finds out which processes hold what fills /dev/shm. The files of PyTorch's
// file_descriptor strategy have no name: ls shows nothing, and only the descriptors and
// mappings of processes tell.
type SHMUsers struct {
	*probe.Reader[shmQuestion, string]
	proc string
}

type shmQuestion struct {
	proc  string
	pid   int    // whose /dev/shm is meant
	all   []int  // the tree
	level string // the cgroup that is charged, empty for none
}

// NewSHMUsers reads below proc.
func NewSHMUsers(set *probe.Set, proc string) *SHMUsers {
	return &SHMUsers{proc: proc, Reader: probe.New(set, func(ask shmQuestion) string {
		fault.Point("holders")
		return ask.read()
	})}
}

// Told is what was found since the last call, empty for nothing.
func (u *SHMUsers) Told() string {
	text, _ := u.Take()
	return text
}

// read words what the tree holds: "in /dev/shm the job holds torch 80.0 MiB (10
// segments, 10 without a name: in processes 12 and 13); 80.0 MiB of shared memory
// are charged to …".
func (a *shmQuestion) read() string {
	space, err := shm.Usage(a.proc, a.pid)
	if err != nil {
		return ""
	}
	held, err := shm.Segments(a.proc, a.all)
	if err != nil {
		return ""
	}
	var parts []string
	sums := held.Sum(space.Dev)
	for _, kind := range slices.SortedFunc(maps.Keys(sums), func(a, b shm.Kind) int { return cmp.Compare(sums[b], sums[a]) }) {
		if total := sums[kind]; total >= rss.MiB {
			parts = append(parts, fmt.Sprintf("%s %v (%s)", kind, total, a.segments(&held, space.Dev, kind)))
		}
	}
	text := "in /dev/shm this job holds "
	if len(parts) == 0 {
		text += "nothing of size open or mapped; files that were left behind: ls -l /dev/shm"
	} else {
		text += strings.Join(parts, ", ")
	}
	if a.level != "" {
		level := cgroup.Level{Version: 2, Dir: a.level}
		if _, err := os.Stat(level.UsageFile()); err != nil {
			level.Version = 1
		}
		defer level.Close()
		if m, err := level.Memory(); err == nil {
			text += fmt.Sprintf("; %v of shared memory are charged to %s", m.Shmem, (&event.Limit{LimitSource: a.level}).Place())
		}
	}
	return text
}

// segments says of one kind how many there are, how many have no name, and which processes
// hold them.
func (a *shmQuestion) segments(held *shm.Held, dev uint64, kind shm.Kind) string {
	n, nameless := 0, 0
	by := map[int]rss.Bytes{}
	for i := range held.Segments {
		s := &held.Segments[i]
		if s.Kind != kind || s.Dev != dev {
			continue
		}
		n++
		if s.Deleted {
			nameless++
		}
		for _, pid := range s.Holders {
			by[pid] += s.Size
		}
	}
	pids := slices.SortedFunc(maps.Keys(by), func(a, b int) int { return cmp.Or(cmp.Compare(by[b], by[a]), cmp.Compare(a, b)) })
	more := ""
	if len(pids) > mostUsers {
		more = fmt.Sprintf(" and %d more", len(pids)-mostUsers)
		pids = pids[:mostUsers]
	}
	names := make([]string, len(pids))
	for i, pid := range pids {
		names[i] = fmt.Sprint(pid)
	}
	line := text.Count(n, "segment")
	if nameless > 0 {
		line += fmt.Sprintf(", %d without a name", nameless)
	}
	return line + ", in processes " + strings.Join(names, ", ") + more
}

const mostUsers = 6
