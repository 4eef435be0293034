package chart

import (
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/scenetest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// drawn is the chart of a scene, as SVG.
func drawn(t *testing.T, s scenetest.Scene) (string, *analysis.Timeline) {
	t.Helper()
	line := analysis.Analyze(analysis.Input{Runs: []*record.Run{s.Run()}, Now: scenetest.Noon, Timeline: true}).Timeline
	var b strings.Builder
	wardentest.NoError(t, SVG(&b, "", "", line))
	return b.String(), line
}

// TestOwnMemoryInTheStack: it is part of the stack where the enforcer counts it, and nowhere
// else is it in the sum.
func TestOwnMemoryInTheStack(t *testing.T) {
	const tree, own = 1020 << 10, 12 << 10 // KiB, of the scene's processes
	for limit, counted := range map[string]bool{"cgroup": true, "slurm": true, "user": false, "node": false} {
		s := scenetest.Using(0.2, 0.5)
		s.Limits = []event.Limit{map[string]event.Limit{
			"cgroup": scenetest.LimitJob, "slurm": scenetest.LimitStepd, "user": scenetest.LimitUser, "node": scenetest.LimitNode}[limit]}
		svg, line := drawn(t, s)
		if got := strings.Contains(svg, "band rsswarden"); got != counted {
			t.Errorf("%s: own memory is in the stack: %v", limit, got)
		}
		run, want := &line.Runs[0], int64(tree)
		if counted {
			want += own
		}
		if got := run.Stack(&run.Levels[0], run.Primary)[5]; got != want {
			t.Errorf("%s: a stack of %d KiB, want %d", limit, got, want)
		}
	}
}

// TestMarksInLanes: what was done has a glyph of its kind below the axis, hollow where it
// had no effect, and the legend has the signs; workers' own trims are a strip, and those that a rule requested are not in
// it again.
func TestMarksInLanes(t *testing.T) {
	trimmed := func(at time.Duration, count int, reason string) record.Entry {
		return record.Entry{At: at, Value: &event.LoaderSaid{What: event.LoaderTrimmed, Count: count, Freed: rss.MiB, Reason: reason}}
	}
	decide := func(at time.Duration, id uint64, a event.Action, ok bool) []record.Entry {
		return []record.Entry{{At: at, Value: &event.Decision{ID: id, Action: a, Limit: event.LimitCgroup}}, {At: at, Value: &event.Outcome{Decision: id, OK: ok}}}
	}
	s := scenetest.Using(0.2, 0.9)
	s.Events = append(decide(time.Minute, 1, event.ActionRecycle, true), decide(3*time.Minute, 2, event.ActionRecycle, false)...)
	s.Events = append(s.Events, record.Entry{At: 5 * time.Minute, Value: &event.Outcome{Action: event.ActionTrim, Reason: event.ReasonNoWorker}},
		trimmed(6*time.Minute, 2, ""), trimmed(6*time.Minute, 3, ""), trimmed(7*time.Minute, 9, event.TrimRequested), trimmed(8*time.Minute, 1, ""))
	svg, line := drawn(t, s)
	for want, times := range map[string]int{Glyphs["recycle"]: 3, Glyphs["trim"]: 3, `class="mark hollow decision"`: 3, `class="mark decision"`: 3, `class="strip-trim"`: 2, "trim skipped": 1} {
		if got := strings.Count(svg, want); got != times {
			t.Errorf("%q is there %d times, not %d", want, got, times)
		}
	}
	if trims := line.Runs[0].Trims; len(trims) != 2 || trims[0].Count != 5 || trims[0].Dropped != 2*rss.MiB || trims[1].Count != 1 {
		t.Errorf("trims %+v", trims)
	}
}
