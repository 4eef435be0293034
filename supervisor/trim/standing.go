package trim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/rsswarden/rsswarden/rss/procfile"
)

// standing is what /proc/PID/status and /proc/PID/task/TID/status say of one
// thread (proc_pid_status(5)).
type standing struct {
	tid, parent, tracer int
	uids                [4]int // real, effective, saved, file system
	state               byte
	count               int // of threads of its process
	seccomp             int // mode, 0 also where the kernel has none
	filters             int // -1 where the kernel does not say, before 5.9
}

func (s standing) ended() bool { return s.state == 'Z' || s.state == 'X' }

func readStanding(name string) (standing, error) {
	b, err := procfile.Read(name, procfile.Status)
	if err != nil {
		return standing{}, fmt.Errorf("cannot read %s: %w", name, err)
	}
	s, ok := parseStanding(b)
	if !ok {
		return s, fmt.Errorf("cannot read %s: %w", name, errMalformed)
	}
	return s, nil
}

func parseStanding(b []byte) (s standing, ok bool) {
	s.filters = -1
	needed, bad := 0, false
	for line := range bytes.Lines(b) {
		key, value, _ := bytes.Cut(line, []byte(":"))
		into := func(to ...*int) {
			for _, to := range to {
				value = bytes.TrimLeft(value, " \t")
				end := bytes.IndexAny(value, " \t\n")
				n, ok := number(value[:max(end, 0)], 10)
				bad = bad || !ok
				*to, value = int(n), value[max(end, 0):]
			}
		}
		// A name is printed with its newlines escaped, so that no line is forged.
		switch needed++; string(key) {
		case "State":
			if value = bytes.TrimSpace(value); len(value) > 0 {
				s.state = value[0]
			}
		case "Pid":
			into(&s.tid)
		case "PPid":
			into(&s.parent)
		case "TracerPid":
			into(&s.tracer)
		case "Uid":
			into(&s.uids[0], &s.uids[1], &s.uids[2], &s.uids[3])
		case "Threads":
			into(&s.count)
		default:
			needed--
		}
		switch string(key) {
		case "Seccomp":
			into(&s.seccomp)
		case "Seccomp_filters":
			into(&s.filters)
		}
	}
	return s, needed == 6 && !bad && s.state != 0
}

// mostAncestors bounds the way up from a process, which changes meanwhile.
const mostAncestors = 1024

// yama refuses what the security module forbids, to root as well: it is asked
// in the words of Documentation/admin-guide/LSM/Yama.rst.
func (c *check) yama() error {
	b, err := procfile.Read(filepath.Join(c.Proc, "sys/kernel/yama/ptrace_scope"), procfile.Small)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	scope, ok := number(bytes.TrimSpace(b), 10)
	switch {
	case err != nil:
		return refuse(Failed, "cannot read ptrace_scope: %v", err)
	case !ok:
		return refuse(Failed, "cannot read ptrace_scope: %q", b)
	case scope > 1:
		return refuse(Yama, "ptrace_scope is %d", scope)
	case scope == 1:
		return c.descends()
	}
	return nil
}

// descends refuses what the thread that traces has not started, itself or by
// others. An orphan counts where it was adopted.
func (c *check) descends() error {
	tracer := c.Tracer
	if tracer == 0 {
		tracer = os.Getpid()
	}
	at := c.ID.PID
	for range mostAncestors {
		s, err := readStanding(filepath.Join(c.Proc, strconv.Itoa(at), "status"))
		switch {
		case err == nil:
			at = s.parent
		case at == c.ID.PID:
			return err
		case refusalOf(err) == Vanished:
			at = c.ID.PID // an ancestor has ended: others are by now
			continue
		default:
			return refuse(Failed, "%v", err)
		}
		if at == tracer {
			return nil
		}
		if at <= 1 {
			break
		}
	}
	return refuse(Stranger, "ptrace_scope is 1, and process %d does not descend from %d", c.ID.PID, tracer)
}

// mappedDevice returns the first device in /proc/PID/maps that forbids to touch
// its process, or nothing.
func mappedDevice(maps io.Reader) (device string, err error) {
	seen := 0
	err = eachLine(maps, 4<<10, func(line []byte) error {
		h, ok := parseHeader(line)
		switch {
		case !ok:
			return errMalformed
		case device == "" && isDevice(h.path):
			device = string(h.path)
		}
		if seen++; seen > MaxMappings {
			return errCrowded
		}
		return nil
	})
	return device, err
}

// is32Bit tells the layout of an auxiliary vector by AT_PHENT, the size of a
// program header: 56 in ELF64 and 32 in ELF32 (elf(5)). False where it is in
// neither.
func is32Bit(auxv []byte) bool {
	const phent, size32 = 4, 32
	for b := auxv; len(b) >= 16; b = b[16:] {
		if binary.NativeEndian.Uint64(b) == phent {
			return false
		}
	}
	for b := auxv; len(b) >= 8; b = b[8:] {
		if binary.NativeEndian.Uint32(b) == phent && binary.NativeEndian.Uint32(b[4:]) == size32 {
			return true
		}
	}
	return false
}
