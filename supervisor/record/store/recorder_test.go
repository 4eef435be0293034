package store

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bmatsuo/lmdb-go/lmdb"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestRecordReadBack: what a recorder is given is read back whole, over several blocks,
// with counts and the events of ranks.
func TestRecordReadBack(t *testing.T) {
	start := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	b := record.NewBuilder(record.Meta{V: record.Version, ID: record.NewID(start, nil, "n1", 7), Node: "n1", Start: start, Mono: 5 * time.Second})
	limits := []event.Limit{{Name: event.LimitCgroup, Scope: event.ScopeJob}, {Name: event.LimitMaps, Scope: event.ScopeProcess}}
	b.Limit(limits[0])
	b.Limit(limits[1])
	trainer := record.Proc{ID: rss.ProcID{PID: 8, Start: 9}, Comm: "python", Role: rss.RoleTrainer}
	b.Proc(trainer)
	place := t.TempDir()
	r := New(Options{Meta: b.Run().Meta, Places: record.Places{Records: []string{place}, Journals: []string{t.TempDir()}, Chosen: true}, Fault: func(part string, err error) { t.Errorf("%s: %v", part, err) }})
	for n := range 3000 {
		at := time.Duration(n) * time.Second
		limits[0].Used, limits[0].Limit, limits[0].Binding = rss.Bytes(n)*rss.MiB, rss.GiB, true
		limits[1].Used, limits[1].Limit = rss.Bytes(n), 65530
		r.Sample(&record.Look{
			At: at, AtDecision: n == 7, Limits: limits,
			Sample: &rss.Sample{Procs: []rss.Proc{{ID: trainer.ID, Comm: trainer.Comm, Role: trainer.Role, Anon: rss.Bytes(n) * rss.KiB, File: rss.MiB}}},
			Counts: func(rss.ProcID) (maps, fds int) { return 3, 0 },
		})
		b.Sample(&record.Sample{
			At: at, AtDecision: n == 7,
			Limits: []record.Reading{{Used: rss.Bytes(n) * rss.MiB, UsedMax: rss.Bytes(n) * rss.MiB, Size: rss.GiB, ETA: -1, Binding: true}, {Limit: 1, Used: rss.Bytes(n), UsedMax: rss.Bytes(n), Size: 65530, ETA: -1}},
			Procs:  []record.Usage{{Anon: rss.Bytes(n) * rss.KiB, File: rss.MiB, Maps: 3}},
		})
	}
	kill := "SIGKILL"
	handover := &event.Handover{Head: event.Head{Time: start, Event: event.NameHandover}, Ran: time.Second, Own: "46.0", Memory: json.RawMessage(`{"level":"` + strings.Repeat("x", 48<<10) + `"}`)}
	b.Event(record.Entry{Name: event.NameHandover, Value: handover})
	r.Event(event.NameHandover, handover)
	if r.kept < 48<<10 {
		t.Error("a handover, which a replay needs, may be deleted")
	}
	for _, e := range []*event.Rank{
		{Head: event.Head{Time: start.Add(time.Second), Event: event.NameRank}, What: event.RankJoined, Task: 3, Step: "0", Node: "n1", PID: 8, Holder: 7, Leader: 6},
		{Head: event.Head{Time: start.Add(2 * time.Second), Event: event.NameRank}, What: event.RankEnded, Task: 3, Step: "0", Signal: &kill},
	} {
		b.Event(record.Entry{At: e.Time.Sub(start), Name: event.NameRank, Value: e})
		r.Event(event.NameRank, e)
	}
	r.Close(time.Minute)
	want := b.Run()
	dir := filepath.Join(place, want.Meta.ID)
	want.Meta.Record = dir
	got := readBack(t, dir)
	if got.Dropped > 0 {
		t.Errorf("%d dropped", got.Dropped)
	}
	for _, part := range []struct{ want, got any }{
		{want.Meta, got.Meta}, {want.Procs, got.Procs}, {want.Limits, got.Limits}, {want.Events, got.Events}, {samplesOf(want), samplesOf(got)},
	} {
		if diff := cmp.Diff(part.want, part.got); diff != "" {
			t.Error(diff)
		}
	}
}

