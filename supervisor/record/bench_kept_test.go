package record

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// The benchmarks of cmd/bench say by these where records of real runs are, and
// where a full one is to be made.
const (
	envKept = "RSSWARDEN_BENCH_RECORDS"
	envFull = "RSSWARDEN_BENCH_FULL"
)

// BenchmarkKept tells how large the samples of real records are, which nothing
// else changes: the events of a short run take more.
func BenchmarkKept(b *testing.B) {
	place := os.Getenv(envKept)
	if place == "" {
		b.Skip(envKept + " names no directory of records")
	}
	for _, f := range Find(place) {
		b.Run(f.ID, func(b *testing.B) {
			var size, samples, usages int
			for b.Loop() {
				run, err := Read(context.Background(), f.Record, child)
				if err != nil {
					b.Fatal(err)
				}
				size, samples, usages = 0, 0, 0
				for _, block := range run.blocks {
					size += len(block) + crcSize + keySize
				}
				for s := range run.Samples() {
					samples, usages = samples+1, usages+len(s.Procs)
				}
			}
			if usages == 0 {
				b.Fatal("the record has no samples")
			}
			b.ReportMetric(float64(size)/float64(usages), "B/blocks")
			b.ReportMetric(float64(samples), "samples")
			b.ReportMetric(float64(usages)/float64(samples), "processes")
		})
	}
}

// BenchmarkFull makes a record that is as full as the recorder lets one become:
// some days of 16 processes, of which workers have much to say.
func BenchmarkFull(b *testing.B) {
	dir := os.Getenv(envFull)
	if dir == "" {
		b.Skip(envFull + " names no directory")
	}
	samples := 0
	for b.Loop() {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			b.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(dir, dataFile)); err != nil {
			b.Fatal(err)
		}
		k := newTaker(b, dir, fullSize)
		if err := k.s.commit(firstItems(b, dir)); err != nil {
			b.Fatal(err)
		}
		samples = fillUp(b, k)
	}
	b.ReportMetric(float64(samples), "samples")
	b.ReportMetric(float64(fileSize(b, dir))/(1<<20), "MiB")
}

// fillUp goes on for a while beyond the first that is thinned: from then on a
// record stays as full as it is.
func fillUp(b testing.TB, k *taker) (samples int) {
	const procs, atOnce = 16, 16
	c := newScene(procs, false)
	for end := 0; end == 0 || samples < end; {
		var items []item
		for range atOnce {
			items = items[:max(0, len(items)-1)] // the block that grows is its last
			if samples%2 == 0 {
				items = append(items, loaderSays(b, samples))
			}
			items = append(items, k.items(c.at(time.Duration(samples)*time.Second))...)
			samples++
		}
		if err := k.s.commit(items); err != nil {
			b.Fatalf("sample %d, %d of %d bytes in use: %v", samples, k.s.used, k.s.size, err)
		}
		if end == 0 && k.s.tiers[1] > 0 {
			end = samples + samples/5
		}
	}
	return samples
}

// TestEventsLeaveRoom: events, of which the pages are half empty, do not fill a
// record before its samples are thinned.
func TestEventsLeaveRoom(t *testing.T) {
	k := newTaker(t, t.TempDir(), tmpfsSize)
	samples := fillUp(t, k)
	if k.s.used > k.s.size*8/10 {
		t.Errorf("%d of %d bytes are in use after %d samples", k.s.used, k.s.size, samples)
	}
}

// fullStart is when the run of BenchmarkFull began.
var fullStart = time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)

// loaderSays is what a worker says of itself at a sample.
func loaderSays(b testing.TB, n int) item {
	at := fullStart.Add(time.Duration(n) * time.Second)
	value, err := json.Marshal(event.LoaderSaid{
		Head: event.Head{V: event.Version, Time: at, Seq: uint64(n), Event: event.NameLoader}, What: event.LoaderTrimmed, PID: 1002 + n%12,
	})
	if err != nil {
		b.Fatal(err)
	}
	return item{keyRoutine, 1<<40 + 2 + uint64(n/2), value}
}

// firstItems are the run and its first event.
func firstItems(b *testing.B, dir string) []item {
	m := testMeta()
	m.V, m.Record, m.MaxMapCount, m.MaxFDs = Version, dir, 65530, 1024
	m.Start = fullStart
	first := event.Start{Head: event.Head{V: event.Version, Time: m.Start, Event: event.NameStart}, Command: m.Command, PID: 1001}
	items := []item{{keyMeta, 0, nil}, {keyEvent, 1<<40 + 1, nil}}
	for i, v := range []any{m, first} {
		value, err := json.Marshal(v)
		if err != nil {
			b.Fatal(err)
		}
		items[i].value = value
	}
	return items
}
