package main

import (
	"os"
	"path/filepath"
	"time"

	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/metrics"
	"github.com/rsswarden/rsswarden/supervisor/nodejobs"
	"github.com/rsswarden/rsswarden/supervisor/textfile"
)

// view is what scrapes read. It does not change.
type view struct {
	*nodejobs.Snapshot
	killed []killed
}

// limited says that there is a limit to export.
func limited(u *nodejobs.Use) bool {
	return u.Measured && u.Limit != cgroup.Unlimited && u.Limit > 0
}

// killed is a job that the OOM killer hit and that has ended. Most end within the second,
// between two scrapes: an alert on the count would never fire.
type killed struct {
	id, node string
	kills    uint64
	ended    time.Time
}

// put takes one value, as [metrics.Set.Put].
type put func(m *metrics.Metric, at metrics.Place, v float64, labels ...string)

// fill puts all that is known of jobs. A sum over the series of one scope counts nothing
// twice: what has no scope is reported of steps only, and kills of jobs only, as the
// counter of a step ends with it.
func fill(v *view, put put) {
	s := v.Snapshot
	for i := range s.Jobs {
		j := &s.Jobs[i]
		at := metrics.Place{JobID: j.ID, Node: j.Node}
		fillUse(&j.Use, at, event.ScopeJob, put)
		if j.Measured {
			put(&metrics.OOMKills, at, float64(j.OOMKills))
		}
		for k := range j.Steps {
			step := &j.Steps[k]
			at.Step = step.ID
			fillUse(&step.Use, at, event.ScopeStep, put)
			// The daemon cannot look into processes, so it knows no roles.
			put(&metrics.Processes, at, float64(step.Processes), "")
			if !step.Measured {
				put(&metrics.MemoryRSS, at, float64(step.RSS), "")
			}
		}
	}
	for _, k := range v.killed {
		put(&metrics.OOMKills, metrics.Place{JobID: k.id, Node: k.node}, float64(k.kills))
	}
	put(&metrics.OOMUnheard, metrics.Place{}, float64(s.Unheard))
	put(&metrics.LastLook, metrics.Place{}, lastLook(v))
}

func lastLook(v *view) float64 { return float64(v.At.UnixMilli()) / 1000 }

// fillUse puts how near a job or step is to its limit, under the former names too.
func fillUse(u *nodejobs.Use, at metrics.Place, scope event.Scope, put put) {
	if !u.Measured {
		return
	}
	fill := func(of *metrics.Use, by ...string) {
		put(&of.Unreclaimable, at, float64(u.Unreclaimable), by...)
		put(&of.Charged, at, float64(u.Charged), by...)
		if !limited(u) {
			return
		}
		limit := append([]string{string(event.LimitCgroup)}, by...)
		put(&of.Used, at, float64(u.Used), limit...)
		put(&of.Limit, at, float64(u.Limit), limit...)
		put(&of.Ratio, at, u.Used.Of(u.Limit), limit...)
		if u.Forecast {
			put(&of.TimeLeft, at, u.ETA.Seconds(), limit...)
		}
	}
	if scope == event.ScopeStep {
		fill(&metrics.OfStep, string(scope))
	} else {
		fill(&metrics.OfJob)
	}
	fill(&metrics.Former, string(scope))
}

// promfile is a file for node_exporter's textfile collector, which reads all *.prom of a
// directory at each scrape.
type promfile struct {
	dir     string
	written bool // the file is ours
}

func (t *promfile) name() string { return filepath.Join(t.dir, programName+".prom") }

// write puts a view into the file at once: a reader has the old one or the new one.
func (t *promfile) write(v *view) error {
	set := metrics.NewSet()
	set.Put(&metrics.BuildInfo, metrics.Place{}, 1, version)
	fill(v, set.Put)
	err := textfile.Replace(t.name(), set.Text())
	t.written = t.written || err == nil
	return err
}

// remove removes the file at the end: its values hold no more.
func (t *promfile) remove() {
	if t.written {
		os.Remove(t.name())
	}
}
