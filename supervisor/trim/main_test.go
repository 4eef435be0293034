package trim

import (
	"fmt"
	"os"
	"testing"
)

// modes are what this test binary can be instead of a test: a second process
// of ours, started with TRIM_TEST_MODE set to the name of one.
var modes = map[string]func(args []string) int{}

// atEnd is done when all tests have ended.
var atEnd []func()

func TestMain(m *testing.M) {
	if name := os.Getenv("TRIM_TEST_MODE"); name != "" {
		mode, ok := modes[name]
		if !ok {
			fmt.Fprintf(os.Stderr, "TRIM_TEST_MODE=%s: no such mode\n", name)
			os.Exit(2)
		}
		os.Exit(mode(os.Args[1:]))
	}
	code := m.Run()
	for _, end := range atEnd {
		end()
	}
	os.Exit(code)
}
