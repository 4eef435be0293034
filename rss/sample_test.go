package rss

import "testing"

func TestPSSRange(t *testing.T) {
	for _, c := range []struct {
		what      string
		p         Proc
		low, high Bytes
	}{
		{"never read", Proc{RSS: 100}, 0, 100},
		{"just read", Proc{RSS: 100, PSS: &PSS{PSS: 40, RSS: 100}}, 40, 40},
		{"grown since", Proc{RSS: 130, PSS: &PSS{PSS: 40, RSS: 100}}, 40, 70},
		{"shrunk since", Proc{RSS: 90, PSS: &PSS{PSS: 40, RSS: 100}}, 40, 40},
		{"shrunk below it", Proc{RSS: 30, PSS: &PSS{PSS: 40, RSS: 100}}, 30, 30},
		{"never above RSS", Proc{RSS: 100, PSS: &PSS{PSS: 90, RSS: 50}}, 90, 100},
	} {
		if low, high := c.p.PSSRange(); low != c.low || high != c.high {
			t.Errorf("%s: [%d, %d], want [%d, %d]", c.what, low, high, c.low, c.high)
		}
	}
}

func TestNoShared(t *testing.T) {
	p := Proc{RSS: 100, File: 30, Shmem: 20}
	if got := p.NoShared(); got != 50 {
		t.Errorf("NoShared = %d, want 50", got)
	}
	p.File = 200 // the parts are read apart from the sum and may be ahead of it
	if got := p.NoShared(); got != 0 {
		t.Errorf("NoShared = %d, want 0", got)
	}
}

func TestGapsAdd(t *testing.T) {
	got := Gaps{1, 2, 3}.Add(Gaps{10, 20, 30})
	if got != (Gaps{11, 22, 33}) {
		t.Errorf("sum = %+v", got)
	}
}

func TestSampleFind(t *testing.T) {
	s := Sample{Procs: []Proc{{ID: ProcID{1, 5}}, {ID: ProcID{7, 9}}}, Extra: []Proc{{ID: ProcID{8, 9}}}}
	if p := s.Find(7); p == nil || p.ID.String() != "7@9" {
		t.Errorf("Find(7) = %v", p)
	}
	if p := s.Find(8); p != nil {
		t.Errorf("Find(8) = %v: it is not in the tree", p)
	}
}
