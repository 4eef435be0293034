package shm

import (
	"bytes"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
)

// mapping is one line of /proc/PID/maps of a file in shared memory.
type mapping struct {
	addresses  string // "START-END", as a name in map_files
	dev, inode uint64
	reach      rss.Bytes // the offset of its end in the file
	name       string
	kind       Kind
	deleted    bool
}

// parseMapping reads "START-END PERMS OFFSET MAJOR:MINOR INODE PATH", addresses,
// offset and device in hexadecimal; ok where PATH lies in shared memory.
func parseMapping(line []byte) (mapping, bool) {
	// Nearly every line is another file's, or no file's.
	if !bytes.Contains(line, []byte(below)) && !bytes.Contains(line, []byte(memfd)) {
		return mapping{}, false
	}
	var f [5]string
	rest := string(line)
	for i := range f {
		var ok bool
		if f[i], rest, ok = strings.Cut(strings.TrimLeft(rest, " "), " "); !ok {
			return mapping{}, false
		}
	}
	m := mapping{addresses: f[0]}
	path := strings.TrimLeft(rest, " ")
	var ok bool
	if m.name, m.kind, ok = nameOf(path); !ok {
		return mapping{}, false
	}
	m.deleted = strings.HasSuffix(path, deleted)
	low, high, _ := strings.Cut(f[0], "-")
	start, err1 := strconv.ParseUint(low, 16, 64)
	end, err2 := strconv.ParseUint(high, 16, 64)
	offset, err3 := strconv.ParseUint(f[2], 16, 64)
	major, minor, _ := strings.Cut(f[3], ":")
	ma, err4 := strconv.ParseUint(major, 16, 32)
	mi, err5 := strconv.ParseUint(minor, 16, 32)
	inode, err6 := strconv.ParseUint(f[4], 10, 64)
	for _, err := range []error{err1, err2, err3, err4, err5, err6} {
		if err != nil {
			return mapping{}, false
		}
	}
	if end < start || offset+(end-start) < offset {
		return mapping{}, false
	}
	m.dev, m.inode, m.reach = unix.Mkdev(uint32(ma), uint32(mi)), inode, rss.Bytes(offset+(end-start))
	return m, true
}
