package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// found is a finding as the watcher tells it, of process 702.
func found(at time.Duration, f event.Finding, c event.Confidence, role rss.Role, size rss.Bytes) record.Entry {
	return record.Entry{At: at, Name: event.NameDiagnosis, Value: &event.Diagnosis{
		Head: event.Head{V: 1, Time: noon.Add(at), Event: event.NameDiagnosis}, Finding: f, Confidence: c, Role: role, PID: 702, Bytes: size,
		Evidence: []string{fmt.Sprintf("%v of it in process 702 (status)", size), "a second sentence", "a third"},
		Advice:   []string{"write " + string(f) + " otherwise", "a second way", "a third way", "a fourth way"},
	}}
}

// sends is the loader hook's warning that a data set takes so many.
func sends(at time.Duration, s event.Sharing) record.Entry {
	s.Strategy, s.Workers, s.Tensors = "file_descriptor", 2, 9000
	return record.Entry{At: at, Name: event.NameLoader, Value: &event.LoaderSaid{What: event.LoaderPickling, PID: 701, Sharing: &s}}
}

// spawned is the finding that goes with it.
func spawned(at time.Duration) record.Entry {
	e := found(at, event.FindingSpawn, event.Certain, rss.RoleTrainer, 36*rss.MiB)
	e.Value.(*event.Diagnosis).Evidence = []string{`the DataLoader of process 701 sends 9000 tensors to 2 workers by spawn`}
	e.Value.(*event.Diagnosis).Advice = []string{
		"one tensor for the whole data set (torch.stack, or one flat tensor with offsets) or numpy arrays, not a list of tensors: each tensor costs a mapping or a descriptor",
		`torch.multiprocessing.set_start_method("fork"), or DataLoader(multiprocessing_context="fork"), before CUDA is used: a forked worker is sent nothing (it is "spawn" now)`,
		"open the data in __init__ of the worker (worker_init_fn) and keep only paths in the data set",
	}
	return e
}

func cure(at time.Duration, remedy event.Remedy, ok bool, before, after int64, reason string) record.Entry {
	return record.Entry{At: at, Name: event.NameCure, Value: &event.Cure{Remedy: remedy, PID: 702, OK: ok, Before: before, After: after, Reason: reason}}
}

// grownScene is a run in which much was found, some of it more than once.
func grownScene() scene {
	return scene{
		job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.7),
		events: []record.Entry{
			cure(0, event.RemedyArenas, true, 0, 2, ""),
			cure(3*time.Second, event.RemedyOOMPrefer, true, 0, 500, ""),
			cure(4*time.Second, event.RemedyOOMPrefer, true, 0, 500, ""),
			cure(5*time.Second, event.RemedyNoFile, false, 1024, 1024, "the hard limit is 1024"),
			found(time.Minute, event.FindingWorkerLeak, event.Likely, rss.RoleWorker, 100*rss.MiB),
			found(2*time.Minute, event.FindingPrefetch, event.Certain, rss.RoleWorker, 600*rss.MiB),
			found(3*time.Minute, event.FindingMapped, event.Certain, rss.RoleWorker, 2*rss.GiB),
			found(4*time.Minute, event.FindingWorkerLeak, event.Certain, rss.RoleWorker, 900*rss.MiB),
			found(5*time.Minute, event.FindingWorkerLeak, event.Likely, rss.RoleWorker, 110*rss.MiB),
			found(5*time.Minute, event.FindingPinned, event.Likely, rss.RoleTrainer, 90*rss.MiB),
			found(6*time.Minute, event.FindingCopyOnWrite, event.Likely, rss.RoleWorker, 80*rss.MiB),
			exits(minutes, "", 0),
		},
	}
}

// TestFindings: a finding that was told again stands once, as it weighed most, and
// mapped files weigh little where the limit does not count them. A journal
// tells the same.
func TestFindings(t *testing.T) {
	r := grownScene().run()
	for kind, run := range map[string]*record.Run{"record": r, "journal": asJournal(t, r)} {
		rep := build([]*record.Run{run}, nil, noon)
		var got []string
		for i := range rep.Findings {
			d := &rep.Findings[i]
			got = append(got, findingTitle(d, 1)+" "+d.First.Format(time.TimeOnly)+" "+d.At.Format(time.TimeOnly))
			if d.Run != r.Meta.ID || d.Runs != 1 || d.PID != 702 || len(d.Evidence) != 3 || len(d.Advice) != 4 {
				t.Errorf("%s: %+v", kind, d)
			}
		}
		want := []string{
			"leak in worker, certain: 900 MiB 12:01:00 12:04:00", "prefetch queue, certain: 600 MiB in worker 12:02:00 12:02:00",
			"mapped file, certain: 2.00 GiB in worker 12:03:00 12:03:00", "pinned memory, likely: 90.0 MiB in trainer 12:05:00 12:05:00",
			"copy-on-write, likely: 80.0 MiB in worker 12:06:00 12:06:00",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", kind, diff)
		}
		got = nil
		for i := range rep.Cures {
			got = append(got, string(rep.Cures[i].Remedy)+" "+cureText(&rep.Cures[i]))
		}
		want = []string{
			"malloc-arenas done once, in process 702: 2, 0 before", "oom-prefer done 2 times, in process 702 last: 500, 0 before",
			"nofile not done, once, in process 702; the hard limit is 1024",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", kind, diff)
		}
	}
}

