package limit_test

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// faultsOfFiles are what a file of /proc or of a cgroup may be instead of what it was.
var faultsOfFiles = map[string]func(path string, was []byte) error{
	"ENOENT": func(path string, _ []byte) error { return os.Remove(path) },
	"EISDIR, as EIO": func(path string, _ []byte) error { // opened, and no read works
		if err := os.Remove(path); err != nil {
			return err
		}
		return os.Mkdir(path, 0o755)
	},
	"empty":     func(path string, _ []byte) error { return os.WriteFile(path, nil, 0o644) },
	"cut short": func(path string, was []byte) error { return os.WriteFile(path, was[:len(was)/2], 0o644) },
	"nonsense":  func(path string, _ []byte) error { return os.WriteFile(path, []byte("\x00\xff -1 max\n(\n"), 0o644) },
	"endless": func(path string, was []byte) error {
		return os.WriteFile(path, []byte(strings.Repeat(string(was)+"9", 1+(1<<17)/(len(was)+1))), 0o644)
	},
}

// filesOf are all files of a tree.
func filesOf(t *testing.T, tree rsstest.Tree) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(tree.Dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			paths = append(paths, path)
		}
		return err
	})
	wardentest.NoError(t, err)
	return paths
}

// sums are the limits on memory with what is used of them.
func sums(limits []event.Limit) map[string]rss.Bytes {
	m := map[string]rss.Bytes{}
	for _, l := range limits {
		if l.Name.Memory() {
			m[string(l.Name)+" "+string(l.Scope)+" "+l.Level] = l.Used
		}
	}
	return m
}

// TestEachFileFails: each file that is read of /proc and of the cgroups fails in each
// way, at the start or between two looks. Nothing panics, each limit is complete
// ([stand.read] checks it), and when the file is restored so is the result.
func TestEachFileFails(t *testing.T) {
	for _, c := range []struct{ archive, conf string }{{"slurm-v1", linuxKill}, {"slurm-v2", cgroupRAM}} {
		for how, harm := range faultsOfFiles {
			t.Run(c.archive+" "+how, func(t *testing.T) {
				tree := rsstest.Unpack(t, "torch", c.archive)
				want := sums(newStand(t, tree, inJob, c.conf, nil).read())
				if len(want) < 2 {
					t.Fatalf("limits %v", want)
				}
				for _, path := range filesOf(t, tree) {
					was, err := os.ReadFile(path)
					wardentest.NoError(t, err)
					name, _ := filepath.Rel(tree.Dir, path)
					between := newStand(t, tree, inJob, c.conf, nil)
					between.read()
					wardentest.NoError(t, harm(path, was))
					atStart := newStand(t, tree, inJob, c.conf, nil)
					for range 2 {
						between.look()
						atStart.look()
					}
					// Where it is there it stays the same file: descriptors are kept.
					if info, err := os.Stat(path); err == nil && info.IsDir() {
						wardentest.NoError(t, os.Remove(path))
					}
					wardentest.NoError(t, os.WriteFile(path, was, 0o644))
					// A process that was not known is looked for in turn.
					got := sums(between.read())
					for range 64 {
						if maps.Equal(got, want) {
							break
						}
						got = sums(between.read())
					}
					if !maps.Equal(got, want) {
						t.Errorf("%s was as before, limits %v\nwant %v", name, got, want)
					}
					between.set.Close()
					between.tree.Close()
					atStart.set.Close()
					atStart.tree.Close()
				}
			})
		}
	}
}

// look takes a full reading and a fast one; there may be no process.
func (s *stand) look() {
	s.t.Helper()
	procs, gaps, err := s.tree.Tree(rss.ProcID{PID: rsstest.Trainer})
	if err != nil {
		procs = nil
	}
	extra, more, _ := s.set.Extra(s.tree, procs)
	s.seq++
	sample := &rss.Sample{Seq: s.seq, Procs: procs, Extra: extra, Gaps: gaps.Add(more)}
	for _, l := range s.set.Read(sample) {
		if l.Name != event.LimitTime && (l.UsedSource == "" || l.LimitSource == "" || l.Limit == 0 || l.UsedMax < l.Used) {
			s.t.Errorf("incomplete: %+v", l)
		}
	}
	s.set.Fast(sample.Mono, 1, s.tree.SumRSS)
	s.set.OOMKills()
	s.set.Warnings()
}

