package analysis

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/scenetest"
)

// TestForecasts judges forecasts of a limit that is reached 100 s in, or not at
// all.
func TestForecasts(t *testing.T) {
	for _, test := range []struct {
		name  string
		etas  map[int]float64 // seconds into the run: forecast
		reach int             // when the limit is reached, 0 for never
		freed int             // when an action frees memory, 0 for never
		kill  bool            // the limit ends the run after 200 s
		want  Forecast
	}{
		{name: "none"},
		{name: "right", etas: map[int]float64{50: 50, 60: 30, 70: 59}, reach: 100, want: Forecast{Made: 3, Right: 3}},
		{name: "too soon and too late", etas: map[int]float64{50: 20, 60: 100}, reach: 100, want: Forecast{Made: 2, False: 2}},
		{name: "never reached", etas: map[int]float64{50: 20, 190: 20}, want: Forecast{Made: 2, False: 1, Open: 1}},
		{name: "an action came first", etas: map[int]float64{50: 50, 90: 20}, freed: 80, reach: 100, want: Forecast{Made: 2, Right: 1, Open: 1}},
		{name: "it ended the run", etas: map[int]float64{150: 50, 199: 100}, kill: true, want: Forecast{Made: 2, Right: 1, False: 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := record.NewBuilder(record.Meta{ID: "x", Start: scenetest.Noon})
			b.Limit(scenetest.LimitJob)
			for at := range 201 {
				r := record.Reading{Size: scenetest.Mem, Used: scenetest.Mem.Scale(0.95), ETA: -1}
				if e, ok := test.etas[at]; ok {
					r.ETA = e
				}
				if test.reach > 0 && at == test.reach {
					r.Used = scenetest.Mem
				}
				b.Sample(&record.Sample{At: time.Duration(at) * time.Second, Limits: []record.Reading{r}})
			}
			if test.freed > 0 {
				b.Event(record.Entry{At: time.Duration(test.freed) * time.Second, Value: &event.Outcome{OK: true, Freed: rss.MiB}})
			}
			if test.kill {
				b.Event(scenetest.Exits(200*time.Second, "SIGKILL", 0, scenetest.Kills(1)...))
			} else {
				b.Event(scenetest.Exits(200*time.Second, "", 0))
			}
			got := build([]*record.Run{b.Run()}, nil, scenetest.Noon).Forecast
			if got == nil {
				got = &Forecast{}
			}
			got.Note, got.RightShare = "", 0
			if diff := cmp.Diff(test.want, *got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
