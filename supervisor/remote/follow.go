package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Follower asks leaders for their status again and again, and has them act: those of this
// node by their sockets, those of a job's nodes by one step of Slurm's in which each node
// repeats its status.
type Follower struct {
	c     Caller
	t     Target
	once  bool
	every time.Duration

	// Of this node: the leaders that were found, and when.
	found   []leaderDir
	foundAt time.Time

	ctx    context.Context
	cancel context.CancelFunc
	ended  chan struct{} // closed when listen has returned; nil before it began
	news   chan struct{} // holds one if anything was heard since the last fetch

	mu    sync.Mutex
	local []*Reply                   // of the last look at this node
	last  map[leaderKey]*heardStatus // of each leader on other nodes
	why   map[string]Answer          // the error of each node
}

type leaderKey struct {
	node string
	pid  int
}

type heardStatus struct {
	control.Status
	at time.Time
}

// Follow prepares to ask. A job that does not run is an error at once.
func Follow(c Caller, t Target, every time.Duration, once bool) (*Follower, error) {
	f := &Follower{c: c, t: t, once: once, every: every, news: make(chan struct{}, 1), last: map[leaderKey]*heardStatus{}, why: map[string]Answer{}}
	// A line on stderr would break the screen.
	f.c.Warn = func(text string) { f.take(Answer{Node: thisProgram, Error: program + ": " + text}) }
	f.ctx, f.cancel = context.WithCancel(context.Background())
	if t.Job != "" {
		if _, err := t.running(f.ctx, c); err != nil && len(t.askLocal(f.ctx, c, t.Job)) == 0 {
			f.cancel()
			return nil, &Error{Msg: err.Error(), Hint: "on a node of the job: " + program + " top"}
		}
	}
	return f, nil
}

// thisProgram is the node of our own warnings.
const thisProgram = "here"

// Stop ends the asking, a step of Slurm's too.
func (f *Follower) Stop() {
	f.cancel()
	if f.ended == nil {
		return
	}
	select {
	case <-f.ended:
	case <-time.After(5 * time.Second): // srun hangs
	}
}

// NoRun is the error where nothing was found.
func (f *Follower) NoRun() error { return f.t.noRun(f.c) }

// Fetch returns the statuses, and why leaders did not answer.
func (f *Follower) Fetch(ctx context.Context) ([]control.Status, []error) {
	if f.t.Job == "" {
		return f.fetchHere(ctx)
	}
	// The first fetch waits for the first status, and with once for all.
	if f.ended == nil {
		f.ended = make(chan struct{})
		go f.listen()
		wait := f.news
		if f.once {
			wait = nil
		}
		select {
		case <-wait:
		case <-f.ended:
		case <-ctx.Done():
		}
	}
	return f.statuses(time.Now())
}

// findAgain is how long leaders are asked where they were found: finding them reads
// every process.
const findAgain = 10 * time.Second

func (f *Follower) fetchHere(ctx context.Context) (list []control.Status, errs []error) {
	for {
		if len(f.found) == 0 || time.Since(f.foundAt) > findAgain {
			f.found, f.foundAt = findLeaders("/proc", f.c.get), time.Now()
		}
		all := askEach(ctx, f.found, f.t.jobHere(f.c), f.t.Node)
		if len(all) == 0 && len(f.found) > 0 && time.Since(f.foundAt) >= f.every {
			f.found = nil // they have ended; others may have begun elsewhere
			continue
		}
		f.mu.Lock()
		f.local = all
		f.mu.Unlock()
		for _, m := range all {
			if m.err != nil {
				errs = append(errs, m.failed(slurm.NodeName(f.c.Lookup), m.err).asError())
				continue
			}
			list = append(list, *m.status)
		}
		return list, errs
	}
}

