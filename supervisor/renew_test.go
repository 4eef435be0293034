package supervisor

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/control"
)

// TestSocketComesBack: somebody has removed the control socket of who leads.
func TestSocketComesBack(t *testing.T) {
	s := leading(t, inJob(t, 0, runtimeDir(t)))
	s.open(s.holder.begin)
	path := filepath.Join(s.node.Dir().Name(), control.SocketName)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	s.meet()
	if _, err := os.Lstat(path); err == nil {
		t.Fatal("it is looked after at each look")
	}
	s.started = s.started.Add(-time.Minute)
	s.meet()
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
}
