package limit_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
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
	if err != nil {
		t.Fatal(err)
	}
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
// way, at the start or between two looks. Nothing panics, what is told of a limit is
// complete ([stand.read] sees to it), and when the file is as it was so is all else.
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
					if err != nil {
						t.Fatal(err)
					}
					name, _ := filepath.Rel(tree.Dir, path)
					between := newStand(t, tree, inJob, c.conf, nil)
					between.read()
					if err := harm(path, was); err != nil {
						t.Fatal(err)
					}
					atStart := newStand(t, tree, inJob, c.conf, nil)
					for range 2 {
						between.look()
						atStart.look()
					}
					// Where it is there it stays the same file: descriptors are kept.
					if info, err := os.Stat(path); err == nil && info.IsDir() {
						if err := os.Remove(path); err != nil {
							t.Fatal(err)
						}
					}
					if err := os.WriteFile(path, was, 0o644); err != nil {
						t.Fatal(err)
					}
					// A process that was not known is looked for in turn.
					got := sums(between.read())
					for range 64 {
						if same(got, want) {
							break
						}
						got = sums(between.read())
					}
					if !same(got, want) {
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

func same(a, b map[string]rss.Bytes) bool {
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return len(a) == len(b)
}

// look is a full one and a fast one, where there may be nobody to be seen.
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
