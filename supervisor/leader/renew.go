package leader

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Renew keeps our place for as long as the job takes. What cleans /tmp removes what
// nobody has touched for days, so all of ours is touched; and what was removed or
// broken nevertheless is put back. It says whether our file for orders is another
// one now.
func (p *Post) Renew(me Member) (reopened bool, err error) {
	var is Member
	if p.read(p.mine, &is) != nil || is.Holder != me.Holder || is.Watcher != me.Watcher || is.Command != me.Command {
		err = p.Put(me)
	}
	if !p.Has(p.box("order")) {
		e := p.openOrders()
		reopened, err = e == nil, errors.Join(err, e)
	}
	if p.Leads() {
		err = errors.Join(err, p.keepLock())
	}
	for _, name := range []string{p.mine, p.box("order"), lockName} {
		_ = unix.UtimesNanoAt(int(p.dir.Fd()), name, nil, unix.AT_SYMLINK_NOFOLLOW)
	}
	_ = unix.UtimesNanoAt(unix.AT_FDCWD, p.path, nil, unix.AT_SYMLINK_NOFOLLOW)
	return reopened, err
}

// Has says whether there is a file of that name here.
func (p *Post) Has(name string) bool {
	var st unix.Stat_t
	return !errors.Is(unix.Fstatat(int(p.dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW), unix.ENOENT)
}

// keepLock locks a new file where the one that we have locked has lost its name:
// whoever comes would lead beside us. The old one stays locked for those who wait.
func (p *Post) keepLock() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lock == nil || p.isCurrent(int(p.lock.Fd())) {
		return nil
	}
	fd, err := unix.Openat(int(p.dir.Fd()), lockName, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", filepath.Join(p.path, lockName), err)
	}
	f := os.NewFile(uintptr(fd), lockName)
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return fmt.Errorf("cannot lock %s again, which somebody has removed: %w", filepath.Join(p.path, lockName), err)
	}
	marked(f)
	p.old = append(p.old, p.lock)
	p.lock = f
	return nil
}
