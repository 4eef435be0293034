package rsstest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// SlurmTree is what Slurm would make of cgroup v1 for a node of its own, made of real
// cgroups.
type SlurmTree struct {
	Node string // a name that no Slurm has
	Dir  string // slurm_NODE of the memory hierarchy
	t    testing.TB
}

// NewSlurmTree makes the tree of a node, which is removed at the end of the test. It skips
// the test where that is not allowed.
func NewSlurmTree(t testing.TB) *SlurmTree {
	t.Helper()
	const root = "/sys/fs/cgroup/memory"
	if _, err := os.Stat(root + "/memory.usage_in_bytes"); err != nil {
		t.Skip("no memory hierarchy of cgroup v1 here")
	}
	s := &SlurmTree{t: t, Node: fmt.Sprintf("rsw%d", time.Now().UnixNano())}
	s.Dir = root + "/slurm_" + s.Node
	s.mkdir(s.Dir)
	s.mkdir(s.Dir + "/uid_1000")
	return s
}

func (s *SlurmTree) mkdir(dir string) Group {
	s.t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		s.t.Skip("cannot make a cgroup:", err)
	}
	g := Group{Dir: dir, Version: 1, t: s.t}
	g.removeAtEnd()
	return g
}

// job are the directories of a job, its batch step and the task of that.
func (s *SlurmTree) job(id int) [3]string {
	job := fmt.Sprintf("%s/uid_1000/job_%d", s.Dir, id)
	return [...]string{job, job + "/step_batch", job + "/step_batch/task_0"}
}

// Job makes a job of one step and task, and returns the task's group, without a limit of
// its own: job and step have it.
func (s *SlurmTree) Job(id int, limit rss.Bytes) (task Group) {
	s.t.Helper()
	for i, dir := range s.job(id) {
		if task = s.mkdir(dir); i < 2 {
			task.Limit(limit)
		}
	}
	return task
}

// Remove takes a job away, as Slurm does at its end. Its processes are on their way out.
func (s *SlurmTree) Remove(id int) {
	s.t.Helper()
	dirs := s.job(id)
	for i := len(dirs) - 1; i >= 0; i-- {
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			err := os.Remove(dirs[i])
			if err == nil {
				break
			}
			if time.Now().After(end) {
				s.t.Fatal(err)
			}
		}
	}
}
