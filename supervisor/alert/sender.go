package alert

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/wake"
)

type Options struct {
	Targets []Target
	// Token, or the first line of TokenFile, goes to those that [Target.TakesToken].
	Token     string
	TokenFile string
	Send      func(context.Context, Request) Answer
	Leave     func(Request) <-chan Answer
	Fault     func(text string) // gets a sentence for each receiver that begins to fail; it must not wait
}

// Sender tells all receivers. Its methods never wait for one.
type Sender struct {
	opt  Options
	wake *wake.Bell
	stop context.CancelFunc

	mu        sync.Mutex
	book      *Store
	receivers []*receiver
	busy      *receiver // whose request is on its way
	busyFrom  time.Time
	held      bool
	near      bool // it was near to that, or is
	closed    bool
}

// Headroom is what is left for the process that carries a message, of memory and of what
// else is counted.
type Headroom int

const (
	Plenty Headroom = iota
	Near            // it may soon be None: what is sent to Alertmanager must outlast that
	None            // no process is to be started; what is on its way goes on
)

// carrierRoom is what must be left before a limit that kills, or that fails what the
// job asks for, for the process that carries an alert. By https it has 14 MiB of RSS,
// which Slurm sums. 2 MiB of that are no page cache, and of the rest only page tables and
// stacks are counted by a cgroup beside it: this is twice that. Tasks are numbers.
var carrierRoom = map[event.LimitName]rss.Bytes{
	event.LimitSlurm:  16 * rss.MiB,
	event.LimitCgroup: 6 * rss.MiB,
	// It has 4 to 6 threads, and the job starts some meanwhile. Where the last are
	// taken the job's own calls fail.
	event.LimitTasks: 16,
}

// HeadroomOf is how much these limits leave for it, of what counts that process too.
func HeadroomOf(limits []event.Limit) Headroom {
	room := Plenty
	for i := range limits {
		l := &limits[i]
		need := carrierRoom[l.Name]
		if need == 0 || l.Limit == 0 {
			continue
		}
		switch left := l.Limit.Sub(max(l.Used, l.UsedMax)); {
		case left < need:
			return None
		case left < max(4*need, l.Limit/4):
			room = Near
		}
	}
	return room
}

// ReceiverState is what was sent to one receiver, and how that went.
type ReceiverState struct {
	Target Target
	Sent   int // requests that were taken
	Failed int // … that were not
	// Lost counts alerts whose last state was given up, untold for too long, and those that
	// there was no room for.
	Lost     int
	Asked    bool      // the last states were sent at the end, and the result is unknown
	SentAt   time.Time // when it took something last, zero for never
	Error    string    // the last failure
	FailedAt time.Time

	Firing  int  // alerts
	Untold  int  // alerts whose state it does not know
	Held    bool // nothing is sent now, see [None]
	Failing bool // the last try failed
}

func New(opt Options) *Sender {
	ctx, stop := context.WithCancel(context.Background())
	s := &Sender{opt: opt, wake: wake.New(), stop: stop, book: NewStore()}
	for _, t := range opt.Targets {
		s.receivers = append(s.receivers, newReceiver(t))
	}
	go s.run(ctx)
	return s
}

// Open returns the alerts that a receiver may believe to fire: those that do, and
// those of which not every one is known to have been told that they are over. It may be
// called after [Sender.Close] as well. A nil Sender has none.
func (s *Sender) Open() (all []Alert) {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.book.sorted() {
		if e.firing() || slices.ContainsFunc(s.receivers, func(r *receiver) bool { return r.told[e.id] != e.change }) {
			all = append(all, e.Alert)
		}
	}
	return all
}

// Inherit takes over what another Sender had open. It comes before anything else.
func (s *Sender) Inherit(open []Alert) {
	s.mu.Lock()
	s.book.Inherit(time.Now(), open)
	for _, r := range s.receivers {
		for id, e := range s.book.entries {
			r.told[id] = e.change // by the sender before us
		}
	}
	s.mu.Unlock()
	s.wake.Ring(0)
}

// Set says which rungs are crossed now.
func (s *Sender) Set(current []Alert) {
	s.mu.Lock()
	moved := s.book.Set(time.Now(), current)
	s.look()
	s.mu.Unlock()
	if moved {
		s.wake.Ring(0)
	}
}

// SetHeadroom says how much there is now. After Near it counts as Near for good.
func (s *Sender) SetHeadroom(room Headroom) {
	s.mu.Lock()
	held, near := room == None, s.near || room != Plenty
	due := s.held && !held || near && !s.near
	s.held, s.near = held, near
	s.mu.Unlock()
	if due {
		s.wake.Ring(0)
	}
}

