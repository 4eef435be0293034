package render

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
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

// TestNotesOfOneRun: a warning about options when a run began is no failure of ours, and a
// training that the hook did not reach gives one note for each cause, for any number of
// processes.
func TestNotesOfOneRun(t *testing.T) {
	r := scenetest.Made{ID: "a", Limit: scenetest.SlurmRSS(8), Trainer: scenetest.Steady(4, 0, 0), Exit: scenetest.Ended(0, event.RunOK)}.Run()
	r.Events = append([]record.Entry{{Name: event.NameFault, Value: &event.Fault{Part: "start", Error: "--limit 900T can never act"}}}, r.Events...)
	for pid, why := range []string{"its environment", "its environment", "its namespace"} {
		r.Events = append(r.Events, record.Entry{Name: event.NameLoader, Value: &event.LoaderSaid{What: event.LoaderUnreached, PID: pid + 1, Reason: why}})
	}
	const unreached = "the loader hook did not reach a process that had loaded PyTorch, so its workers were not replaced, and not trimmed but by ptrace: "
	want := []string{"at the start: --limit 900T can never act", unreached + "its environment", unreached + "its namespace"}
	if diff := cmp.Diff(want, told([]*record.Run{r}, nil, scenetest.Noon).Notes); diff != "" {
		t.Error(diff)
	}
}
