package textfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/supervisor/wake"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

var (
	must  = wardentest.NoError
	until = wardentest.Until
)

func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func self(job string) Name { return Of("/proc", os.Getpid(), job, "batch", "n1") }

func open(t *testing.T, dir, job string) *File {
	t.Helper()
	f := Open(dir, self(job), "/proc")
	t.Cleanup(func() { <-f.Close() })
	return f
}

func holds(path, want string) func() bool {
	return func() bool {
		b, err := os.ReadFile(path)
		return err == nil && string(b) == want
	}
}

func TestNames(t *testing.T) {
	for _, n := range []Name{
		self("46"), Of("/proc", os.Getpid(), "", "", ""), Of("/proc", os.Getpid(), "46_3", "0", "gpu-7.example.org"),
		Of("/proc", os.Getpid(), "../../etc", "a b", "ä/ö\n"), Of("/nowhere", 1, "46", "0", "n1"), Of("/proc", 1, strings.Repeat("4", 300), "0", "n1"),
	} {
		file := n.String()
		// What node_exporter takes is any name that ends so; what a file system does is less.
		if !regexp.MustCompile(`^rsswarden_[A-Za-z0-9_.-]+\.prom$`).MatchString(file) || len(file) > 255 {
			t.Errorf("%q is no good name", file)
		}
		for _, file := range []string{file, file + tmpSuffix} {
			if got, ok := ParseName(file); !ok || got != n {
				t.Errorf("%q reads as %+v, %v", file, got, ok)
			}
		}
	}
	for _, file := range []string{
		"", "rsswarden.prom", "rsswarden_.prom", "node_raid.prom", "rsswarden_46_0_n1_12_34_56.prom", "rsswarden_46_0_n1_12_34_56_ab_cd.prom",
		"rsswarden_46_0_n1_x_34_56_ab.prom", "rsswarden_46_0_n1_0_34_56_ab.prom", "rsswarden_46_0_n1_12_-3_56_ab.prom", "rsswarden_46_0__12_34_56_ab.prom", "rsswarden_46_0_n1_12_34_56_ab.prom.bak",
	} {
		if n, ok := ParseName(file); ok {
			t.Errorf("%q was taken for %+v", file, n)
		}
	}
	if a, b := self("46"), Of("/proc", os.Getppid(), "46", "batch", "n1"); a.String() == b.String() {
		t.Error("two runs have one name")
	}
}

func FuzzParseName(f *testing.F) {
	f.Add(self("46").String())
	f.Fuzz(func(t *testing.T, file string) {
		if n, ok := ParseName(file); ok && n.PID <= 0 {
			t.Errorf("%q reads as %+v", file, n)
		}
	})
}

func TestFile(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077)) // node_exporter must read it all the same
	dir := t.TempDir()
	f := Open(dir, self("46"), "/proc")
	path := filepath.Join(dir, self("46").String())
	for i := range 20 {
		text := fmt.Sprintf("a %d\n", i)
		f.Put([]byte(text))
		until(t, text, holds(path, text))
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o644 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	until(t, "one file", func() bool { return len(list(t, dir)) == 1 })
	if why, news := f.Trouble(); why != nil || news {
		t.Errorf("%v, %v", why, news)
	}
	f.Put([]byte("a last\n"))
	<-f.Close()
	if left := list(t, dir); len(left) > 0 {
		t.Errorf("%q is left", left)
	}
}

// TestReadersSeeWhole: a reader sees one whole text or another.
func TestReadersSeeWhole(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir, "46")
	path := filepath.Join(dir, self("46").String())
	text := func(i int) string { return strings.Repeat(fmt.Sprintf("%07d\n", i%10), 1<<12) }
	f.Put([]byte(text(0)))
	until(t, "the first", holds(path, text(0)))
	for i := range 300 {
		f.Put([]byte(text(i)))
		b, err := os.ReadFile(path)
		if err != nil || len(b) < 8 || string(b) != strings.Repeat(string(b[:8]), 1<<12) {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
	}
}

// TestTrouble: a directory that went away is reported once, until it is back.
func TestTrouble(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	must(t, os.Mkdir(dir, 0o755))
	f := open(t, dir, "46")
	path := filepath.Join(dir, self("46").String())
	state := func() error { f.mu.Lock(); defer f.mu.Unlock(); return f.trouble }
	for range 2 {
		f.Put([]byte("a 1\n"))
		until(t, "written", holds(path, "a 1\n"))
		must(t, os.RemoveAll(dir))
		f.Put([]byte("a 2\n"))
		until(t, "trouble", func() bool { return state() != nil })
		if why, news := f.Trouble(); !news || !errors.Is(why, fs.ErrNotExist) || why.Error() != "cannot write to "+dir+": no such file or directory" {
			t.Errorf("%v, %v", why, news)
		}
		if why, news := f.Trouble(); news || why == nil {
			t.Errorf("told again: %v, %v", why, news)
		}
		must(t, os.Mkdir(dir, 0o755))
		f.Put([]byte("a 3\n"))
		until(t, "written again", func() bool { return state() == nil })
		if why, news := f.Trouble(); why != nil || !news {
			t.Errorf("not told that it works again: %v, %v", why, news)
		}
	}
}

