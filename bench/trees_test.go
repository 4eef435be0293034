package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/nodejobs"
)

// measureTrees has every reader read the same tree, in turns.
func measureTrees(b *bench) {
	for _, tree := range []struct {
		size int
		// psutil is how many times as long it is to take.
		psutil float64
	}{{64, 60}, {1000, 30}} {
		b.scope(func() { measureTree(b, pick(b, tree.size, min(tree.size, 64+tree.size/10)), tree.psutil) })
	}
}

func measureTree(b *bench, size int, psutil float64) {
	_, pid := b.crowd(size, nil)
	readers := b.readers(pid)
	b.startReaders(readers, 3)
	rounds := pick(b, 20, 2)
	runs := [2][][]float64{
		inTurns(rounds, readers, func(r *reader) float64 { return mean(r.read(r.batch, 0)) }),
		inTurns(rounds, readers, func(r *reader) float64 { return r.read(1, pause)[0] }),
	}
	warm := newRow(fmt.Sprintf("%d processes, back to back", size), "µs")
	cold := newRow(fmt.Sprintf("%d processes, after 200 ms", size), "µs")
	for i, r := range readers {
		warm.put(r.name, runs[0][i])
		cold.put(r.name, runs[1][i])
		if off := math.Abs(float64(r.sum)/float64(readers[0].sum) - 1); off > 0.02 || math.IsNaN(off) {
			warm.note("%s reads %d bytes where SumRSS reads %d", r.name, r.sum, readers[0].sum)
		}
	}
	if !math.IsNaN(warm.median(seeds)) {
		warm.atLeast("psutil to SumRSS", warm.times(seeds, fast), psutil, "times")
		warm.tell("psutil to Trees", warm.times(seeds, full), "times")
		cold.tell("psutil to SumRSS", cold.times(seeds, fast), "times")
		cold.tell("psutil to Trees", cold.times(seeds, full), "times")
	}
	warm.atLeast("procfs (AllProcs) to SumRSS", warm.times(allProcs, fast), 15, "times")
	warm.tell("procfs (AllProcs) to Trees", warm.times(allProcs, full), "times")
	warm.atMost("SumRSS to C", warm.times(fast, preads), 1.5, "times")
	cold.atMost("SumRSS to C", cold.times(fast, preads), 2.5, "times")
	b.add(warm)
	b.add(cold)
}

// exponent fits y = c·x^k by least squares of the logarithms, and returns k.
func exponent(x, y []float64) float64 {
	var sx, sy, sxx, sxy float64
	for i := range x {
		lx, ly := math.Log(x[i]), math.Log(y[i])
		sx, sy, sxx, sxy = sx+lx, sy+ly, sxx+lx*lx, sxy+lx*ly
	}
	n := float64(len(x))
	return (n*sxy - sx*sy) / (n*sxx - sx*sx)
}

// readerRole as first argument makes this program a reader written in Go.
const readerRole = "reader"

// A reader is one way to sum the RSS of a tree, in a process of its own that answers as
// helpers/statm.c does.
type reader struct {
	name  string
	args  []string
	batch int // readings back to back that are one run

	child *child
	sum   uint64 // what it read last
}

// The names of the readers.
const (
	fast     = "ours: SumRSS"
	full     = "ours: Trees"
	preads   = "C, preads of kept statm"
	known    = "procfs, PIDs known"
	allProcs = "procfs, AllProcs"
	seeds    = "psutil, as in the seeds"
)

// pause is the time between two readings that makes them cold: what a reader
// needs has left the caches for what else the machine does.
const pause = 200 * time.Millisecond

// goReader is one of [goReaders].
func goReader(name, how string, pid, batch int) *reader {
	return &reader{name: name, args: []string{"/proc/self/exe", readerRole, how, strconv.Itoa(pid)}, batch: batch}
}

// readers lists the ways to sum the tree of pid; that which misses something is
// left out, and said.
func (b *bench) readers(pid int) []*reader {
	all := []*reader{
		goReader(fast, "sum", pid, 200),
		// Trees reads all of stat and status again every eighth time.
		goReader(full, "trees", pid, 64),
		{name: preads, args: []string{path("statm"), strconv.Itoa(pid)}, batch: 200},
		goReader(known, "known", pid, 8),
		goReader(allProcs, "procfs", pid, 4),
	}
	if b.lacks("psutil", "psutil") {
		return all
	}
	return append(all, &reader{name: seeds, args: []string{python, path("seed.py"), strconv.Itoa(pid)}, batch: 4})
}

// startReaders starts readers, and has each read so often: the first readings open what
// is kept open.
func (b *bench) startReaders(readers []*reader, first int) {
	for _, r := range readers {
		r.child = b.start(r.args...)
		r.read(first, 0)
	}
}

