package alert

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/fault"
)

// Options are what a Sender works with.
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
	wake chan struct{}
	stop context.CancelFunc
	over chan struct{} // the goroutine has ended

	mu        sync.Mutex
	book      *Book
	receivers []*receiver
	busy      *receiver // whose request is on its way
	busyFrom  time.Time
	held      bool
	near      bool // it was near to that, or is
	closed    bool
}

// Room is what is left for the process that carries a message, of memory and of what
// else is counted.
type Room int

// The rooms.
const (
	Plenty Room = iota
	Near        // it may soon be None: what Alertmanager is told is to outlast that
	None        // no process is to be started; what is on its way goes on
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

// RoomOf is how much these limits leave for it, of what counts that process too.
func RoomOf(limits []event.Limit) Room {
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

// Standing is how one receiver stands.
type Standing struct {
	Target Target
	Firing int // alerts
	Counts
	Dropped  int       // alerts that there was no room for
	Untold   int       // alerts of which it does not know how they stand
	Missed   int       // alerts that it was never told the last state of
	Asked    bool      // it was told at the end, and what came of it is not known
	Held     bool      // it is told nothing now, see [None]
	SentAt   time.Time // when it took something last, zero for never
	Failing  bool      // the last try failed
	Error    string    // the last failure
	FailedAt time.Time
}

// New returns a Sender with its goroutine.
func New(opt Options) *Sender {
	ctx, stop := context.WithCancel(context.Background())
	s := &Sender{
		opt: opt, wake: make(chan struct{}, 1),
		stop: stop, over: make(chan struct{}), book: NewBook(),
	}
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
		r.inherit(s.book)
	}
	s.mu.Unlock()
	s.poke()
}

// Set says which rungs are crossed now.
func (s *Sender) Set(current []Alert) {
	s.mu.Lock()
	moved := s.book.Set(time.Now(), current)
	s.look()
	s.mu.Unlock()
	if moved {
		s.poke()
	}
}

// Room says how much there is now. Who was near to None once is thought to be so again.
func (s *Sender) Room(room Room) {
	s.mu.Lock()
	held, near := room == None, s.near || room != Plenty
	due := s.held && !held || near && !s.near
	s.held, s.near = held, near
	s.mu.Unlock()
	if due {
		s.poke()
	}
}

func (s *Sender) poke() {
	select {
	case s.wake <- struct{}{}:
	default: // it is to wake already
	}
}

func (s *Sender) look() {
	for _, r := range s.receivers {
		r.look(s.book)
	}
}

// run tells the receivers, one after the other.
func (s *Sender) run(ctx context.Context) {
	defer close(s.over)
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
			case <-s.wake:
			case <-due:
			}
			continue
		}
		fault.Point("alert")
		a := s.opt.Send(ctx, s.request(r, l, SendTime))
		if ctx.Err() != nil {
			return // what came of it is not known, and it is told again
		}
		s.took(r, l, a)
	}
}

func (s *Sender) request(r *receiver, l load, limit time.Duration) Request {
	t := &r.target
	q := Request{URL: t.URL, Token: t.Token, TokenFile: t.TokenFile, Bodies: l.bodies, Timeout: limit}
	if t.TakesToken() {
		q.Token, q.TokenFile = s.opt.Token, s.opt.TokenFile
	}
	return q
}

// pick chooses who is told now: of those that are due who was tried longest ago. It
// returns how long to wait where nobody is, 0 for until something changes.
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

// took takes in what came of a request.
func (s *Sender) took(r *receiver, l load, a Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = nil
	well := r.fails == 0
	r.done(l, a, time.Now(), rand.Float64())
	if well && r.fails > 0 {
		text := fmt.Sprintf("%v: %s", r.target, r.lastError)
		if a.Retry {
			text += "; it is tried again"
		}
		s.opt.Fault(text)
	}
}

// Standing tells how the receivers stand.
func (s *Sender) Standing() []Standing {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Standing, 0, len(s.receivers))
	for _, r := range s.receivers {
		all = append(all, Standing{
			Target: r.target, Firing: s.book.Firing(), Counts: r.Counts, Dropped: len(s.book.dropped), SentAt: r.sentAt,
			Error: r.lastError, FailedAt: r.failedAt, Failing: r.fails > 0, Untold: len(r.untold(s.book)), Held: s.held,
			Missed: len(r.missed), Asked: r.asked,
		})
	}
	return all
}
