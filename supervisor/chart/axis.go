package chart

import (
	"strconv"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
)

// sizeTicks returns the ticks from 0 to at most top, powers of two apart: then
// each of them is a round number of KiB, MiB or GiB.
func sizeTicks(top rss.Bytes, most int) []rss.Bytes {
	step := rss.KiB
	for rss.Bytes(most)*step < top {
		step *= 2
	}
	var ticks []rss.Bytes
	for v := rss.Bytes(0); v <= top; v += step {
		ticks = append(ticks, v)
	}
	return ticks
}

// tickText writes a tick without digits that say nothing: "1.5 GiB", "512 MiB".
func tickText(b rss.Bytes) string {
	if b == 0 {
		return "0"
	}
	unit, name := rss.KiB, " KiB"
	switch {
	case b >= rss.TiB:
		unit, name = rss.TiB, " TiB"
	case b >= rss.GiB:
		unit, name = rss.GiB, " GiB"
	case b >= rss.MiB:
		unit, name = rss.MiB, " MiB"
	}
	return strconv.FormatFloat(float64(b)/float64(unit), 'f', -1, 64) + name
}

// timeSteps are the distances of ticks on an axis of time.
var timeSteps = []time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	24 * time.Hour, 48 * time.Hour, 7 * 24 * time.Hour, 14 * 24 * time.Hour,
}

// timeTicks returns round times of day from start on, as distances from it, and
// how they are written.
func timeTicks(start time.Time, length time.Duration, most int) (ticks []time.Duration, layout string) {
	step := timeSteps[len(timeSteps)-1]
	for _, s := range timeSteps {
		if length/s <= time.Duration(most) {
			step = s
			break
		}
	}
	switch {
	case step < time.Minute:
		layout = "15:04:05"
	case step < 24*time.Hour:
		layout = "15:04"
	default:
		layout = "2 Jan"
	}
	_, zone := start.Zone()
	past := time.Duration(start.UnixNano()+int64(zone)*int64(time.Second)) % step
	first := step - past
	if past == 0 {
		first = 0
	}
	for at := first; at <= length; at += step {
		ticks = append(ticks, at)
	}
	return ticks, layout
}

// topOf is where the axis of a run ends: above all that is drawn, and above the
// limit unless that is so far off that nothing else would be seen.
func topOf(s *analysis.RunSeries) (top rss.Bytes, limitShown bool) {
	most, limit := int64(1024), int64(0)
	for i := range s.Levels {
		for _, v := range s.Levels[i].Sum {
			most = max(most, v)
		}
		if s.Primary >= 0 {
			p := s.Levels[i].Limits[s.Primary]
			for k, used := range p[analysis.Used] {
				most, limit = max(most, used, p[analysis.Most][k]), max(limit, p[analysis.Size][k])
			}
		}
	}
	if limit > 0 && limit <= 4*most {
		return rss.Bytes(max(most, limit)) * rss.KiB / 100 * 108, true
	}
	return rss.Bytes(most) * rss.KiB / 100 * 112, false
}
