package render

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/chart"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
	"github.com/rsswarden/rsswarden/supervisor/scenetest"
)

var (
	update  = flag.Bool("update", false, "write the golden files")
	outputs = flag.String("outputs", "", "a directory for all that is rendered, to compare two versions")
)

// golden compares a text with testdata/NAME.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s: -want +got\n%s", path, diff)
	}
}

// whole is a job of which every rendering is pinned.
type whole struct {
	name string
	runs []*record.Run
	said *analysis.SlurmSays
	now  time.Time
}

func wholes(t *testing.T) []whole {
	one, two := scenetest.Noon.Add(time.Hour), scenetest.Noon.Add(2*time.Hour)
	hostile := find(t, "maps").scene.Run()
	hostile.Procs[0].Comm = "a\x1b[2Jb\n\u202ec"
	hostile.Meta.Command = []string{"sh", "-c", "\x1b]0;owned\x07\necho done"}
	hostile.Damage = []string{"block 7: \x1b[31mbad"}
	hostile.Sources = []string{"/tmp/\x1b[1m"}
	died := saysNodes("n1", "n2")
	died.State, died.ExitCode, died.Steps = "FAILED", "0:9", []analysis.StepSays{{ID: "12.0", State: "OUT_OF_MEMORY", ExitCode: "0:125"}}
	kernel, over := find(t, "kernel, the command"), find(t, "OverMemoryKill")
	twice, between := scenetest.LedTwice(t)
	live := find(t, "running").scene.Run()
	just := func(r *record.Run) []*record.Run { return []*record.Run{r} }
	return []whole{
		{"carried", just(scenetest.CarriedRun()), nil, one},
		{"kernel", just(kernel.scene.Run()), kernel.said, one},
		{"overmemory", just(over.scene.Run()), over.said, one},
		{"journal", just(scenetest.AsJournal(t, find(t, "time limit").scene.Run())), nil, one},
		{"ranks", scenetest.Ranks(), nil, one},
		{"hostile", just(hostile), nil, one},
		{"grown", just(scenetest.GrownScene().Run()), nil, one},
		{"grown-journal", just(scenetest.AsJournal(t, scenetest.GrownScene().Run())), nil, one},
		{"grown-ranks", scenetest.GrownRanks(), nil, one},
		{"spawned", just(find(t, "descriptors, faster than any count").scene.Run()), nil, one},
		{"nothing", nil, nil, one},
		{"only-slurm", nil, ofSlurm("TIMEOUT", "0:0", "", "", ""), one},
		{"kernel-sure", just(find(t, "kernel, watcher and all: memory.oom.group").scene.Run()), nil, one},
		{"together", scenetest.Built(scenetest.OnNode(1), scenetest.OnNode(2)), saysNodes("n1", "n2"), two},
		{"together-oom", scenetest.OomOnN2(), died, two},
		{"together-lead", scenetest.LeadMoved(), nil, two},
		{"together-lacks", scenetest.Built(scenetest.OnNode(1)), saysNodes("n1", "n2", "n3"), two},
		{"together-lives", scenetest.SecondLife(), nil, two},
		{"together-many", scenetest.SixtyFour(2 * time.Minute), nil, two},
		{"led-twice", []*record.Run{twice, between}, nil, one},
		{"live", just(live), nil, one},
		{"long", just(scenetest.DrawnRun{Node: "node7", Length: 5 * time.Hour, Every: time.Second, Workers: 5, Limit: 4 << 30, From: 0.45, To: 0.97, Oom: true}.Build()), nil, scenetest.Dawn.Add(8 * time.Hour)},
	}
}

