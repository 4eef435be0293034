package diagnosis

import (
	"slices"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// reads serves what a state wants, and notes when.
type reads map[Reading][]time.Duration

func (r reads) serve(l *Look, s *State, parts func(Parts) Parts, files []rss.MappedFile) {
	for _, w := range s.Wants() {
		r[w.Reading] = append(r[w.Reading], l.At)
		switch w.Reading {
		case WantParts:
			l.Parts = append(l.Parts, parts(Parts{ID: w.ID, Parts: rss.Parts{At: l.At}}))
		case WantFiles:
			l.Files = append(l.Files, Files{ID: w.ID, At: l.At, MappedFiles: rss.MappedFiles{Largest: files, Sums: files}})
		case WantSpace, WantShm:
			l.Shm = append(l.Shm, Shm{ID: w.ID, At: l.At, Used: rss.GiB, Size: 8 * rss.GiB, Read: w.Reading == WantShm})
		}
	}
}

// TestWantsAreSeldom: of eight workers two are read, at growing distances.
func TestWantsAreSeldom(t *testing.T) {
	actors := job()
	for i := range 6 {
		actors = append(actors, actor{role: rss.RoleWorker, pid: 13 + i, born: 10, anon: still(300), file: still(40)})
	}
	got := reads{}
	c := scene{actors: actors, end: time.Hour, more: func(l *Look, s *State) {
		got.serve(l, s, func(p Parts) Parts {
			p.Anonymous, p.SharedDirty = 300*rss.MiB, 300*rss.MiB
			return p
		}, nil)
	}}
	_, last, _ := c.play(t)
	at := slices.Compact(slices.Clone(got[WantParts]))
	// What is wanted after one look is there with the next.
	want := []time.Duration{11 * time.Second, 22 * time.Second, 42 * time.Second, 132 * time.Second, 432 * time.Second, 733 * time.Second}
	if len(at) < len(want) || !slices.Equal(at[:len(want)], want) || len(got[WantParts]) != 2*len(at) || len(at) > 16 {
		t.Errorf("smaps_rollup was wanted at %v, want two at each of %v and each 5 minutes", got[WantParts], want)
	}
	if len(got[WantFiles]) != 0 || len(last) != 0 {
		t.Errorf("got %v, %+v", got[WantFiles], last)
	}
}

// TestWantsStarveNone: where each reading is paid with four seconds all have their
// turn soon after they are due.
func TestWantsStarveNone(t *testing.T) {
	at := map[Want][]time.Duration{}
	c := scene{actors: job(), end: time.Minute, more: func(l *Look, s *State) {
		wants := s.Wants()
		if len(wants) == 0 || l.At%(4*time.Second) != 0 {
			return
		}
		w := wants[0]
		at[w] = append(at[w], l.At)
		switch w.Reading {
		case WantParts:
			l.Parts = append(l.Parts, Parts{ID: w.ID, Parts: rss.Parts{At: l.At, Anonymous: 300 * rss.MiB}})
		case WantSpace, WantShm:
			l.Shm = append(l.Shm, Shm{ID: w.ID, At: l.At, Used: rss.GiB, Size: 8 * rss.GiB, Read: w.Reading == WantShm})
		}
	}}
	c.play(t)
	// Workers are there from 10 s on, and a queue is full 10 s later.
	for _, want := range []struct {
		Want
		n  int // the reading of that number
		by time.Duration
	}{
		{Want{WantParts, rss.ProcID{PID: 11, Start: 11}}, 1, 16 * time.Second},
		{Want{WantParts, rss.ProcID{PID: 12, Start: 12}}, 1, 20 * time.Second},
		{Want{WantShm, rss.ProcID{PID: 10, Start: 10}}, 1, 28 * time.Second},
		{Want{WantParts, rss.ProcID{PID: 11, Start: 11}}, 2, 36 * time.Second},
		{Want{WantParts, rss.ProcID{PID: 12, Start: 12}}, 2, 36 * time.Second},
	} {
		if got := at[want.Want]; len(got) < want.n || got[want.n-1] > want.by {
			t.Errorf("%v was read at %v, want reading %d by %v", want.Want, got, want.n, want.by)
		}
	}
}

// TestPartsTell: copies and new memory are told apart, in one worker too.
func TestPartsTell(t *testing.T) {
	for _, c := range []struct {
		name         string
		private, new float64 // MiB a second in each of two workers
		want         []event.Finding
	}{
		{"neither", 0, 0, nil},
		{"copies", 2, 0, []event.Finding{event.FindingCopyOnWrite}},
		{"new memory", 0, 2, []event.Finding{event.FindingWorkerLeak}},
		{"both", 1, 3, []event.Finding{event.FindingWorkerLeak, event.FindingCopyOnWrite}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := reads{}
			sc := scene{end: 2*time.Minute + 15*time.Second, actors: with(job(), func(a []actor) {
				a[1].anon, a[2].anon = line(300, 10, c.new), line(300, 10, c.new)
			})}
			sc.more = func(l *Look, s *State) {
				since := max(0, l.At.Seconds()-10)
				got.serve(l, s, func(p Parts) Parts {
					p.SharedDirty = rss.Bytes((300 - c.private*since) * float64(rss.MiB))
					p.PrivateDirty = rss.Bytes((c.private + c.new) * since * float64(rss.MiB))
					p.Anonymous = p.SharedDirty + p.PrivateDirty
					return p
				}, nil)
			}
			_, last, _ := sc.play(t)
			var found []event.Finding
			for _, d := range last {
				found = append(found, d.Finding)
				if d.Confidence == event.Possible {
					t.Errorf("%s is only possible", d.Finding)
				}
			}
			if !slices.Equal(found, c.want) {
				t.Errorf("got %q, want %q", found, c.want)
			}
		})
	}
}

