package record

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// walk is a run of samples in which processes come, go and change places.
func walk(r *rand.Rand, n, procs int) []Sample {
	var all []Sample
	s := Sample{}
	next := 0
	for i := range n {
		s.At += time.Duration(r.IntN(3000)) * time.Millisecond
		s.AtDecision = r.IntN(20) == 0
		s.Limits = slices.Clone(s.Limits)
		if i == 0 || r.IntN(30) == 0 {
			s.Limits = nil
			for k := range 1 + r.IntN(3) {
				s.Limits = append(s.Limits, Reading{Limit: k * 2, Size: 4*rss.GiB + 1, ETA: -1})
			}
		}
		for k := range s.Limits {
			l := &s.Limits[k]
			l.Used = rss.Bytes(r.IntN(1<<22)) * rss.KiB
			l.UsedMax = l.Used + rss.Bytes(r.IntN(3))*rss.KiB
			l.Charged, l.Binding = l.Used+rss.MiB, k == 1
			if l.ETA = -1; r.IntN(2) == 0 {
				l.ETA = float64(r.IntN(1e6))
			}
		}
		s.Procs = slices.Clone(s.Procs)
		if r.IntN(5) == 0 {
			s.Procs = slices.DeleteFunc(s.Procs, func(Usage) bool { return r.IntN(4) == 0 })
		}
		if r.IntN(50) == 0 {
			r.Shuffle(len(s.Procs), func(i, j int) { s.Procs[i], s.Procs[j] = s.Procs[j], s.Procs[i] })
		}
		for len(s.Procs) < procs && r.IntN(3) > 0 {
			s.Procs = slices.Insert(s.Procs, r.IntN(len(s.Procs)+1), Usage{Proc: next})
			next++
		}
		for k := range s.Procs {
			u := &s.Procs[k]
			switch r.IntN(4) {
			case 0:
				u.Anon = rss.Bytes(r.IntN(1<<22)) * rss.KiB
			case 1:
				u.File += 4 * rss.KiB
				u.PSS = u.File / 2 / rss.KiB * rss.KiB
			case 2:
				u.Maps, u.FDs, u.Shmem = r.IntN(70000), r.IntN(100), rss.Bytes(r.IntN(100))*rss.KiB
			}
		}
		all = append(all, s.clone())
	}
	return all
}

func TestBlocksKeepSamples(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		want := walk(r, 300, []int{0, 1, 16, 400}[seed%4])
		b := NewBuilder(Meta{})
		for range 1 << 14 {
			b.run.Procs = append(b.run.Procs, Proc{})
		}
		b.run.Limits = make([]event.Limit, 8)
		for i := range want {
			b.Sample(&want[i])
		}
		var got []Sample
		for s := range b.Run().Samples() {
			got = append(got, s.clone())
		}
		if diff := cmp.Diff(want, got, cmp.Transformer("nil", func(s Sample) []any {
			return []any{s.At, s.AtDecision, append([]Reading{}, s.Limits...), append([]Usage{}, s.Procs...)}
		})); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
	}
}

// use does with a run what its readers do: nothing it refers to may be missing.
func use(t *testing.T, r *Run) {
	last := time.Duration(-1)
	for s := range r.Samples() {
		if s.At < last {
			t.Fatalf("a sample of %v after one of %v", s.At, last)
		}
		last = s.At
		for i := range s.Limits {
			_ = r.Limits[s.Limits[i].Limit].Name
		}
		for i := range s.Procs {
			_ = r.Procs[s.Procs[i].Proc].Comm
		}
	}
	for _, e := range r.Events {
		if e.Value == nil {
			t.Fatalf("event %s without a value", e.Name)
		}
	}
	_ = r.Exit()
}

func FuzzBlock(f *testing.F) {
	var enc Encoder
	for _, s := range walk(rand.New(rand.NewPCG(1, 1)), 20, 3) {
		enc.Add(&s)
	}
	f.Add(enc.Snapshot(0))
	f.Fuzz(func(t *testing.T, b []byte) {
		use(t, &Run{blocks: [][]byte{b}, Procs: make([]Proc, 4), Limits: make([]event.Limit, 2)})
	})
}

// TestThinnedInOrder: a sample at a decision has the time it was taken at, when
// the fullest of its stretch came after it.
func TestThinnedInOrder(t *testing.T) {
	var enc Encoder
	for n, used := range []rss.Bytes{5, 3, 9, 1} {
		enc.Add(&Sample{
			At: time.Duration(n) * time.Second, AtDecision: n == 1,
			Limits: []Reading{{Used: used * rss.GiB, UsedMax: used * rss.GiB, Size: 10 * rss.GiB, ETA: -1}},
		})
	}
	var got []string
	var d decoder
	for _, it := range Thin([][]byte{enc.Block(0)}, 1) {
		for s := range d.samples(it.Value) {
			got = append(got, fmt.Sprint(s.At, s.AtDecision, s.Limits[0].Used))
		}
	}
	if want := "1s true 3.00 GiB 2s false 9.00 GiB"; strings.Join(got, " ") != want {
		t.Errorf("%s, want %s", strings.Join(got, " "), want)
	}
}