// Swap that may be used puts the kill off, on both versions.
func TestSwap(t *testing.T) {
	mib := func(l event.Limit) (used, max int) { return int(l.Used / rss.MiB), int(l.Limit / rss.MiB) }
	v1 := "sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7/"
	withSwap := func(fs rsstest.Tree) {
		fs.Replace("proc/meminfo", "SwapTotal:             0 kB", "SwapTotal:       1048576 kB")
		fs.Replace("proc/meminfo", "SwapFree:              0 kB", "SwapFree:         524288 kB")
	}
	for _, c := range []struct {
		name   string
		change func(rsstest.Tree)
		swap   int // MiB above the limit
		used   int // MiB above the unreclaimable
	}{
		{"no swap on the node", func(fs rsstest.Tree) { fs.Write(v1+"memory.memsw.limit_in_bytes", "943718400\n") }, 0, 0},
		{"memsw unlimited", withSwap, 512 + 100, 100},
		{"memsw 200 MiB above", func(fs rsstest.Tree) {
			withSwap(fs)
			fs.Write(v1+"memory.memsw.limit_in_bytes", "943718400\n")
		}, 200, 100},
		{"memsw equal", func(fs rsstest.Tree) {
			withSwap(fs)
			fs.Write(v1+"memory.memsw.limit_in_bytes", "734003200\n")
		}, 0, 100},
		{"memsw 200 MiB above, of a level above", func(fs rsstest.Tree) {
			withSwap(fs)
			fs.Replace(v1+"memory.stat", "hierarchical_memsw_limit 9223372036854771712", "hierarchical_memsw_limit 943718400")
		}, 200, 100},
		{"swappiness 0", func(fs rsstest.Tree) {
			withSwap(fs)
			fs.Write(v1+"memory.swappiness", "0\n")
		}, 100, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := rsstest.Unpack(t, "torch", "slurm-v1")
			bare := newStand(t, fs, inJob, cgroupRAM, nil).read()
			fs.Write(v1+"memory.memsw.usage_in_bytes", addTo(t, fs, v1+"memory.usage_in_bytes", 100<<20))
			c.change(fs)
			// The step has room for swap without end; the job is asked for.
			was := scoped(t, bare, event.LimitCgroup, event.ScopeJob)
			got := scoped(t, newStand(t, fs, inJob, cgroupRAM, nil).read(), event.LimitCgroup, event.ScopeJob)
			used, max := mib(got)
			wasUsed, wasMax := mib(was)
			if used-wasUsed != c.used || max-wasMax != c.swap {
				t.Errorf("used %d → %d MiB, limit %d → %d MiB", wasUsed, used, wasMax, max)
			}
		})
	}
}

