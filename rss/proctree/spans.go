package proctree

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
)

// Spans is what a process has mapped of files, in bytes, whether or not it was read yet: of
// each mapping as much as the file has there, for an LMDB may be mapped far beyond its end.
// What is in /dev/shm, a tmpfs or of a device is left out: its pages do not count as a file's.
type Spans struct {
	Data rss.Bytes     // of files of which no part may be executed, such as an LMDB
	Code rss.Bytes     // of programs and libraries
	Cost time.Duration // processor time of the reading
}

// askSize is from which length on a mapping's file is asked for its size.
const askSize = rss.MiB

// Spans reads /proc/PID/maps (proc_pid_maps(5)) and the sizes of the files: it waits for
// mmap_lock, and for a file system of a network. Call it on a side goroutine. An error comes
// with the Cost.
func (r *Reader) Spans(id rss.ProcID) (s Spans, err error) {
	s.Cost, err = r.sure(id, "maps", func() error {
		dir := filepath.Join(r.proc, strconv.Itoa(id.PID))
		f, err := os.Open(filepath.Join(dir, "maps"))
		if err != nil {
			return err
		}
		defer f.Close()
		type file struct {
			size rss.Bytes
			code bool
		}
		files := map[string]*file{}
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 64<<10)
		for lines.Scan() {
			m, ok := parseMapping(lines.Bytes())
			if !ok {
				continue
			}
			of := files[string(m.name)]
			if of == nil {
				if len(files) == maxFiles {
					continue
				}
				of = &file{}
				files[string(m.name)] = of
			}
			of.code = of.code || m.code
			if m.length >= askSize {
				m.length = m.within(filepath.Join(dir, "root"))
			}
			of.size += m.length
		}
		for _, of := range files {
			if of.code {
				s.Code += of.size
			} else {
				s.Data += of.size
			}
		}
		return lines.Err()
	})
	return s, err
}

// mapping is one line of /proc/PID/maps.
type mapping struct {
	length, offset rss.Bytes
	code           bool
	inode          uint64
	name           []byte
}

// parseMapping reads "7f00-7f40 r--s 00000000 fe:00 247278   /data/train.mdb"; false for what
// is not of a file on a disk.
func parseMapping(line []byte) (m mapping, ok bool) {
	var fields [5][]byte
	rest := line
	for i := range fields {
		var found bool
		if fields[i], rest, found = bytes.Cut(rest, []byte{' '}); !found {
			return m, false
		}
	}
	m.name = bytes.TrimLeft(rest, " ")
	if !bytes.HasPrefix(m.name, []byte("/")) || bytes.HasPrefix(m.name, []byte("/dev/")) ||
		bytes.HasPrefix(m.name, []byte("/memfd:")) || bytes.HasPrefix(m.name, []byte("/SYSV")) || len(fields[1]) < 4 {
		return m, false
	}
	from, to, _ := bytes.Cut(fields[0], []byte{'-'})
	begin, err1 := strconv.ParseUint(string(from), 16, 64)
	end, err2 := strconv.ParseUint(string(to), 16, 64)
	offset, err3 := strconv.ParseUint(string(fields[2]), 16, 64)
	inode, err4 := strconv.ParseUint(string(fields[4]), 10, 64)
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil || end < begin || inode == 0 {
		return m, false
	}
	m.length, m.offset, m.inode, m.code = rss.Bytes(end-begin), rss.Bytes(offset), inode, fields[1][2] == 'x'
	return m, true
}

// within is the part of the mapping that lies within the file as it is now, below root; all of
// it where the file cannot be asked.
func (m *mapping) within(root string) rss.Bytes {
	name := filepath.Join(root, string(m.name))
	var st syscall.Stat_t
	if err := syscall.Stat(name, &st); err != nil || st.Ino != m.inode {
		return m.length
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(name, &fs); err == nil && (fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.HUGETLBFS_MAGIC) {
		return 0
	}
	return min(m.length, rss.Bytes(max(st.Size, 0)).Sub(m.offset))
}
