package record

import (
	"math/rand/v2"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// scene is a training as benchmarks have it: a trainer for every 16 processes,
// twelve loader workers each, and others that sleep. Workers map a data set and
// give it back, one is replaced now and then; PSS and counts are read seldom, as
// the watcher reads them.
type scene struct {
	rnd  *rand.Rand
	n    int // looks so far
	look Look
	next int // PID
	// still has nothing move at all.
	still bool
}

const trainerEvery = 16

func newScene(procs int, still bool) *scene {
	c := &scene{rnd: rand.New(rand.NewPCG(1, uint64(procs))), still: still, next: 1000}
	c.look.Sample = &rss.Sample{}
	for range procs {
		c.look.Sample.Procs = append(c.look.Sample.Procs, c.proc(len(c.look.Sample.Procs)))
	}
	c.look.Counts = c.counts
	c.look.Limits = []event.Limit{
		{Name: event.LimitCgroup, Scope: event.ScopeJob, Level: "/slurm/uid_1000/job_7", Limit: 256 * rss.GiB, LimitSource: "memory.limit_in_bytes", Binding: true},
		{Name: event.LimitSlurm, Scope: event.ScopeStep, Accounting: event.AccountingRSS, Limit: 256 * rss.GiB, LimitSource: "SLURM_MEM_PER_NODE"},
		{Name: event.LimitNode, Scope: event.ScopeNode, Limit: 512 * rss.GiB, LimitSource: "MemTotal"},
		{Name: event.LimitMaps, Scope: event.ScopeProcess, Limit: 65530, LimitSource: "vm.max_map_count"},
	}
	return c
}

// proc is a new process in place i.
func (c *scene) proc(i int) rss.Proc {
	c.next++
	p := rss.Proc{ID: rss.ProcID{PID: c.next, Start: uint64(c.next)}, Parent: 1000, Comm: "pt_data_worker", Role: rss.RoleWorker, Anon: 240 * rss.MiB, File: 90 * rss.MiB}
	switch i % trainerEvery {
	case 0:
		p.Comm, p.Role, p.Anon = "python", rss.RoleTrainer, 6*rss.GiB
	case 13, 14, 15:
		p.Comm, p.Role, p.Anon = "sleep", rss.RoleOther, rss.MiB
	}
	p.RSS = p.Anon + p.File + p.Shmem
	return p
}

func (c *scene) counts(id rss.ProcID) (maps, fds int) {
	if c.still {
		return 400, 30
	}
	return 400 + c.n/10%7 + id.PID%50, 30
}

// page is so many pages at most.
func (c *scene) pages(most int) rss.Bytes { return rss.Bytes(c.rnd.IntN(most)) * 4 * rss.KiB }

// at moves on to a moment and returns what is seen. It is overwritten by the
// next.
func (c *scene) at(at time.Duration) *Look {
	l := &c.look
	l.At = at
	c.n++
	if c.still && c.n > 1 {
		return l
	}
	var sum rss.Bytes
	procs := l.Sample.Procs
	for i := range procs {
		p := &procs[i]
		switch p.Role {
		case rss.RoleTrainer:
			p.Anon = 6*rss.GiB + c.pages(8192)
			p.Shmem = 200*rss.MiB + c.pages(2048)
		case rss.RoleWorker:
			p.Anon = 240*rss.MiB + c.pages(1024)
			if p.File += c.pages(256); p.File > 2*rss.GiB {
				p.File = 90 * rss.MiB // trimmed
			}
		}
		p.RSS = p.Anon + p.File + p.Shmem
		if c.n%30 == i%30 {
			p.PSS = &rss.PSS{PSS: p.Anon + p.File/12, RSS: p.RSS, At: at}
		}
		sum += p.RSS
	}
	if c.n%300 == 0 {
		procs[1+c.n/300%12] = c.proc(1)
	}
	eta := float64(3600 - c.n%3600)
	for i := range l.Limits[:3] {
		m := &l.Limits[i]
		m.Used, m.UsedMax = sum, sum
		if i == 0 {
			m.Charged, m.WorkingSet, m.ETA = sum+10*rss.GiB+c.pages(1024), sum+c.pages(1024), &eta
		}
	}
	l.Limits[3].Used = rss.Bytes(430 + c.n%20)
	return l
}
