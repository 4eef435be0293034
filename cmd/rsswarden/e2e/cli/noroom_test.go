package cli

import (
	"errors"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestNoRoomKnowsTheOptions: with too few descriptors for Go's runtime the
// command line is parsed in C, which has to know the options without a value.
func TestNoRoomKnowsTheOptions(t *testing.T) {
	// TestReference holds this file to the options; --help leaves some out.
	b := wardentest.ReadFile(t, "../../../../docs/reference/commands.md")
	_, text, _ := strings.Cut(string(b), "\n### rsswarden run\n")
	text, _, _ = strings.Cut(text, "\n### ")
	options := regexp.MustCompile("(?m)^- `(--[a-z-]+)( [A-Z]+)?`").FindAllStringSubmatch(text, -1)
	if len(options) < 25 {
		t.Fatalf("options %q in\n%s", options, text)
	}
	for _, o := range options {
		if strings.HasPrefix(o[1], "--help") {
			continue // it runs nothing
		}
		args := []string{"-c", `ulimit -n 8; exec "$@"`, "sh", binary, "run", o[1]}
		if o[2] != "" {
			args = append(args, "value")
		}
		err := exec.Command("sh", append(args, "sh", "-c", "exit 5")...).Run()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 5 {
			t.Errorf("%s: %v, want the command's exit status 5", o[1], err)
		}
	}
}
