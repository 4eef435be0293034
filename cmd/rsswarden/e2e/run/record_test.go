package run

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestRootReadsOthers: root reads another user's record as it reads its own, also where
// that user does not let others in.
func TestRootReadsOthers(t *testing.T) {
	wardentest.NeedRoot(t, "needs root, to read what is another's")
	const other = 12345
	dir, err := os.MkdirTemp("/tmp", "rsswarden-owner-")
	wardentest.NoError(t, err)
	defer os.RemoveAll(dir)
	path, err := nodeOf(1, 1, 1, time.Minute).Save(dir)
	wardentest.NoError(t, err)
	report := func() string {
		out, errs, err := wardentest.Output(binary, "report", "--no-slurm", path)
		if err != nil {
			t.Fatalf("%v\n%s", err, errs)
		}
		return out + errs
	}
	ours := report()
	err = filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = os.Chown(name, other, other)
		}
		return err
	})
	wardentest.NoError(t, err)
	if theirs := report(); theirs != ours {
		t.Errorf("of another user:\n%s\nof root:\n%s", theirs, ours)
	}
}

// TestHostileJournal: a journal that another user wrote steers no terminal, whichever
// command reads it.
func TestHostileJournal(t *testing.T) {
	dir := t.TempDir()
	run := nodeOf(1, 1, 1, time.Minute)
	path, err := run.SaveJournal(dir)
	wardentest.NoError(t, err)
	text := wardentest.ReadFile(t, path)
	// In every string but the names of fields, times and what tells lines apart.
	const poison = `\u001b[2J\u001b]0;owned\u0007\u009b31m\u202e\u0000\n`
	var hostile []string
	for line := range strings.Lines(string(text)) {
		for i := 0; ; i++ {
			at := nth(line, `":"`, i)
			if at < 0 {
				break
			}
			name := line[strings.LastIndex(line[:at], `"`)+1 : at]
			if name == "time" || name == "event" || name == "start" || name == "id" {
				continue
			}
			hostile = append(hostile, line[:at+3]+poison+line[at+3:])
		}
	}
	if len(hostile) < 10 {
		t.Fatalf("%d strings in\n%s", len(hostile), text)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	for i, line := range hostile {
		all := string(text) + line
		if strings.Contains(line, `"event":"run"`) {
			all = line + strings.TrimPrefix(string(text), first+"\n")
		}
		wardentest.NoError(t, os.WriteFile(path, []byte(all), 0o600))
		forms := [][]string{{"report", "--no-slurm", path}}
		if i%7 == 0 { // each form starts a program
			forms = append(forms, []string{"report", "--no-slurm", "--json", path}, []string{"report", "--no-slurm", "--csv", path},
				[]string{"report", "--no-slurm", "--html", filepath.Join(t.TempDir(), "x.html"), path}, []string{"replay", path}, []string{"replay", "--json", path})
		}
		for _, form := range forms {
			out, errs, _ := wardentest.Output(append([]string{binary}, form...)...) // some refuse, which is as good
			if bad := recordtest.Shows(out + errs); len(bad) > 0 {
				t.Errorf("%q of %q\nshow %q", form, line, bad[0])
			}
		}
	}
}

// nth is where the text stands for the nth time, counted from 0, or -1.
func nth(s, text string, n int) int {
	at := -1
	for range n + 1 {
		i := strings.Index(s[at+1:], text)
		if i < 0 {
			return -1
		}
		at += 1 + i
	}
	return at
}
