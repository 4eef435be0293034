package remote

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/node"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
)

// leaderDir is a directory in which watchers meet, with the socket of their leader.
type leaderDir struct {
	dir string
	// job is the Slurm job in its name. It is empty for a run of its own, which may
	// still be in a job.
	job  string
	node string // in its name, empty where there is no job
}

// findLeaders lists those of this user on this node, below the places of this
// environment and of the environments of running rsswardens, in whose mount namespaces a
// job may have a TMPDIR or /tmp of its own.
func findLeaders(proc string, get func(string) string) []leaderDir {
	type place struct{ root, parent string }
	var places []place
	add := func(root string, get func(string) string) {
		for _, parent := range loader.RunParents(get) {
			if p := (place{root, parent}); !slices.Contains(places, p) {
				places = append(places, p)
			}
		}
	}
	add("", get)
	for _, o := range wardenProcesses(proc) {
		add(o.root, func(name string) string { return o.vars[name] })
	}
	var all []leaderDir
	seen := map[[2]uint64]bool{}
	for _, p := range places {
		for _, l := range leadersIn(p.root, p.parent) {
			info, err := os.Stat(l.dir)
			if err != nil {
				continue
			}
			st, ok := info.Sys().(*syscall.Stat_t)
			if id := [2]uint64{uint64(st.Dev), st.Ino}; ok && !seen[id] {
				seen[id] = true
				all = append(all, l)
			}
		}
	}
	return all
}

// leadersIn lists those below one parent, of which root is put in front.
func leadersIn(root, parent string) []leaderDir {
	if root == "" {
		var err error
		if parent, err = nodedir.Resolve(parent); err != nil {
			return nil
		}
	}
	names := []string{node.All(parent)}
	if root != "" {
		// In a user namespace this user has another number, most often root's.
		names = append(names, filepath.Join(parent, "rsswarden-0"))
	}
	var list []leaderDir
	for _, name := range names {
		all := filepath.Join(root, name)
		if nodedir.CheckOwn(all) != nil {
			continue
		}
		entries, err := os.ReadDir(all)
		if err != nil {
			continue
		}
		for _, e := range entries {
			dir := filepath.Join(all, e.Name())
			rest, ok := strings.CutPrefix(e.Name(), node.Prefix)
			if !ok || nodedir.CheckOwn(dir) != nil {
				continue
			}
			// While the lead moves from one to the next there is no socket.
			if info, err := os.Lstat(filepath.Join(dir, control.SocketName)); (err != nil || info.Mode().Type() != os.ModeSocket) && !hasSuccessor(dir) {
				continue
			}
			l := leaderDir{dir: dir}
			if job, place, inJob := strings.Cut(rest, "@"); inJob {
				l.job, l.node = job, place
				if i := strings.LastIndexByte(place, '.'); i > 0 { // what tells ranks with other options apart
					l.node = place[:i]
				}
			}
			list = append(list, l)
		}
	}
	return list
}

// wardenProcess is where a running rsswarden has its files.
type wardenProcess struct {
	root string // of its mount namespace, empty where that is ours too
	vars map[string]string
}

// environPatience is how long reading their environments may take: it waits for the
// mmap_lock of each.
const environPatience = time.Second

// wardenProcesses looks through this user's processes named rsswarden.
func wardenProcesses(proc string) []wardenProcess {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil
	}
	mine, _ := os.Readlink(filepath.Join(proc, "self/ns/mnt"))
	var mu sync.Mutex
	var all []wardenProcess
	done, end := make(chan struct{}), time.Now().Add(environPatience)
	go func() {
		defer close(done)
		for _, e := range entries {
			pid, err := strconv.Atoi(e.Name())
			if err != nil || pid == os.Getpid() || !namedRsswarden(proc, pid) || time.Now().After(end) {
				continue
			}
			vars, err := proctree.Environ(proc, pid, func(name string) bool { return name == loader.EnvRuntime || name == "TMPDIR" })
			if err != nil {
				continue
			}
			r := wardenProcess{vars: vars}
			if space, err := os.Readlink(fmt.Sprintf("%s/%d/ns/mnt", proc, pid)); err == nil && mine != "" && space != mine {
				r.root = fmt.Sprintf("%s/%d/root", proc, pid)
			}
			mu.Lock()
			all = append(all, r)
			mu.Unlock()
		}
	}()
	select {
	case <-done:
	case <-time.After(environPatience):
	}
	mu.Lock()
	defer mu.Unlock()
	return slices.Clone(all)
}

func namedRsswarden(proc string, pid int) bool {
	dir := filepath.Join(proc, strconv.Itoa(pid))
	info, err := os.Lstat(dir)
	if err != nil {
		return false
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
		return false
	}
	comm, err := procfile.Read(filepath.Join(dir, "comm"), procfile.Small)
	return err == nil && strings.TrimSpace(string(comm)) == program
}

// hasSuccessor says that a member of the directory lives, which leads or can be next.
func hasSuccessor(dir string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		id, ok := nodedir.ProcOf(e.Name(), "rank")
		if !ok {
			return false
		}
		now, err := proctree.StartTime("/proc", id.PID)
		return err == nil && now == id.Start
	})
}
