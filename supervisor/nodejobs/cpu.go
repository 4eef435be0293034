package nodejobs

import (
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// CPUTime is how long processors have worked for a job, with all of its steps. ok is false where
// no cgroup of the job counts that.
func (n *Node) CPUTime(j *Job) (used time.Duration, ok bool) {
	for _, t := range n.trees {
		rel, err := filepath.Rel(t.root.path, j.path)
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}
		if t.version == 2 {
			text, err := n.read(filepath.Join(j.path, "cpu.stat"))
			for line := range strings.Lines(string(text)) {
				if us, is := strings.CutPrefix(strings.TrimSpace(line), "usage_usec "); is && err == nil {
					return cpuNumber(us, time.Microsecond)
				}
			}
			return 0, false
		}
		for _, c := range n.trees {
			if c.version == 1 && c.controller == "cpuacct" {
				text, err := n.read(filepath.Join(c.root.path, rel, "cpuacct.usage"))
				if err != nil {
					return 0, false
				}
				return cpuNumber(string(text), time.Nanosecond)
			}
		}
	}
	return 0, false
}

func cpuNumber(text string, unit time.Duration) (time.Duration, bool) {
	v, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	return time.Duration(v) * unit, err == nil && v >= 0
}
