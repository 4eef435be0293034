package proctree

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
)

func TestCostOfThisProcess(t *testing.T) {
	const tick = 10 * time.Millisecond
	var used unix.Rusage
	for used.Utime.Nano()+used.Stime.Nano() < int64(3*tick) {
		must(t, unix.Getrusage(unix.RUSAGE_SELF, &used))
	}
	time.Sleep(time.Millisecond) // a wake-up
	c, err := CostOf("/proc", os.Getpid())
	must(t, err)
	if c.RSS < rss.MiB || c.Anon == 0 || c.Anon > c.RSS || c.PSS == 0 || c.PSS > c.RSS+rss.MiB ||
		c.Threads < 2 || c.Descriptors < 3 || c.CPU == 0 || c.CPU > time.Hour || c.Wakeups == 0 {
		t.Errorf("%+v", c)
	}
	if _, err := CostOf("/proc", 1<<30); !Vanished(err) {
		t.Errorf("of no process: %v", err)
	}
}
