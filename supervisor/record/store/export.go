package store

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"syscall"

	"github.com/bmatsuo/lmdb-go/lmdb"
	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// Export writes the entries of a record's file to w, in frames. Only a child process after
// [Confine] may call it: on a damaged file LMDB dies, on a crafted one it may do anything.
func Export(f *os.File, w io.Writer) error {
	info, err := f.Stat()
	if err == nil {
		err = checkMeta(f, info.Size())
	}
	if err != nil {
		return fmt.Errorf("cannot open record: %w", err)
	}
	env, err := lmdb.NewEnv()
	if err != nil {
		return fmt.Errorf("cannot open record: %w", err)
	}
	defer env.Close()
	// No process writes it, else the watcher would have answered: no lock is needed.
	if err := env.Open(nodedir.FDPath(f), lmdb.Readonly|lmdb.NoLock|lmdb.NoSubdir, 0); err != nil {
		return fmt.Errorf("cannot open record: %w", err)
	}
	var dbi lmdb.DBI
	err = env.View(func(txn *lmdb.Txn) (err error) {
		dbi, err = txn.OpenRoot(0)
		return err
	})
	if err == nil {
		err = export(env, dbi, w, func() {})
	}
	if err != nil {
		return fmt.Errorf("cannot read record: %w", err)
	}
	return nil
}

// overflowID is the user and the group without rights (user_namespaces(7)).
const overflowID = 65534

// What a child may use of the machine: a record of 64 MiB takes it 0.2 s and 20 MiB. Its
// address space is not bounded, of which Go reserves far more than it uses.
const (
	childData = 192 << 20 // private memory; the record is mapped shared
	childCPU  = 1         // seconds
)

// Confine takes from this process what reading one record does not need. LMDB trusts the
// file, which may be made to run any code: as root that is another user's, so the process
// goes on without rights, and is undumpable (ptrace(2)): no other user can trace it or take
// its descriptors.
func Confine() error {
	for what, most := range map[int]uint64{
		unix.RLIMIT_CORE: 0, unix.RLIMIT_FSIZE: 0, unix.RLIMIT_NOFILE: 64, unix.RLIMIT_DATA: childData, unix.RLIMIT_CPU: childCPU,
	} {
		if err := unix.Setrlimit(what, &unix.Rlimit{Cur: most, Max: most}); err != nil && !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("cannot limit what it uses: %w", err)
		}
	}
	if nodedir.ForRoot() {
		// By package syscall: for all threads.
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(overflowID), syscall.Setuid(overflowID)); err != nil {
			return fmt.Errorf("cannot give up the rights of root: %w", err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot close this process to others: %w", err)
	}
	return nil
}

// CloseOnExec keeps programs that this process starts from inheriting descriptors that its
// own parent left open.
func CloseOnExec() error {
	err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	entries, err := os.ReadDir("/proc/self/fd") // before Linux 5.11
	for _, e := range entries {
		var fd int
		if _, bad := fmt.Sscan(e.Name(), &fd); bad == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return err
}

// exportStep is after how many bytes what was read is given back.
const exportStep = 1 << 20

// export writes every entry of a record, in the order of its keys. It calls
// giveBack now and then: what it has read is in the memory of this process.
func export(env *lmdb.Env, dbi lmdb.DBI, to io.Writer, giveBack func()) error {
	w := bufio.NewWriterSize(to, 256<<10)
	return env.View(func(txn *lmdb.Txn) error {
		txn.RawRead = true // nothing of it is kept
		st, err := txn.Stat(dbi)
		if err != nil {
			return err
		}
		read := 0
		if err := each(txn, dbi, record.Item{}, func(_ *lmdb.Cursor, k, v []byte) (bool, error) {
			err := putFrame(w, k, v)
			if read += len(v); read >= exportStep {
				giveBack()
				read = 0
			}
			return true, err
		}); err != nil {
			w.Flush()
			return err
		}
		if err := putFrame(w, nil, binary.BigEndian.AppendUint64(nil, st.Entries)); err != nil {
			return err
		}
		return w.Flush()
	})
}

func putFrame(w io.Writer, key, value []byte) error {
	var head [frameHead]byte
	binary.BigEndian.PutUint32(head[0:], uint32(len(key)))
	binary.BigEndian.PutUint32(head[4:], uint32(len(value)))
	for _, b := range [][]byte{head[:], key, value} {
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}
