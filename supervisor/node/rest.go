package node

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Rest is what a follower waits for that has nothing to do. The descriptors are those of
// pidfd_open(2), of the lock on the lead, and of inotify(7).
type Rest struct {
	Leader, Lock, Orders int
	LedBy                int    // the leader's PID
	Order                uint64 // the last that was carried out
}

// Rest returns nil where there is something to do, or that cannot be waited for.
func (p *Place) Rest() (*Rest, error) {
	if !p.follows || p.Successor || !p.hears || p.owes || p.stop.inForce() {
		return nil, nil
	}
	r := &Rest{Leader: -1, Lock: -1, Orders: -1, Order: p.done}
	ready, err := p.post.await(r)
	if err != nil || !ready {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Close closes what [Place.Rest] has opened.
func (r *Rest) Close() {
	for _, fd := range []int{r.Leader, r.Lock, r.Orders} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// await opens what is waited for, and says whether nothing of it was there before.
func (p *post) await(r *Rest) (ready bool, err error) {
	if r.Lock, err = unix.Openat(p.dir.fd(), lockName, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err != nil {
		return false, nil // it has just left
	}
	leader := readLeader(r.Lock)
	r.LedBy = leader.PID
	if r.Leader, err = unix.PidfdOpen(leader.PID, 0); err != nil {
		if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) { // another leads in a moment
			return false, nil
		}
		return false, fmt.Errorf("cannot wait for the leader's end: %w", err)
	}
	if !p.lives(leader) || !p.isCurrent(r.Lock) {
		return false, nil
	}
	if r.Orders, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err == nil {
		_, err = unix.InotifyAddWatch(r.Orders, p.Orders(), unix.IN_CLOSE_WRITE|unix.IN_DELETE_SELF|unix.IN_MOVE_SELF)
	}
	switch {
	case errors.Is(err, unix.EMFILE):
		return false, nil // a user has 128 instances as a rule, and each that rests needs one less
	case err != nil:
		return false, fmt.Errorf("cannot wait for orders: %w", err)
	}
	o, err := p.Ordered()
	return err == nil && o.ID <= r.Order, nil
}

// JoinAgain is [Place.Join] of a follower that was at rest, and that has carried out the
// orders up to done. lock is the descriptor of the lock of the lead where that has fallen to
// it, else 0. It is a successor then.
func (p *Place) JoinAgain(parents []string, name string, me Member, done uint64, lock int) error {
	me.again = true
	err := p.Join(parents, name, me)
	p.follows, p.done = p.post != nil, done
	switch {
	case lock == 0:
	case p.post != nil:
		p.post.adopt(lock)
	default:
		unix.Close(lock) // else no other rank could lead
	}
	return err
}

// adopt is TryLead with a lock that we have got already.
func (p *post) adopt(fd int) {
	f := os.NewFile(uintptr(fd), lockName)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lock != nil || !p.isCurrent(fd) {
		f.Close()
		return
	}
	p.lock, p.killed = f, p.marked(f)
}
