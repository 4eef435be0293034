package bench

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/trim"
)

// trimFile is how much is mapped.
const trimFile = rss.GiB

// mapped is a process with two threads and a large mapping.
type mapped struct {
	*child
	id rss.ProcID
	t  *trim.Tracer
	// pace is what the watcher goes by too.
	pace trim.Pace
}

// measureTrim has a process shrunk by ptrace, beside its own call of
// madvise, and what a thread of it reads meanwhile.
func measureTrim(b *bench) {
	m := b.mapped()
	window := pick(b, time.Second, 200*time.Millisecond)
	var ours, own, stops, alone, trimmed []float64
	for range pick(b, 15, 3) {
		alone = append(alone, m.reads(func() { b.sleep(window) }))
		trimmed = append(trimmed, m.reads(func() {
			took, each := m.trim()
			ours, stops = append(ours, took), append(stops, each...)
			b.sleep(window)
		}))
		m.ask("touch")
		own = append(own, m.ask("drop")*1e3)
	}
	r := newRow("1 GiB of a mapped file is given back", "ms")
	r.put("ours: the tracer's time, by ptrace", ours)
	r.put("the process's own madvise", own)
	r.atMost("tracer's time, per GiB", quantile(ours, 0.5), 20, "ms")
	r.atMost("longest of all stops", slices.Max(stops), 2, "ms")
	r.tell("95 of 100 stops are shorter than", quantile(stops, 0.95), "ms")
	r.tell("median stop", quantile(stops, 0.5), "ms")
	r.note("%d stops; all threads stop in one, and a thread of the process reads all the time", len(stops))
	b.add(r)
	r = newRow("pages that the thread reads at random", "1000/s")
	r.put("1 GiB trimmed each second", trimmed)
	r.put("left alone", alone)
	r.tell("left to it", quantile(trimmed, 0.5)/quantile(alone, 0.5), "of what it reads alone")
	r.note("it has to bring each page it meets again back by a minor fault")
	b.add(r)
}

func (b *bench) mapped() *mapped {
	file := path("mapped.bin")
	part := make([]byte, 16*rss.MiB)
	must(rand.Read(part))
	check(os.WriteFile(file, bytes.Repeat(part, int(trimFile)/len(part)), 0o600))
	m := &mapped{child: b.start(path("mapped"), file), t: trim.NewTracer()}
	b.atEnd(m.t.Close)
	m.line()
	m.id = rss.ProcID{PID: m.pid(), Start: must(proctree.StartTime("/proc", m.pid()))}
	m.ask("touch")
	return m
}

func (m *mapped) ask(what string) float64 {
	m.say("%s", what)
	return must(strconv.ParseFloat(m.line(), 64))
}

// reads is how many thousand pages a second the thread reads while f runs.
func (m *mapped) reads(f func()) float64 {
	before := m.ask("count")
	began := time.Now()
	f()
	after := m.ask("count")
	return (after - before) / 1e3 / time.Since(began).Seconds()
}

// trim gives back all of the mapping and returns the milliseconds that the
// tracer took for a GiB, and how long each stop was.
func (m *mapped) trim() (took float64, stops []float64) {
	plan := new(trim.Planner).Plan(trim.CheckOptions{Proc: "/proc", ID: m.id})
	if plan.Refusal != trim.None || len(plan.Mappings) != 1 {
		check(fmt.Errorf("cannot plan: %v %s %d mappings", plan.Refusal, plan.Detail, len(plan.Mappings)))
	}
	var resident rss.Bytes
	for pieces := plan.Mappings[0].Pieces; len(pieces) > 0; {
		p, n := m.pace.Take(pieces)
		pieces = pieces[n:]
		began := time.Now()
		a := m.t.Do(p)
		took += float64(time.Since(began).Microseconds()) / 1e3
		if a.Refusal != trim.None {
			check(fmt.Errorf("cannot trim: %s", a.Refusal.Reason()))
		}
		m.pace.Add(p, a.Dropping)
		stops = append(stops, float64(a.Stop.Microseconds())/1e3)
		resident += p.Resident
	}
	return took / resident.Of(rss.GiB), stops
}
