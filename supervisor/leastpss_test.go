package supervisor

import (
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestLeastPSS: a trainer's anonymous memory and what its forked workers have got since
// count in full, whoever shares the rest; of several trainers, that may share, one counts.
func TestLeastPSS(t *testing.T) {
	f := staffed(11, 12)
	s := &rss.Sample{Procs: []rss.Proc{proc(1, 400, 90), proc(11, 400, 20), proc(12, 400, 20)}}
	f.mark(s, nil, nil)
	s.Procs[1].Anon, s.Procs[2].Anon = 450, 390
	if got := f.leastPSS(s); got != 450 {
		t.Errorf("%d, want the trainer's 400 and a worker's 50", got)
	}
	other := &worker{id: rss.ProcID{PID: 21, Start: 1}, trainer: 2, warm: warmth{heap: 400}}
	f.staff[21] = other
	s.Procs = append(s.Procs, rss.Proc{ID: rss.ProcID{PID: 2, Start: 1}, Anon: 400}, rss.Proc{ID: other.id, Anon: 500})
	if got := f.leastPSS(s); got != 500 {
		t.Errorf("%d, want that of the trainer with the most, 500", got)
	}
	other.warm.heap = 0
	if got := f.leastPSS(s); got != 450 {
		t.Errorf("%d: of a spawned worker nobody knows what it shares", got)
	}
}

// TestRaisePSS: what is certain of a sum of PSS is that at least, and never above what
// it is at most.
func TestRaisePSS(t *testing.T) {
	s := opened(t, withLoader(t))
	s.pss = &pssReader{}
	s.workers = staffed(11)
	s.last = rss.Sample{Procs: []rss.Proc{proc(1, 400, 0), proc(11, 400, 0)}}
	s.workers.mark(&s.last, nil, nil)
	s.last.Procs[1].Anon = 500
	for _, c := range []struct {
		accounting       event.Accounting
		low, high, wants rss.Bytes
	}{
		{event.AccountingPSS, 300, 900, 500},
		{event.AccountingPSS, 600, 900, 600},
		{event.AccountingPSS, 300, 450, 450},
		{event.AccountingRSS, 300, 300, 300},
	} {
		s.readings = []event.Limit{{Name: event.LimitUser, Accounting: c.accounting, Used: c.low, UsedMax: c.high}}
		if s.raisePSS(); s.readings[0].Used != c.wants {
			t.Errorf("%s from %d to %d: at least %d, want %d", c.accounting, c.low, c.high, s.readings[0].Used, c.wants)
		}
	}
}

// TestOwnBack: what a worker had of its own is given back whatever PSS was read when,
// less what the one in its place has; of one that was not seen yet nobody knows.
func TestOwnBack(t *testing.T) {
	s := opened(t, nil)
	s.workers = staffed(11)
	s.last = rss.Sample{Procs: []rss.Proc{proc(1, 400, 0), proc(11, 400, 0)}}
	s.workers.mark(&s.last, nil, nil)
	was := s.last.Procs[1]
	was.Anon = 500
	f := &inFlight{actedOn: []rss.Proc{was}, heap: 400}
	if _, ok := s.ownBack(f); ok {
		t.Error("it was not replaced yet")
	}
	s.workers.took[11] = 12
	s.workers.trainers[0].Loaders[0].Workers = []int{12}
	s.last = rss.Sample{Procs: []rss.Proc{proc(1, 420, 0), proc(12, 420, 0)}}
	s.workers.mark(&s.last, nil, nil)
	s.last.Procs[1].Anon += 30
	if own, ok := s.ownBack(f); !ok || own != 70 {
		t.Errorf("%d, %v; want 70: 100 less the 30 of its replacement", own, ok)
	}
	f.heap = 0
	if _, ok := s.ownBack(f); ok {
		t.Error("of a spawned worker nobody knows what it shared")
	}
}
