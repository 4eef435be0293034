package node

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// renewEvery is how often our place among the watchers is looked after.
const renewEvery = time.Minute

// renew keeps our place: what cleans /tmp may have removed it. It says whether our file for
// orders is another one now.
func (p *Place) renew(now time.Duration, n *News) (reopened bool) {
	if now-p.renewedAt < renewEvery {
		return false
	}
	p.renewedAt, n.Renewed = now, true
	reopened, err := p.post.Renew(p.Me)
	n.fault("leader", err)
	return reopened
}

// Renew keeps our place for as long as the job takes. What cleans /tmp removes what
// was not touched for days, so all of ours is touched; and what was removed or
// broken nevertheless is put back. It says whether our file for orders is another
// one now.
func (p *post) Renew(me Member) (reopened bool, err error) {
	var is Member
	if p.dir.read(p.mine, &is) != nil || is.Holder != me.Holder || is.Watcher != me.Watcher || is.Command != me.Command {
		err = p.Put(me)
	}
	if !p.dir.has(p.box("order")) {
		e := p.openOrders()
		reopened, err = e == nil, errors.Join(err, e)
	}
	if p.Leads() {
		err = errors.Join(err, p.keepLock())
	}
	for _, name := range []string{p.mine, p.box("order"), lockName} {
		_ = unix.UtimesNanoAt(p.dir.fd(), name, nil, unix.AT_SYMLINK_NOFOLLOW)
	}
	_ = unix.UtimesNanoAt(unix.AT_FDCWD, p.dir.Name(), nil, unix.AT_SYMLINK_NOFOLLOW)
	return reopened, err
}

// keepLock locks a new file where the one that we have locked has lost its name:
// a new member would lead beside us. The old one stays locked for those who wait.
func (p *post) keepLock() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lock == nil || p.isCurrent(int(p.lock.Fd())) {
		return nil
	}
	fd, err := unix.Openat(p.dir.fd(), lockName, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", p.dir.path(lockName), err)
	}
	f := os.NewFile(uintptr(fd), lockName)
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return fmt.Errorf("cannot lock %s again, which was removed: %w", p.dir.path(lockName), err)
	}
	marked(f)
	p.old = append(p.old, p.lock)
	p.lock = f
	return nil
}
