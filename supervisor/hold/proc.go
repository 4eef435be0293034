package hold

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// stat is what is needed of /proc/PID/stat (proc_pid_stat(5)).
type stat struct {
	state byte   // field 3
	start uint64 // field 22, clock ticks since boot
	front bool   // its group, field 5, is the terminal's foreground, field 8
}

func readStat(pid int) (stat, error) {
	var buf [1024]byte
	b, err := readSmall(filepath.Join("/proc", strconv.Itoa(pid), "stat"), buf[:])
	if err != nil {
		return stat{}, err
	}
	return parseStat(b)
}

var errStat = errors.New("malformed stat")

// parseStat reads a /proc/PID/stat line. The command's name in it may hold
// anything, ")" too.
func parseStat(b []byte) (s stat, err error) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return s, errStat
	}
	f := bytes.Fields(b[i+1:])
	if len(f) < 20 || len(f[0]) != 1 {
		return s, errStat
	}
	s.state, s.front = f[0][0], bytes.Equal(f[2], f[5])
	if s.start, err = strconv.ParseUint(string(f[19]), 10, 64); err != nil {
		return s, errStat
	}
	return s, nil
}

// parsePending reads the state letter and ShdPnd, the signals pending for the
// whole process, from a /proc/PID/status text. It allocates nothing: it runs
// in the holder.
func parsePending(b []byte) (state byte, pending signalSet, ok bool) {
	v := field(b, "\nState:\t")
	if len(v) < 1 {
		return 0, 0, false
	}
	state = v[0]
	v = field(b, "\nShdPnd:\t")
	if len(v) != 16 {
		return 0, 0, false
	}
	for _, c := range v {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		default:
			return 0, 0, false
		}
		pending = pending<<4 | signalSet(c)
	}
	return state, pending, true
}

// field returns what follows key up to the end of the line.
func field(b []byte, key string) []byte {
	for i := 0; i+len(key) <= len(b); i++ {
		if b[i] != '\n' || string(b[i:i+len(key)]) != key {
			continue
		}
		v := b[i+len(key):]
		if n := bytes.IndexByte(v, '\n'); n >= 0 {
			return v[:n]
		}
		return nil
	}
	return nil
}

func readSmall(path string, buf []byte) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", path, err)
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, err)
	}
	return buf[:n], nil
}

func oomScorePath(pid int) string { return filepath.Join("/proc", strconv.Itoa(pid), "oom_score_adj") }

// oomScore is the oom_score_adj of a process, empty where it cannot be read.
func oomScore(pid int) string {
	var buf [16]byte
	b, err := readSmall(oomScorePath(pid), buf[:])
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// aboveOOMScore is the watcher's oom_score_adj where the command has score.
func aboveOOMScore(score string) string {
	n, err := strconv.Atoi(score)
	if err != nil {
		return score
	}
	return strconv.Itoa(min(n+oomMargin, 1000))
}

func setOOMScore(pid int, score string) { os.WriteFile(oomScorePath(pid), []byte(score), 0) }
