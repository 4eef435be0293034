package render

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
	"github.com/rsswarden/rsswarden/supervisor/scenetest"
	values "github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestNotesOnce: what several ranks have in common is noted once, with how many they
// are, and not again where more went wrong behind it; a text of several lines is on one,
// in the text and on the page.
func TestNotesOnce(t *testing.T) {
	runs := scenetest.InTurn(4)
	for i, r := range runs {
		fault := func(text string) record.Entry {
			return record.Entry{At: time.Duration(i) * time.Minute, Name: event.NameFault, Value: &event.Fault{Part: "slurm", Error: text}}
		}
		r.Events = append([]record.Entry{fault("no slurm.conf"), fault("no slurm.conf\ncannot ask scontrol:\r\n\tno host\n")}, r.Events...)
		if i == 2 {
			r.Thinned = true
		}
	}
	rep := pageReport(runs...)
	want := []string{
		"4 ranks, the first n1, step 0, task 0: a part of rsswarden had stopped working: slurm: no slurm.conf; cannot ask scontrol: no host",
		"n1, step 0, task 2: old samples were thinned: one stands for 10 s or more, the fullest of them",
	}
	if diff := cmp.Diff(want, rep.Notes); diff != "" {
		t.Error(diff)
	}
	page, _ := writeBoth(t, rep)
	var text bytes.Buffer
	wardentest.NoError(t, Text(&text, rep, values.Style{}, true))
	if strings.Contains(page, "\uFFFD") || strings.Contains(text.String(), "\uFFFD") {
		t.Error("a line of ours broke off in what cannot be shown")
	}
}

// TestNotesOfTheStart: a warning about options when a run began is no failure of ours.
func TestNotesOfTheStart(t *testing.T) {
	r := scenetest.Made{ID: "a", Limit: scenetest.SlurmRSS(8), Trainer: scenetest.Steady(4, 0, 0), Exit: scenetest.Ended(0, event.RunOK)}.Run()
	r.Events = append([]record.Entry{{Name: event.NameFault, Value: &event.Fault{Part: "start", Error: "--limit 900T can never act"}}}, r.Events...)
	notes := told([]*record.Run{r}, nil, scenetest.Noon).Notes
	if len(notes) == 0 || notes[0] != "at the start: --limit 900T can never act" {
		t.Errorf("%q", notes)
	}
}

// TestNotesOfTheUnreached: a training that the hook did not reach gives one note for each
// cause, for any number of processes.
func TestNotesOfTheUnreached(t *testing.T) {
	r := scenetest.Made{ID: "a", Limit: scenetest.SlurmRSS(8), Trainer: scenetest.Steady(4, 0, 0), Exit: scenetest.Ended(0, event.RunOK)}.Run()
	for pid, why := range []string{"its environment", "its environment", "its namespace"} {
		r.Events = append(r.Events, record.Entry{Name: event.NameLoader, Value: &event.LoaderSaid{What: event.LoaderUnreached, PID: pid + 1, Reason: why}})
	}
	notes := strings.Join(told([]*record.Run{r}, nil, scenetest.Noon).Notes, "\n")
	if strings.Count(notes, "did not reach") != 2 || strings.Count(notes, "ptrace: its environment") != 1 {
		t.Errorf("%s", notes)
	}
}

func TestClock(t *testing.T) {
	set := func(d recordtest.Ranks, start, mono time.Duration) *record.Run {
		d.Start, d.Mono = d.Start.Add(start), mono
		return d.Run()
	}
	said := saysNodes("n1", "n2")
	for _, test := range []struct {
		name   string
		runs   []*record.Run
		said   *analysis.SlurmSays
		basis  string
		spread float64 // negative for none
		behind float64 // of n1
		note   string
	}{
		{"together", []*record.Run{set(scenetest.OnNode(1), 0, 0), set(scenetest.OnNode(2), 300*time.Millisecond, 0)}, said, "wall", 0.3, 0, "within 300 ms by these"},
		{"far apart", []*record.Run{set(scenetest.OnNode(1), 0, 0), set(scenetest.OnNode(2), 40*time.Second, 0)}, said, "wall", 40, 0, "up to 40 s apart by these: the clocks differ, or tasks began late"},
		{"behind Slurm's", []*record.Run{set(scenetest.OnNode(1), -3*time.Second, 0), set(scenetest.OnNode(2), 0, 0)}, said, "wall", 3, 3, "on n1 rsswarden began 3 s before Slurm began the job"},
		{"a fraction is no skew", []*record.Run{set(scenetest.OnNode(1), -900*time.Millisecond, 0), set(scenetest.OnNode(2), 0, 0)}, said, "wall", 0.9, 0, "within 900 ms"},
		{"no step in common", []*record.Run{set(scenetest.OnNode(1), 0, 0), set(recordtest.Ranks{Step: "1", Node: "n2", Count: 1, Start: scenetest.Noon, To: scenetest.Minutes}, 0, 0)}, nil, "wall", -1, 0, "nothing in the records tells"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := told(test.runs, test.said, scenetest.Noon).Clock
			spread := -1.0
			if c.Spread != nil {
				spread = *c.Spread
			}
			if c.Basis != test.basis || spread != test.spread || c.Behind["n1"] != test.behind || c.Behind["n2"] != 0 || !strings.Contains(c.Note, test.note) {
				t.Errorf("%+v", c)
			}
		})
	}
}
