package report

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// facts is what advice rests on, of one run.
type facts struct {
	run  *record.Run
	exit *event.Exit // nil where none was written
	end  time.Duration

	limits []limitFacts // by index in run.Limits
	procs  []procFacts  // by index in run.Procs; nothing in it for a journal
	// What all workers, and all trainers, of the tree had together.
	workers, trainers groupFacts
	tree              groupFacts // … and all of it
	// helped counts outcomes that freed something, and trims to keep to a budget; asked
	// those that somebody asked for while there was room, which are not in helped.
	helped, asked int
	unneeded      map[uint64]bool // decisions that somebody asked for while there was room
	// told is when a SIGTERM reached the holder last, negative for never: Slurm
	// sends one before the job's end and with scancel.
	told  time.Duration
	grown grown
	now   groupNow // of the sample at hand
	ledFacts
}

// limitFacts is one limit over a run.
type limitFacts struct {
	peak    record.Reading // at its highest use
	at      time.Duration
	seen    bool
	used    course
	workers groupNow // at the peak
}

// procFacts is one process.
type procFacts struct {
	seen        bool
	first, last time.Duration
	born        rss.Bytes // RssAnon when it was first seen
	trainer     rss.Bytes // … and its parent's, 0 where that is no trainer
}

// groupFacts is what several processes had together, over the run.
type groupFacts struct {
	anon, file, shmem, pss, rss course
	most                        int // at most at a time
	noPSS                       bool
}

// groupNow is what the workers had in one sample.
type groupNow struct {
	count, trainers        int
	anon, file, shmem, pss rss.Bytes
	grown                  rss.Bytes // RssAnon beyond what each was born with
	noPSS                  bool
}

func (g *groupNow) add(u *record.Usage, born rss.Bytes) {
	g.count++
	g.anon, g.file, g.shmem, g.pss = g.anon+u.Anon, g.file+u.File, g.shmem+u.Shmem, g.pss+u.PSS
	g.grown += u.Anon.Sub(born)
	g.noPSS = g.noPSS || u.PSS == 0
}

func (g *groupFacts) add(at time.Duration, n *groupNow) {
	if n.count == 0 {
		return
	}
	g.most = max(g.most, n.count)
	g.anon.add(at, n.anon)
	g.file.add(at, n.file)
	g.shmem.add(at, n.shmem)
	g.rss.add(at, n.anon+n.file+n.shmem)
	g.noPSS = g.noPSS || n.noPSS
	g.pss.add(at, n.pss)
}

func newFacts(r *record.Run) *facts {
	return &facts{
		run: r, exit: r.Exit(), told: -1, limits: make([]limitFacts, len(r.Limits)), procs: make([]procFacts, len(r.Procs)),
		unneeded: map[uint64]bool{},
	}
}

func (f *facts) entry(entry *record.Entry) {
	f.end = max(f.end, entry.At)
	switch e := entry.Value.(type) {
	case *event.Decision:
		if e.Unneeded() {
			f.unneeded[e.ID] = true
		}
	case *event.Outcome:
		switch {
		case !e.OK || e.Freed == 0:
		case f.unneeded[e.Decision]:
			f.asked++
		default:
			f.helped++
		}
	case *event.Signal:
		if e.Signal == "SIGTERM" {
			f.told = entry.At
		}
	case *event.Rank:
		f.rank(entry.At, e)
	case *event.Diagnosis:
		f.grown.diagnosed(entry.At, e)
	case *event.LoaderSaid:
		if e.What == event.LoaderTrimmed && e.Freed > 0 {
			f.helped++
		}
	}
}

func (f *facts) sample(s *record.Sample) {
	f.end = max(f.end, s.At)
	f.processes(s)
	for i := range s.Limits {
		r := &s.Limits[i]
		if r.Limit < 0 || r.Limit >= len(f.limits) {
			continue
		}
		l := &f.limits[r.Limit]
		l.used.add(s.At, r.Used)
		if !l.seen || r.Used > l.peak.Used {
			l.peak, l.at, l.workers = *r, s.At, f.now
		}
		l.seen = true
	}
}

func (f *facts) processes(s *record.Sample) {
	var workers, trainers, tree groupNow
	for i := range s.Procs {
		u := &s.Procs[i]
		if u.Proc < 0 || u.Proc >= len(f.procs) {
			continue
		}
		p, who := &f.procs[u.Proc], &f.run.Procs[u.Proc]
		if who.Extra || who.Ours {
			continue
		}
		if !p.seen {
			*p = procFacts{seen: true, first: s.At, born: u.Anon}
			if who.Role == rss.RoleWorker {
				p.trainer = f.trainer(s, who.Parent)
			}
		}
		p.last = s.At
		tree.add(u, p.born)
		switch who.Role {
		case rss.RoleWorker:
			workers.add(u, p.born)
		case rss.RoleTrainer:
			trainers.add(u, p.born)
		}
	}
	for i := range s.Roles { // a journal has these alone
		r := &s.Roles[i]
		n := groupNow{count: r.Count, anon: r.Anon, file: r.File, shmem: r.Shmem, noPSS: true}
		switch r.Role {
		case rss.RoleWorker:
			workers = n
		case rss.RoleTrainer:
			trainers = n
		}
		tree.count, tree.noPSS = tree.count+n.count, true
		tree.anon, tree.file, tree.shmem = tree.anon+n.anon, tree.file+n.file, tree.shmem+n.shmem
	}
	f.workers.add(s.At, &workers)
	f.trainers.add(s.At, &trainers)
	f.tree.add(s.At, &tree)
	f.now = workers
	f.now.trainers = trainers.count
}

// trainer is the RssAnon of the trainer with that PID in a sample.
func (f *facts) trainer(s *record.Sample, pid int) rss.Bytes {
	for i := range s.Procs {
		u := &s.Procs[i]
		if u.Proc >= 0 && u.Proc < len(f.procs) && f.run.Procs[u.Proc].ID.PID == pid && f.run.Procs[u.Proc].Role == rss.RoleTrainer {
			return u.Anon
		}
	}
	return 0
}

// stayed says that most workers lived through at least half of the time in
// which there were any, and how many did: a loader with persistent workers, or
// one that never ends its epoch.
func (f *facts) stayed() (n int, ok bool) {
	span := f.workers.rss.span()
	all := 0
	for i := range f.procs {
		p := &f.procs[i]
		if who := &f.run.Procs[i]; !p.seen || who.Role != rss.RoleWorker || who.Extra {
			continue
		}
		all++
		if p.last-p.first >= span/2 {
			n++
		}
	}
	return n, n > 0 && 2*n >= all
}

// inherited is what workers were born with in all, as far as any were there at a
// time.
func (f *facts) inherited() rss.Bytes {
	var sum rss.Bytes
	n := 0
	for i := range f.procs {
		if p := &f.procs[i]; p.seen && f.run.Procs[i].Role == rss.RoleWorker && n < f.workers.most {
			sum += p.born
			n++
		}
	}
	return sum
}