// TestNoLinkIsFollowed: in a directory that all may write, others may use our names.
func TestNoLinkIsFollowed(t *testing.T) {
	dir, precious := t.TempDir(), filepath.Join(t.TempDir(), "precious")
	must(t, os.WriteFile(precious, []byte("data"), 0o644))
	path := filepath.Join(dir, self("46").String())
	for _, trap := range []string{path, path + tmpSuffix} {
		must(t, os.Symlink(precious, trap))
	}
	f := open(t, dir, "46")
	f.Put([]byte("a 1\n"))
	until(t, "written", func() bool {
		info, err := os.Lstat(path)
		return err == nil && info.Mode().IsRegular() && holds(path, "a 1\n")()
	})
	if !holds(precious, "data")() {
		t.Error("what the link led to was written")
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	if err := Check(dir); err != nil || len(list(t, dir)) > 0 {
		t.Errorf("%v; %q", err, list(t, dir))
	}
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, nil, 0o644))
	for at, want := range map[string]error{filepath.Join(dir, "none"): fs.ErrNotExist, file: syscall.ENOTDIR, "/proc/self": nil} {
		err := Check(at)
		if err == nil || want != nil && !errors.Is(err, want) || strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v, want %v", at, err, want)
		}
	}
}

// TestHung: a file system that does not answer blocks no caller, costs one text, and is
// reported once.
func TestHung(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		answer, wrote := make(chan struct{}), []string{}
		f := &File{dir: dir, path: filepath.Join(dir, "f"), name: self("46"), proc: "/proc", wake: wake.New(), done: make(chan struct{})}
		f.replace = func(text []byte) error {
			<-answer
			wrote = append(wrote, string(text))
			return nil
		}
		go f.run()
		for i := range 1000 {
			f.Put([]byte(strconv.Itoa(i)))
			synctest.Wait()
		}
		if why, news := f.Trouble(); why != nil || news {
			t.Errorf("told at once: %v", why)
		}
		time.Sleep(slow)
		if why, news := f.Trouble(); !news || why.Error() != "cannot write to "+dir+": no answer from its file system within 20s" {
			t.Errorf("%v, %v", why, news)
		}
		if _, news := f.Trouble(); news {
			t.Error("told twice")
		}
		close(answer)
		synctest.Wait()
		if why, news := f.Trouble(); why != nil || !news {
			t.Errorf("%v, %v", why, news)
		}
		if diff := cmp.Diff([]string{"0", "999"}, wrote); diff != "" {
			t.Errorf("what was written differs:\n%s", diff)
		}
		<-f.Close()
	})
}

// TestSweep removes what dead runs left, and nothing else.
func TestSweep(t *testing.T) {
	ended := exec.Command("true")
	must(t, ended.Start())
	gone := Of("/proc", ended.Process.Pid, "40", "0", "n1")
	must(t, ended.Wait())
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
		must(t, os.WriteFile(path, nil, 0o644))
		at := time.Now().Add(-c.age)
		must(t, os.Chtimes(path, at, at))
		if c.kept {
			want = append(want, c.file)
		}
	}
	other := with(gone, func(n *Name) { n.Job = "another-user" })
	if os.Getuid() == 0 {
		must(t, os.WriteFile(filepath.Join(dir, other.String()), nil, 0o644))
		must(t, os.Chown(filepath.Join(dir, other.String()), 12345, 12345))
		want = append(want, other.String())
	}
	link := with(gone, func(n *Name) { n.Job = "link" })
	must(t, os.Symlink("/dev/null", filepath.Join(dir, link.String())))
	want = append(want, link.String())
	sweep(dir, me, "/proc", os.Geteuid(), time.Now())
	slices.Sort(want)
	if diff := cmp.Diff(want, list(t, dir)); diff != "" {
		t.Errorf("what is left differs:\n%s", diff)
	}
}

// TestSweepInPieces: in a directory that all may write, the number of files is
// others' choice.
func TestSweepInPieces(t *testing.T) {
	dir, me := t.TempDir(), self("46")
	dead := me
	dead.Start++
	for i := range 3*pieceNames + 7 {
		dead.Job = strconv.Itoa(i)
		must(t, os.WriteFile(filepath.Join(dir, dead.String()), nil, 0o644))
	}
	sweep(dir, me, "/proc", os.Geteuid(), time.Now())
	if left := list(t, dir); len(left) > 0 {
		t.Errorf("%d files are left", len(left))
	}
}

// TestUpdate: of many that count at once none is lost, and a file of another user's, a link
// or a pipe is left alone.
func TestUpdate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, OfUser(os.Geteuid(), "n1"))
	if _, ok := ParseName(filepath.Base(path)); ok {
		t.Error("it is taken for the file of a run")
	}
	const all = 50
	var counting sync.WaitGroup
	for range all {
		counting.Go(func() {
			must(t, Update(path, func(old []byte) []byte {
				n, _ := strconv.Atoi(strings.TrimSpace(string(old)))
				return fmt.Appendln(nil, n+1)
			}))
		})
	}
	counting.Wait()
	if b, err := os.ReadFile(path); err != nil || string(b) != fmt.Sprintln(all) {
		t.Errorf("%q, %v; want %d", b, err, all)
	}
	if names := list(t, dir); len(names) != 1 {
		t.Errorf("left: %q", names)
	}
	never := func([]byte) []byte { t.Error("changed"); return nil }
	must(t, os.Symlink(path, dir+"/link"))
	must(t, syscall.Mkfifo(dir+"/pipe", 0o600))
	for _, name := range []string{"link", "pipe", "gone/x"} {
		if Update(filepath.Join(dir, name), never) == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if os.Geteuid() == 0 {
		must(t, os.Chown(path, 65534, 65534))
		if Update(path, never) == nil {
			t.Error("another user's was taken")
		}
	}
}
