package main

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
	"github.com/rsswarden/rsswarden/supervisor/nodejobs"
)

// scene is a look at three jobs: one with a forecast, one without a limit, one without
// a memory cgroup.
func scene() *nodejobs.Snapshot {
	near := nodejobs.Use{
		Measured: true, Charged: 900 * rss.MiB, Unreclaimable: 750 * rss.MiB, Used: 750 * rss.MiB, Limit: 1000 * rss.MiB,
		OOMKills: 2, Processes: 5, ETA: 90 * time.Second, Forecast: true,
	}
	step := near
	step.Unreclaimable, step.Used, step.Forecast = 500*rss.MiB, 500*rss.MiB, false
	free := nodejobs.Use{Measured: true, Charged: 10, Unreclaimable: 5, Used: 5, Limit: cgroup.Unlimited, Processes: 1}
	bare := nodejobs.Use{Processes: 3, RSS: 4096}
	return &nodejobs.Snapshot{
		At: time.Now(), Where: "memory", Memory: true, Found: true,
		Jobs: []nodejobs.Job{
			{ID: "7", Node: "n1", UID: 1000, Use: near, Steps: []nodejobs.Step{{ID: "batch", Use: step}, {ID: "0", Use: step}}},
			{ID: "sEKNKTV3WPV500", Node: "n1", UID: -1, Use: free, Steps: []nodejobs.Step{{ID: "extern", Use: free}}},
			{ID: "9", Node: "n2", UID: -1, Use: bare, Steps: []nodejobs.Step{{ID: "0", Use: bare}}},
		},
	}
}

// TestScrape: the metrics of each job and step. The textfile has the same.
func TestScrape(t *testing.T) {
	s := scene()
	s.At = time.Unix(1.7e9, 0)
	golden.Check(t, "testdata/scrape.txt", string(newView(s, nil).text()))
}

// TestStale: what is too old is not told: a daemon that hangs has no numbers but how long it
// has hung.
func TestStale(t *testing.T) {
	const none, look = "rsswarden_build_info", "rsswarden_build_info rsswarden_last_look_timestamp_seconds"
	for age, want := range map[time.Duration]string{0: none, time.Minute: look, time.Second: "more"} {
		d := newDaemon(settings{interval: 10 * time.Second, node: "n1"}, slog.New(slog.DiscardHandler))
		if s := scene(); age > 0 {
			s.At = s.At.Add(-age)
			d.snap.Store(newView(s, nil))
		}
		var names []string
		for line := range strings.Lines(string(d.scrape())) {
			if name, ok := strings.CutPrefix(line, "# HELP "); ok {
				names = append(names, strings.Fields(name)[0])
			}
		}
		if got := strings.Join(names, " "); got != want && want != "more" || want == "more" && len(names) < 10 {
			t.Errorf("%v ago: %s", age, got)
		}
	}
}

// TestKilledIsTold: a job that the OOM killer hit is reported for a while after its end, as
// it most often ends at once, and no longer once it is here again.
func TestKilledIsTold(t *testing.T) {
	d := newDaemon(settings{node: "n1"}, slog.New(slog.DiscardHandler))
	began := time.Now()
	look := func(after time.Duration, alive bool, kills uint64) string {
		s := &nodejobs.Snapshot{At: began.Add(after)}
		j := nodejobs.Job{ID: "7", Node: "n1", UID: -1, Use: nodejobs.Use{Measured: true, OOMKills: kills, Limit: cgroup.Unlimited}}
		if alive {
			s.Jobs = []nodejobs.Job{j}
		} else if kills > 0 {
			s.Ended = []nodejobs.Ended{{Job: j, Last: s.At}}
		}
		d.watchOOM(s)
		_, line, _ := strings.Cut(string(textOf(s, slices.Collect(maps.Values(d.killed)))), "rsswarden_oom_kills_total counter\n")
		line, _, _ = strings.Cut(line, "\n")
		return line
	}
	const series = `rsswarden_oom_kills_total{jobid="7",node="n1"} `
	for _, c := range []struct {
		after time.Duration
		alive bool
		kills uint64
		want  string
	}{
		{0, true, 0, series + "0"},
		{time.Second, true, 2, series + "2"},
		{2 * time.Second, false, 2, series + "2"}, // its end
		{toldFor, false, 0, series + "2"},
		{toldFor + 2*time.Second, false, 0, ""},
		{time.Hour, true, 1, series + "1"}, // requeued
		{time.Hour + time.Second, false, 1, series + "1"},
		{time.Hour + time.Minute, true, 0, series + "0"}, // and again
		{time.Hour + 2*time.Minute, false, 0, ""},
	} {
		if got := look(c.after, c.alive, c.kills); got != c.want {
			t.Errorf("after %v: %q, want %q", c.after, got, c.want)
		}
	}
}
