package proctree

import (
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
)

// PSS reads /proc/PID/smaps_rollup (Linux 4.14; ptrace access needed). It
// costs about 7 to 21 ms for each GiB that is resident, holds the process's
// mmap_lock for most of that, and waits for it: call it on a side goroutine,
// as often as a [PSSBudget] allows. At is left 0: the reader has no clock. An
// error comes with the Cost of what was read in vain.
func (r *Reader) PSS(id rss.ProcID) (rss.PSS, error) {
	return r.timed(id, "smaps_rollup", func() (rss.PSS, error) { return readRollup(r.proc, id.PID) })
}

// Parts reads the same file as [Reader.PSS], at the same cost and on the same
// terms, and returns all of it. Where a PSS of the same moment is wanted too, it
// is in it.
func (r *Reader) Parts(id rss.ProcID) (rss.Parts, error) {
	var p rss.Parts
	cost, err := r.sure(id, "smaps_rollup", func() (err error) {
		p, err = readParts(r.proc, id.PID)
		return err
	})
	if err != nil {
		return rss.Parts{Cost: cost}, err
	}
	p.Cost = cost
	return p, nil
}

// timed reads a PSS, and tells what that costs.
func (r *Reader) timed(id rss.ProcID, file string, read func() (rss.PSS, error)) (rss.PSS, error) {
	var p rss.PSS
	cost, err := r.sure(id, file, func() (err error) {
		p, err = read()
		return err
	})
	if err != nil {
		return rss.PSS{Cost: cost}, err
	}
	p.Cost = cost
	if p.Held == 0 {
		p.Held = cost
	}
	return p, nil
}

// sure reads a file of a process, tells what that costs, and makes sure that it
// was that process's.
func (r *Reader) sure(id rss.ProcID, file string, read func() error) (cost time.Duration, err error) {
	// The processor's time, not the clock's: on a busy node a reading waits for
	// its turn, and costs no more for it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := threadTime()
	err = read()
	if err == nil {
		// The same process has the PID after the reading, so it had it before.
		var start uint64
		start, err = StartTime(r.proc, id.PID)
		if err == nil && id.Start != 0 && start != id.Start {
			err = errGone
		}
	}
	cost = threadTime() - began
	if err != nil {
		err = fmt.Errorf("cannot read %s of process %d: %w", file, id.PID, err)
	}
	return cost, err
}

// threadTime is the processor's time that the calling thread has taken.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0 // not since Linux 2.6.12
	}
	return time.Duration(t.Nano())
}

func readRollup(proc string, pid int) (rss.PSS, error) {
	p, err := readParts(proc, pid)
	if err != nil {
		return rss.PSS{}, err
	}
	pss := rss.PSS{PSS: p.PSS, RSS: p.RSS, Split: p.Split}
	if p.Split {
		pss.Anon, pss.File, pss.Mapped = p.PSSAnon, p.PSSFile, p.RSS.Sub(p.Anonymous)
	}
	return pss, nil
}

func readParts(proc string, pid int) (rss.Parts, error) {
	f := newFiles(proc)
	defer f.close()
	b, err := f.read(pid, "smaps_rollup")
	if err != nil {
		return rss.Parts{}, err
	}
	return parseParts(b)
}
