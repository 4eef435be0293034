package workers

import (
	"testing"

	"github.com/rsswarden/rsswarden/rss"
)

// TestPSSFloor: a trainer's anonymous memory and what its forked workers have got since
// count in full, however the rest is shared; of several trainers, that may share, one counts.
func TestPSSFloor(t *testing.T) {
	f := staffed(11, 12)
	s := &rss.Sample{Procs: []rss.Proc{proc(1, 400, 90), proc(11, 400, 20), proc(12, 400, 20)}}
	f.Update(s, nil)
	s.Procs[1].Anon, s.Procs[2].Anon = 450, 390
	if got := f.PSSFloor(); got != 450 {
		t.Errorf("%d, want the trainer's 400 and a worker's 50", got)
	}
	other := &worker{id: rss.ProcID{PID: 21, Start: 1}, trainer: 2, shared: 400}
	f.staff[21] = other
	s.Procs = append(s.Procs, rss.Proc{ID: rss.ProcID{PID: 2, Start: 1}, Anon: 400}, rss.Proc{ID: other.id, Anon: 500})
	if got := f.PSSFloor(); got != 500 {
		t.Errorf("%d, want that of the trainer with the most, 500", got)
	}
	other.shared = 0
	if got := f.PSSFloor(); got != 450 {
		t.Errorf("%d: it is not known what a spawned worker shares", got)
	}
}
