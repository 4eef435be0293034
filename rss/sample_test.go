package rss

import (
	"testing"
	"time"
)

func TestPSSRange(t *testing.T) {
	for _, c := range []struct {
		what      string
		p         Proc
		low, high Bytes
	}{
		{"never read", Proc{RSS: 100}, 0, 100},
		{"just read", Proc{RSS: 100, PSS: &PSS{PSS: 40, RSS: 100}}, 40, 40},
		{"grown since", Proc{RSS: 130, PSS: &PSS{PSS: 40, RSS: 100}}, 40, 70},
		{"grown by its own", Proc{RSS: 130, PSS: &PSS{PSS: 40, RSS: 100}, Private: 20}, 60, 70},
		{"grown by more than RSS did", Proc{RSS: 110, PSS: &PSS{PSS: 40, RSS: 100}, Private: 20}, 50, 50},
		{"never read, grown since it was seen", Proc{RSS: 110, Private: 30}, 30, 110},
		{"shrunk since", Proc{RSS: 90, PSS: &PSS{PSS: 40, RSS: 100}}, 30, 40},
		{"shrunk below it", Proc{RSS: 30, PSS: &PSS{PSS: 40, RSS: 100}}, 0, 30},
		{"never above RSS", Proc{RSS: 100, PSS: &PSS{PSS: 90, RSS: 50}}, 90, 100},
	} {
		if low, high := c.p.PSSRange(); low != c.low || high != c.high {
			t.Errorf("%s: [%d, %d], want [%d, %d]", c.what, low, high, c.low, c.high)
		}
	}
}

// What a file's pages count changes with what is mapped, not with what is anonymous.
func TestPSSFile(t *testing.T) {
	read := &PSS{PSS: 160, RSS: 400, File: 60, Mapped: 200, Split: true}
	for _, c := range []struct {
		what      string
		p         Proc
		low, high Bytes
	}{
		{"never read", Proc{RSS: 300, File: 100}, 0, 100},
		{"just read", Proc{RSS: 400, File: 200, PSS: read}, 60, 60},
		{"more is anonymous", Proc{RSS: 600, File: 200, PSS: read}, 60, 60},
		{"more is mapped", Proc{RSS: 450, File: 250, PSS: read}, 60, 110},
		{"dropped some", Proc{RSS: 350, File: 150, PSS: read}, 10, 60},
		{"dropped nearly all", Proc{RSS: 230, File: 30, PSS: read}, 0, 30},
		{"shared memory is among what was mapped", Proc{RSS: 400, File: 150, Shmem: 50, PSS: read}, 60, 60},
		{"an old kernel", Proc{RSS: 400, File: 200, PSS: &PSS{PSS: 160, RSS: 400}}, 80, 80},
	} {
		if low, high := c.p.PSSFile(); low != c.low || high != c.high {
			t.Errorf("%s: [%d, %d], want [%d, %d]", c.what, low, high, c.low, c.high)
		}
	}
}

// Two map the same 100 pages; in the sum they count once.
func TestPSSSum(t *testing.T) {
	for _, c := range []struct {
		what      string
		procs     []Proc
		low, high Bytes
	}{
		{"both read now", []Proc{
			{RSS: 100, PSS: &PSS{PSS: 50, RSS: 100}}, {RSS: 100, PSS: &PSS{PSS: 50, RSS: 100}}}, 100, 100},
		{"one has ended", []Proc{
			{RSS: 100, PSS: &PSS{PSS: 50, RSS: 100, Loose: 100}}}, 50, 100},
		{"the second was read, the first before it came", []Proc{
			{RSS: 100, PSS: &PSS{PSS: 100, RSS: 100, Joined: 100}}, {RSS: 100, PSS: &PSS{PSS: 50, RSS: 100}}}, 100, 150},
		{"the second was not read", []Proc{
			{RSS: 100, PSS: &PSS{PSS: 100, RSS: 100, Joined: 100}}, {RSS: 100}}, 50, 200},
		{"the second was read, the first before it forked that", []Proc{
			{RSS: 100, PSS: &PSS{PSS: 100, RSS: 100, Anon: 100, Split: true, Born: 100}}, {RSS: 100, PSS: &PSS{PSS: 50, RSS: 100}}}, 100, 150},
		{"four were read, the first before it forked them", []Proc{
			{RSS: 100, PSS: &PSS{PSS: 100, RSS: 100, Anon: 100, Split: true, Born: 400}}, {RSS: 100, PSS: &PSS{PSS: 20, RSS: 100}},
			{RSS: 100, PSS: &PSS{PSS: 20, RSS: 100}}, {RSS: 100, PSS: &PSS{PSS: 20, RSS: 100}}, {RSS: 100, PSS: &PSS{PSS: 20, RSS: 100}}}, 100, 180},
		{"another has mapped since, and what the first has is anonymous", []Proc{
			{RSS: 100, PSS: &PSS{PSS: 80, RSS: 100, Anon: 70, Split: true, Joined: 100}}}, 75, 80},
		{"little that could be shared", []Proc{
			{RSS: 100, PSS: &PSS{PSS: 98, RSS: 100, Loose: 500}}, {RSS: 10, PSS: &PSS{PSS: 10, RSS: 10, Joined: 500, Loose: 500}}}, 103, 110},
	} {
		var s PSSSum
		for i := range c.procs {
			s.Add(&c.procs[i])
		}
		if low, high := s.Range(); low != c.low || high != c.high {
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

func TestSampleFind(t *testing.T) {
	s := Sample{Procs: []Proc{{ID: ProcID{1, 5}}, {ID: ProcID{7, 9}}}, Extra: []Proc{{ID: ProcID{8, 9}}}}
	if p := s.Find(7); p == nil || p.ID.String() != "7@9" {
		t.Errorf("Find(7) = %v", p)
	}
	if p := s.Find(8); p != nil {
		t.Errorf("Find(8) = %v: it is not in the tree", p)
	}
}

func TestMeter(t *testing.T) {
	var m Meter
	if got := m.Pause(0.01); got != 0 {
		t.Errorf("before anything was seen: pause %v, want 0", got)
	}
	m.Add(40 * time.Millisecond) // preempted
	m.Add(time.Millisecond)
	m.Add(2 * time.Millisecond)
	if got := m.Cost(); got != time.Millisecond {
		t.Errorf("cost %v, want the least", got)
	}
	if got := m.Pause(0.01); got != 100*time.Millisecond {
		t.Errorf("pause for 1 %% of a core: %v, want 100ms", got)
	}
	for range meterKept {
		m.Add(5 * time.Millisecond)
	}
	if got := m.Cost(); got != 5*time.Millisecond {
		t.Errorf("cost %v, want what it costs now", got)
	}
	if n := testing.AllocsPerRun(10, func() { m.Add(m.Cost()) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
