package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/nodejobs"
)

// A node full of jobs, and what the daemon takes for it.
const (
	nodeJobs    = 1000
	perJob      = 10 // processes, one of them the extern step's
	nodeNeeds   = 4  // GiB that must be available
	lookPause   = 10 * time.Second
	daemonAlone = "ours: rsswardend"
	daemonRead  = "ours: rsswardend, scraped every 10 s"
	nodeLook    = "ours: all jobs by their cgroups"
	nodePeer    = "procfs: AllProcs, Cgroups and Stat"
)

func measureNode(b *bench) {
	if free := available(); free < nodeNeeds {
		b.skip("%.1f GiB are available, %d are needed", free, nodeNeeds)
		return
	}
	tree, err := b.newNodeTree()
	if err != nil {
		b.skip("%v", err)
		return
	}
	var at, cost []float64
	for _, jobs := range pick(b, []int{100, 300, nodeJobs}, []int{10, 30}) {
		tree.grow(jobs)
		r := nodeLooks(b, jobs)
		at, cost = append(at, float64(jobs)), append(cost, r.series[0].median())
		b.add(r)
	}
	all := newRow("all sizes", "")
	all.atMost(fmt.Sprintf("exponent, %.0f to %.0f jobs", at[0], at[len(at)-1]), exponent(at, cost), 1.25, "")
	b.add(all)
	daemonIdle(b, tree)
}

// nodeLooks is the processor time of one look at so many jobs.
func nodeLooks(b *bench, jobs int) *row {
	row := newRow(fmt.Sprintf("a look at %d jobs of %d processes, processor time", jobs, perJob), "µs")
	readers := []*reader{goReader(nodeLook, "node-jobs", 1, 6), goReader(nodePeer, "node-procfs", 1, 1)}
	b.scope(func() {
		b.startReaders(readers, 2)
		for i, runs := range inTurns(pick(b, 10, 2), readers, func(r *reader) float64 { return mean(r.read(r.batch, 0)) }) {
			row.put(readers[i].name, runs)
		}
	})
	for _, r := range readers {
		if r.sum != uint64(jobs*perJob) {
			row.note("%s sees %d processes of %d", r.name, r.sum, jobs*perJob)
		}
	}
	row.tell("procfs to ours", row.times(nodePeer, nodeLook), "times")
	return row
}

// daemonIdle is what the daemon takes for as many jobs as there are now, beside a process
// that does the same through procfs: while all of their processes sleep, and while the
// memory of all changes between two looks.
func daemonIdle(b *bench, tree *nodeTree) {
	program := goBuild("cmd/rsswardend")
	scraped, address := b.startDaemon(program)
	ctx, stop := context.WithCancel(ctx)
	b.atEnd(stop)
	go scrape(ctx, address)
	alone, _ := b.startDaemon(program)
	peer := b.start(goReader("", "node-procfs", 1, 1).args...)
	b.atEnd(func() { peer.cmd.Process.Kill() }) // it has years to go
	go fmt.Fprintln(peer.in, 100000, lookPause.Microseconds())
	subjects := []*subject{
		{name: daemonRead, pids: []int{scraped}}, {name: daemonAlone, pids: []int{alone}},
		{name: nodePeer + ", every 10 s", pids: []int{peer.pid()}},
	}
	daemonRows(b, "the daemon: ", subjects)
	tree.wake()
	for _, s := range subjects {
		s.runs = nil
	}
	daemonRows(b, "the daemon, all processes busy: ", subjects)
}

// daemonRows watches what runs.
func daemonRows(b *bench, what string, subjects []*subject) {
	runs := pick(b, 3, 2)
	b.watch(subjects, pick(b, 2*lookPause, time.Second), runs)
	for _, m := range quantities {
		r := b.watched(what, m, subjects)
		switch m.name {
		case "CPU, by schedstat":
			r.atMost("alone", mean(r.of(daemonAlone).runs), 1, r.unit)
			r.atMost("scraped", mean(r.of(daemonRead).runs), 1, r.unit)
			r.note("looks of 10 s fall into runs of %v unevenly: the mean of the runs is what was used", b.idle()/time.Duration(runs))
		case "RSS":
			r.atMost("scraped", r.median(daemonRead), 64, r.unit)
		}
		b.add(r)
	}
}

