package slurmtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
)

// share is a cluster of a process and who uses it.
type share struct {
	sync.Mutex
	cluster *Cluster
	options Options
	users   map[string]int // tests that hold it, by name
	free    *sync.Cond
}

// A process has a cluster for the modes in which jobs are in cgroups of their own, and
// another for the rest: tests that run in parallel have both side by side.
var inCgroups, outside = newShare(), newShare()

func newShare() *share {
	s := &share{users: make(map[string]int)}
	s.free = sync.NewCond(&s.Mutex)
	return s
}

// upTimeout bounds the wait for other processes' clusters to end.
const upTimeout = 30 * time.Minute

// Start gives a test the cluster in a mode, and keeps it so until the test
// ends. It skips the test where none can run, and fails it where one that
// could does not.
func Start(t testing.TB, mode Mode, options Options) *Cluster {
	t.Helper()
	if err := Missing(); err != nil {
		t.Skip(err)
	}
	if options.Suite != "" {
		debian.Need(t, options.Suite)
	}
	if err := MissingAccounting(options.Suite); options.Accounting && err != nil {
		t.Skip(err)
	}
	s := outside
	if mode.InCgroups() {
		s = inCgroups
	}
	s.Lock()
	defer s.Unlock()
	for len(s.users) > 0 && !s.serves(mode, options) {
		for name := range s.users {
			if name == t.Name() || strings.HasPrefix(t.Name(), name+"/") {
				t.Fatalf("%s holds the cluster in mode %s: start another mode in a test of its own", name, s.cluster.Mode)
			}
		}
		s.free.Wait()
	}
	ctx, cancel := context.WithTimeout(t.Context(), upTimeout)
	defer cancel()
	if s.cluster == nil {
		c, err := Up(ctx, mode, options)
		if err != nil {
			t.Fatal(err)
		}
		if c.waited > time.Second {
			t.Logf("waited %v for other processes' clusters to end", c.waited)
		}
		s.cluster, s.options = c, options
	} else if !s.serves(mode, options) {
		if err := s.cluster.restart(ctx, mode, options); err != nil {
			s.shutdown()
			t.Fatal(err)
		}
		s.options = options
	}
	name := t.Name()
	s.users[name]++
	t.Cleanup(func() {
		s.Lock()
		defer s.Unlock()
		if s.users[name]--; s.users[name] == 0 {
			delete(s.users, name)
		}
		s.free.Broadcast()
	})
	return s.cluster
}

func (s *share) serves(mode Mode, options Options) bool {
	return s.cluster != nil && s.cluster.Mode == mode && s.options == options
}

func (s *share) shutdown() error {
	if s.cluster == nil {
		return nil
	}
	err := s.cluster.Down()
	s.cluster = nil
	return err
}

// Shutdown ends the clusters of this process, and returns when they are gone. Without
// it they end with the process; a TestMain may call it to have that done before go test
// returns.
func Shutdown() (failed error) {
	for _, s := range []*share{inCgroups, outside} {
		s.Lock()
		failed = errors.Join(failed, s.shutdown())
		s.Unlock()
	}
	return failed
}

// slots are the files of which a process with clusters has locked one, until they are gone.
var slots = []string{
	"/run/rsswarden-slurmtest.1.lock", "/run/rsswarden-slurmtest.2.lock",
	"/run/rsswarden-slurmtest.3.lock", "/run/rsswarden-slurmtest.4.lock",
	"/run/rsswarden-slurmtest.5.lock", "/run/rsswarden-slurmtest.6.lock",
}

// slot is the lock of this process, which its clusters share: a process that asked for a
// second one could wait for another that does the same.
var slot struct {
	sync.Mutex
	file     *os.File
	clusters int
}

// takeSlot counts one cluster more, and waits for a slot if it is the first.
func takeSlot(ctx context.Context) (*os.File, error) {
	slot.Lock()
	defer slot.Unlock()
	for slot.file == nil {
		for _, path := range slots {
			f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
			if err != nil {
				return nil, err
			}
			if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
				slot.file = f
				break
			}
			f.Close()
			if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
				return nil, fmt.Errorf("cannot lock %s: %w", path, err)
			}
		}
		if slot.file == nil {
			select {
			case <-ctx.Done():
				return nil, fmt.Errorf("cannot lock %s, other clusters run: %w", strings.Join(slots, " or "), ctx.Err())
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	slot.clusters++
	return slot.file, nil
}

// freeSlot is called when a cluster is gone. Its guard holds the lock as well.
func freeSlot() {
	slot.Lock()
	defer slot.Unlock()
	if slot.clusters--; slot.clusters == 0 {
		slot.file.Close()
		slot.file = nil
	}
}

// guard is a shell that outlives this process, however that ends: it reads
// PIDs from a pipe, and at the end of the pipe ends what they name, the jobs,
// and the files. It holds the lock all the while.
type guard struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// guardScript is given what [sweepScript] is. A daemon is killed only if it was started at the
// time that was noted.
const guardScript = `
root=$1 name=$2 cgroups=$3
trap '' INT TERM HUP
daemons=
while read -r pid start; do daemons="$daemons $pid:$start"; done
for d in $daemons; do
	stat=$(cat "/proc/${d%:*}/stat" 2>/dev/null) || continue
	set -- ${stat##*) }
	[ "${20}" = "${d#*:}" ] && kill -KILL "${d%:*}" 2>/dev/null
done
set -- "$root" "$name" "$cgroups"
` + sweepScript + `
rm -rf "$root"
`

// sweepScript ends the jobs of a cluster whose daemons are gone, and removes its cgroups. It is
// given the folder, the name that the nodes' names begin with and the mount point of the
// cgroups. A slurmstepd is the cluster's that has the folder in its environment.
const sweepScript = `
root=$1 name=$2 cgroups=$3 tries=0
while [ $tries -lt 100 ]; do
	left=
	for pid in $(find "$cgroups"/freezer/slurm_"$name"* -name cgroup.procs -exec cat {} + 2>/dev/null); do
		kill -KILL "$pid" 2>/dev/null; left=1
	done
	for comm in /proc/[0-9]*/comm; do
		read -r program <"$comm" 2>/dev/null || continue
		[ "$program" = slurmstepd ] || continue
		grep -qsF "$root/" "${comm%comm}environ" || continue
		pid=${comm#/proc/}; kill -KILL "${pid%/comm}" 2>/dev/null; left=1
	done
	find "$cgroups"/*/slurm_"$name"* -depth -type d -exec rmdir {} + 2>/dev/null
	[ -z "$left" ] && break
	tries=$((tries+1)); sleep 0.05
done
`

func startGuard(root, name string, lock *os.File) (*guard, error) {
	cmd := exec.Command("/bin/sh", "-c", guardScript, "guard", root, name, cgroupRoot)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + userPath, "LANG=C"}
	cmd.ExtraFiles = []*os.File{lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the guard: %w", err)
	}
	return &guard{cmd, pipe}, nil
}

// add names a daemon by its PID and start time.
func (g *guard) add(pid int) error {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return err
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 20 {
		return fmt.Errorf("cannot read the start time of %d", pid)
	}
	_, err = fmt.Fprintf(g.pipe, "%d %s\n", pid, fields[19])
	return err
}

// finish has the guard do its work now.
func (g *guard) finish() error {
	g.pipe.Close()
	if err := g.cmd.Wait(); err != nil {
		return fmt.Errorf("the guard failed: %w", err)
	}
	return nil
}

func sweep(root, name string) {
	exec.Command("/bin/sh", "-c", sweepScript, "sweep", root, name, cgroupRoot).Run()
}
