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
	"github.com/rsswarden/rsswarden/rss/procfile"
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
			m, ok := procfile.ParseMapping(lines.Bytes())
			if !ok || !onDisk(&m) {
				continue
			}
			of := files[string(m.Path)]
			if of == nil {
				if len(files) == maxFiles {
					continue
				}
				of = &file{}
				files[string(m.Path)] = of
			}
			of.code = of.code || m.Perms[2] == 'x'
			length := rss.Bytes(m.End - m.Start)
			if length >= askSize {
				length = within(&m, filepath.Join(dir, "root"))
			}
			of.size += length
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

// onDisk says that a mapping is of a file on a disk, as its path tells.
func onDisk(m *procfile.Mapping) bool {
	for _, foreign := range []string{"/dev/", "/memfd:", "/SYSV"} {
		if bytes.HasPrefix(m.Path, []byte(foreign)) {
			return false
		}
	}
	return m.Inode != 0 && bytes.HasPrefix(m.Path, []byte("/"))
}

// within is the part of the mapping that lies within the file as it is now, below root; all of
// it where the file cannot be asked.
func within(m *procfile.Mapping, root string) rss.Bytes {
	name, length := filepath.Join(root, string(m.Path)), rss.Bytes(m.End-m.Start)
	var st syscall.Stat_t
	if err := syscall.Stat(name, &st); err != nil || st.Ino != m.Inode {
		return length
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(name, &fs); err == nil && (fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.HUGETLBFS_MAGIC) {
		return 0
	}
	return min(length, rss.Bytes(max(st.Size, 0)).Sub(rss.Bytes(m.Offset)))
}
