package rsstest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

// Every archive unpacks on top of the training, and says what it is.
func TestArchives(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".txtar")
		if !strings.Contains(string(doc), "\t"+name+" ") {
			t.Errorf("%s is not in the package's documentation", name)
		}
		tree := rsstest.Unpack(t, "torch", name)
		if s := tree.Read("proc/4102/stat"); !strings.HasPrefix(s, "4102 (python3) ") {
			t.Errorf("%s: %q", name, s)
		}
		b, err := os.ReadFile(f)
		if err != nil || strings.HasPrefix(string(b), "--") {
			t.Errorf("%s does not say what it is: %v", name, err)
		}
	}
}

func TestPut(t *testing.T) {
	tree := rsstest.Empty(t)
	tree.Put(rsstest.Process{PID: 7, Parent: 3, Comm: "a) \n\\", Anon: 4 * rss.MiB, File: rss.MiB})
	for name, want := range map[string]string{
		"proc/7/stat":   "7 (a) \n\\) S 3 7 7 ",
		"proc/7/status": "Name:\ta) \\n\\\\\n",
		"proc/7/statm":  "2560 1280 256 ",
	} {
		if got := tree.Read(name); os.Getpagesize() == 4096 && !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q", name, got)
		}
	}
	tree.Put(rsstest.Process{PID: 7, State: 'Z', Anon: rss.MiB})
	if got := tree.Read("proc/7/status"); strings.Contains(got, "VmRSS") {
		t.Errorf("a zombie with memory: %q", got)
	}
	tree.End(7)
	if _, err := os.Stat(tree.Path("proc/7")); !os.IsNotExist(err) {
		t.Error(err)
	}
}
