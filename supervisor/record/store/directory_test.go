package store

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestPruneLeavesTheLiving: a record that is written is not removed, also where its watcher
// cannot be asked, and one whose watcher accepts no connection delays no other run.
func TestPruneLeavesTheLiving(t *testing.T) {
	dir := t.TempDir()
	place := filepath.Join(dir, "records")
	cmd := exec.Command(os.Args[0], dir)
	cmd.Env = append(os.Environ(), "RECORD_TEST_CHILD=write", "RECORD_TEST_PROCS=1")
	must(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	var live string
	wardentest.Until(t, "a record", func() bool {
		if found := record.Find(place); len(found) == 1 {
			live = found[0].Record
		}
		return live != "" && answersAt(live)
	})
	must(t, cmd.Process.Signal(unix.SIGSTOP))
	old := filepath.Join(place, "20200101T000000Z-run-node-1")
	must(t, os.Mkdir(old, 0o700))
	must(t, os.WriteFile(filepath.Join(old, record.DataFile), nil, 0o600))
	long := time.Now().Add(-2 * pruneAge)
	for _, d := range []string{old, live} {
		must(t, os.Chtimes(filepath.Join(d, record.DataFile), long, long))
	}
	asked := make(chan bool)
	go func() {
		all := true
		for range 20 {
			all = answersAt(live) && all
		}
		asked <- all
	}()
	select {
	case all := <-asked:
		if !all {
			t.Error("one that is stopped counts as dead")
		}
	case <-time.After(5 * time.Second):
		t.Fatal("one that is stopped keeps others waiting")
	}
	must(t, os.Remove(filepath.Join(live, liveName)))
	prune(place, 0, 0)
	if left := record.Find(place); len(left) != 1 || left[0].Record != live {
		t.Errorf("left %+v", left)
	}
	if run := readBack(t, live); !run.Live {
		t.Error("it counts as ended")
	}
}

// TestStrangersPlaces: what another user has put where all can write is not used.
func TestStrangersPlaces(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	const stranger = 12345
	dir, mine := t.TempDir(), t.TempDir()
	link := filepath.Join(dir, "rsswarden-0")
	must(t, os.Symlink(mine, link))
	must(t, os.Lchown(link, stranger, stranger))
	if _, _, err := makeDirIn(filepath.Join(link, "records"), false, "x", 1); err == nil {
		t.Error("a stranger's link is followed")
	}
	id := testMeta().ID
	theirs := filepath.Join(mine, id)
	must(t, os.Mkdir(theirs, 0o700))
	must(t, os.Chown(theirs, stranger, stranger))
	for attempt := range 3 {
		if _, _, err := makeDirIn(mine, false, id, attempt); err == nil {
			t.Errorf("watcher %d uses a stranger's directory", attempt)
		}
	}
}

// TestChosenPlaceIsKept: of what lies where a user wants it nothing is removed.
func TestChosenPlaceIsKept(t *testing.T) {
	long := time.Now().Add(-2 * pruneAge)
	for _, chosen := range []bool{false, true} {
		place := t.TempDir()
		for n := range keepRecords + 10 {
			dir := filepath.Join(place, record.NewID(time.Unix(int64(n), 0), nil, "node", 1))
			must(t, os.Mkdir(dir, 0o700))
			file := filepath.Join(dir, record.DataFile)
			must(t, os.WriteFile(file, nil, 0o600))
			must(t, os.Chtimes(file, long, long))
		}
		if _, _, err := makeDirIn(place, chosen, testMeta().ID, 1); err != nil {
			t.Fatal(err)
		}
		want := keepRecords - 1
		if chosen {
			want = keepRecords + 10
		}
		if left := record.Find(place); len(left) != want {
			t.Errorf("chosen %v: %d records are left, want %d", chosen, len(left), want)
		}
	}
}
