// Package golden compares what a test got with a file. `go test -update` writes the file,
// in every package that has one.
package golden

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Update says that the files are to be written.
var Update = flag.Bool("update", false, "write what the tests compare with")

// Check wants the text of a file.
func Check(t *testing.T, path, got string) {
	t.Helper()
	if *Update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; go test -update writes it", err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s, -want +got; go test -update writes it:\n%s", path, diff)
	}
}
