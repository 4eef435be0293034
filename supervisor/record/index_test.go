package record

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// indexEntry is the entry of the n-th run of a job, as it is read back.
func indexEntry(n int) IndexEntry {
	start := time.Date(2026, 11, 22, 8, 0, n, 0, time.UTC)
	code := 137
	return IndexEntry{
		V: Version, ID: NewID(start, &Job{ID: "4711", Step: "0"}, "n2", n), Start: start, Job: "4711", Restart: 1,
		Outcome: event.RunOOM, Exit: &code, Seconds: 6.7, Limit: event.LimitCgroup, Peak: 0.9975, Size: 400 << 20,
		User: "alice", Node: "n2", Command: "python train.py --epochs 4",
	}
}

func TestIndex(t *testing.T) {
	p := Places{Journals: []string{filepath.Join(t.TempDir(), "journals")}}
	var want []IndexEntry
	for n := range 3 {
		want = append(want, indexEntry(n))
		must(t, AppendIndex(p, want[n]))
	}
	must(t, AppendIndex(p, want[2])) // a run is listed once
	begun := IndexEntry{V: Version, ID: want[1].ID, Start: want[1].Start, Outcome: event.RunRunning, Node: want[1].Node}
	begun.Watcher.PID, begun.Watcher.BootID = 7, "b"
	must(t, AppendIndex(p, begun)) // as its end says, whichever line came first
	begun.ID, begun.Watcher.PID = strings.Replace(begun.ID, "Z-", "Z-9", 1), 8
	must(t, AppendIndex(p, begun))
	end := begun
	end.Outcome, end.Watcher = event.RunOK, Watcher{}
	must(t, AppendIndex(p, end))
	want = append(want, end)
	got := ReadIndex(p.Journals[0], filepath.Join(t.TempDir(), "none"))
	if diff := cmp.Diff(want, got.Entries); diff != "" || got.Damage != nil || got.Err != nil {
		t.Errorf("%s %v %v", diff, got.Damage, got.Err)
	}
	if Find(p.Journals[0]) != nil && len(Find(p.Journals[0])) > 0 {
		t.Error("an index is taken for a run")
	}
}

