package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/screen"
)

// topNodes asks leaders again and again, and has them do things: those of this node
// by their sockets, those of a job's nodes by one step of Slurm's, in which each
// node says each interval what stands.
type topNodes struct {
	p     process
	w     whom
	once  bool
	every time.Duration

	// Of this node: where leaders were found, and when; whom the last look met.
	found   []leading
	foundAt time.Time

	ctx    context.Context
	cancel context.CancelFunc
	ended  chan struct{} // closed when nothing asks any more; nil before it began
	news   chan struct{} // holds one where something was said since the last look

	mu   sync.Mutex
	met  []*met
	last map[saidBy]*said // what each leader said last
	why  map[string]says  // what each node said in the place of a leader
}

// saidBy is a leader of a node.
type saidBy struct {
	node   string
	leader int
}

type said struct {
	status control.Status
	at     time.Time
}

// watched prepares to ask. A job that does not run is an error at once.
func (w whom) watched(p process, every time.Duration, once bool) (*topNodes, error) {
	t := &topNodes{p: p, w: w, once: once, every: every, news: make(chan struct{}, 1), last: map[saidBy]*said{}, why: map[string]says{}}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	if w.job != "" {
		_, err := w.running(t.ctx, p)
		if err != nil && len(meet(t.ctx, findLeaders("/proc", p.get), w.job, w.node)) == 0 {
			t.cancel()
			return nil, &leaderError{err.Error(), "on a node of the job: " + programName + " top"}
		}
	}
	return t, nil
}

// stop ends what asks, a step of Slurm's too.
func (t *topNodes) stop() {
	t.cancel()
	if t.ended == nil {
		return
	}
	select {
	case <-t.ended:
	case <-time.After(5 * time.Second): // srun hangs
	}
}

func (t *topNodes) nobody() error { return t.w.nobody(t.p, t.jobHere()) }

// jobHere is the job whose leaders are meant, empty for all.
func (t *topNodes) jobHere() string {
	if t.w.job == "" && !t.w.all {
		return t.p.get("SLURM_JOB_ID")
	}
	return t.w.job
}

// fetch returns what stands, and why leaders did not answer.
func (t *topNodes) fetch(ctx context.Context) ([]control.Status, []error) {
	if t.w.job != "" {
		return t.fetchJob(ctx)
	}
	return t.fetchHere(ctx)
}

// findAgain is how long leaders are asked where they were found: to find them means
// to look at every process.
const findAgain = 10 * time.Second

func (t *topNodes) fetchHere(ctx context.Context) (list []control.Status, errs []error) {
	for {
		if old := time.Since(t.foundAt) > findAgain; old || len(t.found) == 0 {
			t.found, t.foundAt = findLeaders("/proc", t.p.get), time.Now()
		}
		all := meet(ctx, t.found, t.jobHere(), t.w.node)
		fresh := time.Since(t.foundAt) < t.every
		if len(all) == 0 && len(t.found) > 0 && !fresh {
			t.found = nil // they have ended; others may have begun elsewhere
			continue
		}
		t.mu.Lock()
		t.met = all
		t.mu.Unlock()
		for _, m := range all {
			if m.err != nil {
				errs = append(errs, m.failed(slurm.NodeName(t.p.lookup), m.err).asError())
				continue
			}
			list = append(list, *m.status)
		}
		return list, errs
	}
}

// fetchJob returns what nodes have said. The first time it waits for the first of
// them, and with --once for all.
func (t *topNodes) fetchJob(ctx context.Context) ([]control.Status, []error) {
	if t.ended == nil {
		t.ended = make(chan struct{})
		go t.listen()
		wait := t.news
		if t.once {
			wait = nil
		}
		select {
		case <-wait:
		case <-t.ended:
		case <-ctx.Done():
		}
	}
	return t.standing(time.Now())
}

// standing is what the nodes said last. A leader of which a node that goes on
// speaking says nothing any more leads no more; a node that is silent is an error.
func (t *topNodes) standing(now time.Time) (list []control.Status, errs []error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	heard := map[string]time.Time{}
	for by, s := range t.last {
		if s.at.After(heard[by.node]) {
			heard[by.node] = s.at
		}
	}
	patience := 2*t.every + time.Second
	for by, s := range t.last {
		if heard[by.node].Sub(s.at) > patience {
			delete(t.last, by)
			continue
		}
		if now.Sub(s.at) <= patience || t.once {
			list = append(list, s.status)
		} else if _, told := t.why[by.node]; !told {
			errs = append(errs, fmt.Errorf("%s has said nothing for %.0f s", by.node, now.Sub(s.at).Seconds()))
		}
	}
	for node, s := range t.why {
		s.Node = node
		errs = append(errs, s.asError())
	}
	slices.SortFunc(list, func(a, b control.Status) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Leader, b.Leader))
	})
	slices.SortFunc(errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return list, errs
}

