// Package slurmtest runs a real Slurm on this machine, for tests: one node or
// more, with its own munged, slurmctld and slurmd, on free ports, with all its state
// in a directory of its own. Nothing of an installed Slurm's configuration is
// read or changed.
//
//	func TestJob(t *testing.T) {
//		c := slurmtest.Start(t, slurmtest.Linux, slurmtest.Options{})
//		prog := c.Install(t, "testdata/prog")
//		run := c.Submit(t, "exec "+prog, "--mem=300")
//		if got := run.Wait(t); got.State != "COMPLETED" {
//			t.Errorf("state %s, stderr %s", got.State, got.Stderr)
//		}
//	}
//
// Start skips the test, with the reason, where a cluster cannot run: it wants
// root, Slurm and munge installed, and cgroup v1. Jobs run as a plain user,
// the account "nobody" by default, who may read and write [Cluster.Dir] and
// perhaps not the checkout: copy there what a job needs, with
// [Cluster.Install].
//
// The tests of a process share two clusters: one for the modes in which jobs are in
// cgroups of their own, one for the rest. A Start with another mode of the same kind,
// or other options, waits until no test uses it and starts it again, which takes a few
// tenths of a second; so does a cold start. Tests that mostly wait for their jobs call
// t.Parallel; those that measure time or pace do not. [Usual] are options that serve
// most.
//
// A cluster ends with the process: a guard, a small shell that reads from a pipe of the
// process, sees it end in whatever way, stops the daemons and jobs by their PID and
// removes what they left. Six processes at a time may have clusters, a seventh waits.
//
// # Jobs
//
// [Cluster.Submit] is sbatch: the script is a text, the job's working folder
// and its output files are made for it, and [JobRun.Wait] returns how it ended
// with all that it wrote. A batch job starts about a second after it was
// submitted. [Cluster.Srun] starts at once and needs no script.
// [Cluster.Command] is the way to anything else: srun --pty on a
// pseudo-terminal, salloc, a command that must get a signal half-way.
//
// Ask for memory by --mem: without it a job has 256 MiB a CPU. A step is
// looked at each second; a job that must be killed or must not be killed has to
// stay at its peak for longer than that.
//
// To look at a running job from outside: [JobRun.Running] waits for it,
// [JobRun.Processes] lists its PIDs, [JobRun.MemoryCgroup] is where its
// counters are, [JobRun.Log] is what slurmstepd said of it, such as "memory
// used:" at each poll. A test that fails prints the log of its jobs.
//
// # Two nodes
//
// With Nodes: 2 in [Options] there are two slurmd, each with a port, spool
// folder, log and cgroups of its own; [Cluster.Nodes] has their names, which
// SLURMD_NODENAME shows too. Everything else of the machine they share: the
// host's name, /proc, /tmp, /dev/shm. Each node has the CPUs and the memory of
// Options, which the machine may not have; CPUs are then not bound.
// [JobRun.Processes] and [JobRun.Log] are of all nodes, [JobRun.MemoryCgroup]
// of the first; [JobRun.On] narrows them to one. [slurm.OverlapArgs] is srun for a process
// on each node of a running job: stdout and stderr of its tasks are mixed in the middle of
// lines above some 1000 bytes.
//
// # Programs
//
// A program of a job is best the test binary itself, with a TestMain that
// looks at its arguments, put in place by [Cluster.InstallSelf]:
//
//	func TestMain(m *testing.M) {
//		if len(os.Args) > 1 && os.Args[1] == "leak" {
//			leak()
//		}
//		code := m.Run()
//		slurmtest.Shutdown()
//		os.Exit(code)
//	}
//
// The environment of a job is [Cluster.Env] and what Slurm adds; HOME is
// [Cluster.Dir].
//
// # Another Slurm
//
// With a Suite in [Options] the daemons, commands and jobs are those of a root of
// that suite: Slurm 24.11, Python 3.13 and PyTorch 2.6 for debian.Trixie. The files of
// jobs and tests are where they are otherwise; package debian says what is not.
//
// # Limits of the stand
//
// In the modes without task/cgroup a job stays in the memory cgroup of the
// test process, with whatever limit that has. A full /dev/shm under a cgroup
// limit kills slurmstepd as well and has the job requeued for ever: use
// --no-requeue where the kernel may kill. Of processes that wait for another
// process's cluster the last may wait for the sum of all: give go test a
// -timeout that allows for it.
package slurmtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
)

