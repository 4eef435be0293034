package main

import (
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/metrics"
	"github.com/rsswarden/rsswarden/supervisor/nodejobs"
	"github.com/rsswarden/rsswarden/supervisor/textfile"
)

// view is what scrapes and the textfile read. It does not change.
type view struct {
	at   time.Time
	text func() []byte // in the text format, made when it is asked for first
}

func newView(s *nodejobs.Snapshot, dead []killed) *view {
	return &view{s.At, sync.OnceValue(func() []byte { return textOf(s, dead) })}
}

func textOf(s *nodejobs.Snapshot, dead []killed) []byte {
	set := metrics.NewSet()
	set.Put(&metrics.BuildInfo, metrics.Place{}, 1, version)
	fill(set, s, dead)
	return set.Text()
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

// fill puts all that is known of jobs. A sum over the series of one scope counts nothing
// twice: what has no scope is reported of steps only, and kills of jobs only, as the
// counter of a step ends with it.
func fill(set *metrics.Set, s *nodejobs.Snapshot, dead []killed) {
	for i := range s.Jobs {
		j := &s.Jobs[i]
		at := metrics.Place{JobID: j.ID, Node: j.Node}
		fillUse(&j.Use, at, event.ScopeJob, set)
		if j.Measured {
			set.Put(&metrics.OOMKills, at, float64(j.OOMKills))
		}
		for k := range j.Steps {
			step := &j.Steps[k]
			at.Step = step.ID
			fillUse(&step.Use, at, event.ScopeStep, set)
			// The daemon cannot look into processes, so it knows no roles.
			set.Put(&metrics.Processes, at, float64(step.Processes), "")
			if !step.Measured {
				set.Put(&metrics.MemoryRSS, at, float64(step.RSS), "")
			}
		}
	}
	for _, k := range dead {
		set.Put(&metrics.OOMKills, metrics.Place{JobID: k.id, Node: k.node}, float64(k.kills))
	}
	set.Put(&metrics.OOMUnheard, metrics.Place{}, float64(s.Unheard))
	set.Put(&metrics.LastLook, metrics.Place{}, seconds(s.At))
}

func seconds(at time.Time) float64 { return float64(at.UnixMilli()) / 1000 }

// fillUse puts how near a job or step is to its limit, under the former names too.
func fillUse(u *nodejobs.Use, at metrics.Place, scope event.Scope, set *metrics.Set) {
	if !u.Measured {
		return
	}
	fill := func(of *metrics.Use, by ...string) {
		set.Put(&of.Unreclaimable, at, float64(u.Unreclaimable), by...)
		set.Put(&of.Charged, at, float64(u.Charged), by...)
		if !limited(u) {
			return
		}
		limit := append([]string{string(event.LimitCgroup)}, by...)
		set.Put(&of.Used, at, float64(u.Used), limit...)
		set.Put(&of.Limit, at, float64(u.Limit), limit...)
		set.Put(&of.Ratio, at, u.Used.Of(u.Limit), limit...)
		if u.Forecast {
			set.Put(&of.TimeLeft, at, u.ETA.Seconds(), limit...)
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
	err := textfile.Replace(t.name(), v.text())
	t.written = t.written || err == nil
	return err
}

// remove removes the file at the end: its values hold no more.
func (t *promfile) remove() {
	if t.written {
		os.Remove(t.name())
	}
}
