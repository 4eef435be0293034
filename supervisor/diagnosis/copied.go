package diagnosis

import (
	"fmt"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// partsTrack is the first and the last reading of smaps_rollup of one process.
type partsTrack struct {
	first, last Parts
	n           int
}

func (p *partsTrack) add(r *Parts) {
	if p.n > 0 && r.At <= p.last.At {
		return
	}
	if p.n == 0 {
		p.first = *r
	}
	p.last = *r
	p.n++
}

// anonGrowth is by how much all anonymous memory grew between the two.
func (p *partsTrack) anonGrowth() rss.Bytes { return p.last.Anonymous.Sub(p.first.Anonymous) }

// copied is what became private of what a fork had shared: Private_Dirty went up
// by more than there is new memory, and Shared_Dirty down.
func (p *partsTrack) copied() (rss.Bytes, bool) {
	if p.n < 2 || p.last.At-p.first.At < settle {
		return 0, false
	}
	up := p.last.PrivateDirty.Sub(p.first.PrivateDirty).Sub(p.anonGrowth())
	return min(up, p.first.SharedDirty.Sub(p.last.SharedDirty)), true
}

// ownGrowth is by how much Private_Dirty grew, where that is new memory.
func (p *partsTrack) ownGrowth() (rss.Bytes, bool) {
	up := p.last.PrivateDirty.Sub(p.first.PrivateDirty)
	grown := p.anonGrowth()
	return min(up, grown), p.n > 1 && grown >= slight && up >= grown/2
}

// pssTrack is the first and the last PSS of a worker, which a record has where
// nobody read more.
type pssTrack struct {
	first, last pssPoint
	n           int
}

type pssPoint struct {
	at                     time.Duration
	pss, rss, anon, others rss.Bytes
	workers                int
}

func (p *pssTrack) add(q *rss.Proc, workers int) {
	v := pssPoint{q.PSS.At, q.PSS.PSS, q.PSS.RSS, q.Anon, q.File + q.Shmem, workers}
	if p.n > 0 && v.at == p.last.at && v.pss == p.last.pss {
		return
	}
	// Another number of workers shares the same pages otherwise.
	if p.n == 0 || v.workers != p.first.workers {
		p.first = v
		p.n = 0
	}
	p.last = v
	p.n++
}

// copied is by how much PSS grew while nothing else did.
func (p *pssTrack) copied() (rss.Bytes, bool) {
	if p.n < 2 || p.last.at-p.first.at < settle {
		return 0, false
	}
	moved := p.last.anon.Sub(p.first.anon) + p.last.others.Sub(p.first.others) + p.first.others.Sub(p.last.others)
	return p.last.pss.Sub(p.first.pss).Sub(moved), true
}

// leastCopied is what each worker must have copied: the interpreter's own objects
// and torch's, which every worker touches, come to half of it.
const leastCopied = 32 * rss.MiB

// copied tells of pages that a fork had shared and workers write to: reference
// counts stand in the objects themselves.
func (s *State) copied() {
	var g, byPSS group
	workers := 0
	for _, t := range s.tracks {
		if t.role != rss.RoleWorker {
			continue
		}
		workers++
		if v, ok := t.parts.copied(); ok {
			g.add(t, v, t.parts.last.At-t.parts.first.At)
		} else if v, ok := t.pss.copied(); ok {
			byPSS.add(t, v, t.pss.last.at-t.pss.first.at)
		}
	}
	confidence, evidence := event.Likely, ""
	switch {
	case g.n > 0:
		if g.sum/rss.Bytes(g.n) < leastCopied {
			return
		}
		p := &g.most.parts
		evidence = fmt.Sprintf("process %d: Private_Dirty from %v to %v and Shared_Dirty from %v to %v in %s, with its anonymous memory at %v before and %v after (smaps_rollup)",
			g.most.id.PID, p.first.PrivateDirty, p.last.PrivateDirty, p.first.SharedDirty, p.last.SharedDirty, text.About(g.over.Seconds()), p.first.Anonymous, p.last.Anonymous)
		if p.n > 2 {
			confidence = event.Certain
		}
	case byPSS.n > 0:
		g = byPSS
		if g.sum/rss.Bytes(g.n) < leastCopied {
			return
		}
		p := &g.most.pss
		confidence = event.Possible
		evidence = fmt.Sprintf("process %d: PSS from %v to %v in %s, with RssAnon at %v before and %v after, among as many workers (smaps_rollup, status)",
			g.most.id.PID, p.first.pss, p.last.pss, text.About(g.over.Seconds()), p.first.anon, p.last.anon)
	default:
		return
	}
	total := g.sum / rss.Bytes(g.n) * rss.Bytes(workers)
	if total < s.matters() {
		return
	}
	of := fmt.Sprintf("%s copied %v of what the fork shared: no sum of RSS shows it", text.Count(g.n, "worker"), g.sum)
	if g.n < workers {
		of = fmt.Sprintf("%d of %d workers were read and copied %v of what the fork shared, so all of them some %v (an estimate): no sum of RSS shows it",
			g.n, workers, g.sum, total)
	}
	s.tell(event.Diagnosis{
		Finding: event.FindingCopyOnWrite, Confidence: confidence, Role: rss.RoleWorker, PID: g.most.id.PID, Bytes: total,
		Evidence: []string{evidence, of}, Advice: s.copyAdvice(),
	})
}