// writeForever records a look every few milliseconds until it is killed, and
// tells when it took in each.
func writeForever(dir string) {
	procs, _ := strconv.Atoi(os.Getenv("RECORD_TEST_PROCS"))
	m := testMeta()
	r := New(Options{
		Meta:   m,
		Places: record.Places{Records: []string{filepath.Join(dir, "records")}, Journals: []string{filepath.Join(dir, "journals")}, Chosen: true},
		Fault:  func(part string, err error) { fmt.Fprintln(os.Stderr, part, err) },
	})
	r.Event(event.NameStart, event.Start{Head: event.Head{V: 1, Time: time.Now(), Event: event.NameStart}})
	for n := 0; ; n++ {
		l := look(time.Since(m.Start), n, procs)
		l.AtDecision = n%50 == 49
		r.Sample(l)
		if l.AtDecision {
			r.Event(event.NameDecision, event.Decision{Head: event.Head{V: 1, Time: time.Now(), Event: event.NameDecision}, ID: uint64(n)})
		}
		fmt.Println(time.Now().UnixNano())
		time.Sleep(2 * time.Millisecond)
	}
}

// TestKilledAtAnyMoment: what was taken in a second before a SIGKILL is there,
// and nothing is damaged.
func TestKilledAtAnyMoment(t *testing.T) {
	kills := 10
	if os.Getenv("RSSWARDEN_ENDURANCE") != "" {
		kills = 200
	}
	rnd := rand.New(rand.NewPCG(1, uint64(os.Getpid())))
	read := 0
	for i := range kills {
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0], dir)
		procs := 1 + rnd.IntN(64)
		cmd.Env = append(os.Environ(), "RECORD_TEST_CHILD=write", "RECORD_TEST_PROCS="+strconv.Itoa(procs))
		out, err := os.Create(filepath.Join(dir, "told"))
		must(t, err)
		cmd.Stdout, cmd.Stderr = out, os.Stderr
		must(t, cmd.Start())
		// Most of them once it records: on a slow machine its start takes longer than the rest.
		for end := time.Now().Add(rsstest.Patience); i%4 != 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
			if info, err := out.Stat(); err == nil && info.Size() > 0 {
				break
			}
		}
		time.Sleep(50*time.Millisecond + time.Duration(rnd.IntN(1900))*time.Millisecond)
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
		out.Close()
		first, taken := told(t, out.Name())
		short := taken.Sub(first) < time.Second // all of it may be lost
		found := record.Find(filepath.Join(dir, "records"), filepath.Join(dir, "journals"))
		if len(found) != 1 || found[0].Record == "" {
			if !short {
				t.Fatalf("kill %d after %v: found %+v", i, taken.Sub(first), found)
			}
			continue
		}
		run, err := Read(context.Background(), found[0].Record, child)
		if err != nil {
			if !short {
				t.Fatalf("kill %d after %v: %v", i, taken.Sub(first), err)
			}
			continue
		}
		read++
		if len(run.Damage) > 0 {
			t.Errorf("kill %d after %v: %v", i, taken.Sub(first), run.Damage)
		}
		last := run.Meta.Start
		for s := range run.Samples() {
			last = run.Wall(s.At)
			if len(s.Procs) != procs || len(s.Limits) != 1 {
				t.Fatalf("kill %d: a sample has %d processes of %d", i, len(s.Procs), procs)
			}
		}
		if lost := taken.Sub(last); lost > time.Second {
			t.Errorf("kill %d after %v: the last %v are not there", i, taken.Sub(first), lost)
		}
		if _, err := record.ReadJournal(found[0].Journal); found[0].Journal != "" && err != nil {
			t.Errorf("kill %d: %v", i, err)
		}
	}
	t.Logf("%d kills, %d records read", kills, read)
	if read < kills*3/4 {
		t.Errorf("only %d of %d records were begun", read, kills)
	}
}

// told returns when the first and the last look were taken in, by what the writer printed.
func told(t *testing.T, name string) (first, last time.Time) {
	b, err := os.ReadFile(name)
	must(t, err)
	for l := range strings.Lines(string(b)) {
		n, err := strconv.ParseInt(strings.TrimSuffix(l, "\n"), 10, 64)
		if err != nil || !strings.HasSuffix(l, "\n") {
			continue
		}
		if last = time.Unix(0, n); first.IsZero() {
			first = last
		}
	}
	return first, last
}

