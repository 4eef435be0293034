package render

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/chart"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
	"github.com/rsswarden/rsswarden/supervisor/scenetest"
	values "github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

var outputs = flag.String("outputs", "", "a directory for all that is rendered, to compare two versions")

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
	third := recordtest.Ranks{
		Node: "n1", Nodes: 1, Tasks: 3, First: 2, Count: 1, Leader: 2, Start: scenetest.Noon, User: true, Limit: rss.GiB, To: 4 * time.Minute,
		Share: func(time.Duration) float64 { return 0.25 }, Exit: recordtest.Ended(0, "", event.RunOK),
	}.Run()
	live := find(t, "running").scene.Run()
	// A run of a former version had options, rules and faults that no run has today.
	former := scenetest.Using(0.2, 0.7,
		record.Entry{Name: event.NameFault, Value: &event.Fault{Part: "guard-cgroup", Error: "cannot guard: the memory controller is cgroup v2"}},
		scenetest.Cure(0, event.RemedyArenas, true, 0, 2, ""),
		record.Entry{At: time.Minute, Name: event.NameDecision, Value: &event.Decision{
			ID: 1, Rule: "60%:trim+drop", Limit: event.LimitCgroup, Action: event.ActionTrimDrop, Used: scenetest.Mem.Scale(0.6), LimitSize: scenetest.Mem,
		}},
		record.Entry{At: 2 * time.Minute, Name: event.NameOutcome, Value: &event.Outcome{Decision: 1, OK: true, Reason: event.ReasonDone, Freed: rss.GiB}},
		scenetest.Exits(scenetest.Minutes, "", 0)).Run()
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
		{"together-attempts", scenetest.SecondAttempt(), nil, two},
		{"together-many", scenetest.SixtyFour(2 * time.Minute), nil, two},
		{"led-twice", []*record.Run{twice, between}, nil, one},
		{"two-leaders", []*record.Run{twice, between, third}, nil, one},
		{"live", just(live), nil, one},
		{"former", just(former), nil, one},
		{"former-journal", just(scenetest.AsJournal(t, former)), nil, one},
		{"long", just(scenetest.DrawnRun{Node: "node7", Length: 5 * time.Hour, Every: time.Second, Workers: 5, Limit: 4 << 30, From: 0.45, To: 0.97, Oom: true}.Build()), nil, scenetest.Dawn.Add(8 * time.Hour)},
	}
}

// pinned are renderings that are kept as they are, beside the text of every scene.
var pinned = []string{"carried.json", "grown-ranks.json", "together-attempts.json", "journal.svg", "grown.html", "together-attempts.html"}

// TestOutputs holds the renderings of every scene. With -outputs DIR those of two versions
// can be compared.
func TestOutputs(t *testing.T) {
	for _, s := range wholes(t) {
		rep := explained(analysis.Input{Runs: s.runs, Slurm: s.said, Now: s.now, Timeline: true})
		var text bytes.Buffer
		for _, r := range []struct {
			kind  string
			write func(w io.Writer) error
		}{
			{"txt", func(w io.Writer) error { return Text(io.MultiWriter(w, &text), rep, values.Style{}, true) }},
			{"color", func(w io.Writer) error { return Text(w, rep, values.Style{Color: true, Width: 100}, false) }},
			{"advice", func(w io.Writer) error { return WriteAdvice(w, len(s.runs), Advise(s.runs), values.Style{}) }},
			{"json", func(w io.Writer) error {
				e := json.NewEncoder(w)
				e.SetIndent("", " ")
				return e.Encode(rep)
			}},
			{"csv", func(w io.Writer) error { return CSV(w, s.runs) }},
			{"svg", func(w io.Writer) error { return SVG(w, rep) }},
			{"html", func(w io.Writer) error { return HTML(w, rep) }},
		} {
			var b bytes.Buffer
			if err := r.write(&b); err != nil {
				t.Fatalf("%s.%s: %v", s.name, r.kind, err)
			}
			if *outputs != "" {
				wardentest.NoError(t, os.WriteFile(filepath.Join(*outputs, s.name+"."+r.kind), b.Bytes(), 0o644))
			}
			file, shown := s.name+"."+r.kind, b.String()
			if !slices.Contains(pinned, file) {
				continue
			}
			switch r.kind {
			case "html":
				_, shown, _ = strings.Cut(noText.ReplaceAllString(shown, " "), "<body>")
			case "svg":
				shown = strings.ReplaceAll(strings.ReplaceAll(shown, ">", ">\n"), chart.ThemeCSS+chart.ChartCSS, "")
			}
			golden.Check(t, "testdata/"+file, shown)
		}
		golden.Check(t, "testdata/"+s.name+".txt", text.String())
		for line := range strings.Lines(text.String()) {
			if s := strings.TrimSuffix(line, "\n"); values.Plain(s) != s || len([]rune(s)) > 80 || strings.TrimRight(s, " ") != s {
				t.Errorf("control characters, too wide, or blanks at the end: %q", line)
			}
		}
		if len(s.runs) > 0 && !strings.HasPrefix(text.String(), Glyph(rep.Brief.Outcome)+" "+Headline(&rep.Brief)) {
			t.Errorf("it does not begin with the headline: %q", text.String())
		}
	}
}

