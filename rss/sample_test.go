package rss

import (
	"errors"
	"math"
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

func TestBytesString(t *testing.T) {
	for _, c := range []struct {
		in   Bytes
		want string
	}{
		{0, "0 B"},
		{1023, "1023 B"},
		{KiB, "1.00 KiB"},
		{612 * MiB, "612 MiB"},
		{1023 * MiB, "1023 MiB"},
		{2795 * MiB, "2.73 GiB"},
		{99*GiB + 1000*MiB, "100 GiB"},
		{10*GiB - MiB, "10.0 GiB"},
		{10 * GiB, "10.0 GiB"},
		{3 * TiB, "3.00 TiB"},
		{math.MaxUint64, "16777216 TiB"},
	} {
		if got := c.in.String(); got != c.want {
			t.Errorf("Bytes(%d) = %q, want %q", uint64(c.in), got, c.want)
		}
	}
}

func TestBytesAsTyped(t *testing.T) {
	for _, c := range []struct {
		used, limit Bytes
		typed, want string
	}{
		{1034 * MiB, 1100 * MiB, "1100 MiB", "1034 of 1100 MiB"},
		{1638 * MiB, 3 * GiB, "3.0 GiB", "1.6 of 3.0 GiB"},
		{2881 * MiB, 3000 * MiB, "3000 MiB", "2881 of 3000 MiB"},
		{1894 * MiB, 24064 * MiB, "23.5 GiB", "1.8 of 23.5 GiB"},
		{154 * GiB, 1536 * GiB, "1536 GiB", "154 of 1536 GiB"},
		{3*MiB + MiB/2, 200*MiB + KiB, "200 MiB", "3.5 of 200 MiB"},
		{3 * KiB / 2, 40 * KiB, "40 KiB", "1.5 of 40 KiB"},
		{30 * MiB, 100 * GiB, "100 GiB", "30.0 MiB of 100 GiB"},
		{52 * MiB, 100 * GiB, "100 GiB", "0.1 of 100 GiB"},
		{0, 0, "0 B", "0 of 0 B"},
	} {
		if got := c.limit.Typed(); got != c.typed {
			t.Errorf("Typed: %q, want %q", got, c.typed)
		}
		if got := UsedOf(c.used, c.limit); got != c.want {
			t.Errorf("UsedOf: %q, want %q", got, c.want)
		}
	}
}

func TestBytesArithmetic(t *testing.T) {
	if got := Bytes(5).Sub(3); got != 2 {
		t.Errorf("5 − 3 = %d", got)
	}
	if got := Bytes(3).Sub(5); got != 0 {
		t.Errorf("3 − 5 = %d, want 0: counters read apart may cross", got)
	}
	if got := Bytes(91).Of(100); got != 0.91 {
		t.Errorf("91 of 100 = %v", got)
	}
	if got := Bytes(91).Of(0); got != 0 {
		t.Errorf("91 of 0 = %v, want 0", got)
	}
	for _, c := range []struct {
		b    Bytes
		f    float64
		want Bytes
	}{
		{100, 0.5, 50}, {3, 0.5, 1}, {100, -1, 0}, {100, math.NaN(), 0}, {GiB, math.Inf(1), math.MaxUint64}, {0, 7, 0},
	} {
		if got := c.b.Scale(c.f); got != c.want {
			t.Errorf("%d × %v = %d, want %d", c.b, c.f, got, c.want)
		}
	}
}

func TestParseBytes(t *testing.T) {
	for in, want := range map[string]Bytes{
		"3000":  3000 * MiB, // as sbatch: MiB
		"3000M": 3000 * MiB,
		"1":     MiB,
		"4G":    4 * GiB,
		"4GB":   4 * GiB,
		"4gib":  4 * GiB,
		"4 G":   4 * GiB,
		" 4G ":  4 * GiB,
		"1.5G":  1536 * MiB,
		".5K":   512,
		"2T":    2 * TiB,
		"2TiB":  2 * TiB,
		"7KB":   7 * KiB,
		"100B":  100,
		"0":     0,
	} {
		got, err := ParseBytes(in)
		if err != nil || got != want {
			t.Errorf("ParseBytes(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "G", "-1G", "+1G", "1..5G", "4X", "4 G B", "1e3", "0x10", "9999999999999T", "inf", "4%"} {
		if got, err := ParseBytes(in); !errors.Is(err, ErrSize) {
			t.Errorf("ParseBytes(%q) = %d, %v; want an error that is ErrSize", in, got, err)
		}
	}
}

func FuzzParseBytes(f *testing.F) {
	for _, s := range []string{"3000", "1.5G", "4 GiB", "-1", "1..2", "9e9", "1T\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b, err := ParseBytes(s)
		if err != nil {
			if !errors.Is(err, ErrSize) {
				t.Fatalf("%q: %v is not ErrSize", s, err)
			}
			return
		}
		if b >= math.MaxInt64 {
			t.Fatalf("%q gives %d, more than any size", s, uint64(b))
		}
		if b.String() == "" {
			t.Fatalf("%q has no text", s)
		}
	})
}
