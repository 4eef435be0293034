package record

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// The test binary is the child that opens records, and the writer that is
// killed.
func TestMain(m *testing.M) {
	switch os.Getenv("RECORD_TEST_CHILD") {
	case "export":
		if err := Export(os.Args[1], os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case "write":
		writeForever(os.Args[1])
	}
	os.Exit(m.Run())
}

func child(dir string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], dir)
	cmd.Env = append(os.Environ(), "RECORD_TEST_CHILD=export", "GOCOVERDIR=")
	return cmd
}
