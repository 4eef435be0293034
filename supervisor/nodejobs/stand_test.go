package nodejobs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

// stand is a node made of files, and a clock.
type stand struct {
	rsstest.Tree
	*Node
	t   *testing.T
	now time.Time
}

func newStand(t *testing.T, tree rsstest.Tree) *stand {
	s := &stand{Tree: tree, Node: New(tree.Proc, tree.Sys, "host"), t: t, now: time.Now()}
	t.Cleanup(s.Node.Close)
	return s
}

// archive unpacks a file of testdata.
func archive(t *testing.T, name string) rsstest.Tree {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".txtar"))
	if err != nil {
		t.Fatal(err)
	}
	tree := rsstest.Empty(t)
	tree.Add(string(b))
	return tree
}

// look is the look 10 seconds later.
func (s *stand) look() Snapshot {
	s.t.Helper()
	s.now = s.now.Add(10 * time.Second)
	snap, err := s.Look(s.now)
	if err != nil {
		s.t.Fatal(err)
	}
	return snap
}

// lines says of a snapshot what tests compare: one line a job and step.
func lines(snap Snapshot) []string {
	var out []string
	say := func(what string, u *Use) {
		limit := "none"
		if u.Limit != cgroup.Unlimited {
			limit = fmt.Sprint(uint64(u.Limit))
		}
		if !u.Measured {
			out = append(out, fmt.Sprintf("%s: %d processes, RSS %d", what, u.Processes, uint64(u.RSS)))
			return
		}
		out = append(out, fmt.Sprintf("%s: %d of %d, limit %s, %d processes, %d kills", what, uint64(u.Unreclaimable), uint64(u.Charged), limit, u.Processes, u.OOMKills))
	}
	for i := range snap.Jobs {
		j := &snap.Jobs[i]
		say(fmt.Sprintf("%s %s uid %d", j.Node, j.ID, j.UID), &j.Use)
		for k := range j.Steps {
			say("  "+j.Steps[k].ID, &j.Steps[k].Use)
		}
	}
	return out
}

func (s *stand) want(snap Snapshot, want ...string) {
	s.t.Helper()
	if diff := cmp.Diff(want, lines(snap)); diff != "" {
		s.t.Errorf("want -, got +:\n%s", diff)
	}
}

// v1 writes the files of one directory of v1's memory hierarchy.
func (s *stand) v1(name string, anon, limit uint64, kills int, pids ...int) {
	dir := "sys/fs/cgroup/memory/" + name + "/"
	s.Write(dir+"memory.usage_in_bytes", fmt.Sprintln(anon))
	s.Write(dir+"memory.limit_in_bytes", fmt.Sprintln(limit))
	s.Write(dir+"memory.stat", fmt.Sprintf("total_rss %d\nhierarchical_memory_limit %d\n", anon, limit))
	s.Write(dir+"memory.oom_control", fmt.Sprintf("oom_kill_disable 0\nunder_oom 0\noom_kill %d\n", kills))
	var b strings.Builder
	for _, pid := range pids {
		fmt.Fprintln(&b, pid)
	}
	s.Write(dir+"cgroup.procs", b.String())
}

// v1Stand is a node of v1 with one job, 7, of one step, that has two processes.
func v1Stand(t *testing.T) *stand {
	s := newStand(t, rsstest.Empty(t))
	s.Write("proc/self/mountinfo", "40 31 0:36 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n")
	s.v1("slurm/uid_1/job_7", 100, 1000, 0)
	s.v1("slurm/uid_1/job_7/step_0", 100, 1000, 0)
	s.v1("slurm/uid_1/job_7/step_0/task_0", 100, 1000, 0, 10, 11)
	return s
}