// stateParent is where clusters keep their files: munged and Slurm want every
// folder above them to be root's and not writable by others.
const stateParent = "/var/lib"

// Cluster is a running Slurm.
type Cluster struct {
	Mode Mode

	options  Options
	suite    *debian.Root // where Slurm comes from; nil for this machine's
	root     string       // all files of the cluster
	name     string       // its own on this machine; the names of its nodes begin so
	nodes    []string
	ports    []int // of slurmctld, then of each slurmd, slurmdbd and its database
	user     *user.User
	uid, gid uint32
	firstJob int
	munged   *daemon
	daemons  []*daemon // slurmctld, then each slurmd; before them those of the accounting
	dbd      *daemon   // slurmdbd, nil without accounting
	guard    *guard
	slotted  bool          // it counts in the process's slot
	jobs     atomic.Int64  // made by Submit, for the names of their folders
	waited   time.Duration // for another process's clusters to end
}

// Missing returns why no cluster can run on this machine, or nil.
func Missing() error {
	if os.Geteuid() != 0 {
		return errors.New("a Slurm cluster needs root")
	}
	for _, name := range []string{"munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol"} {
		if _, err := program(name); err != nil {
			return fmt.Errorf("%s is not installed", name)
		}
	}
	for _, name := range []string{"freezer", "memory", "cpuset"} {
		if _, err := os.Stat(filepath.Join(cgroupRoot, name, "cgroup.procs")); err != nil {
			return fmt.Errorf("cgroup v1 controller %s is not mounted at %s", name, cgroupRoot)
		}
	}
	return nil
}

// program finds a daemon that may lie outside the PATH of a plain user.
func program(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return exec.LookPath(filepath.Join("/usr/sbin", name))
}

// Up starts a cluster and waits until its nodes take jobs. It waits, too, where six
// other processes have clusters. Tests call [Start] instead.
func Up(ctx context.Context, mode Mode, options Options) (*Cluster, error) {
	if err := Missing(); err != nil {
		return nil, err
	}
	c := &Cluster{firstJob: 1}
	if err := c.prepare(ctx); err != nil {
		return nil, errors.Join(err, c.Down())
	}
	if err := c.start(ctx, mode, options); err != nil {
		return nil, errors.Join(err, c.Down())
	}
	return c, nil
}

// prepare makes what stays the same when the mode changes: the folder, the
// guard, munged.
func (c *Cluster) prepare(ctx context.Context) error {
	begun := time.Now()
	lock, err := takeSlot(ctx)
	if err != nil {
		return err
	}
	c.slotted = true
	c.waited = time.Since(begun)
	if c.root, err = os.MkdirTemp(stateParent, "rsswarden-test-"); err != nil {
		return fmt.Errorf("cannot make a folder for the cluster: %w", err)
	}
	c.name = "rw" + strings.ToLower(rand.Text()[:8])
	for _, dir := range []string{"", "etc", "log", "state", "spool", "munge", "work"} {
		if err := os.MkdirAll(c.path(dir), 0o755); err != nil {
			return err
		}
		if err := os.Chmod(c.path(dir), 0o755); err != nil {
			return err
		}
	}
	if c.guard, err = startGuard(c.root, c.name, lock); err != nil {
		return err
	}
	key := make([]byte, 1024)
	if _, err := rand.Read(key); err != nil {
		return err
	}
	if err := os.WriteFile(c.path("munge/key"), key, 0o600); err != nil {
		return err
	}
	c.munged, err = c.daemon("munged", "munged", "--foreground", "--key-file="+c.path("munge/key"),
		"--socket="+c.path("munge/socket"), "--pid-file="+c.path("munge/pid"),
		"--log-file="+c.path("log/munged.log"), "--seed-file="+c.path("munge/seed"), "--num-threads=2")
	return err
}