// look has the receivers forget what the store has forgotten.
func (s *Sender) look() {
	for _, e := range s.book.forgotten() {
		for _, r := range s.receivers {
			r.forget(e)
		}
	}
}

// run tells the receivers, one after the other.
func (s *Sender) run(ctx context.Context) {
	for {
		r, l, wait := s.pick(time.Now())
		if r == nil {
			var due <-chan time.Time
			if wait > 0 {
				due = time.After(wait)
			}
			select {
			case <-ctx.Done():
				return
			case <-s.wake.C():
			case <-due:
			}
			continue
		}
		fault.Point("alert")
		a := s.opt.Send(ctx, s.request(r, l, SendTime))
		if ctx.Err() != nil {
			return // the result is unknown, and it is sent again
		}
		s.took(r, l, a)
	}
}

func (s *Sender) request(r *receiver, l load, limit time.Duration) Request {
	t := &r.Target
	q := Request{URL: t.URL, Token: t.Token, TokenFile: t.TokenFile, Bodies: l.bodies, Timeout: limit}
	if t.TakesToken() {
		q.Token, q.TokenFile = s.opt.Token, s.opt.TokenFile
	}
	return q
}

// pick chooses the receiver to send to now: of those that are due the one tried longest
// ago. Where none is due it returns how long to wait, 0 for until something changes.
func (s *Sender) pick(now time.Time) (best *receiver, l load, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, l, 0
	}
	next := s.book.Tick(now)
	s.look()
	for _, r := range s.receivers {
		r.near = s.near
		at, ok := r.next(s.book)
		switch {
		case !ok || s.held:
		case at.After(now):
			if next.IsZero() || at.Before(next) {
				next = at
			}
		case best == nil || r.tried.Before(best.tried):
			best = r
		}
	}
	if best == nil {
		if !next.IsZero() {
			wait = max(next.Sub(now), time.Millisecond)
		}
		return nil, l, wait
	}
	l, err := best.load(s.book, now)
	if err != nil {
		best.done(l, Answer{Error: fmt.Sprintf("cannot write it: %v", err), Retry: true}, now, 1)
		return nil, l, time.Millisecond
	}
	s.busy, s.busyFrom = best, now
	return best, l, 0
}

func (s *Sender) took(r *receiver, l load, a Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = nil
	well := r.fails == 0
	r.done(l, a, time.Now(), rand.Float64())
	if well && r.fails > 0 {
		text := fmt.Sprintf("%v: %s", r.Target, r.Error)
		if a.Retry {
			text += "; it is tried again"
		}
		s.opt.Fault(text)
	}
}

// Receivers returns the state of each receiver.
func (s *Sender) Receivers() []ReceiverState {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]ReceiverState, len(s.receivers))
	for i, r := range s.receivers {
		all[i] = r.ReceiverState
		all[i].Lost += len(s.book.dropped)
		all[i].Firing, all[i].Untold, all[i].Held, all[i].Failing = s.book.Firing(), len(r.untold(s.book)), s.held, r.fails > 0
	}
	return all
}

const (
	backOff     = time.Second // after the first failure; it doubles
	mostBackOff = time.Minute
	mostLater   = time.Hour // believed of an answer
	// mostBodies is how many messages one process carries.
	mostBodies = 16
)

// receiver decides what one target is sent next. It is pure: now and chance are
// arguments.
type receiver struct {
	ReceiverState                   // but for what follows from the store and the sender
	told          map[string]uint64 // the change of each alert that it knows of
	no            map[string]uint64 // … that it has refused: others come first
	tried         time.Time
	due           time.Time // no try before
	fails         int       // in a row
	// near says that there may soon be no memory to send anything, and lasting that what
	// was sent last was made to outlast that.
	near, lasting bool
}

type load struct {
	bodies []json.RawMessage
	// of are the alerts of each body, with their change.
	of      [][]change
	lasting bool // see receiver
}

type change struct {
	id string
	n  uint64
}

func newReceiver(t Target) *receiver {
	return &receiver{ReceiverState: ReceiverState{Target: t}, told: map[string]uint64{}, no: map[string]uint64{}}
}

// forget counts an alert that is gone as lost where its last state is not known here.
func (r *receiver) forget(e *entry) {
	if r.told[e.id] != e.change {
		r.Lost++
	}
	delete(r.told, e.id)
	delete(r.no, e.id)
}

// untold are the alerts of which it does not know how they stand.
func (r *receiver) untold(b *Store) (all []*entry) {
	for _, e := range b.sorted() {
		if r.told[e.id] != e.change {
			all = append(all, e)
		}
	}
	return all
}