func TestFullDisk(t *testing.T) {
	mnt, journals := disk(t, false), t.TempDir()
	r, told, m := recorderIn(t, filepath.Join(mnt, "records"), journals)
	dir := filepath.Join(mnt, "records", m.ID)
	feed(t, r, m.Start, exists(filepath.Join(dir, record.DataFile)))
	if err := exec.Command("dd", "if=/dev/zero", "of="+filepath.Join(mnt, "full"), "bs=1M").Run(); err == nil {
		t.Fatal("the disk does not get full")
	}
	feed(t, r, m.Start, func() bool { return told.has("record: ") })
	if !told.has("no space left on device") {
		t.Errorf("said %q", told.all)
	}
	r.Event(event.NameExit, event.Exit{Head: event.Head{V: 1, Time: time.Now(), Event: event.NameExit}})
	r.Close(5 * time.Second)
	run := readBack(t, dir)
	journal, err := record.ReadJournal(filepath.Join(journals, m.ID+".jsonl"))
	must(t, err)
	if run.Merge(journal); run.Exit() == nil {
		t.Error("the journal has no end")
	}
}

func TestNoRoom(t *testing.T) {
	mnt := disk(t, false)
	must(t, exec.Command("fallocate", "-l", "90M", filepath.Join(mnt, "much")).Run())
	r, told, m := recorderIn(t, filepath.Join(mnt, "records"), t.TempDir())
	feed(t, r, m.Start, func() bool { return told.has("MiB free") })
	r.Close(5 * time.Second)
	if left := record.Find(filepath.Join(mnt, "records")); len(left) != 0 {
		t.Errorf("left %+v", left)
	}
}

// TestHungDisk: a disk that takes nothing costs the record, and nothing waits for it.
func TestHungDisk(t *testing.T) {
	mnt, journals := disk(t, true), t.TempDir()
	r, _, m := recorderIn(t, filepath.Join(mnt, "records"), journals)
	dir := filepath.Join(mnt, "records", m.ID)
	feed(t, r, m.Start, exists(filepath.Join(dir, record.DataFile)))
	if err := exec.Command("fsfreeze", "-f", mnt).Run(); err != nil {
		t.Skip("cannot freeze a file system here")
	}
	n := 0
	feed(t, r, m.Start, func() bool { n++; return n > 2500 })
	r.mu.Lock()
	held := r.waiting.size
	r.mu.Unlock()
	if held > mostWaiting {
		t.Errorf("%d bytes are kept for a disk that takes nothing", held)
	}
	began := time.Now()
	r.Close(200 * time.Millisecond)
	if d := time.Since(began); d > 2*time.Second {
		t.Errorf("closing took %v", d)
	}
	must(t, exec.Command("fsfreeze", "-u", mnt).Run())
	<-r.done
	if _, err := record.ReadJournal(filepath.Join(journals, m.ID+".jsonl")); err != nil {
		t.Error(err)
	}
}

func TestReadOnlyAndVanished(t *testing.T) {
	mnt := disk(t, true)
	records := filepath.Join(mnt, "records")
	r, told, m := recorderIn(t, records, filepath.Join(mnt, "journals"))
	feed(t, r, m.Start, func() bool { // what is removed while it is opened was never a record
		info, err := os.Stat(filepath.Join(records, m.ID, record.DataFile))
		return err == nil && info.Size() > 2*int64(os.Getpagesize()) // the first commit is there
	})
	must(t, os.RemoveAll(filepath.Join(records, m.ID)))
	feed(t, r, m.Start, func() bool { return told.has("taken away") })
	r.Close(5 * time.Second)

	if err := unix.Mount("", mnt, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Skip("cannot remount here")
	}
	r, told, m = recorderIn(t, records, filepath.Join(mnt, "journals"))
	feed(t, r, m.Start, func() bool { return told.has("record: ") && told.has("journal: ") })
	r.Close(5 * time.Second)
	if err := record.CheckDir(records); err == nil {
		t.Error("a read-only place passes as fit")
	}
}

// TestQuietRunLeavesNothing: a short run that meets nothing leaves no file.
func TestQuietRunLeavesNothing(t *testing.T) {
	place := t.TempDir()
	m := testMeta()
	r := New(Options{Meta: m, Places: record.Places{Records: []string{filepath.Join(place, "r")}, Journals: []string{filepath.Join(place, "j")}}})
	for n := range 59 {
		r.Sample(look(time.Duration(n)*time.Second, n, 4))
	}
	r.Event(event.NameExit, event.Exit{})
	r.Close(time.Second)
	if left, _ := os.ReadDir(place); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}