// inTurns has readers run in turns, and returns the runs of each.
func inTurns(rounds int, readers []*reader, run func(*reader) float64) [][]float64 {
	runs := make([][]float64, len(readers))
	for range rounds {
		for i, r := range readers {
			runs[i] = append(runs[i], run(r))
		}
	}
	return runs
}

// read has a reader read n times, each after a pause, and returns how many µs
// each took.
func (r *reader) read(n int, pause time.Duration) []float64 {
	r.child.say("%d %d", n, pause.Microseconds())
	words := strings.Fields(r.child.line())
	if len(words) != n+1 {
		check(fmt.Errorf("cannot understand %s: %d numbers, not %d", r.name, len(words), n+1))
	}
	took := make([]float64, n)
	for i := range took {
		took[i] = float64(must(strconv.ParseInt(words[i+1], 10, 64))) / 1e3
	}
	r.sum = must(strconv.ParseUint(words[0], 10, 64))
	return took
}

// goReaders are the readers written in Go: what one reads for the tree of a PID, and the
// clock that it is measured by.
var goReaders = map[string]struct {
	clock func() time.Duration
	open  func(pid int) func() uint64
}{
	"trees":       {wall, readTrees},
	"sum":         {wall, readSum},
	"procfs":      {wall, func(pid int) func() uint64 { return func() uint64 { return statuses(below(pid)) } }},
	"known":       {wall, func(pid int) func() uint64 { pids := below(pid); return func() uint64 { return statuses(pids) } }},
	"node-jobs":   {processorTime, readNode},
	"node-procfs": {processorTime, func(int) func() uint64 { return throughProcfs }},
}

var begun = time.Now()

func wall() time.Duration { return time.Since(begun) }

// processorTime is what all threads of this process have taken.
func processorTime() time.Duration { return clock(unix.CLOCK_PROCESS_CPUTIME_ID) }

func clock(id int32) time.Duration {
	var t unix.Timespec
	check(unix.ClockGettime(id, &t))
	return time.Duration(t.Nano())
}

// beReader is the reader process. It ends with its standard input.
func beReader(args []string) (status int) {
	if len(args) != 2 {
		return 2
	}
	how, ok := goReaders[args[0]]
	pid, err := strconv.Atoi(args[1])
	if err != nil || !ok {
		return 2
	}
	defer func() {
		if err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			status = 1
		}
	}()
	defer catch(&err)
	sum := how.open(pid)
	out := bufio.NewWriter(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var n, pause int
		if _, err := fmt.Sscan(lines.Text(), &n, &pause); err != nil || n < 1 {
			return 2
		}
		took := make([]time.Duration, n)
		var bytes uint64
		for i := range took {
			if pause > 0 {
				time.Sleep(time.Duration(pause) * time.Microsecond)
			}
			began := how.clock()
			bytes = sum()
			took[i] = how.clock() - began
		}
		fmt.Fprint(out, bytes)
		for _, t := range took {
			fmt.Fprint(out, " ", t.Nanoseconds())
		}
		fmt.Fprintln(out)
		if out.Flush() != nil {
			return 0
		}
	}
	return 0
}

func readTrees(pid int) func() uint64 {
	tree, root := proctree.New("/proc"), []rss.ProcID{{PID: pid}}
	return func() uint64 {
		procs, _, err := tree.Trees(root)
		check(err)
		var sum rss.Bytes
		for i := range procs {
			sum += procs[i].RSS
		}
		return uint64(sum)
	}
}

func readSum(pid int) func() uint64 {
	tree := proctree.New("/proc")
	_, _, err := tree.Tree(rss.ProcID{PID: pid})
	check(err)
	return func() uint64 { return uint64(must(tree.SumRSS())) }
}

var procFS, _ = procfs.NewFS("/proc") // without one the first reading fails

// below lists root and all that descends from it, by the parents in the stat of
// all processes.
func below(root int) []int {
	children := map[int][]int{}
	for _, p := range must(procFS.AllProcs()) {
		if s, err := p.Stat(); err == nil {
			children[s.PPID] = append(children[s.PPID], p.PID)
		}
	}
	pids := []int{root}
	for i := 0; i < len(pids); i++ {
		pids = append(pids, children[pids[i]]...)
	}
	return pids
}

// statuses adds up VmRSS of those that live.
func statuses(pids []int) (sum uint64) {
	for _, pid := range pids {
		if p, err := procFS.Proc(pid); err == nil {
			if s, err := p.NewStatus(); err == nil {
				sum += s.VmRSS
			}
		}
	}
	return sum
}

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
			r.atMost("scraped", mean(r.of(daemonRead).runs), 0.8, r.unit)
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
