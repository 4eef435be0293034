package rsstest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Documents returns the README and, behind it, what is in docs, as one text: a test of
// what users are told asks whether it is told, not where.
func Documents(t testing.TB) string {
	t.Helper()
	root := "."
	for _, err := os.Stat(root + "/go.mod"); err != nil; _, err = os.Stat(root + "/go.mod") {
		if root += "/.."; strings.Count(root, "..") > 20 {
			t.Fatal("no module is above")
		}
	}
	more, err := filepath.Glob(root + "/docs/*.md")
	if err != nil || len(more) == 0 {
		t.Fatal("no documents: ", err)
	}
	var text strings.Builder
	for _, name := range append([]string{root + "/README.md"}, more...) {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(b)
		text.WriteByte('\n')
	}
	return text.String()
}
