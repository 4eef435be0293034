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
	ports    []int // of slurmctld, then of each slurmd
	user     *user.User
	uid, gid uint32
	firstJob int
	munged   *daemon
	daemons  []*daemon // slurmctld, then each slurmd
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

// Up starts a cluster and waits until its nodes take jobs. It waits, too, where two
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
	if c.ports, err = freePorts(1 + len(c.nodes)); err != nil {
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
	sweep(c.root, c.name)
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