// startDaemon starts rsswardend on a free port.
func (b *bench) startDaemon(program string) (pid int, address string) {
	cmd := command(program, "--listen", "127.0.0.1:0", "--interval", lookPause.String())
	cmd.Env = slices.DeleteFunc(cmd.Env, func(kv string) bool { return strings.HasPrefix(kv, "SLURM") })
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // with us however we end
	out := must(cmd.StderrPipe())
	check(cmd.Start())
	b.atEnd(func() {
		cmd.Cancel() // by SIGTERM, as whatever started it would
		cmd.Wait()
	})
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if _, address, ok := strings.Cut(lines.Text(), `msg="Listening on" address=`); ok {
			go io.Copy(io.Discard, out)
			return cmd.Process.Pid, strings.TrimSpace(address)
		}
	}
	check(errors.New("cannot start rsswardend: it does not listen"))
	return 0, ""
}

// scrape reads the metrics as Prometheus does.
func scrape(ctx context.Context, address string) {
	for {
		if resp, err := http.Get("http://" + address + "/metrics"); err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		select {
		case <-time.After(lookPause):
		case <-ctx.Done():
			return
		}
	}
}

// nodeTree is what Slurm makes of cgroup v1 for a node, with real processes: a job has a
// batch step and an extern step, of one task each.
type nodeTree struct {
	b    *bench
	top  string
	dirs []string
	pids []int // of the processes in jobs
	jobs int
}

const (
	nodeMemory = "/sys/fs/cgroup/memory"
	nodePrefix = "slurm_rswbench"
)

// newNodeTree makes the top. What an earlier run that was killed has left is removed:
// no process is in it.
func (b *bench) newNodeTree() (*nodeTree, error) {
	if _, err := os.Stat(nodeMemory + "/memory.usage_in_bytes"); err != nil {
		return nil, errors.New("cannot make jobs: no memory hierarchy of cgroup v1 here")
	}
	left, _ := filepath.Glob(nodeMemory + "/" + nodePrefix + "*")
	for _, top := range left {
		removeTree(top)
	}
	t := &nodeTree{b: b, top: fmt.Sprintf("%s/%s%d", nodeMemory, nodePrefix, os.Getpid())}
	b.atEnd(t.end)
	for _, dir := range []string{t.top, t.top + "/uid_1000"} {
		if err := t.mkdir(dir); err != nil {
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
func (t *nodeTree) grow(n int) {
	_, pid := t.b.crowd((n-t.jobs)*perJob+1, nil)
	pids := sleepersOf(pid)
	for ; t.jobs < n; t.jobs++ {
		check(ctx.Err())
		job := fmt.Sprintf("%s/uid_1000/job_%d", t.top, 1000+t.jobs)
		batch, extern := job+"/step_batch", job+"/step_extern"
		for _, dir := range []string{job, batch, batch + "/task_0", extern, extern + "/task_4294967292"} {
			check(t.mkdir(dir))
		}
		for _, dir := range []string{job, batch, extern} {
			check(os.WriteFile(dir+"/memory.limit_in_bytes", []byte("4294967296"), 0))
		}
		for i, pid := range pids[:perJob] {
			task := batch + "/task_0"
			if i == 0 {
				task = extern + "/task_4294967292"
			}
			check(os.WriteFile(task+"/cgroup.procs", []byte(strconv.Itoa(pid)), 0))
		}
		t.pids = append(t.pids, pids[:perJob]...)
		pids = pids[perJob:]
	}
}

// wake makes all processes busy for good: between two looks each has taken memory, and
// given it back.
func (t *nodeTree) wake() {
	for _, pid := range t.pids {
		check(unix.Kill(pid, unix.SIGUSR1))
	}
}

// sleepersOf lists the children of a crowd's first process.
func sleepersOf(pid int) (pids []int) {
	for word := range strings.FieldsSeq(string(must(os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))))) {
		pids = append(pids, must(strconv.Atoi(word)))
	}
	return pids
}

// end removes the directories, whose processes have ended.
func (t *nodeTree) end() {
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

// readNode looks at all jobs of the bench's tree, and counts their processes.
func readNode(int) func() uint64 {
	node := nodejobs.New("/proc", "/sys", "bench")
	return func() (sum uint64) {
		snap := must(node.Scan(time.Now()))
		for i := range snap.Jobs {
			if strings.HasPrefix(snap.Jobs[i].Node, "rswbench") {
				sum += uint64(snap.Jobs[i].Processes)
			}
		}
		return sum
	}
}

// throughProcfs is the same work by what is there for it: every process of the node,
// its cgroup and its RSS, and the files of each job and step that was found.
func throughProcfs() (count uint64) {
	groups := map[string]uint64{}
	for _, p := range must(procFS.AllProcs()) {
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
			for line := range bytes.Lines(must(os.ReadFile(nodeMemory + dir + "/" + file))) {
				fields := bytes.Fields(line)
				must(strconv.ParseUint(string(fields[len(fields)-1]), 10, 64))
			}
		}
	}
	return count
}
