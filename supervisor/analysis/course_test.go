package analysis

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

func TestCourse(t *testing.T) {
	for _, every := range []time.Duration{100 * time.Millisecond, time.Second, 7 * time.Second, time.Hour} {
		for _, n := range []int{1, 5, 24, 25, 100, 1000} {
			var c course
			var most rss.Bytes
			for i := range n {
				v := rss.Bytes(i * 7919 % 1000)
				most = max(most, v)
				c.add(time.Minute+time.Duration(i)*every, v)
			}
			var top rss.Bytes
			seen := 0
			parts := len(c.most)
			for _, v := range c.most {
				if v >= 0 {
					top = max(top, rss.Bytes(v))
					seen++
				}
			}
			if top != most || c.span() != time.Duration(n-1)*every || parts > courseParts || parts < min(int(c.span()/time.Second), courseParts/2) || seen > n {
				t.Errorf("%d readings each %v: %d parts of %v, highest %v of %v", n, every, parts, c.width, top, most)
			}
		}
	}
}

func TestGrowth(t *testing.T) {
	const n = 200
	for _, c := range []struct {
		what           string
		at             func(x float64) float64 // GiB
		still, slowing bool
	}{
		{"flat", func(float64) float64 { return 4 }, false, false},
		{"falls", func(x float64) float64 { return 4 - x }, false, false},
		{"starts up", func(x float64) float64 { return min(4, 40*x) }, false, false},
		{"linear", func(x float64) float64 { return 2 + 2*x }, true, false},
		{"faster and faster", func(x float64) float64 { return 2 + 2*x*x }, true, false},
		{"slows", func(x float64) float64 { return 4 - 2/(1+6*x) }, true, true},
		{"a saw that rises", func(x float64) float64 { return 2 + 2*x + 0.5*float64(int(x*60)%3) }, true, false},
		{"a saw that does not", func(x float64) float64 { return 2 + 0.5*float64(int(x*60)%3) }, false, false},
		{"one jump", func(x float64) float64 { return 2 + 2*float64(int(x*1.1)) }, false, false},
		{"by little", func(x float64) float64 { return 2 + 0.05*x }, false, false},
	} {
		var s course
		for i := range n {
			s.add(time.Duration(i)*30*time.Second, rss.GiB.Scale(c.at(float64(i)/n)))
		}
		g, ok := s.Growth()
		if !ok || g.Still != c.still || g.Slowing != c.slowing {
			t.Errorf("%s: %+v, %v", c.what, g, ok)
		}
	}
	var back course
	for _, at := range []time.Duration{time.Hour, time.Minute, 2 * time.Hour, -time.Hour} {
		back.add(at, rss.GiB)
	}
	if back.span() != time.Hour {
		t.Errorf("readings that go back span %v", back.span())
	}
	var few course
	for i := range 5 {
		few.add(time.Duration(i)*time.Minute, rss.Bytes(i)*rss.GiB)
	}
	if _, ok := few.Growth(); ok {
		t.Error("a growth from 5 readings")
	}
}
