package trim

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"

	"golang.org/x/sys/unix"
)

// read reads a small file of proc whole, below the directory dir where that is
// not negative.
func (s *session) read(dir int, name ...string) ([]byte, error) {
	if dir < 0 {
		dir = unix.AT_FDCWD
	}
	fd, err := unix.Openat(dir, strings.Join(name, ""), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, s.small[:])
	if err != nil {
		return nil, err
	}
	return s.small[:n], nil
}

// stat is what is needed of /proc/PID/stat (proc_pid_stat(5)).
type stat struct {
	state  byte   // field 3
	parent int    // field 4
	start  uint64 // field 22, clock ticks since boot
}

// parseStat reads a /proc/PID/stat line. The name in it may hold anything.
func parseStat(b []byte) (s stat, ok bool) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return s, false
	}
	rest := b[i+1:]
	for field := 3; field <= 22; field++ {
		rest = bytes.TrimLeft(rest, " ")
		i := bytes.IndexByte(rest, ' ')
		if i <= 0 {
			return s, false
		}
		word := rest[:i]
		rest = rest[i:]
		switch field {
		case 3:
			s.state = word[0]
		case 4:
			var n uint64
			if n, ok = number(word, 10); !ok {
				return s, false
			}
			s.parent = int(n)
		case 22:
			if s.start, ok = number(word, 10); !ok {
				return s, false
			}
		}
	}
	return s, true
}

// statusOf reads the state and the tracer from /proc/PID/status
// (proc_pid_status(5)).
func statusOf(b []byte) (state byte, tracer uint64) {
	if v := after(b, "\nState:\t"); len(v) > 0 {
		state = v[0]
	}
	tracer, _ = number(after(b, "\nTracerPid:\t"), 10)
	return state, tracer
}

// after returns what follows key up to the end of the line.
func after(b []byte, key string) []byte {
	_, v, _ := bytes.Cut(b, []byte(key))
	v, _, _ = bytes.Cut(v, []byte("\n"))
	return v
}

func number(b []byte, base int) (n uint64, ok bool) {
	if len(b) == 0 {
		return 0, false
	}
	for _, c := range b {
		d := -1
		switch {
		case c >= '0' && c <= '9':
			d = int(c - '0')
		case c >= 'a' && c <= 'f':
			d = int(c-'a') + 10
		}
		if d < 0 || d >= base {
			return 0, false
		}
		if n > (math.MaxUint64-uint64(d))/uint64(base) {
			return 0, false
		}
		n = n*uint64(base) + uint64(d)
	}
	return n, true
}

// direntNumber returns the number that the first entry of a directory is named,
// 0 for any other name, and what follows the entry (getdents(2)).
func direntNumber(b []byte) (n int, rest []byte) {
	const header = 19 // of struct linux_dirent64, up to the name
	if len(b) < header {
		return 0, nil
	}
	size := int(binary.NativeEndian.Uint16(b[16:]))
	if size < header || size > len(b) {
		return 0, nil
	}
	name, _, _ := bytes.Cut(b[header:size], []byte{0})
	v, _ := number(name, 10)
	return int(v), b[size:]
}
