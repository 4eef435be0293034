package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/rsswarden/rsswarden/rss/procfile"
)

// Events counts what the limits of a level have caused since it was made. Read
// the difference of two readings: the counters may have moved before we came,
// and a group kill counts some processes twice.
type Events struct {
	// OOMKill counts processes that the OOM killer ended at this level and
	// below: memory.events of v2; on v1 the sum of memory.oom_control's
	// oom_kill (Linux 4.13) over all directories below that still exist, since
	// v1 counts a kill where the victim was, as v2 did before Linux 5.2.
	OOMKill uint64
	// Hit counts how often the charge met the limit: memory.failcnt of v1, max
	// of v2's memory.events. Page cache alone makes it rise; harmless.
	Hit uint64
	// High counts allocations slowed down above memory.high, v2 only.
	High uint64
	// OOM counts calls of the OOM killer for this level, v2 only.
	OOM uint64
}

// Events reads the counters. On v1, and on v2 before Linux 5.2, it reads one file for
// each directory below; else it costs one pread of a kept descriptor.
func (l *Level) Events() (Events, error) {
	if l.Version == 2 {
		e, err := l.own()
		if err == nil && !l.countsBelow() {
			e.OOMKill, err = l.kills("memory.events")
		}
		return e, err
	}
	var e Events
	n, err := l.number("memory.failcnt")
	if shortage(err) {
		return e, err
	}
	if err == nil {
		e.Hit = uint64(n)
	}
	e.OOMKill, err = l.kills("memory.oom_control")
	return e, err
}

// OOMs counts how often the OOM killer was called for this level, and what it killed: one
// pread of a kept descriptor, v2 only.
func (l *Level) OOMs() (uint64, error) {
	e, err := l.own()
	return e.OOM + e.OOMKill, err
}

// own reads memory.events of v2.
func (l *Level) own() (Events, error) {
	b, err := l.read("memory.events")
	if err != nil {
		return Events{}, err
	}
	e, err := parseEvents(b)
	if err != nil {
		return e, fmt.Errorf("cannot parse %s: %w", l.File("memory.events"), err)
	}
	return e, nil
}

func readEvents(name string) (Events, error) {
	b, err := procfile.Read(name, procfile.Small)
	if err != nil {
		return Events{}, fmt.Errorf("cannot read %s: %w", name, pathless(err))
	}
	e, err := parseEvents(b)
	if err != nil {
		return e, fmt.Errorf("cannot parse %s: %w", name, err)
	}
	return e, nil
}

// countsBelow is [CountsBelow] of the level, asked until it is so.
func (l *Level) countsBelow() bool {
	l.below = l.below || CountsBelow(l.Dir)
	return l.below
}

// CountsBelow says whether memory.events of a directory of v2 counts what was below it
// too. Since Linux 5.2 it does, and memory.events.local is there.
func CountsBelow(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "memory.events.local"))
	return !errors.Is(err, fs.ErrNotExist)
}

// kills sums up what the files of that name say at this level and below.
func (l *Level) kills(file string) (kills uint64, err error) {
	var failed error
	err = walk(l.Dir, func(dir string) {
		e, err := readEvents(filepath.Join(dir, file))
		if dir == l.Dir || !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
		kills += e.OOMKill
	})
	return kills, errors.Join(failed, err)
}

// parseEvents reads memory.events or memory.oom_control: "name value" lines.
func parseEvents(b []byte) (Events, error) {
	var e Events
	found := false
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) == 0 {
			continue
		}
		if len(f) != 2 {
			return e, errMalformed
		}
		n, err := strconv.ParseUint(string(f[1]), 10, 64)
		if err != nil {
			return e, errMalformed
		}
		found = true
		switch string(f[0]) {
		case "oom_kill":
			e.OOMKill = n
		case "oom":
			e.OOM = n
		case "max":
			e.Hit = n
		case "high":
			e.High = n
		}
	}
	if !found {
		return e, errMalformed
	}
	return e, nil
}

// Procs returns the PIDs of all processes at this level and below, sorted, by
// cgroup.procs opened again: a kept descriptor of v1 never shows new members.
// Directories that vanish meanwhile are passed over. The error says that the
// level's own cgroup.procs could not be read.
func (l *Level) Procs() ([]int, error) {
	var pids []int
	var failed error
	err := walk(l.Dir, func(dir string) {
		name := filepath.Join(dir, "cgroup.procs")
		b, err := procfile.Read(name, procfile.Small)
		if err != nil {
			// EOPNOTSUPP: a threaded v2 group, whose processes are listed
			// at the root of its threaded tree.
			if dir == l.Dir && !errors.Is(err, syscall.EOPNOTSUPP) || shortage(err) {
				failed = fmt.Errorf("cannot read %s: %w", name, pathless(err))
			}
			return
		}
		list, err := parseProcs(b)
		if err != nil && failed == nil {
			failed = fmt.Errorf("cannot parse %s: %w", name, err)
		}
		pids = append(pids, list...)
	})
	slices.Sort(pids)
	return slices.Compact(pids), errors.Join(failed, err)
}

// parseProcs reads cgroup.procs: one PID a line, 0 for a process that our PID
// namespace does not show.
func parseProcs(b []byte) ([]int, error) {
	var pids []int
	for line := range bytes.Lines(b) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		n, err := strconv.ParseUint(string(line), 10, 31)
		if err != nil {
			return pids, errMalformed
		}
		if n > 0 {
			pids = append(pids, int(n))
		}
	}
	return pids, nil
}

// walk calls do for a directory and all below it, those that can be listed. Its
// error is a [shortage]: what is below may be more than was seen.
func walk(dir string, do func(dir string)) error {
	do(dir)
	entries, err := os.ReadDir(dir)
	if shortage(err) {
		return err
	}
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := walk(filepath.Join(dir, e.Name()), do); err != nil {
				return err
			}
		}
	}
	return nil
}

// shortage says that err tells nothing of the cgroup: we have no descriptor, or no
// memory, left to read it.
func shortage(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}