// statuses are those heard last. A leader of which its node says nothing any more, while
// it goes on speaking, has ended; a silent node is an error.
func (f *Follower) statuses(now time.Time) (list []control.Status, errs []error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	heard := map[string]time.Time{}
	for by, s := range f.last {
		if s.at.After(heard[by.node]) {
			heard[by.node] = s.at
		}
	}
	patience := 2*f.every + time.Second
	maps.DeleteFunc(f.last, func(by leaderKey, s *heardStatus) bool { return heard[by.node].Sub(s.at) > patience })
	for by, s := range f.last {
		if now.Sub(s.at) <= patience || f.once {
			list = append(list, s.Status)
		} else if _, known := f.why[by.node]; !known {
			errs = append(errs, fmt.Errorf("%s has said nothing for %.0f s", by.node, now.Sub(s.at).Seconds()))
		}
	}
	for node, a := range f.why {
		a.Node = node
		errs = append(errs, a.asError())
	}
	slices.SortFunc(list, func(a, b control.Status) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Leader, b.Leader))
	})
	slices.SortFunc(errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return list, errs
}

// askAgain is the pause after a step that ended early: each costs the job's slurmctld a
// little.
const askAgain = 5 * time.Second

// listen has all nodes repeat their status, until Stop.
func (f *Follower) listen() {
	defer close(f.ended)
	q := Request{Every: f.every}
	if f.once {
		q.Every = 0
	}
	for {
		began := time.Now()
		nodes, err := f.t.reach(f.ctx, f.c, q, f.take)
		if err != nil && f.ctx.Err() == nil {
			f.take(Answer{Node: "job " + f.t.Job, Error: text.Plain(err.Error())})
		}
		if f.once {
			return
		}
		pause := time.Until(began.Add(f.every))
		if len(nodes) > 1 || f.silent() {
			pause = max(pause, min(askAgain, time.Until(began.Add(time.Minute))))
		}
		select {
		case <-time.After(pause):
		case <-f.ctx.Done():
			return
		}
	}
}

// silent says that some node did not answer.
func (f *Follower) silent() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.why)
	if _, ours := f.why[thisProgram]; ours {
		n--
	}
	return n > 0
}

func (f *Follower) take(a Answer) {
	f.mu.Lock()
	switch {
	case a.Status != nil:
		f.last[leaderKey{a.Node, a.Leader}] = &heardStatus{*a.Status, time.Now()}
		delete(f.why, a.Node)
		delete(f.why, "job "+f.t.Job)
	case a.Error != "":
		f.why[a.Node] = a
	}
	f.mu.Unlock()
	select {
	case f.news <- struct{}{}:
	default:
	}
}

// Do has the leader of a node act. rank is the rank that was chosen as a whole, -1 if
// none.
func (f *Follower) Do(ctx context.Context, node string, leader, rank int, c control.Command, each func(control.Result)) error {
	if f.t.Job != "" {
		return f.doJob(ctx, node, rank, c, each)
	}
	f.mu.Lock()
	i := slices.IndexFunc(f.local, func(m *Reply) bool {
		return m.status != nil && m.status.Leader == leader && m.status.Node == node
	})
	if i < 0 {
		f.mu.Unlock()
		return control.ErrNoLeader
	}
	client := f.local[i].client
	f.mu.Unlock()
	for r, err := range client.Do(ctx, c) {
		if err != nil {
			return err
		}
		each(r)
	}
	return nil
}

func (f *Follower) doJob(ctx context.Context, node string, rank int, c control.Command, each func(control.Result)) error {
	q := Request{Do: c.Do, PIDs: c.PIDs, Ranks: c.Ranks}
	if q.Do == event.ActionTrim && len(q.PIDs) > 0 { // its --pid means another way to trim
		if rank < 0 {
			return fmt.Errorf("one process is trimmed on its node alone: ssh %s rsswarden top; here its rank can be", node)
		}
		q.PIDs, q.Ranks = nil, []int{rank}
	}
	var failed error
	_, err := Target{Job: f.t.Job, Node: node}.reach(ctx, f.c, q, func(a Answer) {
		switch {
		case a.Result != nil:
			each(*a.Result)
		case a.Error != "":
			failed = errors.New(a.Error)
		}
	})
	return cmp.Or(err, failed)
}
