package report

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

func endsAfter(after time.Duration) *record.Job {
	j := inJob()
	j.End = noon.Add(after)
	return j
}

func eta(d time.Duration) *float64 {
	s := d.Seconds()
	return &s
}

// missed is the exit event of a run that filled its cgroup between two samples.
func missed() *event.Exit {
	e := exits(minutes, "", 1, kills(1)...).Value.(*event.Exit)
	full := limitJob
	full.Used, full.Limit = mem.Scale(0.98), mem
	e.Binding = &full
	return e
}

func TestDiagnose(t *testing.T) {
	now := noon.Add(time.Hour)
	for _, test := range slices.Concat(deaths, sideDeaths) {
		for _, kind := range []string{"record", "journal"} {
			t.Run(test.name+"/"+kind, func(t *testing.T) {
				r := test.scene.run()
				if kind == "journal" {
					r = asJournal(t, r)
				}
				rep := build([]*record.Run{r}, nil, now)
				check(t, rep, test.cause, test.certainty)
				if test.said == nil {
					return
				}
				cause, certainty := test.saidCause, test.saidCertainty
				if cause == "" {
					cause = test.cause
				}
				if certainty == "" {
					certainty = test.certainty
				}
				rep = build([]*record.Run{r}, test.said, now)
				check(t, rep, cause, certainty)
				if !slices.ContainsFunc(rep.Evidence, func(s string) bool { return strings.HasPrefix(s, "Slurm (") }) {
					t.Errorf("Slurm's word is not in the evidence: %q", rep.Evidence)
				}
			})
		}
	}
	for _, c := range event.Causes {
		if !slices.ContainsFunc(slices.Concat(deaths, sideDeaths), func(d dying) bool {
			return d.cause == c || d.saidCause == c
		}) {
			t.Errorf("no test dies of %q", c)
		}
	}
}

func check(t *testing.T, rep *Report, cause event.Cause, certainty Certainty) {
	t.Helper()
	if rep.Cause != cause || rep.Certainty != certainty {
		t.Errorf("cause %q (%s), want %q (%s): %s", rep.Cause, rep.Certainty, cause, certainty, rep.Verdict)
	}
	if strings.Contains(rep.Verdict, "\n") || strings.HasSuffix(rep.Verdict, ".") || len(rep.Evidence) == 0 {
		t.Errorf("verdict %q, evidence %q", rep.Verdict, rep.Evidence)
	}
}
