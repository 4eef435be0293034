package main_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
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
			if !strings.Contains(said, "exit status 7") {
				t.Errorf("nobody watched at the end\n%s", said)
			}
		})
	}
}

// TestFrozenRecord: where the disk of the record takes nothing any more the
// command's exit is late by the time for the last words at most.
func TestFrozenRecord(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount")
	}
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
