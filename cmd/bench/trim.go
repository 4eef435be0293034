package main

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

// trimming measures group h: a process shrunk by ptrace, beside its own call of
// madvise, and what a thread of it reads meanwhile.
func (b *bench) trimming() error {
	m, err := b.mapped()
	if err != nil {
		return err
	}
	defer m.end()
	defer m.t.Close()
	rounds, window := 15, time.Second
	if b.quick {
		rounds, window = 3, 200*time.Millisecond
	}
	var ours, own, stops []float64
	var alone, trimmed []float64
	for range rounds {
		calm, err := m.reads(func() error { return b.sleep(window) })
		if err != nil {
			return err
		}
		busy, err := m.reads(func() error {
			took, each, err := m.trim()
			ours, stops = append(ours, took), append(stops, each...)
			if err == nil {
				err = b.sleep(window)
			}
			return err
		})
		if err != nil {
			return err
		}
		alone, trimmed = append(alone, calm), append(trimmed, busy)
		if _, err := m.ask("touch"); err != nil {
			return err
		}
		seconds, err := m.ask("drop")
		if err != nil {
			return err
		}
		own = append(own, seconds*1e3)
	}
	r := b.row("1 GiB of a mapped file is given back", "ms")
	r.ours("ours: the tracer's time, by ptrace", ours)
	r.peer("the process's own madvise", own)
	r.atMost("tracer's time, per GiB", quantile(ours, 0.5), 20, "ms")
	r.atMost("longest of all stops", slices.Max(stops), 2, "ms")
	r.tell("95 of 100 stops are shorter than", quantile(stops, 0.95), "ms")
	r.tell("median stop", quantile(stops, 0.5), "ms")
	r.note("%d stops; all threads stand still in one, and a thread of the process reads all the time", len(stops))
	b.add(r)
	r = b.row("pages that the thread reads at random", "1000/s")
	r.ours("1 GiB trimmed each second", trimmed)
	r.peer("left alone", alone)
	r.tell("left to it", quantile(trimmed, 0.5)/quantile(alone, 0.5), "of what it reads alone")
	r.note("it has to bring each page it meets again back by a minor fault")
	b.add(r)
	return nil
}

func (b *bench) mapped() (*mapped, error) {
	file := b.path("mapped.bin")
	part := make([]byte, 16*rss.MiB)
	if _, err := rand.Read(part); err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, bytes.Repeat(part, int(trimFile)/len(part)), 0o600); err != nil {
		return nil, fmt.Errorf("cannot write the file to map: %w", err)
	}
	c, err := b.start(b.path("mapped"), file)
	if err != nil {
		return nil, err
	}
	m := &mapped{child: c, t: trim.NewTracer()}
	if _, err = m.line(); err == nil {
		m.id.PID = c.pid()
		m.id.Start, err = proctree.StartTime("/proc", c.pid())
	}
	if err == nil {
		_, err = m.ask("touch")
	}
	if err != nil {
		m.end()
		return nil, err
	}
	return m, nil
}

func (m *mapped) ask(what string) (float64, error) {
	if _, err := fmt.Fprintln(m.in, what); err != nil {
		return 0, fmt.Errorf("cannot ask for %s: %w", what, err)
	}
	text, err := m.line()
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(text, 64)
}

// reads is how many thousand pages a second the thread reads while f runs.
func (m *mapped) reads(f func() error) (float64, error) {
	before, err := m.ask("count")
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := f(); err != nil {
		return 0, err
	}
	after, err := m.ask("count")
	return (after - before) / 1e3 / time.Since(began).Seconds(), err
}

// trim gives back all of the mapping and returns the milliseconds that the
// tracer took for a GiB, and how long each stop was.
func (m *mapped) trim() (took float64, stops []float64, err error) {
	plan, err := trim.Plan(trim.CheckOptions{Proc: "/proc", ID: m.id})
	if err != nil || plan.Refusal != trim.None || len(plan.Mappings) != 1 {
		return 0, nil, fmt.Errorf("cannot plan: %v %s %d mappings: %w", plan.Refusal, plan.Detail, len(plan.Mappings), err)
	}
	pieces, err := trim.Pieces("/proc", m.id, plan.Mappings[0])
	if err != nil {
		return 0, nil, err
	}
	var resident rss.Bytes
	for len(pieces) > 0 {
		p, n := m.pace.Take(pieces)
		pieces = pieces[n:]
		began := time.Now()
		a := m.t.Do(p.Piece)
		took += float64(time.Since(began).Microseconds()) / 1e3
		if a.Refusal != trim.None {
			return 0, nil, fmt.Errorf("cannot trim: %s", a.Refusal.Reason())
		}
		m.pace.Add(p, a.Dropping)
		stops = append(stops, float64(a.Stop.Microseconds())/1e3)
		resident += p.Resident
	}
	return took / resident.Of(rss.GiB), stops, nil
}
