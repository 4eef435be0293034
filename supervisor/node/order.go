package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Order is what the leader asks of another member's watcher. At most one is open
// for each member: the next replaces it.
type Order struct {
	ID uint64 `json:"id"` // greater than that of the order before
	// Stop ends the command with TERM, and with KILL where it lives Grace after
	// that, even under another leader; its rsswarden ends with StopStatus.
	Stop       bool          `json:"stop,omitempty"`
	StopStatus int           `json:"stop_status,omitempty"`
	Grace      time.Duration `json:"grace,omitempty"`
	// Trim is a piece that its holder is to give back by ptrace, in the form in
	// which holder and watcher speak of it.
	Trim json.RawMessage `json:"trim,omitempty"`
}

type answer struct {
	ID    uint64          `json:"id"`
	Error string          `json:"error,omitempty"`
	Trim  json.RawMessage `json:"trim,omitempty"`
}

// box names our own file of a kind: orders to us, and our answers.
func (p *post) box(kind string) string {
	id, _ := nodedir.ProcOf(p.mine, "rank")
	return nodedir.FileOf(kind, id)
}

// Orders is the path of the file that is written for each order to us. It is
// written in place, so that only its reader is woken: wait for IN_CLOSE_WRITE.
func (p *post) Orders() string { return p.dir.path(p.box("order")) }

// openOrders makes the file for orders to us, empty.
func (p *post) openOrders() error {
	fd, err := unix.Openat(p.dir.fd(), p.box("order"), unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("cannot make %s: %w", p.Orders(), err)
	}
	return unix.Close(fd)
}

// Command lays an order down for a member.
func (p *post) Command(m rss.ProcID, o Order) error {
	name := nodedir.FileOf("order", m)
	data, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", name, err)
	}
	fd, err := unix.Openat(p.dir.fd(), name, unix.O_WRONLY|unix.O_TRUNC|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("cannot write %s: %w", name, err)
	}
	return nil
}

// Ordered returns the order that we have, zero for none, and also where
// half of one is written: the other half comes with news of its own.
func (p *post) Ordered() (o Order, err error) {
	err = p.dir.read(p.box("order"), &o)
	var half *json.SyntaxError
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, &half) {
		return Order{}, nil
	}
	return o, err
}

func (p *post) Answer(a answer) error { return p.dir.write(p.box("answer"), a) }

// Answered returns what a member answered last, zero for nothing.
func (p *post) Answered(m rss.ProcID) (a answer, err error) {
	err = p.dir.read(nodedir.FileOf("answer", m), &a)
	if errors.Is(err, fs.ErrNotExist) {
		return answer{}, nil
	}
	return a, err
}

// question is what the leader has asked another rank's watcher for. Its number grows from
// leader to leader: it is the time.
type question struct {
	last uint64
	of   rss.ProcID // holder of the rank that traces for us now
	id   uint64     // number of that order, 0 for none
}

func (q *question) next() uint64 {
	q.last = max(q.last+1, uint64(time.Now().UnixNano()))
	return q.last
}

// Ask has another rank's holder give a piece back.
func (p *Place) Ask(m *Member, piece json.RawMessage) error {
	id := p.asked.next()
	if err := p.post.Command(m.Holder, Order{ID: id, Trim: piece}); err != nil {
		return fmt.Errorf("cannot ask %s: %w", p.Title(m), err)
	}
	p.asked.of, p.asked.id = m.Holder, id
	return nil
}

// Answered returns what came of [Place.Ask], once; ok is false as long as that is nothing.
func (p *Place) Answered() (piece json.RawMessage, ok bool, err error) {
	if p.asked.id == 0 || p.post == nil {
		return nil, false, nil
	}
	a, err := p.post.Answered(p.asked.of)
	if err != nil || a.ID != p.asked.id {
		return nil, false, nil // it may come yet
	}
	p.asked.id = 0
	if a.Error != "" {
		return nil, true, errors.New(a.Error)
	}
	return a.Trim, true, nil
}

// hearOrders has the bell ring for orders to us.
func (p *Place) hearOrders(n *News) {
	err := p.opt.Bell.Watch(p.opt.Cause, unix.IN_CLOSE_WRITE, p.post.Orders())
	p.hears = err == nil
	n.fault("leader", err)
}

