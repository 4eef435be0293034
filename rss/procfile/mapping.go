package procfile

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// Mapping is the line that /proc/PID/maps has for each mapping, and with which a record of
// smaps begins (proc_pid_maps(5)).
type Mapping struct {
	Start, End, Offset uint64
	Perms              [4]byte // "rw-p"
	Dev, Inode         uint64  // unix.Mkdev of what is shown, on btrfs not st_dev
	Path               []byte  // empty for anonymous memory; lives as long as the line
}

// ParseMapping reads "START-END PERMS OFFSET MAJOR:MINOR INODE   PATH", without its newline.
func ParseMapping(line []byte) (m Mapping, ok bool) {
	bad := false
	next := func(end string, base, bits int) uint64 {
		w, rest, found := bytes.Cut(line, []byte(end))
		n, err := strconv.ParseUint(string(w), base, bits)
		// The inode ends the line of a mapping without a name on some kernels.
		bad = bad || err != nil || !found && base == 16
		line = rest
		return n
	}
	m.Start, m.End = next("-", 16, 64), next(" ", 16, 64)
	perms, rest, _ := bytes.Cut(line, []byte(" "))
	bad, line = bad || len(perms) != copy(m.Perms[:], perms) || len(perms) < len(m.Perms), rest
	m.Offset = next(" ", 16, 64)
	m.Dev = unix.Mkdev(uint32(next(":", 16, 32)), uint32(next(" ", 16, 32)))
	m.Inode = next(" ", 10, 64)
	m.Path = bytes.TrimLeft(line, " ")
	return m, !bad && m.Start <= m.End
}