// askAgain is the pause behind a step that ended early: each costs the job's
// slurmctld a little.
const askAgain = 5 * time.Second

// listen has all nodes say what stands, until stop.
func (t *topNodes) listen() {
	defer close(t.ended)
	p, unquiet := t.quiet()
	defer unquiet()
	w, args := t.w, []string{"status"}
	if !t.once {
		w.every = t.every
		args = append(args, "--every", t.every.String())
	}
	for {
		began := time.Now()
		var a arrived
		if err := w.reach(t.ctx, p, question{}, args, &a, t.heard); err != nil && t.ctx.Err() == nil {
			t.heard(says{Node: "job " + t.w.job, Error: oneLine(err.Error())})
		}
		if t.once {
			return
		}
		pause := time.Until(began.Add(t.every))
		if len(a.nodes) > 1 || t.silent() {
			pause = max(pause, min(askAgain, time.Until(began.Add(time.Minute))))
		}
		select {
		case <-time.After(pause):
		case <-t.ctx.Done():
			return
		}
	}
}

// here is whose words are those that this program itself writes to its users.
const here = "here"

// silent says that some node did not answer.
func (t *topNodes) silent() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.why)
	if _, ours := t.why[here]; ours {
		n--
	}
	return n > 0
}

func (t *topNodes) heard(s says) {
	t.mu.Lock()
	switch {
	case s.Status != nil:
		t.last[saidBy{s.Node, s.Leader}] = &said{*s.Status, time.Now()}
		delete(t.why, s.Node)
		delete(t.why, "job "+t.w.job)
	case s.Error != "":
		t.why[s.Node] = s
	}
	t.mu.Unlock()
	select {
	case t.news <- struct{}{}:
	default:
	}
}

// quiet is the process with a standard error that is passed on as what a node says:
// a line on the screen would break it.
func (t *topNodes) quiet() (process, func()) {
	p := t.p
	r, w, err := os.Pipe()
	if err != nil {
		return p, func() {}
	}
	p.stderr = w
	done := make(chan struct{})
	go func() {
		defer close(done)
		for s := bufio.NewScanner(r); s.Scan(); {
			t.heard(says{Node: here, Error: oneLine(s.Text())})
		}
	}()
	return p, func() { w.Close(); <-done; r.Close() }
}

// do has a leader carry out an order.
func (t *topNodes) do(ctx context.Context, o screen.Order, each func(control.Result)) error {
	if t.w.job != "" {
		return t.doJob(ctx, o, each)
	}
	t.mu.Lock()
	i := slices.IndexFunc(t.met, func(m *met) bool {
		return m.status != nil && m.status.Leader == o.Leader && m.status.Node == o.Node
	})
	if i < 0 {
		t.mu.Unlock()
		return control.ErrNobody
	}
	client := t.met[i].client
	t.mu.Unlock()
	for r, err := range client.Do(ctx, o.Command) {
		if err != nil {
			return err
		}
		each(r)
	}
	return nil
}

func (t *topNodes) doJob(ctx context.Context, o screen.Order, each func(control.Result)) error {
	q := question{do: o.Command.Do, pids: o.Command.PIDs, ranks: o.Command.Ranks}
	if q.do == event.ActionTrim && len(q.pids) > 0 { // its --pid means another way to trim
		if o.Rank < 0 {
			return fmt.Errorf("one process is trimmed on its node alone: ssh %s rsswarden top; here its rank can be", o.Node)
		}
		q.pids, q.ranks = nil, []int{o.Rank}
	}
	p, unquiet := t.quiet()
	defer unquiet()
	w := whom{job: t.w.job, node: o.Node}
	var a arrived
	var failed error
	err := w.reach(ctx, p, q, q.arguments(), &a, func(s says) {
		switch {
		case s.Result != nil:
			each(*s.Result)
		case s.Error != "":
			failed = errors.New(s.Error)
		}
	})
	return cmp.Or(err, failed)
}
