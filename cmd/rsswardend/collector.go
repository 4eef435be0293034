package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/metrics"
	"github.com/rsswarden/rsswarden/supervisor/nodejobs"
	"github.com/rsswarden/rsswarden/supervisor/textfile"
)

// put takes one value, as [metrics.Set.Put].
type put func(m *metrics.Metric, at metrics.Place, v float64, labels ...string)

// fill puts all that is known of jobs. A sum over the series of one scope counts nothing
// twice: what has no scope is told of steps alone, and kills of jobs alone, as the
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
			// Whoever cannot look into processes knows no roles.
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

func fillUse(u *nodejobs.Use, at metrics.Place, scope event.Scope, put put) {
	if !u.Measured {
		return
	}
	put(&metrics.MemoryUnreclaimable, at, float64(u.Unreclaimable), string(scope))
	put(&metrics.MemoryCharged, at, float64(u.Charged), string(scope))
	if !limited(u) {
		return
	}
	const limit = string(event.LimitCgroup)
	put(&metrics.MemoryUsed, at, float64(u.Used), limit, string(scope))
	put(&metrics.MemoryLimit, at, float64(u.Limit), limit, string(scope))
	put(&metrics.LimitRatio, at, u.Used.Of(u.Limit), limit, string(scope))
	if u.Forecast {
		put(&metrics.TimeToLimit, at, u.ETA.Seconds(), limit, string(scope))
	}
}

// collector makes the metrics of a scrape from the last snapshot: nothing is read, so
// that scrapes cost the node nothing, however many there are.
type collector struct{ d *daemon }

// descs are the metrics' descriptions by their names.
var descs = func() map[*metrics.Metric]*prometheus.Desc {
	all := map[*metrics.Metric]*prometheus.Desc{}
	for _, m := range metrics.OfNode {
		var labels []string
		for _, l := range metrics.Common {
			if l.Name != metrics.Run.Name {
				labels = append(labels, l.Name)
			}
		}
		for _, l := range m.Labels {
			labels = append(labels, l.Name)
		}
		if ofProgram(m) {
			labels = labels[3:]
		}
		all[m] = prometheus.NewDesc(m.Name, m.Help, labels, nil)
	}
	return all
}()

// ofProgram says that a metric is of the daemon, and of no job.
func ofProgram(m *metrics.Metric) bool {
	return m == &metrics.LastLook || m == &metrics.BuildInfo || m == &metrics.OOMUnheard
}

func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range metrics.OfNode {
		ch <- descs[m]
	}
}

func (c *collector) Collect(ch chan<- prometheus.Metric) {
	var pairs labelPairs
	send := func(m *metrics.Metric, at metrics.Place, v float64, labels ...string) {
		ch <- &series{m: m, labels: pairs.of(m, at, labels), value: v}
	}
	send(&metrics.BuildInfo, metrics.Place{}, 1, version)
	switch v := c.d.snap.Load(); {
	case v == nil:
	case c.d.isFresh(v):
		fill(v, send)
	default: // how long ago that was is all that is still so
		send(&metrics.LastLook, metrics.Place{}, lastLook(v))
	}
}

// series is a value of a scrape, as a const metric of client_golang's is. Its labels are
// shared with those of the same job: of a thousand jobs those of NewConstMetric would
// be 300,000 allocations a scrape.
type series struct {
	m      *metrics.Metric
	labels []*dto.LabelPair
	value  float64
}

func (s *series) Desc() *prometheus.Desc { return descs[s.m] }

func (s *series) Write(out *dto.Metric) error {
	out.Label = s.labels
	if s.m.Type == metrics.Counter {
		out.Counter = &dto.Counter{Value: &s.value}
	} else {
		out.Gauge = &dto.Gauge{Value: &s.value}
	}
	return nil
}

// labelPairs makes labels, and keeps those that the next series is likely to have.
type labelPairs struct {
	place [3]*dto.LabelPair
	fixed map[[2]string]*dto.LabelPair
}

// of returns the labels of a series, by their names.
func (p *labelPairs) of(m *metrics.Metric, at metrics.Place, values []string) []*dto.LabelPair {
	list := make([]*dto.LabelPair, 0, len(p.place)+len(values))
	if !ofProgram(m) {
		for i, value := range [...]string{at.JobID, at.Step, at.Node} {
			if p.place[i] == nil || p.place[i].GetValue() != value {
				p.place[i] = pair(metrics.Common[i].Name, value)
			}
			list = append(list, p.place[i])
		}
	}
	for i, value := range values {
		key := [2]string{m.Labels[i].Name, value}
		if p.fixed[key] == nil {
			if p.fixed == nil {
				p.fixed = map[[2]string]*dto.LabelPair{}
			}
			p.fixed[key] = pair(key[0], value)
		}
		list = append(list, p.fixed[key])
	}
	slices.SortFunc(list, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
	return list
}

func pair(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }

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

// remove has nobody read what is no longer so.
func (t *promfile) remove() {
	if t.written {
		os.Remove(t.name())
	}
}
