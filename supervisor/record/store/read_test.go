package store

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/record"
)

func copyRecord(t testing.TB, from string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(from, record.DataFile))
	must(t, err)
	to := t.TempDir()
	must(t, os.WriteFile(filepath.Join(to, record.DataFile), b, 0o600))
	return to
}

// TestDamagedRecords: whatever is wrong with the file, the reader lives, says so,
// and gives out nothing that was not written.
func TestDamagedRecords(t *testing.T) {
	whole := t.TempDir()
	fill(t, whole, 1<<20, 5000, 16, nil)
	rnd := rand.New(rand.NewPCG(4, 2))
	damaged, crashed, kept := 0, 0, 0
	const page = 4096
	for i := range 60 {
		dir := copyRecord(t, whole)
		path := filepath.Join(dir, record.DataFile)
		info, _ := os.Stat(path)
		pages := info.Size() / page
		what := ""
		switch i % 3 {
		case 0:
			what = "cut off"
			must(t, os.Truncate(path, rnd.Int64N(info.Size())))
		default:
			junk := make([]byte, page)
			what = "a page of zeroes"
			if i%3 == 2 {
				what = "a page of junk"
				for k := range junk {
					junk[k] = byte(rnd.Uint32())
				}
			}
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			must(t, err)
			if _, err := f.WriteAt(junk, rnd.Int64N(pages)*page); err != nil {
				t.Fatal(err)
			}
			f.Close()
		}
		run, err := Read(context.Background(), dir, child)
		if err != nil {
			damaged++
			if !strings.HasPrefix(err.Error(), "cannot read record ") {
				t.Errorf("%s: %v", what, err)
			}
			continue
		}
		if len(run.Damage) > 0 {
			damaged++
			if strings.Contains(run.Damage[0], "LMDB") {
				crashed++
			}
		}
		for s := range run.Samples() {
			kept++
			for _, u := range s.Procs {
				if p := run.Procs[u.Proc]; p.Comm != "pt_data_worker" || u.Anon < 200<<20 {
					t.Fatalf("%s: a process that was never there: %+v %+v", what, p, u)
				}
			}
		}
	}
	if damaged < 20 {
		t.Errorf("of 60 damaged records %d were told as such", damaged)
	}
	if kept < 60*5000*3/4 {
		t.Errorf("of 60 times 5000 samples %d were read", kept)
	}
	t.Logf("%d of 60 told as damaged, LMDB crashed in %d children, %d of 300000 samples read", damaged, crashed, kept)
}

func TestForeignAndNewerRecords(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"empty": "", "short": "abc", "text": strings.Repeat("not LMDB at all\n", 1000)} {
		must(t, os.WriteFile(filepath.Join(dir, record.DataFile), []byte(content), 0o600))
		if _, err := Read(context.Background(), dir, child); err == nil || !strings.Contains(err.Error(), "not a record") {
			t.Errorf("%s: %v", name, err)
		}
	}
	newer := t.TempDir()
	s := newTaker(t, newer, 1<<20).s
	commit(t, s, record.Item{Kind: record.KindMeta, Value: []byte(`{"v":99,"id":"x"}`)})
	s.close()
	if _, err := Read(context.Background(), newer, child); err == nil || !strings.Contains(err.Error(), "newer rsswarden") {
		t.Errorf("newer: %v", err)
	}
	if _, err := Read(context.Background(), t.TempDir(), child); err == nil {
		t.Error("a directory without a record was read")
	}
}

// FuzzRecordFile changes the bytes of a whole record, at a place and to what the
// fuzzer says, and reads it as a user would.
func FuzzRecordFile(f *testing.F) {
	whole := f.TempDir()
	fill(f, whole, 1<<20, 300, 4, nil)
	good, err := os.ReadFile(filepath.Join(whole, record.DataFile))
	must(f, err)
	f.Add(uint32(16), []byte{0}, uint32(0))
	f.Add(uint32(4096+16), []byte("junk"), uint32(len(good)-1))
	f.Add(uint32(8192), bytes.Repeat([]byte{0xff}, 64), uint32(0))
	f.Fuzz(func(t *testing.T, at uint32, patch []byte, cut uint32) {
		b := bytes.Clone(good)
		copy(b[int(at)%len(b):], patch)
		if cut != 0 {
			b = b[:int(cut)%len(b)]
		}
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, record.DataFile), b, 0o600))
		if r, err := Read(context.Background(), dir, child); err == nil {
			use(r)
		}
	})
}

func FuzzFrames(f *testing.F) {
	var b bytes.Buffer
	it := metaItem()
	_ = putFrame(&b, it.Key(), it.Sealed())
	_ = putFrame(&b, nil, make([]byte, 8))
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		a := record.NewAssembly()
		_ = readFrames(bytes.NewReader(b), a)
		if r, err := a.Run("fuzz"); err == nil {
			use(r)
		}
	})
}

// TestPlantedFiles: a pipe or a device in the place of any file of a record keeps no
// reader waiting, and is not read.
func TestPlantedFiles(t *testing.T) {
	whole := t.TempDir()
	fill(t, whole, 1<<20, 50, 2, nil)
	plants := map[string]func(path string) error{
		"a pipe":           func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a link to a pipe": func(path string) error { return unix.Symlink(pipeBeside(t), path) },
		"a device":         func(path string) error { return unix.Symlink("/dev/zero", path) },
		"a directory":      func(path string) error { return unix.Mkdir(path, 0o700) },
	}
	for what, plant := range plants {
		for _, file := range []string{record.DataFile, lockFile, liveName, "journal"} {
			dir := copyRecord(t, whole)
			path := filepath.Join(dir, file)
			_ = os.Remove(path)
			must(t, plant(path))
			type answer struct {
				run *record.Run
				err error
			}
			read := make(chan answer, 1)
			go func() {
				if file == "journal" {
					run, err := record.ReadJournal(path)
					read <- answer{run, err}
					return
				}
				held(dirAt(t, dir))
				run, err := Read(context.Background(), dir, child)
				read <- answer{run, err}
			}()
			select {
			case a := <-read:
				if refused := file == record.DataFile || file == "journal"; (a.err != nil) != refused {
					t.Errorf("%s for %s: %v", what, file, a.err)
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("%s for %s: the reader waits", what, file)
			}
		}
	}
}

func pipeBeside(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "pipe")
	must(t, unix.Mkfifo(path, 0o600))
	return path
}

// FuzzSalvage searches any bytes at all.
func FuzzSalvage(f *testing.F) {
	whole := f.TempDir()
	fill(f, whole, 1<<20, 100, 4, nil)
	good, err := os.ReadFile(filepath.Join(whole, record.DataFile))
	must(f, err)
	f.Add(good)
	f.Add(good[:3*4096])
	f.Fuzz(func(t *testing.T, b []byte) {
		a := record.NewAssembly()
		_ = salvage(bytes.NewReader(b), int64(len(b)), a.Add)
		if r, err := a.Run("fuzz"); err == nil {
			use(r)
		}
	})
}
