package doctor

import "github.com/rsswarden/rsswarden/rss/cgroup"

// CgroupTasks returns the tasks and the limit of the level of a process's cgroup
// that leaves the least room, and the file of that limit; zeros where no level
// that can be seen limits tasks.
func CgroupTasks(proc, sys string, pid int) (tasks, most uint64, file string) {
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
