package action

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// fakeDropper notes what it is asked.
type fakeDropper struct {
	found   []int // PIDs
	dropped []string
}

func (f *fakeDropper) Find(ids []rss.ProcID) {
	for _, id := range ids {
		f.found = append(f.found, id.PID)
	}
}
func (f *fakeDropper) Drop(file File) { f.dropped = append(f.dropped, file.Path) }

// trimDropOf drops the files of processes 11 and 12, of which 11 is trimmed.
func trimDropOf(trimmed Running) (*fakeDropper, Running) {
	f := &fakeDropper{}
	return f, TrimDrop{
		Dropper: f, Of: []rss.ProcID{pid(11), pid(12)}, Note: "and a note",
		Trim:    func(World) Running { return trimmed },
		Trimmed: func(id rss.ProcID) bool { return id == pid(11) },
	}.Begin(0)
}

// theFiles are a file of both processes, one of each.
func theFiles() *Found {
	return &Found{Files: []File{
		{Path: "/both", Mappers: []rss.ProcID{pid(12), pid(11)}},
		{Path: "/11", Mappers: []rss.ProcID{pid(11)}}, {Path: "/12", Mappers: []rss.ProcID{pid(12)}},
	}}
}

func TestTrimDrop(t *testing.T) {
	worked := ended{OK: true, Reason: event.ReasonDone, Detail: "trimmed", Stopped: 3}
	measured := func(before, after rss.Bytes) Dropped {
		return Dropped{Before: before * mib, After: after * mib, Measured: true}
	}
	const again = " that the next epoch reads from disk again"
	for name, c := range map[string]struct {
		answers []Dropped
		want    string // between the details of the trim and the note
	}{
		"both left":     {[]Dropped{measured(300, 0), measured(200, 0)}, "2 files left the page cache: 500 MiB (measured by cachestat)" + again},
		"one, in part":  {[]Dropped{measured(300, 100), measured(50, 50)}, "1 file left the page cache: 200 MiB (measured by cachestat)" + again + "; 150 MiB stay there, mapped elsewhere or not written back"},
		"nothing":       {[]Dropped{measured(300, 300), measured(0, 0)}, "nothing of 2 files left the page cache (measured by cachestat); 300 MiB stay there, mapped elsewhere or not written back"},
		"not told":      {[]Dropped{measured(300, 0), {}}, "1 file left the page cache: 300 MiB (measured by cachestat)" + again + "; 1 file dropped from the page cache, how much left is not measured," + again},
		"one failed":    {[]Dropped{{Err: errors.New("cannot drop /both: no")}, measured(1024, 0)}, "1 file left the page cache: 1.00 GiB (measured by cachestat)" + again + "; cannot drop /both: no"},
		"both failed":   {[]Dropped{{Err: errors.New("cannot drop /both: no")}, {Err: errors.New("x")}}, "cannot drop /both: no, and 1 more failed"},
		"only one came": {[]Dropped{measured(300, 0)}, "1 file left the page cache: 300 MiB (measured by cachestat)" + again + "; 1 file not dropped within 30s"},
	} {
		t.Run(name, func(t *testing.T) {
			f, a := trimDropOf(worked)
			if !slices.Equal(f.found, []int{11, 12}) {
				t.Fatalf("files of %v", f.found)
			}
			if _, done := a.Step(World{}); done || len(f.dropped) > 0 {
				t.Fatalf("done %v, dropped %v before the files were found", done, f.dropped)
			}
			// What came for another action is none of its.
			r, done := a.Step(World{Found: theFiles(), Dropped: []Dropped{measured(9, 0)}})
			for n, d := range c.answers {
				if done || len(f.dropped) != n+1 {
					t.Fatalf("done %v, dropped %v, want one at a time", done, f.dropped)
				}
				r, done = a.Step(World{Dropped: []Dropped{d}})
			}
			if !done {
				if _, done = a.Step(World{Now: DropDeadline - 1}); done {
					t.Fatal("given up too early")
				}
				r, done = a.Step(World{Now: DropDeadline})
			}
			want := Result{OK: true, Reason: event.ReasonDone, Detail: "trimmed; " + c.want + "; and a note", Stopped: 3}
			if !done || r != want || !slices.Equal(f.dropped, []string{"/both", "/11"}) {
				t.Errorf("done %v, dropped %v, %+v\nwant %+v", done, f.dropped, r, want)
			}
		})
	}
}

// TestTrimDropLeavesFiles where a drop would do nothing.
func TestTrimDropLeavesFiles(t *testing.T) {
	for name, c := range map[string]struct {
		trimmed Running
		world   World
		want    Result
	}{
		"nobody to trim":  {nil, World{Found: theFiles()}, Result{Reason: event.ReasonNothing}},
		"nobody trimmed":  {ended{Reason: event.ReasonDevice, Detail: "d"}, World{Found: theFiles()}, Result{Reason: event.ReasonDevice, Detail: "d"}},
		"no files":        {ended{OK: true, Reason: event.ReasonDone}, World{Found: &Found{}}, Result{OK: true, Reason: event.ReasonDone, Detail: "no file to drop from the page cache; and a note"}},
		"they cannot say": {nil, World{Now: FindDeadline}, Result{Reason: event.ReasonTimeout, Detail: "which files they map could not be read; nothing was trimmed"}},
	} {
		t.Run(name, func(t *testing.T) {
			f, a := trimDropOf(c.trimmed)
			if r, done := a.Step(c.world); !done || r != c.want || len(f.dropped) > 0 {
				t.Errorf("done %v, %+v, dropped %v", done, r, f.dropped)
			}
		})
	}
}

// TestTrimDropTrimsInItsOwnTime: a trim by ptrace is looked at when it asks for
// that, and all of it is taken.
func TestTrimDropTrimsInItsOwnTime(t *testing.T) {
	tr := &fakeTracer{}
	f, a := trimDropOf(Trace(tr, mappers(11), Goal{Used: 900 * mib}, 0))
	w := read(1, 900*mib)
	w.Found = theFiles()
	follow(t, a, []look{
		{w: w},
		{w: read(1, 900*mib).with(0, planOf(11, 60*mib, 60*mib), nil)},
		{w: read(1, 900*mib).with(0, nil, gave(1, 5))},
	})
	if Wakes(a) == 0 || len(f.dropped) > 0 {
		t.Errorf("wakes at %v, dropped %v", Wakes(a), f.dropped)
	}
	follow(t, a, []look{
		{w: read(2, 1*mib).with(20*time.Millisecond, nil, nil)}, // below every goal, and goes on
		{w: read(2, 1*mib).with(30*time.Millisecond, nil, gave(2, 5))},
		{w: read(2, 1*mib).with(60*time.Millisecond, nil, nil)},
	})
	if len(tr.taken) != 2 || !slices.Equal(f.dropped, []string{"/both"}) || Awaits(a) || Wakes(a) != 0 {
		t.Errorf("taken %v, dropped %v", tr.taken, f.dropped)
	}
	w = read(3, 1*mib)
	w.Dropped = []Dropped{{}, {}}
	r, done := a.Step(w)
	if !done || !strings.Contains(r.Detail, "1 process gave back") || !strings.Contains(r.Detail, "2 files dropped") {
		t.Errorf("done %v, %+v", done, r)
	}
}
