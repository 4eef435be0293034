package record

import (
	"testing"
	"time"
)

// BenchmarkSamples is one pass over two hours of 16 processes, of which a report
// makes some.
func BenchmarkSamples(b *testing.B) {
	const procs, samples = 16, 7200
	k, c := newTaker(b, b.TempDir(), fullSize), newScene(procs, false)
	l := newLoading()
	for n := range samples {
		for _, it := range k.items(c.at(time.Duration(n) * time.Second)) {
			// The block that grows comes again when it is full.
			if key := makeKey(it.kind, it.n); it.kind != keyBlock || n == samples-1 || it.n != uint64(k.blockAt/time.Millisecond) {
				l.entry(key, seal(key, it.value))
			}
		}
	}
	l.found = true
	run, err := l.finish("bench")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for s := range run.Samples() {
			n += len(s.Procs)
		}
		if n != samples*procs {
			b.Fatalf("%d of %d were read", n, samples*procs)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(samples*procs), "ns/process")
}
