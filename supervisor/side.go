package supervisor

import (
	"fmt"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/fault"
)

// This file holds what the loop leaves to goroutines because it may hang.

// readPatience is how long one configuration file may take: it may lie on a
// network file system that does not answer.
const readPatience = 2 * time.Second

// readWithin reads a configuration file, or gives up.
func readWithin(name string) ([]byte, error) {
	type content struct {
		b   []byte
		err error
	}
	c := make(chan content, 1)
	go func() {
		b, err := slurm.ReadFile(name)
		c <- content{b, err}
	}()
	select {
	case got := <-c:
		return got.b, got.err
	case <-time.After(readPatience):
		return nil, fmt.Errorf("cannot read %s: no answer within %v", name, readPatience)
	}
}

// pssReader reads smaps_rollup, or smaps in pieces, on the side: the kernel
// walks the whole address space for it and holds the process's mmap_lock
// meanwhile. What is read, how, and how often, is budgeted to 1 % of a core.
type pssReader struct {
	budget proctree.PSSBudget
	asks   chan proctree.PSSAsk
	reads  chan pssRead
	busy   bool

	// wakes is what wakes for readings may take, and what they lead to. Where they
	// lead to nothing, a job may stand where they are wanted for days.
	wakes allowance
	woken bool // the loop woke for the one that is under way
}

type pssRead struct {
	ask proctree.PSSAsk
	pss rss.PSS
	err error
}

func newPSSReader(proc string) *pssReader {
	r := &pssReader{asks: make(chan proctree.PSSAsk, 1), reads: make(chan pssRead, 1), wakes: pssWakes}
	tree := proctree.New(proc)
	go func() {
		for ask := range r.asks {
			fault.Point("pss")
			pss, err := ask.Read(tree)
			r.reads <- pssRead{ask, pss, err}
		}
	}()
	return r
}

// update takes in what was read, asks for what is due, and hangs the last
// reading of each process on it.
func (r *pssReader) update(now time.Duration, tree, extra []rss.Proc) {
	if r == nil {
		return
	}
	r.budget.Update(slices.Concat(tree, extra))
	select {
	case got := <-r.reads:
		r.take(now, got)
	default:
		r.ask(now)
	}
	r.budget.Attach(tree)
	r.budget.Attach(extra)
}

// arrived is the channel of readings to [pssReader.take]; nil, which never
// yields, without a reader.
func (r *pssReader) arrived() <-chan pssRead {
	if r == nil {
		return nil
	}
	return r.reads
}

// take takes one reading in and asks for the next at once: the budget holds
// many small ones, and one a look would take a minute for 60 processes.
func (r *pssReader) take(now time.Duration, got pssRead) {
	r.budget.Done(got.ask, got.pss, got.err, now)
	if r.woken {
		r.wakes.spend(now, got.pss.Cost)
	}
	r.busy = false
	r.ask(now)
	r.woken = r.woken && r.busy
}

// tookPSS takes one reading in, and a full look with it where it depends on readings
// what is to be done and no other is asked for, unless looks are dear here: then the
// next one comes as soon as they may take that much.
func (w *watcher) tookPSS(got pssRead) {
	woken := w.pss.woken
	w.pss.take(w.now(), got)
	if !w.straddles() || w.pss.busy {
		return
	}
	if woken {
		w.pss.wakes.spend(w.now(), w.fullCost.Cost())
	}
	w.unseen, w.lookDue = true, 0
	if w.now()-w.fullAt >= w.fullCost.Pause(hurriedShare) {
		w.full()
	}
}

// hurry lets readings take more of a core for as long as it depends on them
// what is to be done.
func (r *pssReader) hurry(on bool) {
	if r == nil {
		return
	}
	r.budget.Share = 0
	if on {
		r.budget.Share = hurriedShare
	}
}

// next is how long after now the loop is to wake to ask for a reading; false where the
// next look will do, or must.
func (r *pssReader) next(now time.Duration) (pause time.Duration, ok bool) {
	if r == nil || r.busy || r.budget.Share == 0 || !r.wakes.left(now) {
		return 0, false
	}
	return r.budget.Next(now)
}

// wake asks for the reading that the loop was to wake for, if it is due.
func (r *pssReader) wake(now time.Duration) {
	if _, ok := r.next(now); ok {
		r.ask(now)
		r.woken = r.busy
	}
}

// acted says that readings led to something that was done. The ladder sees to it that
// this is not done again and again in vain.
func (r *pssReader) acted() {
	if r != nil {
		r.wakes.renew()
	}
}

// told returns what is to be told as faults: which processes are not read any
// more, and why.
func (r *pssReader) told() []error {
	if r == nil {
		return nil
	}
	return r.budget.Told()
}

// hurriedShare is the part of a core that readings of PSS may take then, and as much
// for the full looks that see them.
const hurriedShare = 0.05

// pssWakes is half a minute of both at their most, and then as much as nobody notices
// until something is done.
var pssWakes = allowance{most: 3 * time.Second, share: 0.002}

// ask asks for what is due, if anything is and the goroutine is free: so there
// is room in asks.
func (r *pssReader) ask(now time.Duration) {
	if r.busy {
		return
	}
	if ask, ok := r.budget.Due(now); ok {
		r.asks <- ask
		r.busy = true
	}
}
