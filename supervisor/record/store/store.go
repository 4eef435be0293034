// Package store keeps the full record of a run in an LMDB directory on node-local storage,
// at most 64 MiB of it, and reads it back.
//
// A SIGKILL at any moment costs the last second and nothing else. Storage that is full,
// read-only, hung or gone costs the record and nothing else: [Recorder] never blocks its
// caller. LMDB trusts its file and dies by SIGBUS or abort on a damaged one, so [Read] has
// a child process open it, which runs [Confine] and [Export]; while a run goes on its
// watcher alone has the record open, and gives it out on a socket.
package store

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/bmatsuo/lmdb-go/lmdb"
	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

const lockFile = "lock.mdb"

// database is the full record as its writer has it. One goroutine uses it.
type database struct {
	dir   *os.File // held open: its path may lead elsewhere some day
	env   *lmdb.Env
	dbi   lmdb.DBI
	file  os.FileInfo // of record.DataFile
	mapAt uintptr     // LMDB's mapping of it, 0 where it was not found
	size  int64       // of the mapping, the bound of the file
	tiers tiers
	// passed is, for each tier, the number up to which no block is of it: those
	// before are coarser.
	passed [record.Tiers]uint64
	// routine is how many bytes of routine events there are.
	routine int
	// used is the bytes of pages in use; pages may be half empty.
	used int64
	// futile is the use from which on to thin again, after thinning freed nothing.
	futile int64
	// synced is when the last sync began; syncing gets its result, nil without one.
	synced  time.Time
	syncing chan error
	flush   func() error // does it
}

// openDatabase makes the record in dir, or goes on with one that an earlier watcher
// of the same run has begun. It closes dir.
func openDatabase(dir *os.File, size int64) (*database, error) {
	env, err := lmdb.NewEnv()
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("cannot open record %s: %w", dir.Name(), err)
	}
	s := &database{dir: dir, env: env, size: size, synced: time.Now(), flush: func() error { return env.Sync(true) }}
	if err := s.open(); err != nil {
		env.Close()
		dir.Close()
		return nil, fmt.Errorf("cannot open record %s: %w", dir.Name(), err)
	}
	return s, nil
}