// TestManyProcesses: of a tree whose first minute does not fit into memory every process is
// known, and the record says what is missing.
func TestManyProcesses(t *testing.T) {
	const procs = 16_000
	place := t.TempDir()
	m := testMeta()
	r := New(Options{Meta: m, Places: record.Places{Records: []string{place}, Journals: []string{t.TempDir()}}})
	for n := range 30 {
		r.Sample(look(time.Duration(n)*time.Second, n, procs))
	}
	r.Sample(look(quiet, 30, procs))
	wardentest.Until(t, "the file of the record", exists(filepath.Join(place, m.ID, record.DataFile)))
	time.Sleep(time.Second)
	r.Sample(look(quiet+time.Second, 31, procs))
	r.Close(20 * time.Second)
	run := readBack(t, filepath.Join(place, m.ID))
	last := time.Duration(0)
	for s := range run.Samples() {
		last = s.At
		if len(s.Procs) != procs {
			t.Fatalf("%d processes at %v", len(s.Procs), s.At)
		}
	}
	if last != quiet+time.Second {
		t.Errorf("the last sample is of %v", last)
	}
	if len(run.Events) != 1 || !strings.Contains(run.Events[0].Value.(*event.Fault).Error, "missing") {
		t.Errorf("events %+v", run.Events)
	}
}

// TestEventsWithoutEnd: what comes each second for days does not end the record, and what the
// ladder was given takes no room that decisions are to have.
func TestEventsWithoutEnd(t *testing.T) {
	r := New(Options{Meta: testMeta()})
	bytes := 0
	for n := range 100_000 {
		r.Event(event.NameSignal, event.Signal{Head: event.Head{V: 1, Event: event.NameSignal}, Signal: "SIGUSR1", Sender: n})
		for _, it := range r.waiting.items {
			if it.Kind == record.KindEvent {
				bytes += len(it.Value)
			}
		}
		r.waiting = waiting{}
		r.Event(event.NameJudged, event.Judged{Head: event.Head{V: 1, Event: event.NameJudged}, N: uint64(n)})
		if it := r.waiting.items[0]; it.Kind != record.KindRoutine {
			t.Fatalf("%s stays", it.Value)
		}
		r.waiting = waiting{}
	}
	if bytes > mostKept {
		t.Errorf("%d bytes of events stay", bytes)
	}
}

// The benchmarks of bench say by these where records of real runs are, and
// how long the run of a full one is, in hours, and where it is to be made.
const (
	envKept = "RSSWARDEN_BENCH_RECORDS"
	envFull = "RSSWARDEN_BENCH_FULL"
)

// BenchmarkKept tells how large the samples of real records are, which nothing
// else changes: the events of a short run take more.
func BenchmarkKept(b *testing.B) {
	place := os.Getenv(envKept)
	if place == "" {
		b.Skip(envKept + " names no directory of records")
	}
	for _, f := range record.Find(place) {
		b.Run(f.ID, func(b *testing.B) {
			var samples, usages int
			for b.Loop() {
				run, err := Read(context.Background(), f.Record, child)
				must(b, err)
				samples, usages = 0, 0
				for s := range run.Samples() {
					samples, usages = samples+1, usages+len(s.Procs)
				}
			}
			if usages == 0 {
				b.Fatal("the record has no samples")
			}
			b.ReportMetric(float64(blockBytes(b, copyRecord(b, f.Record)))/float64(usages), "B/blocks")
			b.ReportMetric(float64(samples), "samples")
			b.ReportMetric(float64(usages)/float64(samples), "processes")
		})
	}
}

// blockBytes is what keys and values of all blocks of a record take.
func blockBytes(b *testing.B, dir string) (size int) {
	s := newTaker(b, dir, fullSize).s
	defer s.close()
	if err := s.env.View(func(txn *lmdb.Txn) error {
		return each(txn, s.dbi, record.Item{Kind: record.KindBlock}, func(_ *lmdb.Cursor, k, v []byte) (bool, error) {
			size += len(k) + len(v)
			return true, nil
		})
	}); err != nil {
		b.Fatal(err)
	}
	return size
}