func explained(in analysis.Input) *analysis.Result {
	rep := analysis.Analyze(in)
	Explain(rep, in.Now)
	return rep
}

func saysNodes(nodes ...string) *analysis.SlurmSays {
	return &analysis.SlurmSays{Source: "sacct", State: "COMPLETED", ExitCode: "0:0", Start: scenetest.Noon, End: scenetest.Noon.Add(scenetest.Minutes + time.Second), Nodes: nodes}
}

func told(runs []*record.Run, said *analysis.SlurmSays, now time.Time) *analysis.Result {
	return explained(analysis.Input{Runs: runs, Slurm: said, Now: now})
}

// TestWholeJob: what the whole job needs, as far as a part of it tells: an estimate is called one.
func TestWholeJob(t *testing.T) {
	with := &analysis.MemRange{Low: 600 * rss.MiB, High: 800 * rss.MiB}
	for want, n := range map[string]analysis.Need{
		"Next    1 to 1.2 GiB            whole job without rsswarden, estimate\n" +
			"        600 to 800 MiB          whole job with rsswarden, estimate\n": {Without: analysis.MemRange{Low: rss.GiB, High: rss.GiB.Scale(1.2)}, With: with},
		"Next    up to 4 GiB             whole job without rsswarden, estimate\n" +
			"        no closer: 3 workers map up to 1 GiB each and still read new pages\n": {Without: analysis.MemRange{Low: rss.GiB, High: 4 * rss.GiB}, Open: analysis.NeedFiles, Workers: 3, Each: rss.GiB},
		"Next    not known               whole job without rsswarden\n" +
			"        500 MiB so far; workers grow 95 MiB/min, no bound known\n": {Peak: 500 * rss.MiB, Open: analysis.NeedGrows, Grows: rss.RoleWorker, Rate: 95 * rss.MiB / 60},
	} {
		b := analysis.Brief{Need: &n}
		r := &textReport{}
		if r.block("Next").wholeJob(&b); r.b.String() != want {
			t.Errorf("%q, want %q", r.b.String(), want)
		}
		b.Code, b.Took = new(int), 3600
		r.b.Reset()
		if r.block("Next").wholeJob(&b); r.b.Len() > 0 {
			t.Error("of a long run that ended well, which was the whole")
		}
	}
}

