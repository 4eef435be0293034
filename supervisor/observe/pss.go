package observe

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/cadence"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/probe"
)

// PSS reads smaps_rollup, or smaps in pieces, on the side: the kernel
// walks the whole address space for it and holds the process's mmap_lock
// meanwhile. What is read, how, and how often, is budgeted to 1 % of a core.
type PSS struct {
	*probe.Reader[proctree.PSSAsk, PSSAnswer]
	budget proctree.PSSBudget

	// wakes is what wakes for readings may take, and what they lead to. Where they
	// lead to nothing, a job may stay where they are wanted for days.
	wakes probe.Bucket
	woken bool // the loop woke for the reading that is under way
}

// PSSAnswer is one reading.
type PSSAnswer struct {
	Ask proctree.PSSAsk
	PSS rss.PSS
	Err error
}

// NewPSS reads below proc.
func NewPSS(set *probe.Set, proc string) *PSS {
	tree := proctree.New(proc)
	return PSSBy(probe.New(set, func(ask proctree.PSSAsk) PSSAnswer {
		fault.Point("pss")
		pss, err := ask.Read(tree)
		return PSSAnswer{ask, pss, err}
	}))
}

// PSSBy has a reader answer.
func PSSBy(r *probe.Reader[proctree.PSSAsk, PSSAnswer]) *PSS { return &PSS{wakes: pssWakes, Reader: r} }

// Update takes in what was read, asks for what is due, and hangs the last
// reading of each process on it.
func (r *PSS) Update(now time.Duration, tree, extra []rss.Proc) {
	if r == nil {
		return
	}
	r.budget.Update(slices.Concat(tree, extra))
	if !r.TakeOne(now) {
		r.ask(now)
	}
	r.budget.Attach(tree)
	r.budget.Attach(extra)
}

// TakeOne takes one reading in, and says whether there was one. It asks for the next
// at once: the budget holds many small ones, and one a look would take a minute for
// 60 processes.
func (r *PSS) TakeOne(now time.Duration) bool {
	got, ok := r.Take()
	if !ok {
		return false
	}
	r.budget.Done(got.Ask, got.PSS, got.Err, now)
	if r.woken {
		r.wakes.Spend(got.PSS.Cost)
	}
	r.ask(now)
	r.woken = r.woken && r.Busy()
	return true
}

// Hurry lets readings take more of a core for as long as a decision depends on them.
func (r *PSS) Hurry(on bool) {
	if r == nil {
		return
	}
	r.budget.Share = 0
	if on {
		r.budget.Share = cadence.HurriedShare
	}
}

// Next is how long after now the loop is to wake to ask for a reading; false where the
// next look will do, or must.
func (r *PSS) Next(now time.Duration) (pause time.Duration, ok bool) {
	if r == nil || r.Busy() || r.budget.Share == 0 || r.wakes.Fill(now) <= 0 {
		return 0, false
	}
	return r.budget.Next(now)
}

// Wake asks for the reading that the loop was to wake for, if it is due.
func (r *PSS) Wake(now time.Duration) {
	if _, ok := r.Next(now); ok {
		r.ask(now)
		r.woken = r.Busy()
	}
}

// Woken says that the loop was woken for the reading that is under way.
func (r *PSS) Woken() bool { return r.woken }

// Spend adds what a wake has cost beside the reading.
func (r *PSS) Spend(cost time.Duration) { r.wakes.Spend(cost) }

// Acted says that readings led to an action. That this does not go on without effect is
// the ladder's business.
func (r *PSS) Acted() {
	if r != nil {
		r.wakes.Renew()
	}
}

// Told returns the faults since the last call: which processes are not read any more,
// and why.
func (r *PSS) Told() []error {
	if r == nil {
		return nil
	}
	return r.budget.Told()
}

// pssWakes allows half a minute of both at their most, then a share that does not matter,
// until an action is begun.
var pssWakes = probe.Bucket{Most: 3 * time.Second, Share: 0.002}

// ask asks for what is due, if anything is and no reading is under way. The loop
// wakes for it: the next one is asked for then.
func (r *PSS) ask(now time.Duration) {
	if r.Busy() {
		return
	}
	if ask, ok := r.budget.Due(now); ok {
		r.Ask(ask, true)
	}
}
