package trust

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var stepShown = regexp.MustCompile(`(?m)^\| [^|]+ \| ([a-z_/]+\.go) \| ([A-Za-z]+) \|$`)

// TestContributing: what the worked examples point at is where they say.
func TestContributing(t *testing.T) {
	b, err := os.ReadFile(root + "/CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	steps := stepShown.FindAllStringSubmatch(string(b), -1)
	if len(steps) < 10 || len(steps)+4 != strings.Count(string(b), "\n|") {
		t.Errorf("%d steps found", len(steps))
	}
	for _, s := range steps {
		if text, err := os.ReadFile(root + "/" + s[1]); err != nil || !strings.Contains(string(text), s[2]) {
			t.Errorf("%s has no %s: %v", s[1], s[2], err)
		}
	}
}
