package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/nodejobs"
)

// nodeTree is what Slurm makes of cgroup v1 for a node, with real processes: a job has a
// batch step and an extern step, of one task each.
type nodeTree struct {
	b      *bench
	top    string
	dirs   []string
	crowds []*child
	pids   []int // of the processes in jobs
	jobs   int
}

const (
	nodeMemory = "/sys/fs/cgroup/memory"
	nodePrefix = "slurm_rswbench"
)

// newNodeTree makes the top. What an earlier run that was killed has left is removed:
// nobody is in it.
func (b *bench) newNodeTree() (*nodeTree, error) {
	if _, err := os.Stat(nodeMemory + "/memory.usage_in_bytes"); err != nil {
		return nil, fmt.Errorf("cannot make jobs: no memory hierarchy of cgroup v1 here")
	}
	left, _ := filepath.Glob(nodeMemory + "/" + nodePrefix + "*")
	for _, top := range left {
		removeTree(top)
	}
	t := &nodeTree{b: b, top: fmt.Sprintf("%s/%s%d", nodeMemory, nodePrefix, os.Getpid())}
	for _, dir := range []string{t.top, t.top + "/uid_1000"} {
		if err := t.mkdir(dir); err != nil {
			t.end()
			return nil, fmt.Errorf("cannot make jobs: %w", err)
		}
	}
	return t, nil
}

func (t *nodeTree) mkdir(dir string) error {
	err := os.Mkdir(dir, 0o755)
	if err == nil {
		t.dirs = append(t.dirs, dir)
	}
	return err
}

// grow adds jobs until there are n, each with its processes.
func (t *nodeTree) grow(n int) error {
	crowd, pid, err := t.b.crowd((n-t.jobs)*perJob+1, nil)
	if err != nil {
		return err
	}
	t.crowds = append(t.crowds, crowd)
	pids, err := sleepersOf(pid)
	if err != nil {
		return err
	}
	for ; t.jobs < n; t.jobs++ {
		if err := t.b.ctx.Err(); err != nil {
			return err
		}
		job := fmt.Sprintf("%s/uid_1000/job_%d", t.top, 1000+t.jobs)
		batch, extern := job+"/step_batch", job+"/step_extern"
		for _, dir := range []string{job, batch, batch + "/task_0", extern, extern + "/task_4294967292"} {
			if err := t.mkdir(dir); err != nil {
				return fmt.Errorf("cannot make job %d: %w", t.jobs, err)
			}
		}
		for _, dir := range []string{job, batch, extern} {
			if err := os.WriteFile(dir+"/memory.limit_in_bytes", []byte("4294967296"), 0); err != nil {
				return fmt.Errorf("cannot limit job %d: %w", t.jobs, err)
			}
		}
		for i, pid := range pids[:perJob] {
			task := batch + "/task_0"
			if i == 0 {
				task = extern + "/task_4294967292"
			}
			if err := os.WriteFile(task+"/cgroup.procs", []byte(strconv.Itoa(pid)), 0); err != nil {
				return fmt.Errorf("cannot fill job %d: %w", t.jobs, err)
			}
		}
		t.pids = append(t.pids, pids[:perJob]...)
		pids = pids[perJob:]
	}
	return nil
}

// wake makes all processes busy for good: between two looks each has taken memory, and
// given it back.
func (t *nodeTree) wake() error {
	for _, pid := range t.pids {
		if err := unix.Kill(pid, unix.SIGUSR1); err != nil {
			return fmt.Errorf("cannot wake a sleeper: %w", err)
		}
	}
	return nil
}

// sleepersOf lists the children of a crowd's first process.
func sleepersOf(pid int) ([]int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil, fmt.Errorf("cannot list the sleepers: %w", err)
	}
	var pids []int
	for word := range strings.FieldsSeq(string(text)) {
		n, err := strconv.Atoi(word)
		if err != nil {
			return nil, fmt.Errorf("cannot list the sleepers: %w", err)
		}
		pids = append(pids, n)
	}
	return pids, nil
}

// end ends the processes and removes the directories.
func (t *nodeTree) end() {
	for _, c := range t.crowds {
		c.end()
	}
	for _, dir := range slices.Backward(t.dirs) {
		// A process that was reaped may be in its cgroup a little longer.
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			if err := os.Remove(dir); err == nil || os.IsNotExist(err) || time.Now().After(deadline) {
				break
			}
		}
	}
}

// removeTree removes a directory of cgroups, as far as they are empty.
func removeTree(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			removeTree(filepath.Join(dir, e.Name()))
		}
	}
	unix.Rmdir(dir)
}

// nodeReader returns what looks at all jobs of the bench's tree in the way named, and
// counts their processes.
func nodeReader(how string) func() (uint64, error) {
	if how == "node-jobs" {
		node := nodejobs.New("/proc", "/sys", "bench")
		return func() (uint64, error) {
			snap, err := node.Look(time.Now())
			sum := 0
			for i := range snap.Jobs {
				if strings.HasPrefix(snap.Jobs[i].Node, "rswbench") {
					sum += snap.Jobs[i].Processes
				}
			}
			return uint64(sum), err
		}
	}
	return throughProcfs
}

// throughProcfs is the same work by what is there for it: every process of the node,
// its cgroup and its RSS, and the files of each job and step that was found.
func throughProcfs() (uint64, error) {
	fs, err := procfs.NewFS("/proc")
	if err != nil {
		return 0, fmt.Errorf("cannot open /proc: %w", err)
	}
	all, err := fs.AllProcs()
	if err != nil {
		return 0, fmt.Errorf("cannot list processes: %w", err)
	}
	groups := map[string]uint64{}
	count := uint64(0)
	for _, p := range all {
		cgroups, err := p.Cgroups()
		if err != nil {
			continue
		}
		for _, c := range cgroups {
			if !slices.Contains(c.Controllers, "memory") || !strings.HasPrefix(c.Path, "/"+nodePrefix) {
				continue
			}
			step := filepath.Dir(c.Path)
			if _, ok := slurm.StepOfDir(filepath.Base(step)); !ok {
				continue
			}
			if s, err := p.Stat(); err == nil {
				rss := uint64(s.ResidentMemory())
				groups[step] += rss
				groups[filepath.Dir(step)] += rss
				count++
			}
		}
	}
	for dir := range groups {
		for _, file := range []string{"memory.usage_in_bytes", "memory.limit_in_bytes", "memory.stat", "memory.oom_control"} {
			text, err := os.ReadFile(nodeMemory + dir + "/" + file)
			if err != nil {
				return 0, fmt.Errorf("cannot read %s: %w", file, err)
			}
			for line := range bytes.Lines(text) {
				fields := bytes.Fields(line)
				if _, err := strconv.ParseUint(string(fields[len(fields)-1]), 10, 64); err != nil {
					return 0, fmt.Errorf("cannot parse %s: %w", file, err)
				}
			}
		}
	}
	return count, nil
}
