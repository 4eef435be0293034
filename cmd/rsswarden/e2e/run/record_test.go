package run

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// recorded starts a command that records into a place, waits until its record is
// there and does to that what harm does. It returns how long the command's exit
// took beyond its end, its exit status and what was said.
func recorded(t *testing.T, place string, harm func(data string)) (late time.Duration, status int, said string) {
	t.Helper()
	ended := filepath.Join(t.TempDir(), "ended")
	cmd := exec.Command(binary, "run", "--record", place, "--", "sh", "-c", "sleep 9; touch "+ended+"; exit 7")
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	var errs bytes.Buffer
	cmd.Stderr = &errs
	wardentest.NoError(t, cmd.Start())
	var data []string
	for end := time.Now().Add(5 * time.Second); len(data) == 0 && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		data, _ = filepath.Glob(filepath.Join(place, "*", "data.mdb"))
	}
	if len(data) != 1 {
		t.Fatalf("records %v\n%s", data, errs.String())
	}
	time.Sleep(1500 * time.Millisecond)
	harm(data[0])
	err := cmd.Wait()
	info, missing := os.Stat(ended)
	var exit *exec.ExitError
	if missing != nil || !errors.As(err, &exit) {
		t.Fatalf("%v, %v\n%s", err, missing, errs.String())
	}
	return time.Since(info.ModTime()), exit.ExitCode(), errs.String()
}

// TestTruncatedRecord: LMDB reaches for pages that somebody has cut off, which
// ends the watcher and not the command.
func TestTruncatedRecord(t *testing.T) {
	for name, size := range map[string]int64{"to nothing": 0, "within its pages": 12 << 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, status, said := recorded(t, t.TempDir(), func(data string) {
				for range 10 { // of each watcher that goes on with it
					if err := os.Truncate(data, size); err != nil {
						t.Error(err)
					}
					time.Sleep(200 * time.Millisecond)
				}
			})
			if status != 7 {
				t.Errorf("exit status %d, want 7\n%s", status, said)
			}
			wardentest.Says(t, said, "exit status 7")
		})
	}
}

// TestFrozenRecord: where the disk of the record takes nothing any more the
// command's exit is late by the time for the last words at most.
func TestFrozenRecord(t *testing.T) {
	wardentest.NeedRoot(t, "needs root, to mount")
	dir := t.TempDir()
	img, mnt := filepath.Join(dir, "img"), filepath.Join(dir, "disk")
	sh := func(line string) error { return exec.Command("sh", "-c", line).Run() }
	if err := sh("truncate -s 300M " + img + " && mkfs.ext4 -q " + img + " && mkdir " + mnt + " && mount -o loop " + img + " " + mnt); err != nil {
		t.Skip("cannot mount here")
	}
	t.Cleanup(func() { _ = sh("umount -l " + mnt) })
	late, status, said := recorded(t, filepath.Join(mnt, "records"), func(string) {
		if err := sh("fsfreeze -f " + mnt); err != nil {
			t.Skip("cannot freeze a file system here")
		}
		thaw := time.AfterFunc(30*time.Second, func() { _ = sh("fsfreeze -u " + mnt) }) // whatever hangs
		t.Cleanup(func() { thaw.Stop(); _ = sh("fsfreeze -u " + mnt) })
	})
	if status != 7 || late > 2500*time.Millisecond {
		t.Errorf("exit status %d, %v after its end\n%s", status, late, said)
	}
	t.Logf("%v late", late)
}

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

// TestHostileJournal: what stands in a journal that somebody else has written steers no
// terminal, whatever it is read by.
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
