// Package rsstest makes /proc and cgroup trees for tests: archives of text
// (txtar) unpacked into a temporary directory, and processes written to
// measure. Readers are pointed at the directory instead of at /proc and /sys.
//
// The archives are layers; the first is usually "torch":
//
//	torch            a training with two workers below a batch shell below slurmstepd
//	slurm-v1         its cgroups as Slurm makes them on v1, --mem=700
//	slurm-v2         the same on v2, with memory.high below memory.max
//	pids-v1          a limit on tasks on another hierarchy than memory's
//	pids-namespaced  the same in a container's view
//	hybrid           v1 memory beside an empty v2, a mount point with a space
//	namespaced-v1    a container's view: part of the hierarchy, the limit out of sight
//	namespaced-v2    a cgroup namespace: the limit is on what looks like the root
//
// A file in a temporary directory is no procfs: a process that ends takes its
// directory along at once, not its open files.
package rsstest

import (
	"embed"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/rsswarden/rsswarden/rss"
)

// Patience bounds each wait of a test for what should come: only what hangs takes so long.
// It is long, as machines differ by a factor of ten in what a page fault or a process costs.
const Patience = 10 * time.Minute

//go:embed testdata/*.txtar
var archives embed.FS

// The processes of the archive "torch".
const (
	Slurmstepd = 4100
	BatchShell = 4101
	Trainer    = 4102
	Worker1    = 4103
	Worker2    = 4104
)

// Tree is a directory with what stands for /proc and /sys in it.
type Tree struct {
	Dir  string
	Proc string // stands for /proc
	Sys  string // stands for /sys
	t    testing.TB
}

// Unpack unpacks the archives of these names, one on top of the other.
func Unpack(t testing.TB, names ...string) Tree {
	t.Helper()
	tree := Empty(t)
	for _, name := range names {
		b, err := archives.ReadFile("testdata/" + name + ".txtar")
		if err != nil {
			t.Fatalf("no archive %q: %v", name, err)
		}
		tree.Add(string(b))
	}
	return tree
}

// Empty returns a tree with nothing in it.
func Empty(t testing.TB) Tree {
	t.Helper()
	dir := t.TempDir()
	tree := Tree{Dir: dir, Proc: filepath.Join(dir, "proc"), Sys: filepath.Join(dir, "sys"), t: t}
	for _, d := range []string{tree.Proc, tree.Sys} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return tree
}

// Add unpacks an archive given as text. Names are "proc/…" and "sys/…".
func (tr Tree) Add(archive string) {
	tr.t.Helper()
	for _, f := range txtar.Parse([]byte(archive)).Files {
		tr.Write(f.Name, string(f.Data))
	}
}

// Write makes or replaces one file.
func (tr Tree) Write(name, content string) {
	tr.t.Helper()
	path := tr.Path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tr.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		tr.t.Fatal(err)
	}
}

// Remove removes a file or a directory with all that is in it.
func (tr Tree) Remove(name string) {
	tr.t.Helper()
	if err := os.RemoveAll(tr.Path(name)); err != nil {
		tr.t.Fatal(err)
	}
}

// Path returns where a file of the tree is.
func (tr Tree) Path(name string) string { return filepath.Join(tr.Dir, filepath.FromSlash(name)) }

// Read returns a file of the tree.
func (tr Tree) Read(name string) string {
	tr.t.Helper()
	b, err := os.ReadFile(tr.Path(name))
	if err != nil {
		tr.t.Fatal(err)
	}
	return string(b)
}

// Replace replaces old by new in one file; old must be there.
func (tr Tree) Replace(name, old, new string) {
	tr.t.Helper()
	s := tr.Read(name)
	if !strings.Contains(s, old) {
		tr.t.Fatalf("%s holds no %q", name, old)
	}
	tr.Write(name, strings.ReplaceAll(s, old, new))
}

// End removes a process.
func (tr Tree) End(pid int) {
	tr.t.Helper()
	tr.Remove("proc/" + strconv.Itoa(pid))
}

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

// Process is a process to be written. What is left zero gets a value that a
// process may have: state S, one thread, a start time that grows with the PID,
// its own process group.
type Process struct {
	PID, Parent, Group int
	Start              uint64
	Comm               string
	State              byte
	Threads            int

	Anon, File, Shmem, Virtual rss.Bytes
	Locked, Pinned             rss.Bytes
	UID                        int // real, and all others
}

// Put writes stat, statm and status of a process as the kernel prints them, a
// zombie's without sizes.
func (tr Tree) Put(p Process) {
	tr.t.Helper()
	for name, text := range p.Files() {
		tr.Write(fmt.Sprintf("proc/%d/%s", p.PID, name), text)
	}
}

// Files yields what [Tree.Put] writes: the names of the files and what is in them.
func (p Process) Files() iter.Seq2[string, string] {
	if p.State == 0 {
		p.State = 'S'
	}
	if p.Threads == 0 {
		p.Threads = 1
	}
	if p.Start == 0 {
		p.Start = 1000 + uint64(p.PID)
	}
	if p.Group == 0 {
		p.Group = p.PID
	}
	if p.Virtual == 0 {
		p.Virtual = 2 * (p.Anon + p.File + p.Shmem)
	}
	if p.State == 'Z' {
		p.Anon, p.File, p.Shmem, p.Virtual, p.Locked, p.Pinned = 0, 0, 0, 0, 0, 0
	}
	page := rss.Bytes(os.Getpagesize())
	total := p.Anon + p.File + p.Shmem
	return func(yield func(string, string) bool) {
		stat := fmt.Sprintf("%d (%s) %c %d %d %d 0 -1 4194304 10 0 0 0 0 0 0 0 20 0 %d 0 %d %d %d 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
			p.PID, p.Comm, p.State, p.Parent, p.Group, p.Group, p.Threads, p.Start, p.Virtual, total/page)
		statm := fmt.Sprintf("%d %d %d 1 0 1 0\n", p.Virtual/page, total/page, (p.File+p.Shmem)/page)
		sizes := ""
		if p.State != 'Z' {
			sizes = fmt.Sprintf("VmSize:\t%8d kB\nVmLck:\t%8d kB\nVmPin:\t%8d kB\nVmRSS:\t%8d kB\nRssAnon:\t%8d kB\nRssFile:\t%8d kB\nRssShmem:\t%8d kB\n",
				p.Virtual/rss.KiB, p.Locked/rss.KiB, p.Pinned/rss.KiB, total/rss.KiB, p.Anon/rss.KiB, p.File/rss.KiB, p.Shmem/rss.KiB)
		}
		status := fmt.Sprintf("Name:\t%s\nUmask:\t0022\nState:\t%c\nTgid:\t%d\nPid:\t%d\nPPid:\t%d\nUid:\t%d\t%d\t%d\t%d\nGroups:\t0 \n%sThreads:\t%d\n",
			escape(p.Comm), p.State, p.PID, p.PID, p.Parent, p.UID, p.UID, p.UID, p.UID, sizes, p.Threads)
		_ = yield("stat", stat) && yield("statm", statm) && yield("status", status)
	}
}

// escape writes a name as status does: newline and backslash are escaped there,
// and in no other file.
func escape(comm string) string {
	var b []byte
	for i := range len(comm) {
		switch c := comm[i]; c {
		case '\n':
			b = append(b, `\n`...)
		case '\\':
			b = append(b, `\\`...)
		default:
			b = append(b, c)
		}
	}
	return string(b)
}