// next is when it is to be told something, ok false for not at all.
func (r *receiver) next(b *Store) (at time.Time, ok bool) {
	if len(r.untold(b)) > 0 {
		return r.due, true // a time that was before now, or never set, is now
	}
	if r.Target.Kind != Alertmanager || len(b.entries) == 0 {
		return at, false
	}
	if at = r.SentAt.Add(resend); r.near && !r.lasting && b.Firing() > 0 || at.Before(r.due) {
		at = r.due
	}
	return at, true
}

func (r *receiver) load(b *Store, now time.Time) (l load, err error) {
	if r.Target.Kind == Alertmanager {
		list, believed := b.sorted(), holds
		of := make([]change, len(list))
		for i, e := range list {
			of[i] = change{e.id, e.change}
		}
		if r.near {
			believed = lasts
		}
		body, err := managerBody(list, now, believed, func(id string) bool { return r.told[id] > 0 })
		return load{[]json.RawMessage{body}, [][]change{of}, r.near}, err
	}
	var untold, refused []*entry
	for _, e := range r.untold(b) {
		if r.no[e.id] == e.change {
			refused = append(refused, e)
		} else {
			untold = append(untold, e)
		}
	}
	untold = append(untold, refused...)
	for _, e := range untold[:min(len(untold), mostBodies)] {
		body, err := hookBody(e)
		if err != nil {
			return l, err
		}
		l.bodies, l.of = append(l.bodies, body), append(l.of, []change{{e.id, e.change}})
	}
	return l, nil
}

// done takes in what came of a request. chance is between 0 and 1.
func (r *receiver) done(l load, a Answer, now time.Time, chance float64) {
	r.tried = now
	a.Taken = min(max(a.Taken, 0), len(l.of)) // the answer is another program's
	for _, c := range slices.Concat(l.of[:a.Taken]...) {
		r.told[c.id] = c.n
	}
	r.Sent += a.Taken
	if a.Error == "" && a.Taken == len(l.of) {
		r.fails, r.due, r.SentAt, r.lasting = 0, time.Time{}, now, l.lasting
		return
	}
	if a.Taken > 0 {
		r.fails, r.SentAt = 0, now
	}
	r.Error, r.FailedAt = cmp.Or(a.Error, "not all was taken"), now
	r.Failed++
	r.fails++
	wait := min(backOff<<min(r.fails-1, 10), mostBackOff)
	switch {
	case a.Retry:
	case r.Target.Kind == Alertmanager || a.Taken >= len(l.of):
		wait = mostBackOff // all is sent again: the receiver may have been fixed
	default:
		// This one is sent again too, seldom, and after the others.
		again := false
		for _, c := range l.of[a.Taken] {
			again = again || r.no[c.id] == c.n
			r.no[c.id] = c.n
		}
		if again || a.Taken+1 == len(l.of) {
			wait = mostBackOff
		}
	}
	// Jobs of a site that lost Alertmanager together do not come back together.
	wait = time.Duration(float64(wait) * (0.5 + chance/2))
	r.due = now.Add(max(wait, min(a.Later, mostLater)))
}

// lastPatience is how long the end of a run waits for receivers that have answered
// so far. It waits for no other.
const lastPatience = 200 * time.Millisecond

// Close resolves what fires and tells each receiver once more, by processes that
// may outlive us. The function that it returns waits for the answers of receivers
// that have answered so far, until 200 ms have passed since Close. Without resolve
// nothing more is sent: another leader goes on.
func (s *Sender) Close(resolve bool) (wait func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.stop()
	if !resolve {
		return func() {}
	}
	from := time.Now()
	hangs := s.busy
	if hangs != nil && from.Sub(s.busyFrom) < lastPatience {
		hangs = nil // it has hardly begun
	}
	s.book.End(from)
	s.look()
	type left struct {
		r      *receiver
		l      load
		answer <-chan Answer
	}
	var all []left
	for _, r := range s.receivers {
		if len(r.untold(s.book)) == 0 {
			continue
		}
		l, err := r.load(s.book, from)
		if err != nil {
			continue
		}
		r.Asked = true
		answer := s.opt.Leave(s.request(r, l, lastTime))
		if r.fails == 0 && r != hangs && (r.Sent > 0 || hangs == nil) {
			all = append(all, left{r, l, answer})
		}
	}
	return func() {
		late := time.After(time.Until(from.Add(lastPatience)))
		for _, e := range all {
			select {
			case a := <-e.answer:
				s.mu.Lock()
				e.r.Asked = false
				e.r.done(e.l, a, time.Now(), 1)
				s.mu.Unlock()
			case <-late:
				return
			}
		}
	}
}
