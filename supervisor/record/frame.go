package record

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/bmatsuo/lmdb-go/lmdb"
)

// A record is passed on in frames: by the child that has opened it, whose end
// may be a crash, and by the watcher of a run that goes on. A frame is the sizes
// of key and value, four bytes each, and both as they are stored, sealed. The
// last has an empty key, and the number of entries that there should have been
// as its value.

const (
	mostKey   = 511
	mostValue = 8 << 20
	frameHead = 8
)

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
		cur, err := txn.OpenCursor(dbi)
		if err != nil {
			return err
		}
		defer cur.Close()
		read := 0
		k, v, err := cur.Get(nil, nil, lmdb.First)
		for ; err == nil; k, v, err = cur.Get(nil, nil, lmdb.Next) {
			if err := putFrame(w, k, v); err != nil {
				return err
			}
			if read += len(v); read >= exportStep {
				giveBack()
				read = 0
			}
		}
		if !lmdb.IsNotFound(err) {
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

var errCut = errors.New("it broke off")

// frames reads what export wrote and calls each with every entry, until that returns an
// error; its slices are not used again. entries is how many there should have been.
func frames(r io.Reader, each func(key, value []byte) error) (entries uint64, err error) {
	in := bufio.NewReaderSize(r, 256<<10)
	total := 0
	for {
		var head [frameHead]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return 0, errCut
		}
		nk, nv := binary.BigEndian.Uint32(head[0:]), binary.BigEndian.Uint32(head[4:])
		if nk > mostKey || nv > mostValue {
			return 0, fmt.Errorf("a frame of %d and %d bytes", nk, nv)
		}
		if total += int(nk + nv); total > mostSize {
			return 0, errors.New("it does not end")
		}
		b, err := readAtMost(in, int(nk+nv))
		if err != nil {
			return 0, errCut
		}
		if nk == 0 {
			if nv != 8 {
				return 0, errCut
			}
			return binary.BigEndian.Uint64(b), nil
		}
		if err := each(b[:nk:nk], b[nk:]); err != nil {
			return 0, err
		}
	}
}

// readAtMost reads n bytes without making room for more than come.
func readAtMost(r io.Reader, n int) ([]byte, error) {
	const step = 1 << 20
	b := make([]byte, 0, min(n, step))
	for len(b) < n {
		m := min(n-len(b), step)
		b = append(b, make([]byte, m)...)
		if _, err := io.ReadFull(r, b[len(b)-m:]); err != nil {
			return nil, err
		}
	}
	return b, nil
}