// On v2 each level above must allow the swap too.
func TestSwapAbove(t *testing.T) {
	const slice = "sys/fs/cgroup/system.slice/"
	const scope = slice + "n1_slurmstepd.scope/"
	const job = scope + "job_7/"
	const step = job + "step_batch/"
	for _, c := range []struct {
		name   string
		change func(rsstest.Tree)
		swap   rss.Bytes // MiB above the limit
		from   string
	}{
		{"nowhere limited", func(rsstest.Tree) {}, 512, job},
		{"none above", func(fs rsstest.Tree) { fs.Write(slice+"memory.swap.max", "0\n") }, 0, ""},
		{"less above", func(fs rsstest.Tree) {
			fs.Write(job+"memory.swap.max", "419430400\n") // 400 MiB
			fs.Write(scope+"memory.swap.max", "314572800\n")
		}, 300, scope},
		{"less left above", func(fs rsstest.Tree) {
			fs.Write(job+"memory.swap.max", "419430400\n")
			fs.Write(scope+"memory.swap.max", "1073741824\n")
			fs.Write(scope+"memory.swap.current", "1069547520\n") // 4 MiB less
		}, 4, scope},
		{"used up by others", func(fs rsstest.Tree) {
			fs.Write(scope+"memory.swap.max", "1073741824\n")
			fs.Write(scope+"memory.swap.current", "1073741824\n")
		}, 0, ""},
		{"none for the command itself", func(fs rsstest.Tree) { fs.Write(step+"user/memory.swap.max", "0\n") }, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := rsstest.Unpack(t, "torch", "slurm-v2")
			fs.Replace("proc/meminfo", "SwapTotal:             0 kB", "SwapTotal:       1048576 kB")
			fs.Replace("proc/meminfo", "SwapFree:              0 kB", "SwapFree:         524288 kB")
			for _, dir := range []string{slice, scope, job, step, step + "user/", step + "user/task_0/"} {
				fs.Write(dir+"memory.swap.max", "max\n")
				fs.Write(dir+"memory.swap.current", "0\n")
			}
			c.change(fs)
			l := scoped(t, newStand(t, fs, inJob, cgroupRAM, nil).read(), event.LimitCgroup, event.ScopeJob)
			if l.Limit != (770+c.swap)*rss.MiB {
				t.Errorf("limit %v from %s", l.Limit, l.LimitSource)
			}
			want := fs.Path(job + "memory.max")
			if c.from != "" {
				want += " and " + fs.Path(c.from+"memory.swap.max")
			}
			if l.LimitSource != want {
				t.Errorf("limit from %s, want %s", l.LimitSource, want)
			}
		})
	}
}

// The node's OOM killer strikes when swap is full too.
func TestSwapOfNode(t *testing.T) {
	fs := rsstest.Unpack(t, "torch")
	bare := get(t, newStand(t, fs, nil, "", nil).read(), event.LimitNode)
	fs.Replace("proc/meminfo", "SwapTotal:             0 kB", "SwapTotal:       1048576 kB")
	fs.Replace("proc/meminfo", "SwapFree:              0 kB", "SwapFree:         524288 kB")
	s := newStand(t, fs, nil, "", nil)
	l := get(t, s.read(), event.LimitNode)
	if l.Limit != bare.Limit+rss.GiB || l.Used != bare.Used+512*rss.MiB || !strings.Contains(l.Note, "1.00 GiB of swap is counted in") {
		t.Errorf("%+v, without swap %+v", l, bare)
	}
	if f, ok := s.set.Fast(time.Second, 0, nil); !ok || f.Used != l.Used || f.Limit != l.Limit {
		t.Errorf("fast: %+v", f)
	}
}

func addTo(t *testing.T, fs rsstest.Tree, name string, n uint64) string {
	t.Helper()
	was, err := strconv.ParseUint(strings.TrimSpace(fs.Read(name)), 10, 64)
	wardentest.NoError(t, err)
	return fmt.Sprintln(was + n)
}

