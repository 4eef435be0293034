package supervisor

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/trim"
	"github.com/rsswarden/rsswarden/supervisor/wake"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
	"github.com/rsswarden/rsswarden/supervisor/workers"
)

// tracedStand is a stand, not opened yet, under --trim ptrace with 100 MiB of
// the command's and two processes that have so much mapped. Each is planned for
// in pieces of 50 MiB, the n-th of PID p at address p<<8 + n.
func tracedStand(t *testing.T, file1, file2 rss.Bytes) *stand {
	s := newStand(t, tracing(settings.TrimPtrace))
	s.put(worker1, theCommand, 0, file1)
	s.put(worker2, theCommand, 0, file2)
	size := map[int]rss.Bytes{worker1: file1, worker2: file2}
	s.plansBy(func(a action.PlanAsk) action.Planned {
		p := action.Planned{ID: a.ID}
		for at := rss.Bytes(0); at+50*rss.MiB <= size[a.ID.PID]; at += 50 * rss.MiB {
			p.Pieces = append(p.Pieces, trim.Piece{ID: a.ID, Lo: address(a.ID.PID, len(p.Pieces)), Resident: 50 * rss.MiB})
		}
		return p
	})
	return s
}

func address(pid, piece int) uint64 { return uint64(pid)<<8 + uint64(piece) }

// step does what the loop does with what arrives.
func (s *stand) step(full bool) {
	if full {
		s.full()
	}
}

// plansBy has plans read by the test.
func (s *stand) plansBy(read func(action.PlanAsk) action.Planned) {
	s.acts.Tracer.Plans = probe.New(&s.probes, read)
}

// plans waits for the plan that was asked for and takes it in.
func (s *stand) plans() {
	s.t.Helper()
	if !s.acts.Tracer.Plans.Wait(time.Minute) {
		s.t.Fatal("no plan came")
	}
	s.step(s.acts.Planned())
}

// wanted returns the piece that the holder was asked for last, once.
func (s *stand) wanted() hold.TrimRequest {
	s.t.Helper()
	if len(s.holder.trims) != 1 {
		s.t.Fatalf("the holder has %+v, want one request", s.holder.trims)
	}
	r := s.holder.trims[0]
	s.holder.trims = nil
	return r
}

// gives answers a request. The process has so much left.
func (s *stand) gives(r hold.TrimRequest, left rss.Bytes, stop time.Duration) {
	s.t.Helper()
	s.put(r.PID, theCommand, 0, left)
	s.acts.Trimmed(hold.TrimAnswer{ID: r.ID, Stop: stop})
	s.step(s.acts.Advance())
	if f := s.acts.InFlight(); f != nil && f.Running != nil && action.Wakes(f.Running) != 0 {
		s.rings(actionDue) // it runs for as long as it stood still
		s.step(s.acts.Advance())
	}
}

// rings waits until the bell has rung for this.
func (s *stand) rings(why wake.Cause) {
	s.t.Helper()
	for rung := wake.Cause(0); rung&why == 0; rung = s.bell.Causes() {
		yields(s.t, s.bell.C(), time.Minute)
	}
}

func (s *stand) refuses(r hold.TrimRequest, why trim.Refusal) {
	s.t.Helper()
	s.acts.Trimmed(hold.TrimAnswer{ID: r.ID, Refusal: uint8(why)})
	s.step(s.acts.Advance())
}

// said are the loader events that ptrace caused.
func byPtrace(all []map[string]any) []map[string]any {
	var some []map[string]any
	for _, e := range named(all, event.NameLoader) {
		if e["by"] == event.ByPtrace {
			some = append(some, e)
		}
	}
	return some
}

// tracing gives the watcher that --trim.
func tracing(m settings.TrimMode) func(*Options) {
	return func(o *Options) { o.Settings.Trim = m }
}

// runs says which program a process of the made-up tree runs.
func (s *stand) runs(pid int, program string) {
	s.t.Helper()
	name := s.fs.Path(fmt.Sprintf("proc/%d/exe", pid))
	_ = os.Remove(name) // it may not be there
	wardentest.NoError(s.t, os.Symlink(program, name))
}

// is writes a process of the made-up tree with its name and program.
func (s *stand) is(pid, parent int, comm, program string, file rss.Bytes) {
	s.fs.Put(rsstest.Process{PID: pid, Parent: parent, Start: 1 << 40, Comm: comm, Anon: 10 * rss.MiB, File: file})
	s.runs(pid, program)
}

// known reads until the environment of every process was read.
func (s *stand) known() {
	s.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for s.read(); s.observe.Workers.Unread(); s.read() {
		if time.Now().After(deadline) {
			s.t.Fatal("environments are not read")
		}
	}
}

const python = "/usr/bin/python3.11"

// leftBy is what the last trim left a process of mapped pages, as far as that is known.
func (s *stand) leftBy(pid int) rss.Bytes {
	return rss.GiB - s.observe.Workers.Trimmable(workers.Usage{ID: rss.ProcID{PID: pid}, Mapped: rss.GiB, CountedMapped: rss.GiB})
}
