package proctree_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/prometheus/procfs"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

// population starts n idle processes below this one.
func population(b *testing.B, n int) {
	b.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	for range n {
		p, err := os.StartProcess("/proc/self/exe", []string{"idle"}, &os.ProcAttr{
			Env:   append(os.Environ(), "ROLE=idle", "GOMAXPROCS=1"),
			Files: []*os.File{r, nil, nil},
		})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { p.Wait() })
	}
	r.Close()
	b.Cleanup(func() { w.Close() })
}

// BenchmarkTree reads ourselves and 64 children: by Tree, by the fast tick's
// sum, and the way a program on prometheus/procfs does it.
func BenchmarkTree(b *testing.B) {
	population(b, 64)
	root := rss.ProcID{PID: os.Getpid()}
	b.Run("Tree", func(b *testing.B) {
		r := proctree.New("/proc")
		defer r.Close()
		b.ReportAllocs()
		for b.Loop() {
			procs, _, err := r.Tree(root)
			if err != nil || len(procs) < 65 {
				b.Fatal(len(procs), err)
			}
		}
	})
	b.Run("SumRSS", func(b *testing.B) {
		r := proctree.New("/proc")
		defer r.Close()
		if _, _, err := r.Tree(root); err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if n, err := r.SumRSS(); err != nil || n == 0 {
				b.Fatal(n, err)
			}
		}
	})
	b.Run("procfs", func(b *testing.B) {
		fs, err := procfs.NewFS("/proc")
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if n := procfsTree(fs, root.PID); n < 65 {
				b.Fatal(n)
			}
		}
	})
}

// procfsTree reads all processes and keeps those below root, with their
// status.
func procfsTree(fs procfs.FS, root int) int {
	all, err := fs.AllProcs()
	if err != nil {
		return 0
	}
	parents := map[int]int{}
	for _, p := range all {
		if s, err := p.Stat(); err == nil {
			parents[p.PID] = s.PPID
		}
	}
	n := 0
	for pid := range parents {
		for up := pid; up != 0; up = parents[up] {
			if up != root {
				continue
			}
			if p, err := fs.Proc(pid); err == nil {
				if _, err := p.NewStatus(); err == nil {
					n++
				}
			}
			break
		}
	}
	return n
}

func BenchmarkParse(b *testing.B) {
	fs := rsstest.Unpack(b, "torch")
	r := proctree.New(fs.Proc)
	defer r.Close()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.One(rsstest.Trainer); err != nil {
			b.Fatal(fmt.Errorf("trainer: %w", err))
		}
	}
}
