package observe

import (
	"errors"

	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// OwnCost measures the holder and the watcher; who attached is both in one, and has no
// holder (0). What could be measured is returned beside an error.
func OwnCost(proc string, holder, watcher int) (out []event.Cost, err error) {
	for _, p := range []struct {
		who string
		pid int
	}{{"holder", holder}, {"watcher", watcher}} {
		if p.pid == 0 {
			continue
		}
		c, cerr := proctree.CostOf(proc, p.pid)
		switch {
		case proctree.Vanished(cerr):
			continue
		case cerr != nil:
			err = errors.Join(err, cerr)
			continue
		}
		out = append(out, event.Cost{
			Process: p.who, PID: p.pid, RSS: c.RSS, Anon: c.Anon, PSS: c.PSS,
			Threads: c.Threads, Descriptors: c.Descriptors, CPU: c.CPU.Seconds(), Wakeups: c.Wakeups,
		})
	}
	return out, err
}
