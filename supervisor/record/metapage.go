package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// LMDB trusts its file: what it maps and cannot read ends the process by SIGBUS
// or abort. So its two meta pages are read first, by the layout of lmdb's mdb.c
// (MDB_page, MDB_meta, data version 1) on a 64-bit machine.
const (
	lmdbMagic   = 0xBEEFC0DE
	lmdbVersion = 1
	pageMeta    = 0x08 // P_META of mp_flags
	noPage      = ^uint64(0)

	atFlags    = 10 // in the page: mp_flags
	atMagic    = 16 // mm_magic
	atVersion  = 20
	atPageSize = 40 // md_pad of mm_dbs[0], which holds the page size
	atRoots    = 80 // md_root of mm_dbs[0]; that of mm_dbs[1] lies dbSize behind
	dbSize     = 48
	atLastPage = 136
	atTxn      = 144
	metaSize   = 152
)

// ErrForeign says that a file is no record.
var ErrForeign = errors.New("not a record of rsswarden")

// ErrNewer says that a record is in a format that is not known here yet.
var ErrNewer = errors.New("it was written by a newer rsswarden")

// checkMeta says why LMDB must not open a file of that size.
func checkMeta(f io.ReaderAt, size int64) error {
	var head [metaSize]byte
	if _, err := f.ReadAt(head[:], 0); err != nil {
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%w: too short, %d bytes", ErrForeign, size)
		}
		return err
	}
	if binary.NativeEndian.Uint32(head[atMagic:]) != lmdbMagic {
		return ErrForeign
	}
	page := int64(binary.NativeEndian.Uint32(head[atPageSize:]))
	if page < 512 || page > 64<<10 || page&(page-1) != 0 {
		return fmt.Errorf("damaged: page size %d", page)
	}
	if size < 2*page {
		return fmt.Errorf("damaged: cut off at %d bytes", size)
	}
	if err := checkMetaPage(head[:], page, size); err != nil {
		return fmt.Errorf("damaged: meta page 0: %w", err)
	}
	if _, err := f.ReadAt(head[:], page); err != nil {
		return err
	}
	if err := checkMetaPage(head[:], page, size); err != nil {
		return fmt.Errorf("damaged: meta page 1: %w", err)
	}
	return nil
}

func checkMetaPage(b []byte, page, size int64) error {
	switch {
	case binary.NativeEndian.Uint32(b[atMagic:]) != lmdbMagic, binary.NativeEndian.Uint16(b[atFlags:])&pageMeta == 0:
		return errors.New("is none")
	case binary.NativeEndian.Uint32(b[atVersion:]) != lmdbVersion:
		return fmt.Errorf("of version %d", binary.NativeEndian.Uint32(b[atVersion:]))
	case int64(binary.NativeEndian.Uint32(b[atPageSize:])) != page:
		return errors.New("of another page size")
	}
	last := binary.NativeEndian.Uint64(b[atLastPage:])
	if last > 1<<40 {
		return fmt.Errorf("names %d pages", last)
	}
	for i := range 2 {
		root := binary.NativeEndian.Uint64(b[atRoots+i*dbSize:])
		// Pages at the end that were given back at once were never written.
		if root != noPage && (root > last || int64(root+1)*page > size) {
			return fmt.Errorf("names a root beyond the end, page %d of %d", root, size/page)
		}
	}
	return nil
}
