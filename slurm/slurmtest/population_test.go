package slurmtest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// holdTimeout bounds how long processes of a job take to get their memory.
const holdTimeout = 30 * time.Second

// process is what /proc says about one process, in bytes.
type process struct {
	parent                      int
	comm                        string
	rss, pss, noshared, virtual uint64
}

// readProcess reads RSS as slurmstepd does: field 24 of /proc/PID/stat, and
// the second and third of statm.
func readProcess(pid int) (process, error) {
	page := uint64(os.Getpagesize())
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, err
	}
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	fields := strings.Fields(string(b[end+1:]))
	if len(fields) < 22 {
		return process{}, fmt.Errorf("%d fields in stat of %d", len(fields), pid)
	}
	p := process{comm: string(b[open+1 : end])}
	p.parent, _ = strconv.Atoi(fields[1])
	p.virtual, _ = strconv.ParseUint(fields[20], 10, 64)
	p.rss, _ = strconv.ParseUint(fields[21], 10, 64)
	p.rss *= page
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return process{}, err
	}
	var size, resident, shared uint64
	if _, err := fmt.Sscan(string(statm), &size, &resident, &shared); err != nil {
		return process{}, err
	}
	p.noshared = (resident - shared) * page
	rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil && !errors.Is(err, syscall.ESRCH) { // a zombie has none
		return process{}, err
	}
	for line := range strings.Lines(string(rollup)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "Pss:" {
			kb, _ := strconv.ParseUint(f[1], 10, 64)
			p.pss = kb << 10
		}
	}
	return p, nil
}

// sums are the candidates for what slurmstepd adds up.
type sums struct {
	rss, pss, noshared, virtual uint64 // the tasks and their descendants by parent PID
	containerRSS                uint64 // all processes of the step's container
	orphans                     int    // in the container and no descendants
}

// readSums reads a step: every process of its container, and of those the
// tasks, which are the children of slurmstepd, with their descendants.
func readSums(t *testing.T, run *slurmtest.JobRun, step string) sums {
	t.Helper()
	procs := make(map[int]process)
	for _, pid := range run.Processes(step) {
		p, err := readProcess(pid)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue
		}
		wardentest.NoError(t, err)
		procs[pid] = p
	}
	// A task's chain of parents ends at slurmstepd, an orphan's at init.
	tree := func(pid int) bool {
		for {
			p, ok := procs[pid]
			if !ok {
				parent, err := readProcess(pid)
				return err == nil && parent.comm == "slurmstepd"
			}
			pid = p.parent
		}
	}
	var s sums
	for pid, p := range procs {
		s.containerRSS += p.rss
		if !tree(pid) {
			s.orphans++
			continue
		}
		s.rss += p.rss
		s.pss += min(p.pss, p.rss)
		s.noshared += p.noshared
		s.virtual += p.virtual
	}
	return s
}

var usedLine = regexp.MustCompile(`StepId=(\S+) memory used:(\d+) limit:(\d+) B`)

// polls returns what slurmstepd logged at each poll of a step.
func polls(run *slurmtest.JobRun, step string) (used []uint64, limit uint64) {
	for _, m := range usedLine.FindAllStringSubmatch(run.Log(), -1) {
		if m[1] == run.ID+"."+step {
			n, _ := strconv.ParseUint(m[2], 10, 64)
			used = append(used, n)
			limit, _ = strconv.ParseUint(m[3], 10, 64)
		}
	}
	return used, limit
}

// nextPoll waits for the next poll of a step to be logged, and returns it.
func nextPoll(t *testing.T, run *slurmtest.JobRun, step string) (used, limit uint64) {
	t.Helper()
	before, _ := polls(run, step)
	deadline := time.Now().Add(holdTimeout)
	for {
		after, limit := polls(run, step)
		if len(after) > len(before) {
			return after[len(after)-1], limit
		}
		if time.Now().After(deadline) {
			t.Fatalf("no poll of %s.%s in %v:\n%s", run.ID, step, holdTimeout, run.Log())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// still polls until the sums around a poll are the same, so that they are
// those at the poll. Only PSS moves when strangers map the same libraries.
func still(t *testing.T, run *slurmtest.JobRun, step string) (used, limit uint64, s sums) {
	t.Helper()
	for range 10 {
		before := readSums(t, run, step)
		used, limit = nextPoll(t, run, step)
		s = readSums(t, run, step)
		quiet := s
		quiet.pss = before.pss
		if before == quiet {
			return used, limit, s
		}
	}
	t.Fatal("the processes of the job keep changing")
	return
}

// totalRSS reads total_rss of a cgroup of v1.
func totalRSS(t *testing.T, dir string) uint64 {
	t.Helper()
	b := wardentest.ReadFile(t, filepath.Join(dir, "memory.stat"))
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "total_rss "); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(v), 10, 64)
			wardentest.NoError(t, err)
			return n
		}
	}
	t.Fatalf("no total_rss in %s", dir)
	return 0
}
