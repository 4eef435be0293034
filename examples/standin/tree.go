package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// proc is one process as /proc/PID/stat shows it.
type proc struct {
	pid, parent int
	rss         uint64 // bytes
}

// tree returns root and all processes below it. A process whose parent has ended
// belongs to init and is not found, as slurmstepd does not find it either.
func tree(procfs string, root int) ([]proc, error) {
	entries, err := os.ReadDir(procfs)
	if err != nil {
		return nil, fmt.Errorf("cannot list processes: %w", err)
	}
	children := map[int][]proc{}
	var found []proc
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		b, err := os.ReadFile(filepath.Join(procfs, e.Name(), "stat"))
		if err != nil {
			continue // ended meanwhile
		}
		p, err := parseStat(b)
		if err != nil {
			return nil, fmt.Errorf("cannot read the stat of process %s: %w", e.Name(), err)
		}
		if p.pid == root {
			found = append(found, p)
		} else {
			children[p.parent] = append(children[p.parent], p)
		}
	}
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i].pid]...)
	}
	return found, nil
}

var errStat = errors.New("malformed stat")

// parseStat reads /proc/PID/stat (proc_pid_stat(5)): fields 1, 4 and 24. The name
// in field 2 may hold blanks and parentheses.
func parseStat(b []byte) (proc, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || end < open {
		return proc{}, errStat
	}
	fields := bytes.Fields(b[end+1:]) // from field 3 on
	if len(fields) < 22 {
		return proc{}, errStat
	}
	pid, err1 := strconv.Atoi(string(bytes.TrimSpace(b[:open])))
	parent, err2 := strconv.Atoi(string(fields[1]))
	pages, err3 := strconv.ParseUint(string(fields[21]), 10, 64)
	if err1 != nil || err2 != nil || err3 != nil || pid < 1 || parent < 0 {
		return proc{}, errStat
	}
	return proc{pid: pid, parent: parent, rss: pages * uint64(os.Getpagesize())}, nil
}

// summedRSS adds up the RSS of root and all below it, in bytes. What processes
// share is counted once for each.
func summedRSS(procfs string, root int) (uint64, error) {
	procs, err := tree(procfs, root)
	var sum uint64
	for _, p := range procs {
		sum += p.rss
	}
	return sum, err
}

// killTree sends SIGKILL to root and all below it. They are stopped first, until
// no new one appears: once a parent is dead its children are not found any more.
func killTree(procfs string, root int) error {
	stopped := map[int]bool{}
	for {
		procs, err := tree(procfs, root)
		if err != nil {
			return err
		}
		before := len(stopped)
		for _, p := range procs {
			if !stopped[p.pid] {
				stopped[p.pid] = true
				unix.Kill(p.pid, unix.SIGSTOP)
			}
		}
		if len(stopped) == before {
			break
		}
	}
	for pid := range stopped {
		unix.Kill(pid, unix.SIGKILL)
	}
	return nil
}
