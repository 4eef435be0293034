package main

import (
	"fmt"
	"io"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/rsswarden/rsswarden/supervisor/nodejobs"
)

// BenchmarkScrape is a scrape of 1,000 jobs of two steps.
func BenchmarkScrape(b *testing.B) {
	s := scene()
	job := s.Jobs[0]
	s.Jobs = nil
	for i := range 1000 {
		j := job
		j.ID = fmt.Sprint(i)
		j.Steps = append([]nodejobs.Step{}, job.Steps...)
		s.Jobs = append(s.Jobs, j)
	}
	d := daemonWith(s)
	d.interval = 1 << 40
	registry := prometheus.NewRegistry()
	registry.MustRegister(&collector{d})
	b.ReportAllocs()
	for b.Loop() {
		families, err := registry.Gather()
		if err != nil {
			b.Fatal(err)
		}
		enc := expfmt.NewEncoder(io.Discard, expfmt.NewFormat(expfmt.TypeTextPlain))
		for _, f := range families {
			if err := enc.Encode(f); err != nil {
				b.Fatal(err)
			}
		}
	}
}
