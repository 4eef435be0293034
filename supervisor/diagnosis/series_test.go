package diagnosis

import (
	"runtime"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// many64 is a trainer and 63 workers that leak and map files.
func many64() *scene {
	c := &scene{actors: []actor{{role: rss.RoleTrainer, pid: 10, anon: still(300), file: still(150)}}}
	for i := range 63 {
		c.actors = append(c.actors, actor{role: rss.RoleWorker, pid: 11 + i, anon: line(300, 0, 0.01), file: line(40, 0, 0.01)})
	}
	return c
}

// TestMemoryIsBounded: days of looks take no more than minutes.
func TestMemoryIsBounded(t *testing.T) {
	c := many64()
	s := New()
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for at := time.Duration(0); at < 48*time.Hour; at += 30 * time.Second {
		s.Add(c.look(at))
	}
	after := heap()
	runtime.KeepAlive(s)
	if grown := after - min(before, after); grown > 1<<20 {
		t.Errorf("64 processes over two days take %v", rss.Bytes(grown))
	}
}

// BenchmarkAdd is one look at 64 processes; each second's judgement is in it.
func BenchmarkAdd(b *testing.B) {
	c, s := many64(), New()
	l := c.look(0)
	for b.Loop() {
		l.At += time.Second
		s.Add(l)
	}
}
