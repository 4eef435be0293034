package node

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestRest: a follower rests while it has nothing to do, and what comes meanwhile it finds when
// it goes on.
func TestRest(t *testing.T) {
	m := newMachine(t)
	m.Put(rsstest.Process{PID: os.Getpid(), Parent: 1, Start: 10, Comm: "rss-watcher"}) // each rank here is this process
	first, second := m.rank(t, 0), m.rank(t, 1)
	rests := func(s *seat, want bool, when string) {
		t.Helper()
		r, err := s.Rest()
		wardentest.NoError(t, err)
		if (r != nil) != want {
			t.Errorf("%s: it rests: %v", when, r != nil)
		}
		if r != nil {
			r.Close()
		}
	}
	rests(first, false, "it leads")
	rests(second, false, "orders are not heard yet")
	second.Follow(false)
	rests(second, true, "nothing to do")

	first.Others = []Member{second.Me}
	wardentest.NoError(t, first.Ask(&second.Me, json.RawMessage(`{"piece":1}`)))
	rests(second, false, "an order waits")
	n := second.Advance(time.Second)
	if string(n.Trim) != `{"piece":1}` {
		t.Fatalf("%+v", n)
	}
	rests(second, false, "an answer is owed")
	wardentest.NoError(t, second.Answer(n.Order, 7, nil))
	rests(second, true, "it is given")

	// At rest from here on: another order comes, and then the lead falls to it.
	first.orders(second, time.Second)
	path := second.Dir().Name()
	first.Leave(nil)
	lock, err := unix.Open(filepath.Join(path, lockName), unix.O_RDWR|unix.O_CLOEXEC, 0)
	wardentest.NoError(t, err)
	second.falls() // this process has it, as one at rest would
	again := &seat{t: t, fs: m, probes: second.probes, Place: New(second.opt)}
	second.post.lock.Close()
	wardentest.NoError(t, unix.Flock(lock, unix.LOCK_EX|unix.LOCK_NB))
	wardentest.NoError(t, again.JoinAgain([]string{m.dir}, "46@n1.abc", m.member(1), n.Order, lock))
	again.Follow(true)
	if again.Leads() || !again.HasLock() {
		t.Errorf("leads %v, has the lock %v", again.Leads(), again.HasLock())
	}
	if n = again.Advance(time.Second); !n.Stopped || len(n.Trim) > 0 {
		t.Errorf("%+v", n)
	}
	rests(again, false, "it stops its command")
	if again.Advance(time.Hour); !again.Leads() || !again.Successor {
		t.Error("it does not lead")
	}
	again.Leave(nil)
	if _, err := os.Stat(path); err == nil {
		t.Error("who left last has left the directory")
	}
}

// TestRestedCannotJoin: who has the lock and cannot join gives it up, for another to lead.
func TestRestedCannotJoin(t *testing.T) {
	path := filepath.Join(t.TempDir(), lockName)
	var locks [2]int
	for i := range locks {
		var err error
		locks[i], err = unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
		wardentest.NoError(t, err)
	}
	defer unix.Close(locks[1])
	wardentest.NoError(t, unix.Flock(locks[0], unix.LOCK_EX|unix.LOCK_NB))
	m := newMachine(t)
	p := New(Options{Proc: m.Proc})
	if err := p.JoinAgain([]string{filepath.Join(path, "no directory")}, "46@n1.abc", m.member(0), 0, locks[0]); err == nil || !p.Leads() {
		t.Fatalf("it has joined, or follows: %v", err)
	}
	wardentest.NoError(t, unix.Flock(locks[1], unix.LOCK_EX|unix.LOCK_NB))
}
