package chart

import (
	"fmt"
	"html/template"
	"slices"
)

const (
	sparkWidth  = 120.0
	sparkHeight = 24.0
)

// Spark draws values of which top is the height; negative ones are holes.
// Values are joined to at most one each 1.5 pixels, the highest of each.
func Spark(values []float64, top float64) template.HTML {
	if len(values) == 0 {
		return "–"
	}
	for _, v := range values {
		top = max(top, v)
	}
	n := min(len(values), int(sparkWidth/1.5))
	x := func(i int) float64 { return (float64(i) + 0.5) / float64(n) * sparkWidth }
	line, area := pathWriter{x: same, y: same}, pathWriter{x: same, y: same}
	from := -1.0
	y := func(v float64) float64 { return sparkHeight - 2 - (sparkHeight-4)*v/max(top, 1e-9) }
	last := 0.0
	done := func() {
		if area.pen {
			area.to(last, sparkHeight-2)
			area.to(from, sparkHeight-2)
			area.close()
		}
		line.up()
	}
	for i := range n {
		v := slices.Max(values[i*len(values)/n : max(i*len(values)/n+1, (i+1)*len(values)/n)])
		if v < 0 {
			done()
			continue
		}
		if !line.pen {
			from = x(i)
			line.to(from-0.7, y(v))
		}
		last = x(i)
		line.to(last, y(v))
		area.to(last, y(v))
	}
	done()
	return template.HTML(fmt.Sprintf("<svg viewBox=\"0 0 120 24\" aria-hidden=\"true\"><path %s d=\"%s\"/><path %s d=\"%s\"/></svg>",
		svgClass("sparkfill"), area.b, svgClass("spark"), line.b))
}

func same(v float64) float64 { return v }
