package rsstest

import (
	"os"
	"testing"
	"time"
)

// BusyDir is a directory like that of T.TempDir, for programs that may outlive the test by a
// moment: what they still write does not keep it from being removed.
func BusyDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "busy")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			if err := os.RemoveAll(dir); err == nil {
				return
			} else if time.Now().After(end) {
				t.Error(err)
				return
			}
		}
	})
	return dir
}
