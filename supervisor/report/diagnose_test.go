package report

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

func ending(after time.Duration) *record.Job {
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
				rep := Build([]*record.Run{r}, nil, now)
				check(t, rep, test.cause, test.certainty, test.text, kind)
				if test.said == nil {
					return
				}
				cause, certainty, text := test.saidCause, test.saidCertainty, test.saidText
				if cause == "" {
					cause = test.cause
				}
				if certainty == "" {
					certainty = test.certainty
				}
				rep = Build([]*record.Run{r}, test.said, now)
				check(t, rep, cause, certainty, text, kind)
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

func check(t *testing.T, rep *Report, cause event.Cause, certainty Certainty, text []string, kind string) {
	t.Helper()
	if rep.Cause != cause || rep.Certainty != certainty {
		t.Errorf("cause %q (%s), want %q (%s): %s", rep.Cause, rep.Certainty, cause, certainty, rep.Verdict)
	}
	for _, s := range text {
		// The journal may lack the seconds before the end.
		if !strings.Contains(rep.Verdict, s) {
			t.Errorf("%s: the verdict does not say %q:\n%s", kind, s, rep.Verdict)
		}
	}
	if strings.Contains(rep.Verdict, "\n") || strings.HasSuffix(rep.Verdict, ".") || len(rep.Evidence) == 0 {
		t.Errorf("verdict %q, evidence %q", rep.Verdict, rep.Evidence)
	}
}

// TestEvidenceOfSides: what a verdict on a limit of this kind follows from, whatever
// the cause.
func TestEvidenceOfSides(t *testing.T) {
	for name, want := range map[string]string{
		"locked memory ends nothing":                    "memlock at 8.00 MiB of 8.00 MiB (100 %): kernel on locked memory of one process",
		"tasks":                                         "tasks /sys/fs/cgroup/job_12 at 512 of 512 (100 %): kernel on tasks",
		"address space":                                 "kernel on address space of one process; limit from soft RLIMIT_AS",
		"descriptors, faster than any count":            "12:09:58.0: told by the loader hook: to send the 9,000 tensors",
		"a data set was sent, and all suffices":         "takes 9,024 descriptors of the 10,240",
		"maps, and the finding that tells why":          "12:09:00.0: tensors by spawn, certain: the DataLoader of process 701 sends",
		"shm, and who holds it":                         "12:09:00.0: prefetch queue, certain: 60.0 MiB of it in process 702 (status); a second sentence",
		"descriptors in one message to the fork server": "of the 253 that Linux takes",
	} {
		i := slices.IndexFunc(sideDeaths, func(d dying) bool { return d.name == name })
		rep := Build([]*record.Run{sideDeaths[i].scene.run()}, nil, noon)
		if !strings.Contains(strings.Join(rep.Evidence, "\n"), want) {
			t.Errorf("%s: the evidence lacks %q: %q", name, want, rep.Evidence)
		}
	}
	rep := Build([]*record.Run{find(t, "maps").scene.run()}, nil, noon)
	if strings.Contains(rep.Verdict, "instead") || len(rep.Findings) > 0 {
		t.Errorf("an older record tells of what it does not have: %s", rep.Verdict)
	}
}
