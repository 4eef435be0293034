package observe

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wake"
)

// TestLimitSetLater: the kernel is to tell of a limit, too, that was not set at the start.
func TestLimitSetLater(t *testing.T) {
	bell := wake.New()
	dir := t.TempDir()
	file := filepath.Join(dir, "memory.events")
	if err := os.WriteFile(file, []byte("max 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := &Observer{opt: Options{Bell: bell, LimitMet: 1}}
	if err := o.WatchLimits([]*event.Limit{{Name: event.LimitUser}, {Level: t.TempDir()}, {Level: dir}, {Level: dir}}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("max 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for end := time.After(10 * time.Second); ; {
		select {
		case <-bell.C():
			if bell.Causes()&1 != 0 {
				return
			}
		case <-end:
			t.Fatal("the bell did not ring")
		}
	}
}