// TestFilesTell: which files are mapped, and how, decides.
func TestFilesTell(t *testing.T) {
	const much = 400 * rss.MiB
	for _, c := range []struct {
		name string
		file rss.MappedFile
		want event.Finding
	}{
		{"LMDB", rss.MappedFile{Path: "/data/train/data.mdb", Kind: rss.FileOther, Shared: true, RSS: much}, event.FindingMapped},
		{"arrow", rss.MappedFile{Path: "/data/train-00000-of-00002.arrow", Kind: rss.FileArrow, RSS: much}, event.FindingArrow},
		{"arrow, mapped shared", rss.MappedFile{Path: "/data/train.arrow", Kind: rss.FileArrow, Shared: true, RSS: much}, event.FindingMapped},
		{"another file, mapped privately", rss.MappedFile{Path: "/data/train.bin", Kind: rss.FileOther, RSS: much}, event.FindingMapped},
		{"a device", rss.MappedFile{Path: "/dev/infiniband/uverbs0", Kind: rss.FileDevice, Shared: true, RSS: much}, ""},
		{"libraries", rss.MappedFile{Path: "/usr/lib/libtorch_cuda.so.2", Kind: rss.FileLibrary, RSS: much}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			sc := scene{end: 3 * time.Minute, actors: with(job(), func(a []actor) { a[1].file = ramp(40, 10, 50, 10) })}
			sc.more = func(l *Look, s *State) {
				reads{}.serve(l, s, func(p Parts) Parts { return p }, []rss.MappedFile{c.file})
			}
			_, last, _ := sc.play(t)
			if c.want == "" && len(last) == 0 {
				return
			}
			if len(last) != 1 || last[0].Finding != c.want || last[0].Confidence != event.Certain {
				t.Errorf("got %+v, want %q", last, c.want)
			}
		})
	}
}

// TestCounts: tensors that are sent come in a rush, batches that are kept do not.
func TestCounts(t *testing.T) {
	for _, c := range []struct {
		name      string
		maps, fds mib
		method    string
		told      bool
	}{
		{"nothing", still(1500), still(30), "", false},
		{"file_system", ramp(1500, 5, 10, 10_000), still(30), "", true},
		{"file_descriptor", ramp(1500, 5, 7, 10_000), ramp(30, 5, 7, 10_000), "spawn", true},
		{"slowly", line(1500, 5, 15), line(30, 5, 15), "", false},
		{"forked", ramp(1500, 5, 10, 10_000), still(30), "fork", false},
		{"a GPU is set up", ramp(1500, 5, 6, 5000), ramp(30, 5, 6, 200), "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			sc := scene{actors: job(), end: 20 * time.Minute}
			sc.more = func(l *Look, _ *State) {
				now := l.At.Seconds()
				l.Counts = []Count{{ID: rss.ProcID{PID: 10, Start: 10}, Maps: int(c.maps(now)), FDs: int(c.fds(now)), MaxMaps: 65_530, MaxFDs: 1 << 20}}
				if c.method != "" {
					l.Loaders = []Loader{{PID: 10, Workers: 2, Method: c.method}}
				}
			}
			_, last, _ := sc.play(t)
			if told := len(last) == 1 && last[0].Finding == event.FindingSpawn; told != c.told || len(last) > 1 {
				t.Errorf("got %+v, want it told: %v", last, c.told)
			}
		})
	}
}
