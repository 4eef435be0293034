package event

import (
	"testing"

	"github.com/rsswarden/rsswarden/rss"
)

func TestMore(t *testing.T) {
	for _, c := range []struct {
		rule string
		want More
	}{
		{"97%:requeue", More{Share: 0.25}},
		{"97%:requeue=+25%", More{Share: 0.25}},
		{"97%:requeue=+7.5%", More{Share: 0.075}},
		{"free<1G:requeue=12G", More{Size: 12 * rss.GiB}},
		{"97%:requeue=600", More{Size: 600 * rss.MiB}},
		{"slurm 97%:requeue=advice", More{Advice: true}},
	} {
		r, err := ParseRule(c.rule)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := r.More(); got != c.want || !ok {
			t.Errorf("%s: %+v, %v; want %+v", c.rule, got, ok, c.want)
		}
	}
	if r, _ := ParseRule("97%:stop"); r.Arg != "" {
		t.Error(r)
	} else if m, ok := r.More(); ok {
		t.Errorf("stop: %+v", m)
	}
}
