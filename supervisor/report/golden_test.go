package report

import (
	"bytes"
	"crypto/sha256"
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

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/supervisor/record"
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
	said *SlurmSays
	now  time.Time
}

func wholes(t *testing.T) []whole {
	one, two := noon.Add(time.Hour), noon.Add(2*time.Hour)
	hostile := find(t, "maps").scene.run()
	hostile.Procs[0].Comm = "a\x1b[2Jb\n\u202ec"
	hostile.Meta.Command = []string{"sh", "-c", "\x1b]0;owned\x07\necho done"}
	hostile.Damage = []string{"block 7: \x1b[31mbad"}
	hostile.Sources = []string{"/tmp/\x1b[1m"}
	died := saysNodes("n1", "n2")
	died.State, died.ExitCode, died.Steps = "FAILED", "0:9", []StepSays{{ID: "12.0", State: "OUT_OF_MEMORY", ExitCode: "0:125"}}
	kernel, over := find(t, "kernel, the command"), find(t, "OverMemoryKill")
	twice, between := ledTwice(t)
	live := find(t, "running").scene.run()
	just := func(r *record.Run) []*record.Run { return []*record.Run{r} }
	return []whole{
		{"carried", just(carriedRun()), nil, one},
		{"kernel", just(kernel.scene.run()), kernel.said, one},
		{"overmemory", just(over.scene.run()), over.said, one},
		{"journal", just(asJournal(t, find(t, "time limit").scene.run())), nil, one},
		{"ranks", ranks(), nil, one},
		{"hostile", just(hostile), nil, one},
		{"grown", just(grownScene().run()), nil, one},
		{"spawned", just(find(t, "descriptors, faster than any count").scene.run()), nil, one},
		{"nothing", nil, nil, one},
		{"only-slurm", nil, ofSlurm("TIMEOUT", "0:0", "", "", ""), one},
		{"kernel-sure", just(find(t, "kernel, watcher and all: memory.oom.group").scene.run()), nil, one},
		{"together", built(onNode(1), onNode(2)), saysNodes("n1", "n2"), two},
		{"together-oom", oomOnN2(), died, two},
		{"together-lead", leadMoved(), nil, two},
		{"together-lacks", built(onNode(1)), saysNodes("n1", "n2", "n3"), two},
		{"together-lives", secondLife(), nil, two},
		{"together-many", sixtyFour(2 * time.Minute), nil, two},
		{"led-twice", []*record.Run{twice, between}, nil, one},
		{"live", just(live), nil, one},
		{"long", just(drawnRun{node: "node7", length: 5 * time.Hour, every: time.Second, workers: 5, limit: 4 << 30, from: 0.45, to: 0.97, oom: true}.build()), nil, dawn.Add(8 * time.Hour)},
	}
}

// TestOutputs holds every rendering of every scene: the text as it is, of the others a
// digest. With -outputs DIR two versions can be compared.
func TestOutputs(t *testing.T) {
	var digests strings.Builder
	for _, s := range wholes(t) {
		rep := explained(Input{s.runs, s.said, s.now, true})
		var text bytes.Buffer
		for _, r := range []struct {
			kind  string
			write func(w io.Writer) error
		}{
			{"txt", func(w io.Writer) error { return WriteText(io.MultiWriter(w, &text), rep, 80, false) }},
			{"color", func(w io.Writer) error { return WriteText(w, rep, 100, true) }},
			{"advice", func(w io.Writer) error { return WriteAdvice(w, len(s.runs), Advise(s.runs), 80, false) }},
			{"which", func(w io.Writer) error { _, err := io.WriteString(w, Which(rep, s.now)); return err }},
			{"json", func(w io.Writer) error { return json.NewEncoder(w).Encode(rep) }},
			{"csv", func(w io.Writer) error { return WriteCSV(w, s.runs) }},
			{"svg", func(w io.Writer) error { return WriteSVG(w, rep) }},
			{"html", func(w io.Writer) error { return WriteHTML(w, rep) }},
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
			if s := strings.TrimSuffix(line, "\n"); clean(s) != s || len([]rune(s)) > 80 || strings.TrimRight(s, " ") != s {
				t.Errorf("control characters, too wide, or blanks at the end: %q", line)
			}
		}
		if first, _, _ := strings.Cut(text.String(), "\n"); !strings.HasPrefix(rep.Verdict, first) {
			t.Errorf("the first line is not the verdict: %q", first)
		}
	}
	golden(t, "digests.txt", []byte(digests.String()))
}

// TestEnds: what is said of each end, and what it follows from, of the record and of the
// journal alone, without Slurm's word and with it.
func TestEnds(t *testing.T) {
	var b strings.Builder
	for _, d := range slices.Concat(deaths, sideDeaths) {
		r := d.scene.run()
		fmt.Fprintf(&b, "== %s\n", d.name)
		for _, kind := range []string{"record", "journal"} {
			if kind == "journal" {
				r = asJournal(t, r)
			}
			for _, said := range []*SlurmSays{nil, d.said}[:1+b2i(d.said != nil)] {
				rep := build([]*record.Run{r}, said, noon.Add(time.Hour))
				fmt.Fprintf(&b, "%s%s: %s, %s: %s\n", kind, strings.Repeat(" and Slurm", b2i(said != nil)), rep.Cause, rep.Certainty, rep.Verdict)
				for _, e := range rep.Evidence {
					fmt.Fprintf(&b, "    %s\n", e)
				}
			}
		}
	}
	golden(t, "ends.txt", []byte(b.String()))
}
