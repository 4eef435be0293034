package record

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func copyRecord(t *testing.T, from string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(from, dataFile))
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	if err := os.WriteFile(filepath.Join(to, dataFile), b, 0o600); err != nil {
		t.Fatal(err)
	}
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
		path := filepath.Join(dir, dataFile)
		info, _ := os.Stat(path)
		pages := info.Size() / page
		what := ""
		switch i % 3 {
		case 0:
			what = "cut off"
			if err := os.Truncate(path, rnd.Int64N(info.Size())); err != nil {
				t.Fatal(err)
			}
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
			if err != nil {
				t.Fatal(err)
			}
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
		if err := os.WriteFile(filepath.Join(dir, dataFile), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(context.Background(), dir, child); err == nil || !strings.Contains(err.Error(), "not a record") {
			t.Errorf("%s: %v", name, err)
		}
	}
	newer := t.TempDir()
	s, err := openStore(dirAt(t, newer), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.commit([]item{{keyMeta, 0, []byte(`{"v":99,"id":"x"}`)}}); err != nil {
		t.Fatal(err)
	}
	s.close()
	if _, err := Read(context.Background(), newer, child); err == nil || !strings.Contains(err.Error(), "newer rsswarden") {
		t.Errorf("newer: %v", err)
	}
	if _, err := Read(context.Background(), t.TempDir(), child); err == nil {
		t.Error("a directory without a record was read")
	}
}
