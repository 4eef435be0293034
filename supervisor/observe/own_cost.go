package supervisor

import (
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// ours measures the holder and the watcher. Whoever attaches is both in one.
func (w *watcher) ours() []event.Cost {
	var out []event.Cost
	for _, p := range []struct {
		who string
		pid int
	}{{"holder", w.holder}, {"watcher", w.Self}} {
		if p.pid == 0 {
			continue
		}
		c, err := proctree.CostOf(w.Proc, p.pid)
		switch {
		case proctree.Vanished(err):
			continue
		case err != nil:
			w.fault("ours", err)
			continue
		}
		out = append(out, event.Cost{
			Process: p.who, PID: p.pid, RSS: c.RSS, Anon: c.Anon, PSS: c.PSS,
			Threads: c.Threads, Descriptors: c.Descriptors, CPU: c.CPU.Seconds(), Wakeups: c.Wakeups,
		})
	}
	return out
}
