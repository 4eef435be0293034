package supervisor

import (
	"fmt"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/probe"
)

// readPatience is how long one configuration file may take: it may lie on a
// network file system that does not answer.
const readPatience = 2 * time.Second

// readWithin reads a configuration file, or gives up.
func readWithin(name string) ([]byte, error) {
	type content struct {
		b   []byte
		err error
	}
	r := probe.New(nil, func(name string) (c content) {
		c.b, c.err = slurm.ReadFile(name)
		return c
	})
	if r.Ask(name, false); !r.Wait(readPatience) {
		return nil, fmt.Errorf("cannot read %s: no answer within %v", name, readPatience)
	}
	got, _ := r.Take()
	return got.b, got.err
}

// pssReader reads smaps_rollup, or smaps in pieces, on the side: the kernel
// walks the whole address space for it and holds the process's mmap_lock
// meanwhile. What is read, how, and how often, is budgeted to 1 % of a core.
type pssReader struct {
	*probe.Reader[proctree.PSSAsk, pssRead]
	budget proctree.PSSBudget

	// wakes is what wakes for readings may take, and what they lead to. Where they
	// lead to nothing, a job may stand where they are wanted for days.
	wakes probe.Bucket
	woken bool // the loop woke for the one that is under way
}

type pssRead struct {
	ask proctree.PSSAsk
	pss rss.PSS
	err error
}

func newPSSReader(set *probe.Set, proc string) *pssReader {
	tree := proctree.New(proc)
	return &pssReader{wakes: pssWakes, Reader: probe.New(set, func(ask proctree.PSSAsk) pssRead {
		fault.Point("pss")
		pss, err := ask.Read(tree)
		return pssRead{ask, pss, err}
	})}
}

// update takes in what was read, asks for what is due, and hangs the last
// reading of each process on it.
func (r *pssReader) update(now time.Duration, tree, extra []rss.Proc) {
	if r == nil {
		return
	}
	r.budget.Update(slices.Concat(tree, extra))
	if !r.taken(now) {
		r.ask(now)
	}
	r.budget.Attach(tree)
	r.budget.Attach(extra)
}

// taken takes one reading in, and says whether there was one. It asks for the next
// at once: the budget holds many small ones, and one a look would take a minute for
// 60 processes.
func (r *pssReader) taken(now time.Duration) bool {
	got, ok := r.Take()
	if !ok {
		return false
	}
	r.budget.Done(got.ask, got.pss, got.err, now)
	if r.woken {
		r.wakes.Spend(got.pss.Cost)
	}
	r.ask(now)
	r.woken = r.woken && r.Busy()
	return true
}

// heardPSS takes one reading in, and says whether there was one. It takes a full look
// where the decision depends on readings and no other is under way, unless looks cost
// too much here: then the next one comes as soon as they may take that much.
func (w *watcher) heardPSS() bool {
	r := w.pss
	if r == nil {
		return false
	}
	woken := r.woken
	if !r.taken(w.now()) {
		return false
	}
	if !w.straddles() || r.Busy() {
		return true
	}
	if woken {
		r.wakes.Spend(w.fullCost.Cost())
	}
	w.unseen, w.lookDue = true, 0
	if w.now()-w.fullAt >= w.fullCost.Pause(hurriedShare) {
		w.full()
	}
	return true
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
	if r == nil || r.Busy() || r.budget.Share == 0 || r.wakes.Fill(now) <= 0 {
		return 0, false
	}
	return r.budget.Next(now)
}

// wake asks for the reading that the loop was to wake for, if it is due.
func (r *pssReader) wake(now time.Duration) {
	if _, ok := r.next(now); ok {
		r.ask(now)
		r.woken = r.Busy()
	}
}

// acted says that readings led to something that was done. The ladder sees to it that
// this is not done again and again in vain.
func (r *pssReader) acted() {
	if r != nil {
		r.wakes.Renew()
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
var pssWakes = probe.Bucket{Most: 3 * time.Second, Share: 0.002}

// ask asks for what is due, if anything is and no reading is under way. The loop
// wakes for it: the next one is asked for then.
func (r *pssReader) ask(now time.Duration) {
	if r.Busy() {
		return
	}
	if ask, ok := r.budget.Due(now); ok {
		r.Ask(ask, true)
	}
}
