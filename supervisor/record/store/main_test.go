package store

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// The test binary is the child that opens records, and the writer that is killed.
func TestMain(m *testing.M) {
	switch os.Getenv("RECORD_TEST_CHILD") {
	case "export":
		var err error
		if !wardentest.Race() {
			err = Confine()
		}
		if err == nil {
			err = Export(os.NewFile(3, "record"), os.Stdout)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case "write":
		writeForever(os.Args[1])
	}
	os.Exit(m.Run())
}

// dirAt opens a directory until the end of the test.
func dirAt(t testing.TB, path string) *os.File {
	t.Helper()
	dir, err := os.Open(path)
	must(t, err)
	t.Cleanup(func() { dir.Close() })
	return dir
}

// answersAt says that the record at a path is being written.
func answersAt(path string) bool {
	dir, err := os.Open(path)
	if err != nil {
		return false
	}
	defer dir.Close()
	return answers(dir)
}

func child() *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "RECORD_TEST_CHILD=export", "GOCOVERDIR=")
	return cmd
}

// testMeta is of a run that began just now.
func testMeta() record.Meta {
	at := time.Now()
	return record.Meta{ID: record.NewID(at, nil, "node", os.Getpid()), Start: at, Node: "node", Command: []string{"python", "train.py"}}
}

// look is one look at a trainer with workers that fill a limit.
func look(at time.Duration, n int, procs int) *record.Look {
	s := &rss.Sample{}
	var sum rss.Bytes
	for i := range procs {
		p := rss.Proc{
			ID: rss.ProcID{PID: 100 + i, Start: 1}, Comm: "pt_data_worker", Role: rss.RoleWorker,
			Anon: 200*rss.MiB + rss.Bytes(n)*4*rss.KiB, File: rss.Bytes(n*(i+1)) * 36 * rss.KiB,
		}
		p.RSS = p.Anon + p.File
		sum += p.RSS
		s.Procs = append(s.Procs, p)
	}
	return &record.Look{At: at, Sample: s, Limits: []event.Limit{
		{Name: event.LimitSlurm, Scope: event.ScopeStep, Accounting: event.AccountingRSS, Used: sum, Limit: 64 * rss.GiB, LimitSource: "SLURM_MEM_PER_NODE", Binding: true},
	}}
}

// disk mounts a file system of its own kind for one test.
func disk(t *testing.T, ext4 bool) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount")
	}
	dir := t.TempDir()
	mnt := filepath.Join(dir, "disk")
	must(t, os.Mkdir(mnt, 0o755))
	sh := func(line string) error {
		out, err := exec.Command("sh", "-c", line).CombinedOutput()
		if err != nil {
			t.Logf("%s: %s", line, out)
		}
		return err
	}
	err := error(nil)
	if ext4 {
		img := filepath.Join(dir, "img")
		err = sh("truncate -s 300M " + img + " && mkfs.ext4 -q " + img + " && mount -o loop " + img + " " + mnt)
	} else {
		err = sh("mount -t tmpfs -o size=120m none " + mnt)
	}
	if err != nil {
		t.Skip("cannot mount here")
	}
	t.Cleanup(func() { _ = sh("fsfreeze -u " + mnt + " 2>/dev/null; umount -l " + mnt) })
	return mnt
}

// said keeps what a recorder said of itself.
type said struct {
	mu  sync.Mutex
	all []string
}

func (s *said) fault(part string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, part+": "+err.Error())
}

func (s *said) has(word string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(strings.Join(s.all, "\n"), word)
}