func (p *Place) obey(now time.Duration, n *News) {
	o, err := p.post.Ordered()
	if err != nil {
		n.fault("leader", err)
		return
	}
	if o.ID <= p.done {
		return
	}
	p.done = o.ID
	switch {
	case o.Stop:
		p.stop.begin(now, p.Me.Command, &o, &p.opt, n)
	case len(o.Trim) > 0 && !p.Successor: // else its answer is not waited for
		n.Trim, n.Order = o.Trim, o.ID
		p.owes = true
	}
}

// Answer passes on to the leader what came of the order that was carried out last.
func (p *Place) Answer(order uint64, piece any, failed error) error {
	if order != p.done || p.post == nil {
		return nil
	}
	p.owes = false
	a := answer{ID: order}
	var err error
	if failed != nil {
		a.Error = failed.Error()
	} else if a.Trim, err = json.Marshal(piece); err != nil {
		return err
	}
	return p.post.Answer(a)
}

// Each rank's watcher sends its own command TERM, and KILL when that is due: the leader may
// have ended by then.

// ownStop is a stop of our own command that a leader asked for. It is in force until
// the command ends: a second TERM could hit it while it writes a checkpoint.
type ownStop struct {
	grace time.Duration
	due   time.Duration // when KILL follows, then when it is sent again; 0 for no stop
	said  bool          // KILL was sent
}

const (
	// killAfter is how long after the grace a follower sends KILL itself: a leader that
	// lives sends it first.
	killAfter = time.Second
	// killEvery is how often it is sent again.
	killEvery = 250 * time.Millisecond
)

func (s *ownStop) inForce() bool { return s.due != 0 }

// within shortens a pause to what is left until KILL is due.
func (s *ownStop) within(now, pause time.Duration) time.Duration {
	if !s.inForce() {
		return pause
	}
	return min(pause, s.due-now)
}

// Stopping says that our own command was told to end, as a leader asked.
func (p *Place) Stopping() bool { return p.stop.inForce() }

func (s *ownStop) begin(now time.Duration, command rss.ProcID, o *Order, opt *Options, n *News) {
	if s.inForce() {
		return
	}
	// The status of a command that ended by itself, or that we cannot stop, is kept.
	if err := opt.Kill(command, 0); err != nil {
		if !errors.Is(err, syscall.ESRCH) {
			n.fault("stop", err)
		}
		return
	}
	*s = ownStop{grace: o.Grace, due: now + o.Grace + killAfter}
	n.Stopped, n.Status = true, o.StopStatus
	n.fault("stop", opt.Override(o.StopStatus))
	n.fault("stop", opt.Kill(command, syscall.SIGTERM))
}

// kill sends KILL to all of our command's tree that lives, once that is due, and
// again until the command ends: a tree may fork while it dies.
func (s *ownStop) kill(now time.Duration, command rss.ProcID, opt *Options, n *News) {
	if !s.inForce() || now < s.due {
		return
	}
	s.due = now + killEvery
	if !s.said {
		s.said = true
		n.Lines = append(n.Lines, "still running "+text.Span(s.grace)+" after SIGTERM: SIGKILL now")
	}
	// A reader of its own: the leader watches more than this tree with the other.
	tree := proctree.New(opt.Proc)
	defer tree.Close()
	procs, _, err := tree.Trees([]rss.ProcID{command})
	if err != nil {
		n.fault("stop", err)
		procs = []rss.Proc{{ID: command}}
	}
	for i := range procs {
		if err := opt.Kill(procs[i].ID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			n.fault("stop", err)
		}
	}
}

// StopOthers has the watchers of the other ranks of a step, of all steps where it is empty,
// stop their commands, and returns how many were asked. Each knows the status that its own
// rsswarden is to end with. Where a watcher cannot be asked its command gets TERM from us.
func (p *Place) StopOthers(step string, status int, grace time.Duration) (asked int, n News) {
	for i := range p.Others {
		m := &p.Others[i]
		if step != "" && m.Step != step {
			continue
		}
		err := fmt.Errorf("the watcher of %s has ended", p.Title(m))
		if proctree.Lives(p.opt.Proc, m.Watcher) {
			err = p.post.Command(m.Holder, Order{ID: p.asked.next(), Stop: true, StopStatus: status, Grace: grace})
		}
		if err != nil {
			n.fault("stop", fmt.Errorf("%w: its command gets TERM from here", err))
			err = p.opt.Kill(m.Command, syscall.SIGTERM)
		}
		switch {
		case err == nil:
			asked++
		case !errors.Is(err, syscall.ESRCH):
			n.fault("stop", err)
		}
	}
	return asked, n
}
