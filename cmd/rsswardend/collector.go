package main

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/rsswarden/rsswarden/supervisor/metrics"
)

// collector makes the metrics of a scrape from the last snapshot: nothing is read, so
// that scrapes cost the node nothing, however many there are.
type collector struct{ d *daemon }

// descs are the metrics' descriptions by their names.
var descs = func() map[*metrics.Metric]*prometheus.Desc {
	all := map[*metrics.Metric]*prometheus.Desc{}
	for _, m := range metrics.OfNode {
		var labels []string
		for _, l := range append(places(m), m.Labels...) {
			labels = append(labels, l.Name)
		}
		all[m] = prometheus.NewDesc(m.Name, m.Help, labels, nil)
	}
	return all
}()

// places are the labels of a metric that say of which job and step it is: none where it
// is the daemon's own.
func places(m *metrics.Metric) []metrics.Label {
	switch {
	case m == &metrics.LastLook || m == &metrics.BuildInfo || m == &metrics.OOMUnheard:
		return nil
	case m.Whole:
		return []metrics.Label{metrics.JobID, metrics.Node}
	}
	return []metrics.Label{metrics.JobID, metrics.Step, metrics.Node}
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
	place [3]*dto.LabelPair // job, step, node
	fixed map[[2]string]*dto.LabelPair
}

// of returns the labels of a series, by their names.
func (p *labelPairs) of(m *metrics.Metric, at metrics.Place, values []string) []*dto.LabelPair {
	list := make([]*dto.LabelPair, 0, len(p.place)+len(values))
	own := places(m)
	for i, value := range [...]string{at.JobID, at.Step, at.Node} {
		name := metrics.Common[i].Name
		if !slices.ContainsFunc(own, func(l metrics.Label) bool { return l.Name == name }) {
			continue
		}
		if p.place[i] == nil || p.place[i].GetValue() != value {
			p.place[i] = pair(name, value)
		}
		list = append(list, p.place[i])
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
