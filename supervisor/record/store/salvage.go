package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/rsswarden/rsswarden/supervisor/record"
)

// A damaged record is searched page by page, without LMDB: checksums say what can be trusted.
// Freed pages hold older versions: of a block that grew the longest is taken.

// The layout of LMDB's pages and nodes (MDB_page, MDB_node of mdb.c).
const (
	pageLeaf     = 0x02 // P_LEAF
	pageHead     = 16
	atLower      = 12 // mp_lower, where the node offsets end
	nodeHead     = 8
	nodeBig      = 0x01 // F_BIGDATA: the value is on pages of its own
	atNodeFlags  = 4
	atNodeKeyLen = 6
)

// salvage calls each with every entry that can be found in a damaged record.
func salvage(f io.ReaderAt, fileSize int64, each func(key, sealed []byte) error) error {
	size := int64(os.Getpagesize()) // as LMDB takes it
	page := make([]byte, size)
	found := map[string][]byte{}
	var order []string
	total := 0
	var long []byte // holds one value: most of them are older versions
	for at := int64(0); at+size <= fileSize; at += size {
		if _, err := f.ReadAt(page, at); err != nil {
			break
		}
		leaf(page, func(key, value []byte, big uint64, length int) {
			if kind, _, ok := record.SplitKey(key); !ok || kind < record.KindMeta || kind > record.KindBlock {
				return
			}
			if big != 0 {
				long = readValue(f, long, int64(big)*size+pageHead, length, fileSize)
				value = long
			}
			if _, err := record.Unseal(key, value); err != nil {
				return
			}
			old, known := found[string(key)]
			if known && len(old) >= len(value) || total+len(value) > maxSize {
				return
			}
			if !known {
				order = append(order, string(key))
			}
			total += len(value) - len(old)
			found[string(key)] = bytes.Clone(value)
		})
	}
	if len(order) == 0 {
		return record.ErrForeign
	}
	slices.Sort(order)
	for _, key := range order {
		if err := each([]byte(key), found[key]); err != nil {
			return err
		}
	}
	return nil
}

// readValue reads a value that is on pages of its own, into b where it has the room.
func readValue(f io.ReaderAt, b []byte, at int64, length int, fileSize int64) []byte {
	if length <= 0 || length > mostValue || at < 0 || at+int64(length) > fileSize {
		return nil
	}
	b = slices.Grow(b[:0], length)[:length]
	clear(b)
	if _, err := f.ReadAt(b, at); err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	return b
}

// leaf calls each with the entries of a leaf page; big is the page of a value
// that is not on it, length how long that is.
func leaf(page []byte, each func(key, value []byte, big uint64, length int)) {
	if binary.NativeEndian.Uint16(page[atFlags:])&^0x10 != pageLeaf { // P_DIRTY may be set
		return
	}
	lower := int(binary.NativeEndian.Uint16(page[atLower:]))
	if lower < pageHead || lower > len(page) {
		return
	}
	for at := pageHead; at+2 <= lower; at += 2 {
		off := int(binary.NativeEndian.Uint16(page[at:]))
		if off < lower || off+nodeHead > len(page) {
			continue
		}
		node := page[off:]
		length := int(binary.NativeEndian.Uint16(node)) | int(binary.NativeEndian.Uint16(node[2:]))<<16
		nk := int(binary.NativeEndian.Uint16(node[atNodeKeyLen:]))
		if nodeHead+nk > len(node) {
			continue
		}
		key, rest := node[nodeHead:nodeHead+nk], node[nodeHead+nk:]
		if binary.NativeEndian.Uint16(node[atNodeFlags:])&nodeBig != 0 {
			if len(rest) >= 8 {
				each(key, nil, binary.NativeEndian.Uint64(rest), length)
			}
		} else if length <= len(rest) {
			each(key, rest[:length], 0, length)
		}
	}
}

// LMDB trusts its file and may die of it, so its two meta pages are checked first, by the
// layout of mdb.c (MDB_page, MDB_meta, data version 1) on a 64-bit machine.
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

// checkMeta says why LMDB must not open a file of that size.
func checkMeta(f io.ReaderAt, size int64) error {
	var head [metaSize]byte
	if _, err := f.ReadAt(head[:], 0); err != nil {
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%w: too short, %d bytes", record.ErrForeign, size)
		}
		return err
	}
	if binary.NativeEndian.Uint32(head[atMagic:]) != lmdbMagic {
		return record.ErrForeign
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
