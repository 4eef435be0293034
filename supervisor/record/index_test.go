package record

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss"
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
		IndexSums: IndexSums{Requested: 1 << 40, Used: 1 << 39, Enough: 1 << 38, Grew: event.FindingSpawn, Trims: 123456, Recycled: 1234},
	}
}

// TestMemory: a run is held against what ends the job.
func TestMemory(t *testing.T) {
	for _, c := range []struct {
		e               IndexEntry
		requested, used rss.Bytes
	}{
		{IndexEntry{Limit: event.LimitCgroup, Size: 1000, Peak: 0.5}, 1000, 500},
		{IndexEntry{Limit: event.LimitUser, Size: 1000, Peak: 0.5}, 0, 0},
		{IndexEntry{Limit: event.LimitUser, Size: 1000, Peak: 0.5, IndexSums: IndexSums{Requested: 4000, Used: 700}}, 4000, 700},
		{IndexEntry{}, 0, 0},
	} {
		if requested, used := c.e.Memory(); requested != c.requested || used != c.used {
			t.Errorf("%+v: %d, %d", c.e, requested, used)
		}
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
		{"beyond all bounds", strings.Replace(line(1), `"seconds":6.7`, `"seconds":1e300`, 1) + strings.Replace(line(2), `"peak":0.9975`, `"peak":1e300`, 1), 0, "2 lines of INDEX damaged, left out"},
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

// TestIndexOfAnother: what one user's index says of a run hides no run of another's.
func TestIndexOfAnother(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it gives a file away")
	}
	root := t.TempDir()
	var dirs []string
	for i, uid := range []int{0, 0, 65534} {
		dir := filepath.Join(root, strconv.Itoa(i))
		path := filepath.Join(dir, indexName("n2"))
		must(t, os.Mkdir(dir, 0o755))
		must(t, os.WriteFile(path, indexEntry(1).line(), 0o644))
		must(t, os.Chown(path, uid, -1))
		dirs = append(dirs, dir)
	}
	if got := ReadIndex(dirs...); len(got.Entries) != 2 || got.Err != nil {
		t.Errorf("%d runs, want one of each user: %v", len(got.Entries), got.Err)
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

func writeLog(t *testing.T, p Places, lines ...RequeueEntry) {
	t.Helper()
	f, err := OpenRequeueLog(p, lines[0].Job)
	must(t, err)
	defer f.Close()
	for _, l := range lines {
		must(t, l.Write(f))
	}
}

// ended are the lines of an attempt that was requeued, up to a step.
func ended(restart int, run string, last string) []RequeueEntry {
	var lines []RequeueEntry
	for _, step := range []string{RequeueBegun, stepHold, stepUpdate, "release"} {
		lines = append(lines, RequeueEntry{
			Time: time.Now(), Job: "46", Cluster: "lab", Run: run, Restart: restart, Rule: "97%:requeue",
			FromMiB: 300, ToMiB: 375, Step: step, OK: true,
		})
		if step == last {
			break
		}
	}
	return lines
}

func TestRequeueLog(t *testing.T) {
	fails := func(lines []RequeueEntry, step, why string) []RequeueEntry {
		i := slices.IndexFunc(lines, func(l RequeueEntry) bool { return l.Step == step })
		lines[i].OK, lines[i].Error = false, why
		return lines
	}
	for _, c := range []struct {
		name    string
		lines   []RequeueEntry
		restart int
		ok      bool
		want    Requeued // without RequeueEntry
		run     string
	}{
		{"requeued", ended(0, "a", "release"), 1, true, Requeued{Held: true, Raised: true}, "a"},
		{"killed before the release", ended(0, "a", stepUpdate), 1, true, Requeued{Held: true, Raised: true}, "a"},
		{"the size was refused", fails(ended(0, "a", "release"), stepUpdate, "no\nmore"), 1, true,
			Requeued{Held: true, Errors: []string{"update: no more"}}, "a"},
		{"not requeued", fails(ended(0, "a", stepHold), stepHold, "disabled"), 1, false, Requeued{}, ""},
		{"begun alone", ended(0, "a", RequeueBegun), 1, false, Requeued{}, ""},
		{"the last of two", slices.Concat(ended(0, "a", "release"), ended(1, "b", "release")), 2, true, Requeued{Held: true, Raised: true}, "b"},
		{"the same attempt still", ended(1, "b", "release"), 1, false, Requeued{}, ""},
		{"another node was second", slices.Concat(ended(0, "a", "release"), ended(0, "b", RequeueBegun)), 1, true, Requeued{Held: true, Raised: true}, "a"},
		{"another node began first and was too late", slices.Concat(ended(0, "b", RequeueBegun), ended(0, "a", "release")), 1, true, Requeued{Held: true, Raised: true}, "a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Places{Journals: []string{filepath.Join(t.TempDir(), journalDir)}}
			writeLog(t, p, c.lines...)
			got, ok := LastRequeue(ReadRequeueLog(p, "46", "lab", time.Now()), c.restart)
			if ok != c.ok {
				t.Fatalf("%v, %+v", ok, got)
			}
			if !ok {
				return
			}
			if got.Held != c.want.Held || got.Raised != c.want.Raised || !slices.Equal(got.Errors, c.want.Errors) || got.Run != c.run || got.FromMiB != 300 {
				t.Errorf("%+v, want %+v of %s", got, c.want, c.run)
			}
		})
	}
}

// TestRequeueLogOfOthers: what is of another job, cluster or time, is no file of ours, or
// is malformed, is left out.
func TestRequeueLogOfOthers(t *testing.T) {
	now := time.Now()
	good := ended(0, "a", RequeueBegun)[0]
	change := func(f func(*RequeueEntry)) RequeueEntry { l := good; f(&l); return l }
	p := Places{Journals: []string{filepath.Join(t.TempDir(), journalDir)}}
	writeLog(t, p, good,
		change(func(l *RequeueEntry) { l.Job = "47" }),
		change(func(l *RequeueEntry) { l.Cluster = "other" }),
		change(func(l *RequeueEntry) { l.Time = now.Add(-100 * 24 * time.Hour) }),
		change(func(l *RequeueEntry) { l.Restart = -1 }),
		change(func(l *RequeueEntry) { l.Step = "" }),
	)
	path := filepath.Join(p.Journals[0], requeueLogName("46"))
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	if _, err := f.WriteString("{\"v\":1,\n\x00\n" + `{"v":2,"job":"46","step":"update"}` + "\n"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if got := ReadRequeueLog(p, "46", "lab", now); len(got) != 1 || got[0].Run != "a" {
		t.Errorf("%+v", got)
	}
	if got := Find(p.Journals...); len(got) != 0 {
		t.Errorf("taken for runs: %+v", got)
	}
	must(t, os.Remove(path))
	must(t, os.Symlink("/etc/passwd", path))
	if _, err := OpenRequeueLog(p, "46"); err == nil {
		t.Error("a link was followed")
	}
	if got := ReadRequeueLog(p, "46", "lab", now); got != nil {
		t.Errorf("%+v", got)
	}
	if _, err := OpenRequeueLog(Places{}, "46"); err == nil || !strings.Contains(err.Error(), "no place for it is known") {
		t.Error(err)
	}
}

// TestRequeueLogIsBounded: of a file that has grown too long only the end is read.
func TestRequeueLogIsBounded(t *testing.T) {
	p := Places{Journals: []string{filepath.Join(t.TempDir(), journalDir)}}
	long := ended(0, "a", RequeueBegun)[0]
	long.Because = strings.Repeat("x", 2000)
	for range 50 {
		writeLog(t, p, long)
	}
	writeLog(t, p, ended(1, "b", "release")...)
	all := ReadRequeueLog(p, "46", "", time.Now())
	if len(all) > mostRequeueLog/2000+4 || len(all) < 5 || all[len(all)-1].Step != "release" {
		t.Errorf("%d lines", len(all))
	}
}

func FuzzRequeueLog(f *testing.F) {
	f.Add([]byte(`{"v":1,"job":"46","step":"requeuehold","ok":true,"restart":0}` + "\n" + `{"v":1,"job":"46","step":"update","error":"x"}`))
	f.Add([]byte("\n{}\n[]\nnull"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p := Places{Journals: []string{t.TempDir()}}
		must(t, os.WriteFile(filepath.Join(p.Journals[0], requeueLogName("46")), text, 0o600))
		for _, l := range ReadRequeueLog(p, "46", "", time.Time{}) {
			if l.Job != "46" || l.Step == "" {
				t.Fatalf("%+v", l)
			}
		}
		LastRequeue(ReadRequeueLog(p, "46", "", time.Time{}), 3)
	})
}

// TestBelow: runs are found in homes and projects, and links are not followed.
func TestBelow(t *testing.T) {
	root := t.TempDir()
	id := NewID(time.Now(), nil, "n1", 7)
	for _, file := range []string{
		"a/job/.rsswarden/index-n1.jsonl", "b/.local/state/rsswarden/journals/" + id + ".jsonl", "c/1/2/3/4/records/" + id + "/data.mdb",
		"c/1/2/3/4/5/6/" + id + ".jsonl", "d/.git/" + id + ".jsonl", "d/notes.jsonl", "e/closed/.rsswarden/index-n1.jsonl",
	} {
		path := filepath.Join(root, file)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, nil, 0o600))
	}
	must(t, os.Symlink(filepath.Join(root, "a"), filepath.Join(root, "link")))
	places, unread, more := Below(root)
	want := []string{"a/job/.rsswarden", "e/closed/.rsswarden", "b/.local/state/rsswarden/journals", "c/1/2/3/4/records"}
	for i := range want {
		want[i] = filepath.Join(root, want[i])
	}
	if diff := cmp.Diff(want, places); diff != "" || unread != nil || more {
		t.Errorf("%v %v\n%s", unread, more, diff)
	}
}
