//go:build endurance

package supervisor

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// deaf is a log that keeps nothing.
type deaf struct{}

func (deaf) Info(string) {}

func (deaf) Summary(func(text.Style) []string, any) {}
func (deaf) Warn(string)                            {}

// soakTicks is how many looks are taken, a second apart on the watcher's clock: eleven
// days. RSSWARDEN_ENDURANCE_TICKS sets another number.
func soakTicks(t *testing.T) int {
	t.Helper()
	text := os.Getenv("RSSWARDEN_ENDURANCE_TICKS")
	if text == "" {
		return 1_000_000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 10 {
		t.Fatalf("RSSWARDEN_ENDURANCE_TICKS=%q", text)
	}
	return n
}

// TestEnduranceTicks: of a tree that grows, shrinks, forks and ends its processes the
// watcher keeps no more after a million looks than after the first tenth of them.
func TestEnduranceTicks(t *testing.T) {
	ticks := soakTicks(t)
	s := newStand(t, func(o *Options) {
		o.Settings.Events = ""
		o.Log = deaf{}
		// It does not act: no process here would obey.
		o.Settings.Rules = mustRules("80%:warn", "eta<10m:warn")
	})
	s.open(s.holder.begin)
	held := func() (heap uint64, descriptors int) {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		open, err := filepath.Glob("/proc/self/fd/*")
		wardentest.NoError(t, err)
		return m.HeapAlloc, len(open)
	}
	const children = 8
	began := time.Now()
	var heap uint64
	var descriptors int
	for i := 1; i <= ticks; i++ {
		s.later(time.Second)
		// 300 to 900 MiB in an hour, and another child every three seconds.
		s.put(theCommand, theHolder, rss.Bytes(600+300*math.Sin(2*math.Pi*float64(i)/3600))*rss.MiB, 0)
		if i%3 == 0 {
			pid := worker1 + i/3%50_000
			s.put(pid, theCommand, rss.Bytes(1+i%7)*rss.MiB, 0)
			if old := i/3 - children; old > 0 {
				s.fs.Remove(fmt.Sprintf("proc/%d", worker1+old%50_000))
			}
		}
		s.tick()
		if i == ticks/10 {
			heap, descriptors = held()
		}
	}
	heapNow, descriptorsNow := held()
	t.Logf("%d looks, %d of them in full, %v each; heap %d bytes after a tenth, %d at the end; descriptors %d, %d; of %d processes at the last",
		ticks, s.view.Sample.Seq, time.Since(began)/time.Duration(ticks), heap, heapNow, descriptors, descriptorsNow, len(s.view.Sample.Procs))
	if heapNow > heap+1<<20 {
		t.Errorf("the heap grew by %d bytes", heapNow-heap)
	}
	if descriptorsNow != descriptors {
		t.Errorf("%d descriptors after a tenth, %d at the end", descriptors, descriptorsNow)
	}
	if len(s.view.Sample.Procs) != children+1 {
		t.Errorf("%d processes", len(s.view.Sample.Procs))
	}
}
