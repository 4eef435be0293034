package wardentest

import (
	"os/exec"
	"regexp"
	"sync"
	"testing"
)

var torch = sync.OnceValues(func() ([]byte, error) {
	return exec.Command(Python, "-c", "import torch, lmdb").CombinedOutput()
})

// NeedTorch skips the test where there is no PyTorch.
func NeedTorch(t testing.TB) {
	t.Helper()
	if out, err := torch(); err != nil {
		t.Skipf("no PyTorch with LMDB in %s: %v %s", Python, err, out)
	}
}

var checksumLine = regexp.MustCompile(`(?m)^checksum (\w+)$`)

// Checksums are what the trainings of examples, of which there may be several, print of
// their data.
func Checksums(text string) (all []string) {
	for _, m := range checksumLine.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// Checksum is the first of them, "none" where there is none.
func Checksum(text string) string {
	return append(Checksums(text), "none")[0]
}

// Torches are the versions of PyTorch that rsswarden is claimed for. command
// makes a command out of a program and its arguments where the version is.
