package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"
)

// A damaged record is searched page by page, without LMDB: each value carries a
// checksum that covers its key, so what is found anywhere can be trusted. Pages
// that were given back hold what has been replaced since: of a block that was
// still growing the longest counts.

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

// salvagePage is the page size of the machines that this runs on. LMDB takes
// the system's.
func salvagePage() int64 { return int64(os.Getpagesize()) }

// salvage calls each with every entry that can be found in a damaged record.
func salvage(f io.ReaderAt, length int64, each func(key, sealed []byte) error) error {
	size := salvagePage()
	page := make([]byte, size)
	found := map[string][]byte{}
	var order []string
	total := 0
	for at := int64(0); at+size <= length; at += size {
		if _, err := f.ReadAt(page, at); err != nil {
			break
		}
		leaf(page, func(key, value []byte, big uint64, long int) {
			if kind, _, ok := splitKey(key); !ok || kind < keyMeta || kind > keyBlock {
				return
			}
			if big != 0 {
				value = bigValue(f, int64(big)*size+pageHead, long, length)
			}
			if _, err := open(key, value); err != nil {
				return
			}
			old, known := found[string(key)]
			if known && len(old) >= len(value) || total+len(value) > mostSize {
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
		return ErrForeign
	}
	slices.Sort(order)
	for _, key := range order {
		if err := each([]byte(key), found[key]); err != nil {
			return err
		}
	}
	return nil
}

func bigValue(f io.ReaderAt, at int64, length int, size int64) []byte {
	if length <= 0 || length > mostValue || at < 0 || at+int64(length) > size {
		return nil
	}
	b := make([]byte, length)
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
