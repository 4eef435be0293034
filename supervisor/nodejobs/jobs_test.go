package nodejobs

import (
	"math"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

func TestForecast(t *testing.T) {
	s := v1Stand(t)
	const limit = 10_000_000_000
	var snap Snapshot
	looks := 0
	for used := uint64(2_000_000_000); used < 9_000_000_000; used += 100_000_000 {
		s.v1("slurm/uid_1/job_7", used, limit, 0)
		snap = s.look()
		looks++
		u := snap.Jobs[0].Use
		if used <= limit/2 && u.Forecast {
			t.Errorf("forecast at %d", used)
		}
		if used == 5_500_000_000 && (!u.Forecast || (u.ETA-450*time.Second).Abs() > 20*time.Second) {
			t.Errorf("%v, %v at %d, want 450s", u.ETA, u.Forecast, used)
		}
	}
	u := snap.Jobs[0].Use
	if !u.Growing || u.PerSecond < 9.9e6 || u.PerSecond > 10.1e6 || u.Peak != 8_900_000_000 || u.Near != 0 {
		t.Errorf("%+v", u)
	}
	s.v1("slurm/uid_1/job_7", 9_500_000_000, limit, 0)
	s.look()
	s.v1("slurm/uid_1/job_7", 9_600_000_000, limit, 0)
	if u := s.look().Jobs[0].Use; u.Near != 10*time.Second {
		t.Errorf("at the limit for %v", u.Near)
	}
	if st := snap.Jobs[0].Steps[0]; st.Forecast || st.Growing {
		t.Errorf("the step does not change: %+v", st)
	}
}

// However rare the looks are, growth that goes on is forecast after 20 of them, and what
// has just begun is not.
func TestForecastOfRareLooks(t *testing.T) {
	for _, interval := range []time.Duration{11 * time.Second, 30 * time.Second, time.Minute, 10 * time.Minute, time.Hour} {
		s := v1Stand(t)
		s.Interval = interval
		const limit, step = 10_000_000_000, 100_000_000
		first := 0
		for look := 1; look <= 40; look++ {
			used := uint64(5_100_000_000 + look*step)
			s.v1("slurm/uid_1/job_7", used, limit, 0)
			// A tick comes some milliseconds early or late.
			now := s.now.Add(time.Duration(look)*interval + time.Duration(look%3)*5*time.Millisecond)
			snap, err := s.Scan(now)
			must(t, err)
			u := snap.Jobs[0].Use
			if !u.Forecast {
				continue
			}
			if first == 0 {
				first = look
			}
			if want := time.Duration((limit-used)/step) * interval; (u.ETA - want).Abs() > want/20 {
				t.Errorf("%v: %v at look %d, want %v", interval, u.ETA, look, want)
			}
		}
		if first < 17 || first > 24 {
			t.Errorf("%v: the first forecast at look %d", interval, first)
		}
	}
}

// TestForecastOfFastGrowth: what fills its limit in six minutes is forecast once it is at
// half of it and has been seen for as long as a slope must hold, whatever the interval.
func TestForecastOfFastGrowth(t *testing.T) {
	for _, interval := range []time.Duration{time.Second, 3 * time.Second, 7 * time.Second, 10 * time.Second} {
		s := v1Stand(t)
		const limit = 360_000_000
		for at := interval; at < 350*time.Second; at += interval {
			used := uint64(at.Seconds() * 1_000_000)
			s.v1("slurm/uid_1/job_7", used, limit, 0)
			snap, err := s.Scan(s.now.Add(at))
			must(t, err)
			u := snap.Jobs[0].Use
			if want, due := 360*time.Second-at, used > limit/2 && at-interval >= rss.HoldTime; u.Forecast != due || u.Forecast && (u.ETA-want).Abs() > 5*time.Second {
				t.Errorf("each %v: after %v the forecast is %v, %v; want %v from half of the limit and 3 minutes on", interval, at, u.ETA, u.Forecast, want)
				break
			}
		}
	}
}

// TestNoForecastOfWhatMayFlatten: where growth may flatten below the limit, no time to it is
// told, though the middle of the forecast meets it.
func TestNoForecastOfWhatMayFlatten(t *testing.T) {
	s := v1Stand(t)
	const limit = 10_000_000_000
	var trend rss.Trend
	open := 0
	for at := 10 * time.Second; at < 40*time.Minute; at += 10 * time.Second {
		used := uint64(5.2e9 + 4.6e9*(1-math.Exp(-at.Seconds()/300)) + 2e7*math.Sin(at.Seconds()/70))
		s.v1("slurm/uid_1/job_7", used, limit, 0)
		snap, err := s.Scan(s.now.Add(at))
		must(t, err)
		trend.Add(at, rss.Bytes(used))
		_, _, most, meets := trend.ETA(limit)
		if meets && most == rss.Never {
			open++
		}
		if u := snap.Jobs[0].Use; u.Forecast != (meets && most < rss.Never) {
			t.Errorf("after %v: %v, full in %v at most", at, u.Forecast, most)
		}
	}
	if open == 0 {
		t.Error("the test proves nothing")
	}
}
