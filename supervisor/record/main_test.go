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
		var err error
		if !raceDetector {
			err = Confine()
		}
		if err == nil {
			err = Export(os.NewFile(3, "record"), os.Stdout)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case "write":
		writeForever(os.Args[1])
	}
	os.Exit(m.Run())
}

// dirAt opens a directory until the end of the test.
func dirAt(t testing.TB, path string) *os.File {
	t.Helper()
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	return dir
}

// answersAt says that the record at a path is being written.
func answersAt(path string) bool {
	dir, err := os.Open(path)
	if err != nil {
		return false
	}
	defer dir.Close()
	return answers(dir)
}

func child() *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "RECORD_TEST_CHILD=export", "GOCOVERDIR=")
	return cmd
}
