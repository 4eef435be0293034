package faults

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestCommandSurvivesItsWatcher: the watcher killed, stopped or crashing
// changes nothing for the command.
func TestCommandSurvivesItsWatcher(t *testing.T) {
	for _, a := range wardentest.Ailments {
		t.Run(a.Name, func(t *testing.T) {
			for script, want := range map[string]string{
				"sleep 1; echo done":                  "exit status 0",
				"sleep 1; echo done; exit 41":         "exit status 41",
				"sleep 1; echo done; kill -TERM $$":   "signal: terminated",
				"cat /proc/sys/kernel/ostype; exit 7": "exit status 7",
			} {
				ended, out, struck := a.Run(t, "run", "--interval", "20ms", "--", "sh", "-c", script)
				if ended != want || len(out) == 0 {
					t.Errorf("%q ended with %q having written %q, want %q", script, ended, out, want)
				}
				if a.Sig != 0 && struck == 0 && strings.HasPrefix(script, "sleep") {
					t.Errorf("%q: no watcher was struck: the test proves nothing", script)
				}
			}
		})
	}
}

// TestTrainingSurvivesItsWatcher runs a small training and wants the checksum
// of the bare run.
func TestTrainingSurvivesItsWatcher(t *testing.T) {
	wardentest.NeedTorch(t)
	data := filepath.Join(t.TempDir(), "small.lmdb")
	train := []string{python, "../../../../examples/train/train.py", "--data", data, "--records", "2000", "--record-bytes", "20000",
		"--workers", "2", "--persistent", "--epochs", "3"}
	bare, err := exec.Command(train[0], train[1:]...).Output()
	wardentest.NoError(t, err)
	want := wardentest.Checksum(string(bare))
	for _, a := range wardentest.Ailments {
		t.Run(a.Name, func(t *testing.T) {
			// The limit is far too small, so that everything is tried.
			ended, out, _ := a.Run(t, append([]string{"run", "--limit", "300M", "--accounting", "rss", "--interval", "20ms", "--"}, train...)...)
			if ended != "exit status 0" || wardentest.Checksum(string(out)) != want {
				t.Errorf("ended with %q, checksum %s, want exit status 0 and %s", ended, wardentest.Checksum(string(out)), want)
			}
		})
	}
}
