package loader

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// readChunk is the most that one call reads of one log: a file that grows
// faster than it is read costs a bounded time, and memory, a call.
const readChunk = 1 << 20

// tail reads the lines that are added to a file.
type tail struct {
	path   string
	offset int64  // of the next byte to read
	size   int64  // when it was last looked at
	rest   []byte // a line whose end has not been seen
	skip   bool   // inside a line that is too long
	file   *os.File
	buf    []byte
}

// next returns the whole lines that were added since the last call, at most
// readChunk bytes of them, and how many were too long and left out. The lines
// are good until the next call.
func (t *tail) next() (lines [][]byte, dropped int, err error) {
	if t.file == nil {
		f, _, err := openRegular(t.path)
		if errors.Is(err, os.ErrNotExist) {
			return nil, 0, nil
		}
		if err != nil {
			return nil, 0, err
		}
		t.file = f
	}
	info, err := t.file.Stat()
	if err != nil {
		return nil, 0, err
	}
	t.size = info.Size()
	size := t.size - t.offset
	if size <= 0 {
		return nil, 0, nil
	}
	size = min(size, readChunk)
	if int64(cap(t.buf)) < size {
		t.buf = make([]byte, size)
	}
	n, err := t.file.ReadAt(t.buf[:size], t.offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, err
	}
	t.offset += int64(n)
	lines, dropped = t.split(t.buf[:n])
	return lines, dropped, nil
}

// split cuts data, which follows what was given before, into whole lines.
func (t *tail) split(data []byte) (lines [][]byte, dropped int) {
	for {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			break
		}
		one := data[:i]
		data = data[i+1:]
		switch {
		case t.skip:
			t.skip = false
			dropped++
		case len(t.rest)+len(one) > maxLine:
			dropped++
		case len(t.rest) > 0:
			lines = append(lines, append(t.rest, one...))
		case len(one) > 0:
			lines = append(lines, one)
		}
		t.rest = nil
	}
	if t.skip || len(t.rest)+len(data) > maxLine {
		t.skip, t.rest = true, nil
		return lines, dropped
	}
	t.rest = append(t.rest, data...)
	return lines, dropped
}

// atEnd says that all was read that was there at the last look.
func (t *tail) atEnd() bool { return t.offset >= t.size }

func (t *tail) close() {
	if t.file != nil {
		t.file.Close()
		t.file = nil
	}
}

// openRegular opens a file that a process of the user's may have put there: neither a link
// nor a pipe.
func openRegular(path string) (*os.File, os.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: %s", errMalformed, strings.ToValidUTF8(filepath.Base(path), "?"))
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// readSmall reads a regular file of at most maxLine bytes.
func readSmall(path string) ([]byte, time.Time, error) {
	f, info, err := openRegular(path)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer f.Close()
	if info.Size() > maxLine {
		return nil, time.Time{}, fmt.Errorf("%w: %s", errMalformed, strings.ToValidUTF8(filepath.Base(path), "?"))
	}
	data, err := io.ReadAll(io.LimitReader(f, maxLine+1))
	return data, info.ModTime(), err
}

func readDirNames(dir string, most int) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(most)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}