// FuzzReport reports journals that anybody may have written: no panic, and
// nothing that moves a cursor comes out.
func FuzzReport(f *testing.F) {
	for _, text := range []string{
		`{"v":1,"event":"run","run":{"v":1,"id":"a","node":"n","start":"2026-11-20T12:00:00Z","job":{"id":"1","step":"0","end":"2026-11-20T12:00:05Z"}}}
{"event":"sample","time":"2026-11-20T12:00:01Z","limits":[{"limit":"cgroup","scope":"job","used_bytes":99,"limit_bytes":100,"eta_s":3,"level":"/a/job_1"},{"limit":"maps","used_bytes":9,"limit_bytes":10}],"roles":[{"role":"trainer","count":1,"rss_bytes":5}]}
{"event":"signal","time":"2026-11-20T12:00:04Z","signal":"SIGTERM","comm":"x"}
{"event":"decision","time":"2026-11-20T12:00:04Z","id":1,"rule":"85%:trim","limit":"cgroup","action":"trim"}
{"event":"outcome","time":"2026-11-20T12:00:04Z","decision":1,"ok":true,"freed_bytes":7}
{"event":"diagnosis","time":"2026-11-20T12:00:04Z","finding":"prefetch queue","confidence":"certain","role":"worker","bytes":7,"evidence":["\u001b[2J"],"advice":["a\nb"]}
{"event":"cure","time":"2026-11-20T12:00:04Z","remedy":"nofile","before":-9223372036854775808,"after":1,"reason":"\u0007"}
{"event":"loader","time":"2026-11-20T12:00:05Z","what":"pickling","pid":7,"sharing":{"start_method":"spawn","fds_needed":-5,"fds_limit":1,"maps_needed":9,"maps_limit":3}}
{"event":"exit","time":"2026-11-20T12:00:06Z","by":"command","code":137,"kernel_oom_kills":[{"level":"/a","kills":1,"leaf":true}]}
`,
		`{"v":1,"event":"run","run":{"v":1,"id":"a"}}
{"event":"sample","limits":[{"limit":"slurm","used_bytes":18446744073709551615,"limit_bytes":1,"eta_s":1e300}]}
`,
	} {
		f.Add([]byte(text), "OUT_OF_MEMORY", "0:9")
	}
	f.Fuzz(func(t *testing.T, b []byte, state, code string) {
		path := filepath.Join(t.TempDir(), "journal")
		wardentest.NoError(t, os.WriteFile(path, b, 0o600))
		r, err := record.ReadJournal(path)
		if err != nil {
			return
		}
		said := &analysis.SlurmSays{Source: "sacct", State: state, ExitCode: code, ReqMem: code, Steps: []analysis.StepSays{{ID: "1.0", State: state, By: "0", ExitCode: code}}}
		for _, s := range []*analysis.SlurmSays{nil, said} {
			var text, table bytes.Buffer
			rep := told([]*record.Run{r}, s, time.Unix(1e9, 0))
			wardentest.NoError(t, Text(&text, rep, values.Style{}, true))
			wardentest.NoError(t, CSV(&table, []*record.Run{r}))
			if s := strings.ReplaceAll(text.String(), "\n", ""); values.Plain(s) != s {
				t.Errorf("control characters in %q", s)
			}
		}
	})
}

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

// TestWriteCSV: samples of a record, and of a journal, which has roles in place of processes.
func TestWriteCSV(t *testing.T) {
	s := find(t, "maps").scene
	s.Length = 2 * time.Second
	s.Maps = func(time.Duration) int { return 1234 }
	r := s.Run()
	r.Procs[1].Comm = "a,\"b\x1b\n"
	j := scenetest.AsJournal(t, r)
	j.Meta.ID = "journal"
	var b bytes.Buffer
	wardentest.NoError(t, CSV(&b, []*record.Run{r, j}))
	golden.Check(t, "testdata/samples.csv", b.String())
}

// TestCSVHasNoFormulas: no cell is one that a spreadsheet would evaluate.
func TestCSVHasNoFormulas(t *testing.T) {
	r := find(t, "maps").scene.Run()
	r.Procs[0].Comm, r.Meta.Node = "=cmd|'/C x'!A0", "@SUM(1)"
	var b bytes.Buffer
	wardentest.NoError(t, CSV(&b, []*record.Run{r}))
	rows, err := csv.NewReader(&b).ReadAll()
	wardentest.NoError(t, err)
	seen := map[string]bool{}
	for _, row := range rows {
		for _, c := range row {
			seen[c] = true
			if c != "" && strings.ContainsRune("=+-@", rune(c[0])) {
				t.Fatalf("a cell is %q", c)
			}
		}
	}
	if !seen["'=cmd|'/C x'!A0"] || !seen["'@SUM(1)"] {
		t.Error("the names are not in it")
	}
}
