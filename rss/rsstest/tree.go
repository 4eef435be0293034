package rsstest

import (
	"embed"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

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