// TestOutputs holds every rendering of every scene: the text as it is, of the others a
// digest. With -outputs DIR two versions can be compared.
func TestOutputs(t *testing.T) {
	var digests strings.Builder
	for _, s := range wholes(t) {
		rep := explained(analysis.Input{Runs: s.runs, Slurm: s.said, Now: s.now, Timeline: true})
		var text bytes.Buffer
		for _, r := range []struct {
			kind  string
			write func(w io.Writer) error
		}{
			{"txt", func(w io.Writer) error { return Text(io.MultiWriter(w, &text), rep, 80, false) }},
			{"color", func(w io.Writer) error { return Text(w, rep, 100, true) }},
			{"advice", func(w io.Writer) error { return WriteAdvice(w, len(s.runs), Advise(s.runs), 80, false) }},
			{"which", func(w io.Writer) error { _, err := io.WriteString(w, Which(rep, s.now)); return err }},
			{"json", func(w io.Writer) error { return json.NewEncoder(w).Encode(rep) }},
			{"csv", func(w io.Writer) error { return CSV(w, s.runs) }},
			{"svg", func(w io.Writer) error { return SVG(w, rep) }},
			{"html", func(w io.Writer) error { return HTML(w, rep) }},
		} {
			var b bytes.Buffer
			if err := r.write(&b); err != nil {
				t.Fatalf("%s.%s: %v", s.name, r.kind, err)
			}
			if *outputs != "" {
				if err := os.WriteFile(filepath.Join(*outputs, s.name+"."+r.kind), b.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			fmt.Fprintf(&digests, "%s.%s %x\n", s.name, r.kind, sha256.Sum256(b.Bytes()))
		}
		golden(t, s.name+".txt", text.Bytes())
		for line := range strings.Lines(text.String()) {
			if s := strings.TrimSuffix(line, "\n"); chart.Clean(s) != s || len([]rune(s)) > 80 || strings.TrimRight(s, " ") != s {
				t.Errorf("control characters, too wide, or blanks at the end: %q", line)
			}
		}
		if first, _, _ := strings.Cut(text.String(), "\n"); !strings.HasPrefix(rep.Verdict, first) {
			t.Errorf("the first line is not the verdict: %q", first)
		}
	}
	golden(t, "digests.txt", []byte(digests.String()))
}

// TestLeadChanges: a rank that ended first hands over too; a step that comes later,
// another life and two populations at once do not.
func TestLeadChanges(t *testing.T) {
	ended, heir := scenetest.OnNode(2), scenetest.OnNode(2)
	ended.To, ended.Ends = 5*time.Minute, nil
	heir.From, heir.Leader, heir.Ends = 5*time.Minute+time.Second, 3, nil
	later := heir
	later.Step, later.Start, later.From = "1", scenetest.Noon.Add(6*time.Minute), 0
	again := heir
	again.Restart = 1
	beside := heir
	beside.From = 0
	for name, test := range map[string]struct {
		next recordtest.Ranks
		want string
	}{
		"a rank of the same step": {heir, "on n2 the lead went from step 0, task 2, whose rank had ended, to step 0, task 3 at 12:05:01; nothing was recorded there for 1 s"},
		"a later step":            {later, ""},
		"another life":            {again, ""},
		"at once":                 {beside, ""},
	} {
		rep := told(scenetest.Built(ended, test.next), nil, scenetest.Noon)
		var got []string
		for i := range rep.Leads {
			got = append(got, leadSentence(&rep.Leads[i]))
		}
		if s := strings.Join(got, "\n"); s != test.want {
			t.Errorf("%s: %q", name, s)
		}
	}
}

func explained(in analysis.Input) *analysis.Result {
	rep := analysis.Analyze(in)
	Explain(rep, in.Now)
	return rep
}

// TestLedTwice: of a rank that led twice each time is told, with who led between, and
// its end.
func TestLedTwice(t *testing.T) {
	twice, between := scenetest.LedTwice(t)
	for _, runs := range [][]*record.Run{{twice, between}, {between, twice}} {
		rep, line := told(runs, nil, scenetest.Noon), drawn(runs)
		var leads []string
		for i := range rep.Leads {
			leads = append(leads, leadSentence(&rep.Leads[i]))
		}
		if diff := cmp.Diff([]string{
			"on n1 the lead went from step 0, task 0, whose watcher was gone, to step 0, task 1 at 12:01:00; nothing was recorded there for 500 ms",
			"on n1 the lead went from step 0, task 1, whose rank had ended, to step 0, task 0 at 12:03:01; nothing was recorded there for 1 s",
		}, leads); diff != "" {
			t.Error(diff)
		}
		if want := "both ranks on 1 node ended with exit status 0; n1 came nearest to its limit, user, with 410 MiB of 1.00 GiB (40 %)"; rep.Verdict != want {
			t.Errorf("%s", rep.Verdict)
		}
		if len(rep.Runs) != 2 || len(rep.Nodes[0].Runs) != 2 || rep.Runs[0].Code == nil || rep.Runs[0].Samples != 61+60 || !rep.Runs[0].End.Equal(scenetest.Noon.Add(4*time.Minute)) {
			t.Errorf("%+v", rep.Runs)
		}
		if l := Advise(runs)[0]; l.Line != "#SBATCH --mem=464M" || !strings.Contains(l.Why, "peak 410 MiB (summed RSS, as --limit counts; no limit that kills was found) of 1.00 GiB") {
			t.Errorf("%+v", l)
		}
		if len(line.Runs) != 1 || line.Length != 4*time.Minute {
			t.Errorf("%d charts of %v", len(line.Runs), line.Length)
		}
	}
	if rep := told([]*record.Run{twice}, nil, scenetest.Noon); len(rep.Leads) != 0 || len(rep.Runs) != 1 {
		t.Errorf("alone: %+v", rep.Leads)
	}
}

// TestLimitsInTurn: the one limit of leaders that followed each other is told once, over
// all of the time; of two at the same time each says whose it is.
func TestLimitsInTurn(t *testing.T) {
	twice, between := scenetest.LedTwice(t)
	other := recordtest.Ranks{
		Node: "n1", Nodes: 1, Tasks: 3, First: 2, Count: 1, Leader: 2, Start: scenetest.Noon, User: true, Limit: rss.GiB, To: 4 * time.Minute,
		Share: func(time.Duration) float64 { return 0.25 }, Exit: recordtest.Ended(0, "", event.VerdictFine),
	}.Run()
	section := func(runs ...*record.Run) string {
		rep, line := told(runs, nil, scenetest.Noon), drawn(runs)
		var b bytes.Buffer
		if err := Text(&b, rep, 80, false); err != nil {
			t.Fatal(err)
		}
		page, _ := writeBoth(t, rep, &line)
		_, rows, _ := strings.Cut(page, `id="limits"`)
		rows, _, _ = strings.Cut(rows, "</section>")
		text := b.String()
		_, text, _ = strings.Cut(text, "\nlimits\n")
		text, _, _ = strings.Cut(text, "\n\n")
		if n, want := strings.Count(rows, ">user<"), strings.Count(text, "  user, tree on n1"); n != want {
			t.Errorf("%d rows of the page, %d of the text", n, want)
		}
		return text
	}
	one := section(twice, between)
	if want := "  user, tree on n1   at most 410 MiB of 1.00 GiB (40 %) at 12:00:00\n" +
		"    our own rules act on summed RSS; limit from --limit\n" +
		"    " + strings.Repeat("▄", 10) + strings.Repeat("▃", 20) + strings.Repeat("▂", 10) + "  0 to 100 % over 4 min 00 s"; !strings.Contains(one, want) || strings.Count(one, "user, tree") != 1 {
		t.Errorf("%s", one)
	}
	two := section(twice, between, other)
	for _, want := range []string{"user, tree on n1, step 0, task 0, then 1 at most 410 MiB", "user, tree on n1, step 0, task 2 at most 256 MiB"} {
		if !strings.Contains(two, want) {
			t.Errorf("no %q in %s", want, two)
		}
	}
}

func saysNodes(nodes ...string) *analysis.SlurmSays {
	return &analysis.SlurmSays{Source: "sacct", State: "COMPLETED", ExitCode: "0:0", Start: scenetest.Noon, End: scenetest.Noon.Add(scenetest.Minutes + time.Second), Nodes: nodes}
}

func told(runs []*record.Run, said *analysis.SlurmSays, now time.Time) *analysis.Result {
	return explained(analysis.Input{Runs: runs, Slurm: said, Now: now})
}

func drawn(runs []*record.Run) analysis.Timeline {
	return *explained(analysis.Input{Runs: runs, Now: scenetest.Noon, Timeline: true}).Timeline
}