// BenchmarkFull makes the record of a node with 64 ranks of four loader workers, at a sample
// a second. Three days of that are thinned over and over.
func BenchmarkFull(b *testing.B) {
	const ranks, every, atOnce = 64, 5, 16
	length, dir, _ := strings.Cut(os.Getenv(envFull), " ")
	hours, err := strconv.Atoi(length)
	if dir == "" || err != nil {
		b.Skip(envFull + " is not the hours of a run and a directory")
	}
	samples, m := hours*3600, testMeta()
	m.Start, m.Job, m.MaxMapCount, m.MaxFDs = fullStart, &record.Job{ID: "12", Step: "0", Tasks: ranks, Nodes: 1}, 65530, 1024
	for b.Loop() {
		must(b, os.RemoveAll(dir))
		r := New(Options{Meta: m, Places: record.Places{Records: []string{dir}, Journals: []string{b.TempDir()}, Chosen: true}})
		head := func(n int, name event.Name) event.Head {
			return event.Head{V: event.Version, Time: fullStart.Add(time.Duration(n) * time.Second), Seq: r.events, Event: name}
		}
		c := newScene(ranks*every, every)
		r.Event(event.NameStart, event.Start{Head: head(0, event.NameStart), Command: m.Command, PID: 1001})
		for i := range ranks {
			pid := c.look.Sample.Procs[i*every].ID.PID
			r.Event(event.NameRank, event.Rank{Head: head(0, event.NameRank), What: event.RankJoined, Task: i, Step: "0", Node: "node", PID: pid})
		}
		for n := range samples {
			if n%2 == 0 {
				r.Event(event.NameLoader, event.LoaderSaid{Head: head(n, event.NameLoader), What: event.LoaderTrimmed, Count: 1, Freed: 6 * rss.MiB, PID: 1002 + n%12})
			}
			if n%replaceEvery == replaceEvery-1 {
				id := uint64(n / replaceEvery)
				r.Event(event.NameDecision, event.Decision{
					Head: head(n, event.NameDecision), ID: id, Rule: "90%:recycle", Action: event.ActionRecycle, Limit: event.LimitCgroup, Used: 1160 * rss.GiB, LimitSize: 1280 * rss.GiB,
				})
				r.Event(event.NameOutcome, event.Outcome{Head: head(n, event.NameOutcome), Decision: id, OK: true, Freed: 100 * rss.MiB, Duration: 0.5, Paused: 0.01})
			}
			r.Sample(c.at(time.Duration(n) * time.Second))
			for n%atOnce == atOnce-1 && r.waits() {
				time.Sleep(100 * time.Microsecond)
			}
		}
		code := 0
		r.Event(event.NameExit, event.Exit{Head: head(samples, event.NameExit), By: "command", Code: &code})
		r.Close(time.Minute)
		if r.lost > 0 {
			b.Fatalf("%d parts are lost", r.lost)
		}
		b.ReportMetric(float64(fileSize(b, filepath.Join(dir, m.ID)))/(1<<20), "MiB")
	}
	b.ReportMetric(float64(samples), "samples")
}

// waits says that the writer has something to take.
func (r *Recorder) waits() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waiting.items) > 0
}

// fillUp goes on for a while beyond the first that is thinned: from then on a
// record stays as full as it is.
func fillUp(b testing.TB, k *taker) (samples int) {
	const procs, atOnce = 16, 16
	c := newScene(procs, trainerEvery)
	for end := 0; end == 0 || samples < end; {
		var items []record.Item
		for range atOnce {
			items = items[:max(0, len(items)-1)] // the block that grows is its last
			if samples%2 == 0 {
				items = append(items, loaderSays(b, samples))
			}
			items = append(items, k.items(c.at(time.Duration(samples)*time.Second), nil)...)
			samples++
		}
		if err := k.s.commit(items); err != nil {
			b.Fatalf("sample %d, %d of %d bytes in use: %v", samples, k.s.used, k.s.size, err)
		}
		if end == 0 && k.s.tiers[1] > 0 {
			end = samples + samples/5
		}
	}
	return samples
}

// fullStart is when the run of BenchmarkFull began.
var fullStart = time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)

// loaderSays is what a worker says of itself at a sample.
func loaderSays(b testing.TB, n int) record.Item {
	at := fullStart.Add(time.Duration(n) * time.Second)
	value, err := json.Marshal(event.LoaderSaid{
		Head: event.Head{V: event.Version, Time: at, Seq: uint64(n), Event: event.NameLoader}, What: event.LoaderTrimmed, PID: 1002 + n%12,
	})
	must(b, err)
	return record.Item{Kind: record.KindRoutine, N: 1<<40 + 2 + uint64(n/2), Value: value}
}