// start brings Slurm up in one mode.
func (c *Cluster) start(ctx context.Context, mode Mode, options Options) error {
	if _, ok := modes[mode]; !ok {
		return fmt.Errorf("unknown mode %q", mode)
	}
	c.Mode, c.options = mode, options.withDefaults(runtime.NumCPU())
	if err := c.setUser(c.options.User); err != nil {
		return err
	}
	host, err := hostname()
	if err != nil {
		return err
	}
	c.suite = nil
	if options.Suite != "" {
		if c.suite, err = debian.Find(options.Suite); err != nil {
			return err
		}
	}
	c.nodes = nodeNames(c.name, c.options.Nodes)
	// One more for slurmdbd, and one for its database.
	if c.ports, err = freePorts(1 + len(c.nodes) + 2); err != nil {
		return err
	}
	if err := c.writeConf(host, runtime.NumCPU()); err != nil {
		return err
	}
	if err := c.await(ctx, "munged", c.munged, func() bool {
		conn, err := net.Dial("unix", c.path("munge/socket"))
		if err == nil {
			conn.Close()
		}
		return err == nil
	}); err != nil {
		return err
	}
	if c.options.Accounting {
		if err := c.startAccounting(ctx, host); err != nil {
			return err
		}
	}
	controller, err := c.daemon("slurmctld", "slurmctld", "-D", "-i", "-f", c.Conf())
	if err != nil {
		return err
	}
	c.daemons = append(c.daemons, controller)
	// A slurmd that does not find it listening tries again a second later.
	if err := c.await(ctx, "slurmctld", controller, func() bool {
		return c.admin(ctx, "scontrol", "ping").Run() == nil
	}); err != nil {
		return err
	}
	return c.startNodes(ctx)
}

// startNodes starts every slurmd and waits until all nodes take jobs.
func (c *Cluster) startNodes(ctx context.Context) error {
	var started []*daemon
	for _, node := range c.nodes {
		d, err := c.daemon("slurmd", logOf(node), "-D", "-N", node, "-f", c.Conf())
		if err != nil {
			return err
		}
		c.daemons = append(c.daemons, d)
		started = append(started, d)
	}
	for i, node := range c.nodes {
		if err := c.await(ctx, logOf(node), started[i], func() bool {
			out, err := c.admin(ctx, "sinfo", "-h", "-n", node, "-o", "%T").Output()
			return err == nil && strings.TrimSpace(string(out)) == "idle"
		}); err != nil {
			return err
		}
	}
	return nil
}

// nodeNames are the names of n nodes, each with a slurmd of its own: that of
// the cluster for one, and for more a common name that ends in a number, so
// that Slurm writes them as it does elsewhere, "rwabcn[1-2]".
func nodeNames(cluster string, n int) []string {
	if n == 1 {
		return []string{cluster}
	}
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%sn%d", cluster, i+1)
	}
	return names
}

// freePorts returns n unused TCP ports.
func freePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("cannot find a free port: %w", err)
		}
		defer l.Close()
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}

// startTimeout is how long a daemon may take to answer.
const startTimeout = 30 * time.Second