// TestFindingsOfRanks: what several ranks were found to do stands once, with how
// many they are.
func TestFindingsOfRanks(t *testing.T) {
	runs := ranks()
	for i, r := range runs[1:] {
		e := found(time.Duration(10-i)*time.Second, event.FindingWorkerLeak, event.Certain, rss.RoleWorker, rss.Bytes(i+1)*rss.GiB)
		r.Events = append([]record.Entry{e}, r.Events...)
	}
	rep := build(runs, nil, noon)
	if len(rep.Findings) != 1 {
		t.Fatalf("%+v", rep.Findings)
	}
	d := &rep.Findings[0]
	if d.Run != "run3" || d.Runs != 3 || findingTitle(d, 4) != "leak in worker, certain: 3.00 GiB, on 3 of 4 runs" || !d.First.Equal(noon.Add(8*time.Second)) {
		t.Errorf("%s of %s, first %v", findingTitle(d, 4), d.Run, d.First)
	}
}

// TestFindingsJSON: the shape is there for programs, also of a record without any.
func TestFindingsJSON(t *testing.T) {
	shape := func(runs ...*record.Run) (findings, cures []map[string]any) {
		t.Helper()
		b, err := json.Marshal(build(runs, nil, noon))
		if err != nil {
			t.Fatal(err)
		}
		var out struct{ Findings, Cures *[]map[string]any }
		if err := json.Unmarshal(b, &out); err != nil || out.Findings == nil || out.Cures == nil {
			t.Fatalf("%v: %s", err, b)
		}
		return *out.Findings, *out.Cures
	}
	for _, runs := range [][]*record.Run{nil, {carriedRun()}} {
		if f, c := shape(runs...); len(f)+len(c) > 0 {
			t.Errorf("%v, %v", f, c)
		}
	}
	f, c := shape(grownScene().run())
	want := map[string]any{
		"run": "20261120T120000Z-12.batch.0-n1-700", "finding": "leak in worker", "confidence": "certain", "role": "worker", "pid": 702.0, "bytes": float64(900 * rss.MiB),
		"evidence": []any{"900 MiB of it in process 702 (status)", "a second sentence", "a third"},
		"advice":   []any{"write leak in worker otherwise", "a second way", "a third way", "a fourth way"},
		"first":    "2026-11-20T12:01:00Z", "time": "2026-11-20T12:04:00Z", "runs": 1.0,
	}
	if diff := cmp.Diff(want, f[0]); diff != "" {
		t.Errorf("findings: -want +got\n%s", diff)
	}
	want = map[string]any{
		"run": "20261120T120000Z-12.batch.0-n1-700", "remedy": "oom-prefer", "pid": 702.0, "ok": true, "before": 0.0, "after": 500.0,
		"first": "2026-11-20T12:00:03Z", "time": "2026-11-20T12:00:04Z", "times": 2.0,
	}
	if diff := cmp.Diff(want, c[1]); diff != "" {
		t.Errorf("cures: -want +got\n%s", diff)
	}
}

// TestFindingIsAdvisedOnce: advice from many runs names what the newest was found
// to do, and the report of one run, which has a place for it, does not twice.
func TestFindingIsAdvisedOnce(t *testing.T) {
	r := grownScene().run()
	lines := Advise([]*record.Run{r})
	last := lines[len(lines)-1]
	if last.Line != "write leak in worker otherwise" || last.Why != "leak in worker, certain: 900 MiB" || !strings.HasSuffix(last.Evidence, "("+r.Meta.ID+")") {
		t.Errorf("%+v", last)
	}
	var b bytes.Buffer
	if err := WriteText(&b, build([]*record.Run{r}, nil, noon), 80, false); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), last.Line); n != 1 {
		t.Errorf("the report tells it %d times", n)
	}
	mended := grownScene()
	mended.job.ID = "13"
	mended.events = mended.events[len(mended.events)-1:]
	later := mended.run()
	later.Meta.ID, later.Meta.Start = "later", noon.Add(time.Hour)
	if lines := Advise([]*record.Run{r, later}); slices.ContainsFunc(lines, func(l Line) bool { return l.Line == last.Line }) {
		t.Errorf("it was mended since: %+v", lines)
	}
}

// TestFindingsInPage: a section, and a mark where a finding was told first.
func TestFindingsInPage(t *testing.T) {
	r := grownScene().run()
	tl := series([]*record.Run{r})
	var marks []string
	for _, m := range tl.Runs[0].Marks {
		if m.Kind == MarkFinding {
			marks = append(marks, m.At.String()+" "+happened(&m))
		}
	}
	want := []string{
		"1m0s found: leak in worker, likely: 100 MiB", "2m0s found: prefetch queue, certain: 600 MiB in worker", "3m0s found: mapped file, certain: 2.00 GiB in worker",
		"5m0s found: pinned memory, likely: 90.0 MiB in trainer", "6m0s found: copy-on-write, likely: 80.0 MiB in worker",
	}
	if diff := cmp.Diff(want, marks); diff != "" {
		t.Errorf("marks: -want +got\n%s", diff)
	}
	page, svg := writeBoth(t, build([]*record.Run{r}, nil, noon), &tl)
	for _, s := range []string{
		">What grew, and why<", "<code>leak in worker</code> certain: 900 MiB <span class=\"soft\">first told 12:01:00<", "<li>a fourth way</li>",
		">Changed before it could go wrong<", "12:00:05, nofile: not done, once",
	} {
		if !strings.Contains(page, s) {
			t.Errorf("the page lacks %q", s)
		}
	}
	if !strings.Contains(svg, `class="mark finding"`) {
		t.Error("no mark is drawn")
	}
	tl = series([]*record.Run{carriedRun()})
	if page, _ := writeBoth(t, build([]*record.Run{carriedRun()}, nil, noon), &tl); strings.Contains(page, "What grew") || strings.Contains(page, "Changed before") {
		t.Error("a record without findings has a place for them")
	}
}
