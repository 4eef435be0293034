package trust

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	linkShown    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headingShown = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInAnchor  = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// anchors are those that GitHub makes of the headings of a document.
func anchors(t *testing.T, name string) map[string]bool {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{"": true}
	for _, m := range headingShown.FindAllStringSubmatch(string(b), -1) {
		known[strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return known
}

// TestLinks: what documents link to is there, and the README leads to each of them.
func TestLinks(t *testing.T) {
	docs, err := filepath.Glob(root + "/docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	led := map[string]bool{}
	for _, name := range append([]string{root + "/README.md", root + "/SECURITY.md", root + "/CONTRIBUTING.md"}, docs...) {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range linkShown.FindAllStringSubmatch(string(b), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			path, anchor, _ := strings.Cut(m[1], "#")
			to := name
			if path != "" {
				to = filepath.Join(filepath.Dir(name), path)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s, which is not there", name, m[1])
				continue
			}
			if strings.HasSuffix(to, ".md") && !anchors(t, to)[anchor] {
				t.Errorf("%s links to %s, where there is no such heading", name, m[1])
			}
			if filepath.Base(name) == "README.md" {
				led[filepath.Clean(to)] = true
			}
		}
	}
	for _, name := range docs {
		if !led[filepath.Clean(name)] {
			t.Errorf("the README does not lead to %s", name)
		}
	}
}
