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
