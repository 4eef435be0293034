package store

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/socket"
)

// readPatience bounds the reading of one record.
const readPatience = time.Minute

// Child makes the command that runs [Confine], and [Export] from descriptor 3 to its
// standard output. It hands on no other descriptor.
type Child func() *exec.Cmd

// Read reads the record in dir: from its watcher where the run goes on, else by a child
// process. What can be read of a damaged one is returned, with record.Run.Damage saying
// what is missing; an error means that nothing can be.
func Read(ctx context.Context, dir string, child Child) (*record.Run, error) {
	failed := func(err error) (*record.Run, error) {
		return nil, fmt.Errorf("cannot read record %s: %w", dir, err)
	}
	src, err := openSource(dir)
	if err != nil {
		return failed(err)
	}
	defer src.close()
	if c, err := src.dial(); err == nil {
		defer c.Close()
		a := record.NewAssembly()
		if err := readFrames(c, a); err != nil {
			a.Damage("the watcher's answer " + err.Error())
		}
		if a.Found {
			return src.run(a, true)
		}
	}
	if err := src.keep(); err != nil {
		return failed(err)
	}
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	cmd := child()
	cmd.ExtraFiles = []*os.File{src.data}
	said := &head{}
	cmd.Stderr = said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = startWithoutPrivileges(cmd)
	}
	if err != nil {
		return failed(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	a := record.NewAssembly()
	broke := readFrames(out, a)
	if broke != nil && !errors.Is(broke, errCut) {
		_ = cmd.Process.Kill() // a damaged tree may have no end
	}
	err = cmd.Wait()
	why := ""
	switch {
	case ctx.Err() != nil:
		why = "it could not be read in time"
	case err != nil && (broke == nil || errors.Is(broke, errCut)):
		why = crash(err, said.String())
	case broke != nil:
		why = broke.Error()
	case a.Bad > 0:
		why = fmt.Sprintf("%d of %d entries are damaged", a.Bad, a.Entries)
	default:
		return src.run(a, held(src.dir))
	}
	if !errors.Is(broke, record.ErrTooMuch) {
		// The pages of the file may hold more than LMDB found.
		found := record.NewAssembly()
		err := salvage(src.data, src.size, found.Add)
		if (err == nil || errors.Is(err, record.ErrTooMuch)) && found.Found && found.Entries > a.Entries-a.Bad {
			a = found
		}
	}
	switch {
	case !a.Found && strings.HasPrefix(why, record.ErrForeign.Error()):
		return failed(record.ErrForeign)
	case !a.Found:
		return failed(errors.New(why))
	}
	a.Bad = 0 // they are in why
	a.Damage(fmt.Sprintf("record damaged: %s; %d entries are whole, the last of %s", strings.TrimPrefix(why, "damaged: "), a.Entries, a.Until()))
	return src.run(a, held(src.dir))
}

// run makes a run of what was read. writer says that a watcher has the record open; it may
// not answer, stopped or without a socket.
func (s *source) run(a *record.Assembly, writer bool) (*record.Run, error) {
	run, err := a.Run(s.name)
	if err == nil {
		run.Live = writer && run.Exit() == nil
		run.SetOwner(s.uid)
	}
	return run, err
}

func crash(err error, said string) string {
	for _, end := range []struct{ word, means string }{
		{"SIGBUS", "LMDB reached for pages that are not there (SIGBUS)"},
		{"SIGABRT", "LMDB found it inconsistent (SIGABRT)"},
		{"SIGSEGV", "LMDB lost its way in it (SIGSEGV)"},
	} {
		if strings.Contains(said, end.word) || strings.Contains(err.Error(), strings.ToLower(end.word)) {
			return end.means
		}
	}
	said, _, _ = strings.Cut(strings.TrimSpace(said), "\n")
	if _, why, ok := strings.Cut(said, ": "); ok && strings.HasPrefix(said, "cannot ") {
		said = why
	}
	if said == "" {
		return err.Error()
	}
	return said
}

// head keeps the first bytes that are written to it.
type head struct{ bytes.Buffer }

func (h *head) Write(p []byte) (int, error) {
	if room := 4096 - h.Len(); room > 0 {
		h.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// maxSize bounds the file of a record that is read: none is ever larger than [fullSize].
const maxSize = fullSize

// source is the record in a directory. Its path is looked up once: what was checked is
// what is read, even if its owner or its links change meanwhile.
type source struct {
	name string
	dir  *os.File // by O_PATH
	data *os.File
	size int64 // of data
	uid  int   // whose data is
}

func openSource(path string) (*source, error) {
	dir, err := nodedir.OpenPath(path)
	if err != nil {
		return nil, record.Reason(err)
	}
	s := &source{name: path, dir: dir}
	if s.data, err = nodedir.OpenRegular(dir, record.DataFile); err != nil {
		s.close()
		return nil, record.Reason(err)
	}
	info, err := s.data.Stat()
	if err != nil {
		s.close()
		return nil, err
	}
	s.size, s.uid = info.Size(), int(info.Sys().(*syscall.Stat_t).Uid)
	if s.size > maxSize {
		s.close()
		return nil, fmt.Errorf("%w: it has %v, and none is larger than %v", record.ErrForeign, rss.Bytes(s.size), rss.Bytes(maxSize))
	}
	return s, nil
}

func (s *source) close() {
	s.dir.Close()
	if s.data != nil {
		s.data.Close()
	}
}

// strangersPatience bounds what another user's watcher may take to answer root.
const strangersPatience = time.Second

// dial connects to the watcher of the record. Root believes only that of the user whose
// file it is.
func (s *source) dial() (*os.File, error) {
	c, err := dialLive(s.dir)
	if err != nil || !nodedir.ForRoot() {
		return c, err
	}
	_, uid, err := socket.Peer(c)
	if err == nil && uid != 0 && uid != s.uid {
		err = record.ErrForeign
	}
	if err == nil && uid != 0 {
		err = c.SetDeadline(time.Now().Add(strangersPatience))
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// keep has root read a copy in memory. The child that reads it needs no right to the file
// then, and its owner can neither change nor cut it off meanwhile.
func (s *source) keep() error {
	if !nodedir.ForRoot() {
		return nil
	}
	fd, err := unix.MemfdCreate("rsswarden-record", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return fmt.Errorf("cannot make memory file: %w", err)
	}
	f := os.NewFile(uintptr(fd), s.data.Name())
	if s.size, err = io.Copy(f, io.LimitReader(s.data, maxSize)); err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	}
	if err != nil {
		f.Close()
		return err
	}
	s.data.Close()
	s.data = f
	return nil
}

// startWithoutPrivileges starts a command with PR_SET_NO_NEW_PRIVS (prctl(2)), which is a
// thread's own; the thread ends with the goroutine that is locked to it.
func startWithoutPrivileges(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			err = cmd.Start()
		}
		started <- err
	}()
	return <-started
}

// The child that has opened a record, or its watcher, sends it in frames: the sizes of key
// and value, four bytes each, and both as they are stored. The last frame has an empty key
// and the number of entries as its value.
const (
	mostKey   = 511
	mostValue = 8 << 20
	frameHead = 8
)

var errCut = errors.New("it broke off")

// readFrames adds what export wrote. The error says where it ends too early.
func readFrames(r io.Reader, a *record.Assembly) error {
	in := bufio.NewReaderSize(r, 256<<10)
	total := 0
	for {
		var head [frameHead]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return errCut
		}
		nk, nv := binary.BigEndian.Uint32(head[0:]), binary.BigEndian.Uint32(head[4:])
		if nk > mostKey || nv > mostValue {
			return fmt.Errorf("a frame of %d and %d bytes", nk, nv)
		}
		if total += int(nk + nv); total > maxSize {
			return errors.New("it does not end")
		}
		b, err := readAtMost(in, int(nk+nv))
		if err != nil || nk == 0 && nv != 8 {
			return errCut
		}
		if nk == 0 {
			if entries := binary.BigEndian.Uint64(b); uint64(a.Entries) != entries {
				return fmt.Errorf("%d of %d entries were found", a.Entries, entries)
			}
			return nil
		}
		if err := a.Add(b[:nk:nk], b[nk:]); err != nil {
			return err
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

// salvage calls each with every entry that can be found in a damaged record, which it searches
// page by page, without LMDB: checksums say what can be trusted. Freed pages hold older
// versions: of a block that grew the longest is taken.
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
