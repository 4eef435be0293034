package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
)

// Order is what the leader asks of another member's watcher. At most one is open
// for each member: the next replaces it.
type Order struct {
	ID uint64 `json:"id"` // greater than that of the order before
	// Stop ends the command with TERM, and with KILL where it lives Grace after
	// that, whoever leads then; its rsswarden ends with StopStatus.
	Stop       bool          `json:"stop,omitempty"`
	StopStatus int           `json:"stop_status,omitempty"`
	Grace      time.Duration `json:"grace,omitempty"`
	// Trim is a piece that its holder is to give back by ptrace, in the form in
	// which holder and watcher speak of it.
	Trim json.RawMessage `json:"trim,omitempty"`
}

// Answer is what came of the order with that ID.
type Answer struct {
	ID    uint64          `json:"id"`
	Error string          `json:"error,omitempty"`
	Trim  json.RawMessage `json:"trim,omitempty"`
}

// box names our own file of a kind: orders to us, and our answers.
func (p *Post) box(kind string) string {
	id, _ := nodedir.ProcOf(p.mine, "rank")
	return nodedir.FileOf(kind, id)
}

// Orders is the path of the file that is written for each order to us. It is
// written in place, so that nobody else is woken: wait for IN_CLOSE_WRITE.
func (p *Post) Orders() string { return filepath.Join(p.path, p.box("order")) }

// openOrders makes the file for orders to us, empty.
func (p *Post) openOrders() error {
	fd, err := unix.Openat(int(p.dir.Fd()), p.box("order"), unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("cannot make %s: %w", p.Orders(), err)
	}
	return unix.Close(fd)
}

// Command lays an order down for a member.
func (p *Post) Command(m rss.ProcID, o Order) error {
	name := nodedir.FileOf("order", m)
	data, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", name, err)
	}
	fd, err := unix.Openat(int(p.dir.Fd()), name, unix.O_WRONLY|unix.O_TRUNC|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
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

// Ordered returns the order that stands for us, zero for none, and also where
// half of one is written: the other half comes with news of its own.
func (p *Post) Ordered() (o Order, err error) {
	err = p.read(p.box("order"), &o)
	var half *json.SyntaxError
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, &half) {
		return Order{}, nil
	}
	return o, err
}

// Answer says what came of an order.
func (p *Post) Answer(a Answer) error { return p.write(p.box("answer"), a) }

// Answered returns what a member answered last, zero for nothing.
func (p *Post) Answered(m rss.ProcID) (a Answer, err error) {
	err = p.read(nodedir.FileOf("answer", m), &a)
	if errors.Is(err, fs.ErrNotExist) {
		return Answer{}, nil
	}
	return a, err
}
