package textfile

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestSweep removes what dead runs left, and nothing else.
func TestSweep(t *testing.T) {
	ended := exec.Command("true")
	if err := ended.Start(); err != nil {
		t.Fatal(err)
	}
	gone := Of("/proc", ended.Process.Pid, "40", "0", "n1")
	if err := ended.Wait(); err != nil {
		t.Fatal(err)
	}
	me := self("46")
	with := func(n Name, change func(*Name)) Name { change(&n); return n }
	dir := t.TempDir()
	const fresh, old = time.Minute, 3 * time.Hour
	var want []string
	for _, c := range []struct {
		file string
		age  time.Duration
		kept bool
	}{
		{me.String(), old, true},
		{Of("/proc", os.Getppid(), "46", "batch", "n1").String(), old, true},
		{with(me, func(n *Name) { n.Job, n.Start = "47", 0 }).String(), old, true}, // when it began could not be read
		{gone.String(), fresh, false},
		{gone.String() + tmpSuffix, fresh, false},
		{with(me, func(n *Name) { n.Start++ }).String(), fresh, false}, // another process has the PID
		{with(gone, func(n *Name) { n.Node = "n2" }).String(), old, true},
		{with(gone, func(n *Name) { n.Boot = "none" }).String(), fresh, true},
		{with(gone, func(n *Name) { n.Boot, n.Job = "0a1b2c3d", "48" }).String(), old, false},
		{with(gone, func(n *Name) { n.Space = "17" }).String(), fresh, true},
		{with(gone, func(n *Name) { n.Space = "18" }).String(), old, false},
		{"node_raid.prom", old, true}, {"rsswarden.prom", old, true}, {"rsswarden_mine.prom.tmp", old, true},
	} {
		path := filepath.Join(dir, c.file)
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-c.age)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		if c.kept {
			want = append(want, c.file)
		}
	}
	other := with(gone, func(n *Name) { n.Job = "another-user" })
	if os.Getuid() == 0 {
		if err := os.WriteFile(filepath.Join(dir, other.String()), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(filepath.Join(dir, other.String()), 12345, 12345); err != nil {
			t.Fatal(err)
		}
		want = append(want, other.String())
	}
	link := with(gone, func(n *Name) { n.Job = "link" })
	if err := os.Symlink("/dev/null", filepath.Join(dir, link.String())); err != nil {
		t.Fatal(err)
	}
	want = append(want, link.String())
	sweep(dir, me, "/proc", os.Geteuid(), time.Now())
	kept := map[string]bool{}
	for _, name := range list(t, dir) {
		kept[name] = true
	}
	wanted := map[string]bool{}
	for _, name := range want {
		wanted[name] = true
	}
	if diff := cmp.Diff(wanted, kept); diff != "" {
		t.Errorf("what is left differs:\n%s", diff)
	}
}

// TestSweepInPieces: in a directory that everybody may write, the number of files is
// others' choice.
func TestSweepInPieces(t *testing.T) {
	dir := t.TempDir()
	const files = 3*pieceNames + 7
	me := self("46")
	dead := me
	dead.Start++
	for i := range files {
		dead.Job = strconv.Itoa(i)
		if err := os.WriteFile(filepath.Join(dir, dead.String()), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	sweep(dir, me, "/proc", os.Geteuid(), time.Now())
	if left := list(t, dir); len(left) > 0 {
		t.Errorf("%d of %d files are left", len(left), files)
	}
}
