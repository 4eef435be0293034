package render

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
	"github.com/rsswarden/rsswarden/supervisor/scenetest"
)

// TestLeaders: the text on a node whose record goes on in another rank's, and on a rank
// that fails while the record goes on, in whatever order the records are read.
func TestLeaders(t *testing.T) {
	lost := func(share float64, ended ...recordtest.RankEnd) []*record.Run {
		a, b := scenetest.OnNode(2), scenetest.OnNode(2)
		a.To, a.Exit, a.Ends, a.Share = 5*time.Minute, nil, nil, recordtest.Rising(5*time.Minute, 0.3, share)
		b.From, b.Leader, b.Ends = 5*time.Minute+time.Second, 3, ended
		b.Share = func(time.Duration) float64 { return 0.2 }
		return scenetest.Built(a, b)
	}
	ended, successor := scenetest.OnNode(2), scenetest.OnNode(2)
	ended.To, ended.Ends = 5*time.Minute, nil
	successor.From, successor.Leader, successor.Ends = 5*time.Minute+time.Second, 3, nil
	later, again, beside := successor, successor, successor
	later.Step, later.Start, later.From = "1", scenetest.Noon.Add(6*time.Minute), 0
	again.Restart = 1
	beside.From = 0
	failed := func(live bool) []*record.Run {
		d := scenetest.OnNode(2)
		d.Share = func(at time.Duration) float64 {
			if at <= 2*time.Minute {
				return recordtest.Rising(2*time.Minute, 0.3, 0.99)(at)
			}
			return 0.3
		}
		d.Ends = []recordtest.RankEnd{{Task: 3, At: 2 * time.Minute, Signal: "SIGKILL"}}
		if live {
			d.Exit = nil
		}
		runs := scenetest.Built(scenetest.OnNode(1), d)
		runs[1].Live = live
		return runs
	}
	killed := scenetest.InTurn(2)
	e := killed[0].Exit()
	e.Code, e.Outcome = nil, recordtest.Unwatched
	twice, between := scenetest.LedTwice(t)
	var b strings.Builder
	for _, job := range []struct {
		name string
		runs []*record.Run
	}{
		{"its rank went on", lost(0.5, recordtest.RankEnd{Task: 2, At: scenetest.Minutes})},
		{"its rank failed later", lost(0.5, recordtest.RankEnd{Task: 2, At: scenetest.Minutes - time.Minute, Code: 3})},
		{"killed with its rank, memory full", lost(0.97, recordtest.RankEnd{Task: 2, At: 5*time.Minute + time.Second, Signal: "SIGKILL"})},
		{"killed with its rank, room left", lost(0.5, recordtest.RankEnd{Task: 2, At: 5*time.Minute + time.Second, Signal: "SIGKILL"})},
		{"how its rank ended is not known", lost(0.5)},
		{"a rank of the same step goes on", scenetest.Built(ended, successor)},
		{"a later step is another job for the node", scenetest.Built(ended, later)},
		{"another attempt", scenetest.Built(ended, again)},
		{"two leaders at once", scenetest.Built(ended, beside)},
		{"a rank failed, the others went on", failed(false)},
		{"a rank failed, the job still runs", failed(true)},
		{"the holder was killed", killed},
		{"led twice", []*record.Run{twice, between}},
		{"led twice, the record between is missing", []*record.Run{twice}},
	} {
		var texts []string
		for range 2 {
			rep := told(job.runs, nil, scenetest.Noon)
			text := fmt.Sprintf("== %s\n%s: %s\n", job.name, rep.Cause, rep.Verdict)
			for i := range rep.Leads {
				text += fmt.Sprintf("  %+v\n  %s\n", rep.Leads[i], leadSentence(&rep.Leads[i]))
			}
			texts = append(texts, text+"    "+strings.Join(rep.Evidence, "\n    ")+"\n")
			slices.Reverse(job.runs)
		}
		if texts[0] != texts[1] {
			t.Errorf("the order of records counts:\n%s%s", texts[0], texts[1])
		}
		b.WriteString(texts[0])
	}
	golden.Check(t, "testdata/leaders.txt", b.String())
}