// await polls for a condition as long as a daemon lives.
func (c *Cluster) await(ctx context.Context, name string, d *daemon, ready func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for !ready() {
		said := func() string {
			lines := strings.Split(strings.TrimSpace(c.log(name)), "\n")
			return strings.Join(lines[max(0, len(lines)-15):], "\n")
		}
		select {
		case <-d.done:
			return fmt.Errorf("%s ended at once: %s", name, said())
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w: %s", name, ctx.Err(), said())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// restart ends all jobs and brings Slurm up again in another mode.
func (c *Cluster) restart(ctx context.Context, mode Mode, options Options) error {
	c.stop()
	for _, dir := range []string{"state", "spool"} {
		if err := os.RemoveAll(c.path(dir)); err != nil {
			return err
		}
		if err := os.Mkdir(c.path(dir), 0o755); err != nil {
			return err
		}
	}
	c.firstJob += 1000
	return c.start(ctx, mode, options)
}

// stop ends the Slurm daemons and every job. They keep nothing worth a clean
// end, which takes slurmctld six seconds.
func (c *Cluster) stop() {
	for _, d := range c.daemons {
		d.kill()
	}
	c.daemons = nil
	if c.name != "" { // an empty one would name the jobs of every cluster here
		sweep(c.root, c.name)
	}
}

// Down stops the cluster and removes all that it made.
func (c *Cluster) Down() error {
	if c.slotted {
		defer freeSlot()
	}
	c.stop()
	if c.munged != nil {
		c.munged.kill()
	}
	if c.guard != nil {
		return c.guard.finish()
	}
	if c.root != "" {
		return os.RemoveAll(c.root)
	}
	return nil
}

func (c *Cluster) path(name string) string { return filepath.Join(c.root, name) }

// Dir is a folder that the job's user may read and write.
func (c *Cluster) Dir() string { return c.path("work") }

// Conf is the slurm.conf, for SLURM_CONF.
func (c *Cluster) Conf() string { return c.path("etc/slurm.conf") }

// UID is the user that jobs run as.
func (c *Cluster) UID() int { return int(c.uid) }

// Node is the name of the only node, or of the first.
func (c *Cluster) Node() string { return c.nodes[0] }

// Nodes are the names of all nodes, in the order in which Slurm fills a job.
func (c *Cluster) Nodes() []string { return append([]string(nil), c.nodes...) }

func (c *Cluster) setUser(name string) error {
	u, err := user.Lookup(name)
	if err != nil {
		return fmt.Errorf("cannot find the user of the jobs: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return err
	}
	if uid == 0 {
		return fmt.Errorf("jobs of %s would not run as a plain user", name)
	}
	c.user, c.uid, c.gid = u, uint32(uid), uint32(gid)
	return os.Chown(c.Dir(), int(uid), int(gid))
}

// daemon is a process of the cluster, our child.
type daemon struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// daemon starts one in the foreground, with its PID known to the guard before
// anything else happens. What it prints goes beside its log.
func (c *Cluster) daemon(name, log string, args ...string) (*daemon, error) {
	argv, err := c.argv(name, args)
	if err != nil {
		return nil, err
	}
	out, err := os.OpenFile(c.path("log/"+log+".out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = c.path("log")
	cmd.Env = []string{"PATH=" + userPath, "LANG=C", "SLURM_CONF=" + c.Conf()}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", name, err)
	}
	d := &daemon{cmd, make(chan struct{})}
	go func() { cmd.Wait(); close(d.done) }()
	if err := c.guard.add(cmd.Process.Pid); err != nil {
		d.kill()
		return nil, err
	}
	return d, nil
}

// argv is the argument list of a daemon: of this machine's, or of the
// root's, which replaces unshare and sh by exec. munged serves both.
func (c *Cluster) argv(name string, args []string) ([]string, error) {
	if c.suite != nil && name != "munged" {
		return c.suite.Argv(name, args...), nil
	}
	path, err := program(name)
	return append([]string{path}, args...), err
}

func (d *daemon) kill() {
	d.cmd.Process.Kill()
	<-d.done
}

// logOf is the name of a slurmd's log, of which it is the only one or not.
func logOf(node string) string { return "slurmd." + node }

// Log returns the log of "slurmd" (slurmstepd writes there too), "slurmctld"
// or "munged"; what it printed, where it did not get as far as a log. With more
// than one node the logs of every slurmd follow each other.
func (c *Cluster) Log(daemon string) string {
	if daemon != "slurmd" {
		return c.log(daemon)
	}
	var b strings.Builder
	for _, node := range c.nodes {
		b.WriteString(c.log(logOf(node)))
	}
	return b.String()
}

func (c *Cluster) log(name string) string {
	b, err := os.ReadFile(c.path("log/" + name + ".log"))
	if err != nil || len(b) == 0 {
		b, _ = os.ReadFile(c.path("log/" + name + ".out"))
	}
	return string(b)
}
