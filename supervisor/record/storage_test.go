package record

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// disk mounts a file system of its own kind for one test.
func disk(t *testing.T, ext4 bool) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount")
	}
	dir := t.TempDir()
	mnt := filepath.Join(dir, "disk")
	if err := os.Mkdir(mnt, 0o755); err != nil {
		t.Fatal(err)
	}
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
	end := time.Now().Add(time.Minute)
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

func recorderIn(t *testing.T, records, journals string) (*Recorder, *said, Meta) {
	m, s := testMeta(), &said{}
	return New(Options{Meta: m, AtOnce: true, Places: Places{Records: []string{records}, Journals: []string{journals}}, Fault: s.fault}), s, m
}

func exists(path string) func() bool {
	return func() bool { _, err := os.Stat(path); return err == nil }
}

func TestFullDisk(t *testing.T) {
	mnt, journals := disk(t, false), t.TempDir()
	r, told, m := recorderIn(t, filepath.Join(mnt, "records"), journals)
	dir := filepath.Join(mnt, "records", m.ID)
	feed(t, r, m.Start, exists(filepath.Join(dir, dataFile)))
	if err := exec.Command("dd", "if=/dev/zero", "of="+filepath.Join(mnt, "full"), "bs=1M").Run(); err == nil {
		t.Fatal("the disk does not get full")
	}
	feed(t, r, m.Start, func() bool { return told.has("record: ") })
	if !told.has("no space left on device") {
		t.Errorf("said %q", told.all)
	}
	r.Event(event.NameExit, event.Exit{Head: event.Head{V: 1, Time: time.Now(), Event: event.NameExit}})
	r.Close(5 * time.Second)
	run, err := Read(context.Background(), dir, child)
	if err != nil || len(run.Damage) > 0 {
		t.Fatalf("what was written before: %v, damage %v", err, run.Damage)
	}
	journal, err := ReadJournal(filepath.Join(journals, m.ID+journalSuffix))
	if err != nil {
		t.Fatal(err)
	}
	if run.Merge(journal); run.Exit() == nil {
		t.Error("the journal has no end")
	}
}

func TestNoRoom(t *testing.T) {
	mnt := disk(t, false)
	if err := exec.Command("fallocate", "-l", "90M", filepath.Join(mnt, "much")).Run(); err != nil {
		t.Fatal(err)
	}
	r, told, m := recorderIn(t, filepath.Join(mnt, "records"), t.TempDir())
	feed(t, r, m.Start, func() bool { return told.has("MiB free") })
	r.Close(5 * time.Second)
	if left := Find(filepath.Join(mnt, "records")); len(left) != 0 {
		t.Errorf("left %+v", left)
	}
}

// TestHungDisk: a disk that takes nothing costs the record, and nobody waits.
func TestHungDisk(t *testing.T) {
	mnt, journals := disk(t, true), t.TempDir()
	r, _, m := recorderIn(t, filepath.Join(mnt, "records"), journals)
	dir := filepath.Join(mnt, "records", m.ID)
	feed(t, r, m.Start, exists(filepath.Join(dir, dataFile)))
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
	if err := exec.Command("fsfreeze", "-u", mnt).Run(); err != nil {
		t.Fatal(err)
	}
	<-r.done
	if _, err := ReadJournal(filepath.Join(journals, m.ID+journalSuffix)); err != nil {
		t.Error(err)
	}
}

func TestReadOnlyAndVanished(t *testing.T) {
	mnt := disk(t, true)
	records := filepath.Join(mnt, "records")
	r, told, m := recorderIn(t, records, filepath.Join(mnt, "journals"))
	feed(t, r, m.Start, exists(filepath.Join(records, m.ID, dataFile)))
	if err := os.RemoveAll(filepath.Join(records, m.ID)); err != nil {
		t.Fatal(err)
	}
	feed(t, r, m.Start, func() bool { return told.has("taken away") })
	r.Close(5 * time.Second)

	if err := unix.Mount("", mnt, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Skip("cannot remount here")
	}
	r, told, m = recorderIn(t, records, filepath.Join(mnt, "journals"))
	feed(t, r, m.Start, func() bool { return told.has("record: ") && told.has("journal: ") })
	r.Close(5 * time.Second)
	if err := CheckDir(records); err == nil {
		t.Error("a read-only place passes as fit")
	}
}

// TestLiveRecord: a run that goes on is read through its watcher, while it
// writes.
func TestLiveRecord(t *testing.T) {
	place := t.TempDir()
	r, told, m := recorderIn(t, place, t.TempDir())
	dir := filepath.Join(place, m.ID)
	feed(t, r, m.Start, func() bool { return answersAt(dir) })
	for range 20 {
		n := 0
		feed(t, r, m.Start, func() bool { n++; return n > 20 })
		run, err := Read(context.Background(), dir, func() *exec.Cmd {
			t.Fatal("a live record was opened")
			return nil
		})
		if err != nil || !run.Live || len(run.Damage) > 0 {
			t.Fatalf("%v, live %v, damage %v", err, run != nil && run.Live, run)
		}
		samples := 0
		for range run.Samples() {
			samples++
		}
		if samples == 0 {
			t.Error("no samples")
		}
	}
	r.Event(event.NameExit, event.Exit{Head: event.Head{V: 1, Time: time.Now(), Event: event.NameExit}})
	r.Close(5 * time.Second)
	if run, err := Read(context.Background(), dir, child); err != nil || run.Live || run.Exit() == nil {
		t.Errorf("after its end: %v", err)
	}
	if len(told.all) > 0 {
		t.Error(told.all)
	}
}

// TestQuietRunLeavesNothing: a short run that meets nothing leaves no file.
func TestQuietRunLeavesNothing(t *testing.T) {
	place := t.TempDir()
	m := testMeta()
	r := New(Options{Meta: m, Places: Places{Records: []string{filepath.Join(place, "r")}, Journals: []string{filepath.Join(place, "j")}}})
	for n := range 59 {
		r.Sample(look(time.Duration(n)*time.Second, n, 4))
	}
	r.Event(event.NameExit, event.Exit{})
	r.Close(time.Second)
	if left, _ := os.ReadDir(place); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}
