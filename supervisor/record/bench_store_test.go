package record

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// taker does what a recorder does, in one goroutine: it has a store take each
// look as it comes.
type taker struct {
	s       *store
	tab     tables
	enc     encoder
	into    Sample
	blockAt time.Duration
	encoded int // bytes of blocks that are full
}

func newTaker(b testing.TB, dir string, size int64) *taker {
	s, err := openStore(dirAt(b, dir), size)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.close)
	return &taker{s: s, tab: newTables(1)}
}

// items is what a look adds to the record.
func (k *taker) items(l *Look) []item {
	k.tab.sample(l, &k.into)
	var items []item
	if k.enc.full() {
		block := k.enc.block(0)
		k.encoded += len(block) + crcSize + keySize
		items = append(items, item{keyBlock, uint64(k.blockAt / time.Millisecond), block})
	}
	if k.enc.empty() {
		k.blockAt = l.At
	}
	k.enc.add(&k.into)
	items = append(items, k.tab.take()...)
	return append(items, item{keyBlock, uint64(k.blockAt / time.Millisecond), k.enc.snapshot(0)})
}

// BenchmarkCommit is what the writer takes for one sample, alone and while a
// large file is written to the same disk, beside a line of JSON in a file.
func BenchmarkCommit(b *testing.B) {
	for _, busy := range []bool{false, true} {
		name := "idle"
		if busy {
			name = "busy"
		}
		b.Run("record/64/"+name, func(b *testing.B) {
			k, c := newTaker(b, b.TempDir(), fullSize), newScene(64, false)
			defer load(b, busy)()
			timed(b, func(n int) time.Duration {
				items := k.items(c.at(time.Duration(n) * time.Second))
				began := time.Now()
				if err := k.s.commit(items); err != nil {
					b.Fatal(err)
				}
				return time.Since(began)
			})
		})
		b.Run("json/64/"+name, func(b *testing.B) {
			f, err := os.Create(filepath.Join(b.TempDir(), "lines"))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			c := newScene(64, false)
			defer load(b, busy)()
			timed(b, func(n int) time.Duration {
				line := jsonLine(nil, c.at(time.Duration(n)*time.Second))
				began := time.Now()
				if _, err := f.Write(line); err != nil {
					b.Fatal(err)
				}
				return time.Since(began)
			})
		})
	}
}

// timed calls f with pauses, so that what the kernel writes back gets its turn,
// and tells how its times are spread.
func timed(b *testing.B, f func(n int) time.Duration) {
	var all []time.Duration
	for b.Loop() {
		all = append(all, f(len(all)))
		time.Sleep(time.Millisecond)
	}
	slices.Sort(all)
	for name, q := range map[string]float64{"p50": 0.5, "p99": 0.99, "max": 1} {
		b.ReportMetric(float64(all[int(q*float64(len(all)-1))].Nanoseconds())/1e3, name+"-µs")
	}
}

// load writes a large file over and over until the function that it returns is
// called.
func load(b *testing.B, busy bool) func() {
	if !busy {
		return func() {}
	}
	f, err := os.Create(filepath.Join(b.TempDir(), "large"))
	if err != nil {
		b.Fatal(err)
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		defer f.Close()
		part := make([]byte, 1<<20)
		for n := int64(0); ; n++ {
			select {
			case <-end:
				return
			default:
			}
			_, err := f.WriteAt(part, n%512<<20)
			if n%64 == 63 && err == nil {
				err = f.Sync()
			}
			if err != nil {
				b.Error(err)
				return
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// BenchmarkHour tells how large an hour at a sample a second is: by how much the
// file grows from its fifth minute on, what blocks are made of, and the same as
// text.
func BenchmarkHour(b *testing.B) {
	const samples, from = 3600, 300
	for _, procs := range []int{16, 64} {
		b.Run(fmt.Sprint(procs), func(b *testing.B) {
			var file, encoded, asJSON, asText float64
			for b.Loop() {
				dir := b.TempDir()
				k, c := newTaker(b, dir, fullSize), newScene(procs, false)
				var first int64
				lines := [2]int{}
				for n := range samples {
					l := c.at(time.Duration(n) * time.Second)
					if err := k.s.commit(k.items(l)); err != nil {
						b.Fatal(err)
					}
					lines[0] += len(jsonLine(nil, l))
					lines[1] += len(textLine(nil, l))
					if n == from {
						first = fileSize(b, dir)
					}
				}
				file = float64(fileSize(b, dir)-first) / float64((samples-from)*procs)
				all := float64(samples * procs)
				encoded, asJSON, asText = float64(k.encoded)/all, float64(lines[0])/all, float64(lines[1])/all
			}
			b.ReportMetric(file, "B/record")
			b.ReportMetric(encoded, "B/blocks")
			b.ReportMetric(asJSON, "B/json")
			b.ReportMetric(asText, "B/text")
		})
	}
}

func fileSize(b *testing.B, dir string) int64 {
	info, err := os.Stat(filepath.Join(dir, dataFile))
	if err != nil {
		b.Fatal(err)
	}
	return info.Size()
}