// scene is a training as benchmarks have it: a trainer for every 16 processes, twelve
// loader workers each, and others that sleep. Workers map a data set and give it back, one
// is replaced now and then; PSS and counts are read seldom, as the watcher reads them.
type scene struct {
	rnd   *rand.Rand
	n     int // looks so far
	look  record.Look
	next  int // PID
	every int // processes of a trainer
}

const (
	trainerEvery = 16
	// replaceEvery is how many looks it takes until a worker is replaced.
	replaceEvery = 300
)

func newScene(procs, every int) *scene {
	c := &scene{rnd: rand.New(rand.NewPCG(1, uint64(procs))), next: 1000, every: every}
	c.look.Sample = &rss.Sample{}
	for i := range procs {
		c.look.Sample.Procs = append(c.look.Sample.Procs, c.proc(i))
	}
	c.look.Counts = c.counts
	limit := max(256, rss.Bytes(procs)*4) * rss.GiB
	c.look.Limits = []event.Limit{
		{Name: event.LimitCgroup, Scope: event.ScopeJob, Level: "/slurm/uid_1000/job_7", Limit: limit, LimitSource: "memory.limit_in_bytes", Binding: true},
		{Name: event.LimitSlurm, Scope: event.ScopeStep, Accounting: event.AccountingRSS, Limit: limit, LimitSource: "SLURM_MEM_PER_NODE"},
		{Name: event.LimitNode, Scope: event.ScopeNode, Limit: 2 * limit, LimitSource: "MemTotal"},
		{Name: event.LimitMaps, Scope: event.ScopeProcess, Limit: 65530, LimitSource: "vm.max_map_count"},
	}
	return c
}

// proc is a new process in place i.
func (c *scene) proc(i int) rss.Proc {
	c.next++
	trainer := 1001 + i - i%c.every // it is never replaced
	p := rss.Proc{ID: rss.ProcID{PID: c.next, Start: uint64(c.next)}, Parent: trainer, Comm: "pt_data_worker", Role: rss.RoleWorker, Anon: 240 * rss.MiB, File: 90 * rss.MiB}
	switch i % c.every {
	case 0:
		p.Parent, p.Comm, p.Role, p.Anon = 1000, "python", rss.RoleTrainer, 6*rss.GiB
	case 13, 14, 15:
		p.Comm, p.Role, p.Anon = "sleep", rss.RoleOther, rss.MiB
	}
	p.RSS = p.Anon + p.File + p.Shmem
	return p
}

func (c *scene) counts(id rss.ProcID) (maps, fds int) {
	return 400 + c.n/10%7 + id.PID%50, 30
}

// page is so many pages at most.
func (c *scene) pages(most int) rss.Bytes { return rss.Bytes(c.rnd.IntN(most)) * 4 * rss.KiB }

// at moves on to a moment and returns what is seen. It is overwritten by the next.
func (c *scene) at(at time.Duration) *record.Look {
	l := &c.look
	l.At = at
	c.n++
	var sum rss.Bytes
	procs := l.Sample.Procs
	for i := range procs {
		p := &procs[i]
		switch p.Role {
		case rss.RoleTrainer:
			p.Anon = 6*rss.GiB + c.pages(8192)
			p.Shmem = 200*rss.MiB + c.pages(2048)
		case rss.RoleWorker:
			p.Anon = 240*rss.MiB + c.pages(1024)
			if p.File += c.pages(256); p.File > 2*rss.GiB {
				p.File = 90 * rss.MiB // trimmed
			}
		}
		p.RSS = p.Anon + p.File + p.Shmem
		if c.n%30 == i%30 {
			p.PSS = &rss.PSS{PSS: p.Anon + p.File/12, RSS: p.RSS, At: at}
		}
		sum += p.RSS
	}
	if c.n%replaceEvery == 0 {
		if k := 1 + c.n/replaceEvery%12; k%c.every != 0 {
			procs[k] = c.proc(k)
		}
	}
	eta := float64(3600 - c.n%3600)
	for i := range l.Limits[:3] {
		m := &l.Limits[i]
		m.Used, m.UsedMax = sum, sum
		if i == 0 {
			m.Charged, m.WorkingSet, m.ETA = sum+10*rss.GiB+c.pages(1024), sum+c.pages(1024), &eta
		}
	}
	l.Limits[3].Used = rss.Bytes(430 + c.n%20)
	return l
}

func fileSize(b *testing.B, dir string) int64 {
	info, err := os.Stat(filepath.Join(dir, record.DataFile))
	must(b, err)
	return info.Size()
}
