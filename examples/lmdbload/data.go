package main

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"

	"github.com/bmatsuo/lmdb-go/lmdb"
	"golang.org/x/sys/unix"
)

// digest is the SHA-256 of a record's content, or of the chain so far.
type digest = [sha256.Size]byte

// chain is the checksum of a run: each link covers the one before.
type chain struct{ digest digest }

func (c *chain) add(epoch, batch, record int, content digest) {
	b := c.digest[:]
	for _, n := range []int{epoch, batch, record} {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	c.digest = sha256.Sum256(append(b, content[:]...))
}

// batches yields the numbers of all records, in an order that follows from seed
// and epoch alone, size at a time.
func batches(records, size int, seed uint64, epoch int) iter.Seq2[int, []int] {
	return func(yield func(int, []int) bool) {
		order := rand.New(rand.NewPCG(seed, uint64(epoch))).Perm(records)
		for batch := 0; len(order) > 0; batch++ {
			n := min(size, len(order))
			if !yield(batch, order[:n]) {
				return
			}
			order = order[n:]
		}
	}
}

func key(record int) []byte { return fmt.Appendf(nil, "%08d", record) }

// shapeKey holds what the LMDB was made with: "RECORDS BYTES".
var shapeKey = []byte("shape")

func shape(records, size int) string { return strconv.Itoa(records) + " " + strconv.Itoa(size) }

// createApart makes the LMDB in a process of its own: what making costs in
// memory ends with it and is not carried into the run.
func createApart(o options, stderr io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find lmdbload itself: %w", err)
	}
	cmd := exec.Command(self, "-create", "-data", o.data,
		"-records", strconv.Itoa(o.records), "-bytes", strconv.Itoa(o.bytes))
	cmd.Args[0] = "lmdbload"
	cmd.Stderr = stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("cannot make or check %s: %w", o.data, err)
	}
	return nil
}

// ensure makes the LMDB where path is missing, else checks what it was made with.
func ensure(path string, records, size int) error {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		part := path + ".part." + strconv.Itoa(os.Getpid())
		defer os.Remove(part)
		if err := fill(part, records, size); err != nil {
			return err
		}
		return os.Rename(part, path)
	}
	if err != nil {
		return err
	}
	env, err := openRead(path)
	if err != nil {
		return err
	}
	defer env.Close()
	return view(env, shapeKey, func(v []byte) error {
		if string(v) != shape(records, size) {
			return fmt.Errorf("%s holds %s (records, bytes in a record), not %s", path, v, shape(records, size))
		}
		return nil
	})
}

// fill writes an LMDB whose content follows from the numbers of the records.
func fill(path string, records, size int) error {
	const page, perTxn = 4096, 200
	env, err := lmdb.NewEnv()
	if err != nil {
		return err
	}
	defer env.Close()
	if err := env.SetMapSize(int64(records*(size/page+3)+1024) * page); err != nil {
		return err
	}
	if err := env.Open(path, lmdb.NoSubdir|lmdb.NoLock|lmdb.NoSync, 0o644); err != nil {
		return fmt.Errorf("cannot make %s: %w", path, err)
	}
	value := make([]byte, size)
	for first := 0; first < records; first += perTxn {
		err := env.Update(func(txn *lmdb.Txn) error {
			db, err := txn.OpenRoot(0)
			if err != nil {
				return err
			}
			for record := first; record < min(first+perTxn, records); record++ {
				content(value, record)
				if err := txn.Put(db, key(record), value, lmdb.Append); err != nil {
					return err
				}
			}
			if first+perTxn < records {
				return nil
			}
			return txn.Put(db, shapeKey, []byte(shape(records, size)), 0)
		})
		if err != nil {
			return fmt.Errorf("cannot fill %s: %w", path, err)
		}
	}
	return env.Sync(true)
}

// content fills b with the record's number and noise that follows from it.
func content(b []byte, record int) {
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], uint64(record))
	rand.NewChaCha8(seed).Read(b)
	binary.LittleEndian.PutUint64(b, uint64(record))
}

// openRead opens the LMDB as a data loader does: read-only, no lock file, and no
// readahead, as for data larger than memory.
func openRead(path string) (*lmdb.Env, error) {
	env, err := lmdb.NewEnv()
	if err != nil {
		return nil, err
	}
	if err := env.Open(path, lmdb.NoSubdir|lmdb.Readonly|lmdb.NoLock|lmdb.NoReadahead, 0); err != nil {
		env.Close()
		return nil, fmt.Errorf("cannot open %s: %w", path, err)
	}
	// LMDB opens its file without O_CLOEXEC.
	fd, err := env.FD()
	if err == nil {
		_, err = unix.FcntlInt(fd, unix.F_SETFD, unix.FD_CLOEXEC)
	}
	if err != nil {
		env.Close()
		return nil, fmt.Errorf("cannot set FD_CLOEXEC on %s: %w", path, err)
	}
	return env, nil
}

// view calls f with the value of key as it lies in the map, not a copy.
func view(env *lmdb.Env, key []byte, f func(value []byte) error) error {
	return env.View(func(txn *lmdb.Txn) error {
		txn.RawRead = true
		db, err := txn.OpenRoot(0)
		if err != nil {
			return err
		}
		v, err := txn.Get(db, key)
		if err != nil {
			return fmt.Errorf("cannot read %q: %w", key, err)
		}
		return f(v)
	})
}
