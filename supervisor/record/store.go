package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/bmatsuo/lmdb-go/lmdb"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"golang.org/x/sys/unix"
)

// Keys of the full record: a kind, and of all but the first a number, big
// endian, so that LMDB has them by time.
const (
	keyMeta  = 'a'
	keyLimit = 'b' // index in Run.Limits
	keyProc  = 'c' // index in Run.Procs
	keyEvent = 'd' // order, over both kinds of events
	// keyRoutine has the events of which there may be too many: the oldest are
	// taken out.
	keyRoutine = 'e'
	keyBlock   = 'f' // milliseconds since the start of its first sample
)

// keySize is the size of every key.
const keySize = 9

func makeKey(kind byte, n uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{kind}, n)
}

func splitKey(k []byte) (kind byte, n uint64, ok bool) {
	if len(k) != keySize {
		return 0, 0, false
	}
	return k[0], binary.BigEndian.Uint64(k[1:]), true
}

// item is one value on its way into the record.
type item struct {
	kind  byte
	n     uint64
	value []byte
}

// dataFile is the file that LMDB keeps its data in, lockFile what it locks.
const (
	dataFile = "data.mdb"
	lockFile = "lock.mdb"
)

// store is the full record as its writer has it. One goroutine uses it.
type store struct {
	dir   *os.File // held open: its path may lead elsewhere some day
	env   *lmdb.Env
	dbi   lmdb.DBI
	file  os.FileInfo // of dataFile
	mapAt uintptr     // LMDB's mapping of it, 0 where it was not found
	size  int64       // of the mapping, the bound of the file
	tiers tiers
	// passed is, for each tier, the number up to which no block is of it: those
	// before are coarser.
	passed [len(gaps)]uint64
	// routine is how many bytes of routine events there are.
	routine int
	// used is what the pages in use take: values alone tell too little, for those
	// that are put between others leave pages half empty.
	used int64
	// futile is how much may be in use before it is worth thinning again where
	// the last time has brought nothing.
	futile int64
	// synced is when what was written was last begun to be brought to the disk,
	// and syncing tells how that went; nil where none is under way.
	synced  time.Time
	syncing chan error
	flush   func() error // does it
}

// openStore makes the record in dir, or goes on with one that an earlier watcher
// of the same run has begun. The store closes dir.
func openStore(dir *os.File, size int64) (*store, error) {
	env, err := lmdb.NewEnv()
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("cannot open record %s: %w", dir.Name(), err)
	}
	s := &store{dir: dir, env: env, size: size, synced: time.Now(), flush: func() error { return env.Sync(true) }}
	if err := s.open(); err != nil {
		env.Close()
		dir.Close()
		return nil, fmt.Errorf("cannot open record %s: %w", dir.Name(), err)
	}
	return s, nil
}

func (s *store) open() error {
	path := filepath.Join(nodedir.FDPath(s.dir), dataFile)
	f, err := nodedir.OpenRegular(s.dir, dataFile)
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
func (s *store) commit(items []item) error {
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
	if s.crowded() && !s.thin() {
		s.futile = s.used + s.size/256
	}
	if s.routine > int(routineShare*float64(s.size)) {
		s.forget()
	}
	s.giveBack()
	return nil
}

var errFull = errors.New("full, and nothing is left to thin")

func (s *store) put(items []item) error {
	var grown tiers
	var routine int
	return s.update(func(txn *lmdb.Txn) error {
		grown, routine = tiers{}, 0
		for _, it := range items {
			key := makeKey(it.kind, it.n)
			if it.kind == keyBlock {
				if old, err := txn.Get(s.dbi, key); err == nil {
					grown.add(tierOf(old), -len(old))
				}
				grown.add(0, len(it.value)+crcSize)
			}
			if it.kind == keyRoutine {
				routine += len(it.value) + crcSize
			}
			if err := txn.Put(s.dbi, key, seal(key, it.value), 0); err != nil {
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
func (s *store) update(f func(*lmdb.Txn) error, done func()) error {
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

// inUse returns what the pages in use take.
func (s *store) inUse(txn *lmdb.Txn) (int64, error) {
	st, err := txn.Stat(s.dbi)
	if err != nil {
		return 0, err
	}
	return int64(st.BranchPages+st.LeafPages+st.OverflowPages) * int64(st.PSize), nil
}

// sync begins to bring what was written to the disk, unless that is under way. It
// may take as long as a checkpoint does that is written there: what is committed
// meanwhile is what a SIGKILL leaves.
func (s *store) sync() (begun bool, err error) {
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

// vanished says that the record's file was taken away. Writing to it would go
// on, into what nobody can open.
func (s *store) vanished() bool {
	now, err := os.Stat(filepath.Join(s.dir.Name(), dataFile))
	return err != nil || !os.SameFile(now, s.file)
}

func (s *store) close() {
	// A failed sync has nobody to tell: the record is as good as a SIGKILL
	// leaves it.
	if s.syncing != nil {
		<-s.syncing // it uses what is closed here
	}
	_ = s.flush()
	s.env.Close()
	s.dir.Close()
}