// On a real kernel: a process in a limited cgroup, page cache at the limit,
// then its own memory, then the OOM killer.
func TestRealLimit(t *testing.T) {
	g := rsstest.NewGroup(t, 96*rss.MiB)
	leaf := g.Sub("task_0")
	e := rsstest.StartEater(t)
	leaf.Join(e.PID)

	set, _ := limit.Find(context.Background(), limit.Config{Proc: "/proc", Sys: "/sys", PID: e.PID, User: rss.GiB})
	defer set.Close()
	tree := proctree.New("/proc")
	defer tree.Close()
	began := time.Now()
	read := func() event.Limit {
		procs, gaps, err := tree.Tree(rss.ProcID{PID: e.PID})
		if err != nil || len(procs) != 1 {
			t.Fatal(procs, err)
		}
		for _, l := range set.Read(&rss.Sample{At: time.Now(), Mono: time.Since(began), Procs: procs, Gaps: gaps}) {
			if l.Name == event.LimitCgroup && l.Level == g.Dir {
				return l
			}
		}
		t.Fatal("the cgroup's limit is not among them")
		return event.Limit{}
	}
	if l := read(); l.Limit != 96*rss.MiB || l.Scope != event.ScopeCgroup || l.Accounting != event.AccountingCgroup {
		t.Errorf("got %+v", l)
	}

	dir := t.TempDir()
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err == nil && s.Type != unix.TMPFS_MAGIC {
		e.File(200*rss.MiB, filepath.Join(dir, "data"))
		l := read()
		if l.Charged.Of(l.Limit) < 0.9 || l.Ratio() > 0.5 || !strings.Contains(l.Note, "kills nothing") {
			t.Errorf("page cache at the limit: %+v", l)
		}
	}

	before := read()
	e.Anon(40 * rss.MiB)
	f, ok := set.Fast(time.Since(began)+time.Second, 1, nil)
	if !ok || f.Used != f.UsedMax || f.Level != g.Dir || f.Used < before.Used+38*rss.MiB {
		t.Errorf("fast: %v, %+v, before %+v", ok, f, before)
	}
	if l := read(); l.Used < before.Used+38*rss.MiB || l.Used > l.Charged {
		t.Errorf("got %+v, before %+v", l, before)
	}

	g.Limit(90 * rss.MiB)
	if l := read(); l.Limit > 90*rss.MiB || l.Limit < 89*rss.MiB {
		t.Errorf("the limit shrank: %+v", l)
	}
	if e.Anon(200 * rss.MiB) {
		t.Skip("240 MiB fit under a limit of 90 MiB: there is swap")
	}
	for _, k := range set.OOMKills() {
		if k.Kills == 0 {
			t.Errorf("%+v", k)
		}
	}
}

// TestFollow: the limits of cgroups that the tree moves to are among those that are
// read, and go with the processes. What a cgroup does not count is known.
func TestFollow(t *testing.T) {
	first, second := rsstest.NewGroup(t, 900*rss.MiB), rsstest.NewGroup(t, 96*rss.MiB)
	inner := second.Sub("inner")
	e := rsstest.StartEater(t)
	first.Join(e.PID)

	set, _ := limit.Find(context.Background(), limit.Config{Proc: "/proc", Sys: "/sys", PID: e.PID})
	defer set.Close()
	tree := proctree.New("/proc")
	defer tree.Close()
	began := time.Now()
	var sample rss.Sample
	read := func() map[string]event.Limit {
		procs, _, err := tree.Tree(rss.ProcID{PID: e.PID})
		wardentest.NoError(t, err)
		sample = rss.Sample{At: time.Now(), Mono: time.Since(began), Procs: procs}
		levels := map[string]event.Limit{}
		for _, l := range set.Read(&sample) {
			levels[l.Level] = l
		}
		return levels
	}
	has := func(what string, want ...rsstest.Group) map[string]event.Limit {
		t.Helper()
		got := read()
		for _, g := range []rsstest.Group{first, second} {
			if _, ok := got[g.Dir]; ok != slices.ContainsFunc(want, func(w rsstest.Group) bool { return w.Dir == g.Dir }) {
				t.Errorf("%s: limit of %s: %v", what, g.Dir, ok)
			}
		}
		return got
	}
	has("at first", first)
	inner.Join(e.PID)
	e.Anon(40 * rss.MiB)
	got := has("moved", first, second)
	if l := got[second.Dir]; l.Used < 40*rss.MiB || l.Limit != 96*rss.MiB || !l.Binding {
		t.Errorf("%+v", l)
	}
	a, b := got[first.Dir], got[second.Dir]
	if out := set.Outside(&a, &sample); out < 40*rss.MiB {
		t.Errorf("the first does not count %v", out)
	}
	if out := set.Outside(&b, &sample); out != 0 {
		t.Errorf("the second does not count %v", out)
	}
	first.Join(e.PID)
	has("moved back", first)
	inner.Join(e.PID)
	has("once more", first, second)
	before := set.NodeKills()
	if e.Anon(200 * rss.MiB) {
		t.Skip("nothing was killed: there is swap")
	}
	var kills uint64
	for _, k := range set.OOMKills() {
		if k.Leaf {
			kills += k.Kills
		}
	}
	if kills != 1 || set.NodeKills() == before {
		t.Errorf("%d kills, %d on the node", kills, set.NodeKills()-before)
	}
}
