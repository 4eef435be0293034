package proctree

import (
	"os"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
)

func TestResidentOfThisProcess(t *testing.T) {
	r, err := ResidentOf("/proc", os.Getpid())
	if err != nil || r.RSS < rss.MiB || r.File == 0 || r.File+r.Shmem >= r.RSS {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := ResidentOf("/proc", 1<<30); !Vanished(err) {
		t.Errorf("of no process: %v", err)
	}
}