// TestIndexAtOnce: the ranks of a job end together.
func TestIndexAtOnce(t *testing.T) {
	p := Places{Journals: []string{t.TempDir()}}
	var all sync.WaitGroup
	for n := range 16 {
		all.Go(func() {
			for i := range 32 {
				if err := AppendIndex(p, indexEntry(32*n+i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if got := ReadIndex(p.Journals[0]); len(got.Entries) != 512 || got.Damage != nil {
		t.Errorf("%d entries, %v", len(got.Entries), got.Damage)
	}
}

func TestIndexLineIsBounded(t *testing.T) {
	for _, long := range []string{strings.Repeat("x", 1000), strings.Repeat("\x01", 400), strings.Repeat("“", 300), strings.Repeat("\xff", 300), "short"} {
		e := indexEntry(1)
		e.Command, e.User, e.Node = long, long, long
		line := e.line()
		if len(line) > mostIndexLine || strings.Count(string(line), "\n") != 1 {
			t.Errorf("%.10q: %d bytes", long, len(line))
		}
		got, err := ParseIndexEntry(line)
		if err != nil || got.ID != e.ID || got.Outcome != e.Outcome {
			t.Errorf("%.10q: %v %+v", long, err, got)
		}
	}
}

// TestIndexDamage: what is damaged or of a later version is left out and counted, the last
// line may be cut off, and a line behind half of another is read.
func TestIndexDamage(t *testing.T) {
	line := func(n int) string { return string(indexEntry(n).line()) }
	for _, c := range []struct {
		name, text string
		runs       int
		damage     string
	}{
		{"whole", line(1) + line(2), 2, ""},
		{"the last is cut off", line(1) + line(2)[:40], 1, ""},
		{"cut off within", line(1)[:40] + line(2) + line(3), 2, ""},
		{"noise", "\x00\xff\n[]\nnull\n{}\n" + line(1), 1, "4 lines of INDEX damaged, left out"},
		{"newer", `{"v":99,"what":"is not known"}` + "\n" + line(1), 1, "1 line of INDEX by a newer rsswarden, left out"},
		{"empty", "", 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), indexName("n2"))
			must(t, os.WriteFile(path, []byte(c.text), 0o600))
			got := ReadIndex(filepath.Dir(path))
			damage := strings.ReplaceAll(strings.Join(got.Damage, ", "), path, "INDEX")
			if len(got.Entries) != c.runs || damage != c.damage || got.Err != nil {
				t.Errorf("%d runs, %q, %v", len(got.Entries), damage, got.Err)
			}
		})
	}
}

// TestIndexTurns: a full index becomes the old part, and both are read.
func TestIndexTurns(t *testing.T) {
	dir := t.TempDir()
	p := Places{Journals: []string{dir}}
	full := func(n int) {
		f, err := os.OpenFile(filepath.Join(dir, indexName("n2")), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		must(t, err)
		defer f.Close()
		_, err = f.WriteString(strings.Repeat("\n", mostIndex) + string(indexEntry(n).line()))
		must(t, err)
	}
	full(1)
	must(t, AppendIndex(p, indexEntry(2)))
	must(t, AppendIndex(p, indexEntry(3)))
	if got := ReadIndex(dir); len(got.Entries) != 3 {
		t.Errorf("%d runs in two parts", len(got.Entries))
	}
	full(4)
	must(t, AppendIndex(p, indexEntry(5)))
	files, err := os.ReadDir(dir)
	must(t, err)
	if got := ReadIndex(dir); len(got.Entries) != 3 || len(files) != 1 {
		t.Errorf("%d runs, %d files", len(got.Entries), len(files))
	}
}

// TestIndexPlaces: the first place that takes a line has it, and none is an error.
func TestIndexPlaces(t *testing.T) {
	file, dir := filepath.Join(t.TempDir(), "file"), t.TempDir()
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, AppendIndex(Places{Journals: []string{file}, Records: []string{dir}}, indexEntry(1)))
	if got := ReadIndex(dir); len(got.Entries) != 1 {
		t.Errorf("%+v", got)
	}
	if err := AppendIndex(Places{}, indexEntry(1)); !errors.Is(err, ErrNoPlace) {
		t.Error(err)
	}
}

func TestShorten(t *testing.T) {
	var all []IndexEntry
	for n := range 10000 {
		all = append(all, indexEntry(n))
	}
	Shorten(all)
	seen, long := map[string]bool{}, 0
	for _, e := range all {
		if !IsShort(e.Short) || seen[e.Short] || !strings.HasPrefix(Label(e.ID), e.Short) {
			t.Fatalf("%q of %s", e.Short, e.ID)
		}
		if seen[e.Short] = true; len(e.Short) > shortLength {
			long++
		}
	}
	if long == 0 || long > 400 {
		t.Errorf("%d of 10,000 are longer", long)
	}
	for _, word := range []string{"4711", "471", "", "last", "123456789", "K3F2"} {
		if IsShort(word) {
			t.Errorf("%q is taken for a short name", word)
		}
	}
}

func FuzzIndexEntry(f *testing.F) {
	f.Add(indexEntry(1).line())
	f.Add([]byte(`{"v":1,"id":"20261122T08` + string(indexEntry(2).line())))
	f.Add([]byte(`{"v":1,"id":"20261122T080000Z-run-n-1","start":"2026-11-22T08:00:00Z","outcome":"ok","peak":-1,"seconds":1e400}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := ParseIndexEntry(line)
		if err != nil {
			return
		}
		if !IsID(e.ID) || e.Outcome == "" || e.Seconds < 0 || e.Peak < 0 {
			t.Fatalf("%+v", e)
		}
		again := e.line()
		if len(again) > mostIndexLine {
			t.Fatalf("%d bytes", len(again))
		}
		if again == nil {
			return // its ID alone is too long
		}
		if b, err := ParseIndexEntry(again); err != nil || b.ID != e.ID {
			t.Fatal(fmt.Sprint(err), string(again))
		}
	})
}
