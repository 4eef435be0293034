package doctor

import (
	"errors"
	"fmt"

	"github.com/rsswarden/rsswarden/rss/cgroup"
)

// cgroupCheck says what can be read of the memory cgroup of a process, and whether levels of
// it are hidden.
func cgroupCheck(proc, sys string, pid int) (c Check, hidden bool) {
	c = Check{Name: NameCgroup, Status: OK, Source: fmt.Sprintf("/proc/%d/cgroup", pid)}
	p, err := cgroup.Open(proc, sys, pid)
	switch {
	case errors.Is(err, cgroup.ErrNoMemory):
		c.Status, c.Found = Off, "no memory cgroup can be seen: what the kernel charges this job with is not known"
		c.Do = "in a container, mount /sys/fs/cgroup read-only; else " + sayLimit
		return c, true
	case err != nil:
		c.Status, c.Found, c.Do = Off, err.Error(), sayLimit
		return c, true
	}
	leaf := p.Levels[0]
	hidden = p.Partial
	defer leaf.Close()
	c.Found = fmt.Sprintf("v%d, %s, %d levels", p.Version, p.Name, len(p.Levels))
	c.Source = leaf.Dir
	if _, err := leaf.Limits(); err != nil {
		c.Status, c.Found, c.Do = Off, c.Found+"; "+err.Error(), sayLimit
		return c, hidden
	}
	mem, err := leaf.Memory()
	if err != nil {
		c.Status = Limited
		c.Found += "; page cache cannot be told from what kills: " + err.Error()
		return c, hidden
	}
	c.Found += fmt.Sprintf("; %v charged, %v of it cannot be reclaimed", mem.Charged, mem.Unreclaimable)
	if _, err := leaf.Events(); err != nil {
		c.Status = Limited
		c.Found += "; OOM kills are not counted: " + err.Error()
	} else if p.Version == 2 {
		c.Found += "; memory.events tells at once where a limit is met"
	}
	if hidden {
		c.Status = Limited
		c.Found += "; levels above cannot be seen from here, a limit there holds all the same"
		c.Do = "where the job has been given less than what `limit` shows, " + sayLimit
	}
	return c, hidden
}

// cgroupTasks are the tasks, the limit and its file of the level of a process's cgroup
// that leaves the least room; zeros if no level limits tasks.
func cgroupTasks(proc, sys string, pid int) (tasks, most uint64, file string) {
	p, err := cgroup.OpenTasks(proc, sys, pid)
	if err != nil {
		return 0, 0, ""
	}
	defer p.Close()
	levels, _ := p.Tasks(nil) // those that can be read
	for _, l := range levels {
		if room := l.Max - min(l.Current, l.Max); file == "" || room < most-min(tasks, most) {
			tasks, most, file = l.Current, l.Max, l.Level.MaxFile()
		}
	}
	return tasks, most, file
}
