package integrations_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

var link = regexp.MustCompile(`\(\.\./examples/integrations/([^/)]+)/([^)]+)\)`)

// TestSnippets: each block of docs/integrations.md is in a file beside those that its
// section links to, and a section links to each folder here.
func TestSnippets(t *testing.T) {
	text := wardentest.ReadFile(t, "../../docs/integrations.md")
	linked := map[string]bool{}
	blocks := 0
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		var files strings.Builder
		for _, m := range link.FindAllStringSubmatch(section, -1) {
			if _, err := os.Stat(filepath.Join(m[1], m[2])); err != nil {
				t.Error(err)
			}
			linked[m[1]] = true
			beside, err := filepath.Glob(m[1] + "/*")
			wardentest.NoError(t, err)
			for _, name := range beside {
				files.Write(wardentest.ReadFile(t, name))
			}
		}
		parts := strings.Split(section, "```")
		for i := 1; i < len(parts); i += 2 {
			_, block, _ := strings.Cut(parts[i], "\n")
			if blocks++; !strings.Contains(files.String(), block) {
				t.Errorf("in no file there:\n%s", block)
			}
		}
	}
	if blocks < 6 {
		t.Errorf("%d blocks", blocks)
	}
	all, err := os.ReadDir(".")
	wardentest.NoError(t, err)
	for _, e := range all {
		if e.IsDir() && e.Name() != "testdata" && !linked[e.Name()] {
			t.Errorf("no section links to %s", e.Name())
		}
	}
}
