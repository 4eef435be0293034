package main_test

import (
	"errors"
	"os/exec"
	"regexp"
	"testing"
)

// TestNoRoomKnowsTheOptions: with too few descriptors for Go's runtime the
// command line is parsed in C, which has to know the options without a value.
func TestNoRoomKnowsTheOptions(t *testing.T) {
	help, stderr, err := output([]string{binary, "run", "--help"})
	if err != nil {
		t.Fatal(err, stderr)
	}
	options := regexp.MustCompile(`(?m)^  (--[a-z-]+)( [A-Z]+)? `).FindAllStringSubmatch(help, -1)
	if len(options) < 10 {
		t.Fatalf("options %q in\n%s", options, help)
	}
	for _, o := range options {
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