// feed gives a recorder looks until it is enough, and fails where that takes
// long or one of them keeps the caller waiting.
func feed(t *testing.T, r *Recorder, start time.Time, enough func() bool) {
	t.Helper()
	end := time.Now().Add(rsstest.Patience)
	for n := 0; !enough(); n++ {
		if time.Now().After(end) {
			t.Fatal("nothing has come of it")
		}
		began := time.Now()
		r.Sample(look(time.Since(start), n, 16))
		r.Event(event.NameFault, event.Fault{Head: event.Head{V: 1, Time: time.Now(), Event: event.NameFault}, Part: strings.Repeat("x", 900)})
		if d := time.Since(began); d > time.Second {
			t.Fatalf("a look kept its caller for %v", d)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func recorderIn(t *testing.T, records, journals string) (*Recorder, *said, record.Meta) {
	m, s := testMeta(), &said{}
	return New(Options{Meta: m, Places: record.Places{Records: []string{records}, Journals: []string{journals}, Chosen: true}, Fault: s.fault}), s, m
}

func exists(path string) func() bool {
	return func() bool { _, err := os.Stat(path); return err == nil }
}

// taker does what a recorder does, in one goroutine: its database takes each look as it comes.
type taker struct {
	s       *database
	sampler record.Sampler
	enc     record.Encoder
	into    record.Sample
	blockAt time.Duration
}

func newTaker(t testing.TB, dir string, size int64) *taker {
	s, err := openDatabase(dirAt(t, dir), size)
	must(t, err)
	return &taker{s: s, sampler: record.NewSampler(1)}
}

// items is what a look adds to the record; the block that grows is the last. each may
// change the sample.
func (k *taker) items(l *record.Look, each func(*record.Sample)) (items []record.Item) {
	k.sampler.Sample(l, &k.into)
	if each != nil {
		each(&k.into)
	}
	if k.enc.Full() {
		items = append(items, record.BlockItem(k.blockAt, k.enc.Block(0)))
	}
	if k.enc.Empty() {
		k.blockAt = l.At
	}
	k.enc.Add(&k.into)
	items = append(items, k.sampler.Take()...)
	return append(items, record.BlockItem(k.blockAt, k.enc.Snapshot(0)))
}

// metaItem is the first entry of a record.
func metaItem() record.Item {
	return record.Item{Kind: record.KindMeta, Value: []byte(`{"v":1,"id":"x","start":"2026-11-22T00:00:00Z"}`)}
}

// fill writes samples straight into a database of that size, and returns the largest its
// file was.
func fill(t testing.TB, dir string, size int64, samples, procs int, each func(n int, s *record.Sample)) (largest int64) {
	k := newTaker(t, dir, size)
	defer k.s.close()
	items := []record.Item{metaItem(), {}}
	for n := range samples {
		items = append(items[:max(0, len(items)-1)], k.items(look(time.Duration(n)*time.Second, n%1000, procs), func(s *record.Sample) {
			if each != nil {
				each(n, s)
			}
		})...)
		if n%10 != 9 && n != samples-1 {
			continue
		}
		commit(t, k.s, items...)
		items = nil
		if info, err := os.Stat(filepath.Join(dir, record.DataFile)); err == nil {
			largest = max(largest, info.Size())
		}
	}
	return largest
}

// readBack reads a record of which nothing is damaged.
func readBack(t testing.TB, dir string) *record.Run {
	t.Helper()
	run, err := Read(context.Background(), dir, child)
	if err != nil || len(run.Damage) > 0 {
		t.Fatal(err, run)
	}
	return run
}

// samplesOf are all samples of a run.
func samplesOf(r *record.Run) (all []record.Sample) {
	for s := range r.Samples() {
		c := *s
		c.Limits, c.Procs = slices.Clone(s.Limits), slices.Clone(s.Procs)
		all = append(all, c)
	}
	return all
}

// commit has a database take entries.
func commit(t testing.TB, s *database, items ...record.Item) {
	t.Helper()
	must(t, s.commit(items))
}

// use does with a run what its readers do: nothing it refers to may be missing.
func use(r *record.Run) {
	for s := range r.Samples() {
		for i := range s.Limits {
			_ = r.Limits[s.Limits[i].Limit].Name
		}
		for i := range s.Procs {
			_ = r.Procs[s.Procs[i].Proc].Comm
		}
	}
	_ = r.Exit()
}

var must = wardentest.NoError