func (s *database) open() error {
	path := filepath.Join(nodedir.FDPath(s.dir), record.DataFile)
	f, err := nodedir.OpenRegular(s.dir, record.DataFile)
	if err == nil {
		info, bad := f.Stat()
		if err = bad; err == nil {
			err = checkMeta(f, info.Size())
		}
		f.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := s.env.SetMapSize(s.size); err != nil {
		return err
	}
	if err := s.env.SetMaxReaders(4); err != nil {
		return err
	}
	// A SIGKILL loses nothing without syncing: the kernel has the pages.
	if err := s.env.Open(nodedir.FDPath(s.dir), lmdb.NoSync|lmdb.NoReadahead, 0o600); err != nil {
		return err
	}
	fd, err := s.env.FD()
	if err != nil {
		return err
	}
	// LMDB 0.9.19 opens it without O_CLOEXEC.
	unix.CloseOnExec(int(fd))
	if s.file, err = os.Stat(path); err != nil {
		return err
	}
	if err := s.env.Update(func(txn *lmdb.Txn) (err error) {
		s.dbi, err = txn.OpenRoot(0)
		return err
	}); err != nil {
		return err
	}
	s.mapAt = findMapping(path)
	return s.scan()
}

// commit writes items in one transaction, and thins where room runs out.
func (s *database) commit(items []record.Item) error {
	err := s.put(items)
	for range mostThinning {
		if !lmdb.IsMapFull(err) {
			break
		}
		if !s.thin() {
			return errFull
		}
		err = s.put(items)
	}
	if err != nil {
		return err
	}
	if s.used > max(int64(crowdedShare*float64(s.size)), s.futile) && !s.thin() {
		s.futile = s.used + s.size/256
	}
	if s.routine > int(routineShare*float64(s.size)) {
		s.forget()
	}
	s.giveBack()
	return nil
}

var errFull = errors.New("full, and nothing is left to thin")

func (s *database) put(items []record.Item) error {
	var grown tiers
	var routine int
	return s.update(func(txn *lmdb.Txn) error {
		grown, routine = tiers{}, 0
		for _, it := range items {
			key, value := it.Key(), it.Sealed()
			switch it.Kind {
			case record.KindBlock:
				if old, err := txn.Get(s.dbi, key); err == nil {
					grown[record.TierOf(old)] -= len(old)
				}
				grown[0] += len(value)
			case record.KindRoutine:
				routine += len(value)
			}
			if err := txn.Put(s.dbi, key, value, 0); err != nil {
				return err
			}
		}
		return nil
	}, func() {
		s.tiers.sum(&grown)
		s.routine += routine
	})
}

// update runs a transaction, and done where it was committed.
func (s *database) update(f func(*lmdb.Txn) error, done func()) error {
	var used int64
	err := s.env.Update(func(txn *lmdb.Txn) error {
		err := f(txn)
		if err == nil {
			used, err = s.inUse(txn)
		}
		return err
	})
	if err == nil {
		s.used = used
		done()
	}
	return err
}

func (s *database) inUse(txn *lmdb.Txn) (int64, error) {
	st, err := txn.Stat(s.dbi)
	if err != nil {
		return 0, err
	}
	return int64(st.BranchPages+st.LeafPages+st.OverflowPages) * int64(st.PSize), nil
}

// sync begins to write to the disk, unless that is under way. It may take as long as a
// checkpoint that is written there; a SIGKILL meanwhile loses nothing that was committed.
func (s *database) sync() (begun bool, err error) {
	if s.syncing != nil {
		select {
		case err := <-s.syncing:
			s.syncing = nil
			if err != nil {
				return false, err
			}
		default:
			return false, nil
		}
	}
	s.synced, s.syncing = time.Now(), make(chan error, 1)
	go func(to chan error) {
		fault.Point("record-sync")
		to <- s.flush()
	}(s.syncing)
	return true, nil
}

// vanished says that the record's file was removed; writing to it would still succeed.
func (s *database) vanished() bool {
	now, err := os.Stat(filepath.Join(s.dir.Name(), record.DataFile))
	return err != nil || !os.SameFile(now, s.file)
}

func (s *database) close() {
	// Where the sync fails the record is as good as a SIGKILL leaves it.
	if s.syncing != nil {
		<-s.syncing // it uses what is closed here
	}
	_ = s.flush()
	s.env.Close()
	s.dir.Close()
}

const (
	// thinBatch is how many blocks one transaction thins: some milliseconds.
	thinBatch = 64
	// mostBatch bounds the bytes of these: in a tree of thousands each is large.
	mostBatch = 4 << 20
	// mostThinning bounds the transactions in a row where there is no room left.
	mostThinning = 4096
	// crowdedShare is the part of the file in use from which on each commit thins a batch:
	// thinning takes pages too, and a reader of a live record keeps freed ones.
	crowdedShare = 0.75
	// routineShare is the part of the file that the bytes of routine events may
	// have. Their pages are less than half full.
	routineShare = 0.1
	// keepShare is the part of a tier's bytes that stays: its newest.
	keepShare = 0.25
	// hoursShare is the part of all that the last tier may have.
	hoursShare = 0.5
)

// tiers counts the bytes of blocks by tier.
type tiers [record.Tiers]int

func (t *tiers) sum(o *tiers) {
	for i, n := range o {
		t[i] += n
	}
}

// each calls f with every entry from one on, until f returns false.
func each(txn *lmdb.Txn, dbi lmdb.DBI, from record.Item, f func(cur *lmdb.Cursor, k, v []byte) (bool, error)) error {
	cur, err := txn.OpenCursor(dbi)
	if err != nil {
		return err
	}
	defer cur.Close()
	k, v, err := cur.Get(from.Key(), nil, lmdb.SetRange)
	for ; err == nil; k, v, err = cur.Get(nil, nil, lmdb.Next) {
		if more, err := f(cur, k, v); err != nil || !more {
			return err
		}
	}
	if lmdb.IsNotFound(err) {
		return nil
	}
	return err
}

func (s *database) scan() error {
	s.tiers, s.routine = tiers{}, 0
	return s.env.View(func(txn *lmdb.Txn) (err error) {
		if s.used, err = s.inUse(txn); err != nil {
			return err
		}
		return each(txn, s.dbi, record.Item{Kind: record.KindRoutine}, func(_ *lmdb.Cursor, k, v []byte) (bool, error) {
			switch k[0] {
			case record.KindRoutine:
				s.routine += len(v)
			case record.KindBlock:
				s.tiers[record.TierOf(v)] += len(v)
			}
			return true, nil
		})
	})
}

func (s *database) forget() {
	freed := 0
	_ = s.update(func(txn *lmdb.Txn) error {
		freed = 0
		n := 0
		return each(txn, s.dbi, record.Item{Kind: record.KindRoutine}, func(cur *lmdb.Cursor, k, v []byte) (bool, error) {
			if n++; n > thinBatch || k[0] != record.KindRoutine {
				return false, nil
			}
			freed += len(v)
			return true, cur.Del(0)
		})
	}, func() { s.routine -= freed })
}

// pick returns the tier to thin: the finest with more than its share, where
// nothing newer is worth more than what it would free.
func (t *tiers) pick() (tier int, ok bool) {
	all := 0
	for _, n := range t {
		all += n
	}
	last := len(t) - 1
	if float64(t[last]) > hoursShare*float64(all) {
		return last, true
	}
	for i, n := range t[:last] {
		if float64(n) > keepShare*float64(all) {
			return i, true
		}
		if n > t[tier] {
			tier = i
		}
	}
	return tier, t[tier] > 0
}

// thin thins one batch of blocks, the oldest of one tier, and says whether there was one.
func (s *database) thin() bool {
	tier, ok := s.tiers.pick()
	if !ok {
		return false
	}
	var grown tiers
	var passed uint64
	found, done := false, false
	_ = s.update(func(txn *lmdb.Txn) error {
		grown, found = tiers{}, false
		keys, values, err := s.oldest(txn, tier)
		if err != nil || len(keys) < 2 {
			return err // the last is still being written
		}
		if _, n, ok := record.SplitKey(keys[len(keys)-1]); ok {
			passed = n + 1
		}
		var blocks [][]byte // less what is damaged
		for i, k := range keys {
			grown[tier] -= len(values[i])
			if block, err := record.Unseal(k, values[i]); err == nil {
				blocks = append(blocks, block)
			}
			if err := txn.Del(s.dbi, k, nil); err != nil {
				return err
			}
		}
		if found = true; tier == record.Tiers-1 {
			return nil
		}
		for _, it := range record.Thin(blocks, tier+1) {
			value := it.Sealed()
			grown[tier+1] += len(value)
			if err := txn.Put(s.dbi, it.Key(), value, 0); err != nil {
				return err
			}
		}
		return nil
	}, func() {
		s.tiers.sum(&grown)
		s.passed[tier] = max(s.passed[tier], passed)
		done = found
	})
	return done
}

// oldest returns keys and values of the oldest blocks of a tier, but for the
// newest block of all, to which samples are still added.
func (s *database) oldest(txn *lmdb.Txn, tier int) (keys, values [][]byte, err error) {
	cur, err := txn.OpenCursor(s.dbi)
	if err != nil {
		return nil, nil, err
	}
	defer cur.Close()
	last, _, err := cur.Get(nil, nil, lmdb.Last)
	if err != nil {
		return nil, nil, err
	}
	last = bytes.Clone(last)
	txn.RawRead = true // what is kept is copied
	defer func() { txn.RawRead = false }()
	size := 0
	err = each(txn, s.dbi, record.Item{Kind: record.KindBlock, N: s.passed[tier]}, func(_ *lmdb.Cursor, k, v []byte) (bool, error) {
		if bytes.Equal(k, last) {
			return false, nil
		}
		if record.TierOf(v) == tier {
			keys, values, size = append(keys, bytes.Clone(k)), append(values, bytes.Clone(v)), size+len(v)
		}
		return len(keys) < thinBatch && size < mostBatch, nil
	})
	return keys, values, err
}

// findMapping returns where this process has mapped a file, 0 where it has not
// or /proc/self/maps cannot be read.
func findMapping(path string) uintptr {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return 0
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return 0
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if m, ok := procfile.ParseMapping(sc.Bytes()); ok && string(m.Path) == real {
			return uintptr(m.Start)
		}
	}
	return 0
}

// giveBack takes the pages of the record out of our own memory: they are in the
// page cache, and would count for the job.
func (s *database) giveBack() {
	if s.mapAt != 0 {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, s.mapAt, uintptr(s.size), unix.MADV_DONTNEED)
	}
}
