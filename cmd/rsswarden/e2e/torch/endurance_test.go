//go:build endurance

package torch

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestEnduranceDiagnosis runs each program five times.
func TestEnduranceDiagnosis(t *testing.T) { diagnose(t, wardentest.Times(5)) }

// TestEnduranceDiagnosisWithoutHook: what is read from outside tells as much, but for
// what only malloc_trim(3) shows.
func TestEnduranceDiagnosisWithoutHook(t *testing.T) { diagnose(t, 1, "--loader", "off") }

// TestEnduranceSmallTensors is the failure that users report, 20 times in each
// way.
func TestEnduranceSmallTensors(t *testing.T) { smallTensors(t, 20) }

// TestEnduranceRecycles has one training recycle its workers 500 times, on each torch.
func TestEnduranceRecycles(t *testing.T) {
	for _, torch := range torches {
		t.Run("torch "+torch.name, func(t *testing.T) {
			enduranceRecycles(t, torch.command(t))
		})
	}
}

func enduranceRecycles(t *testing.T, command func(string, ...string) *exec.Cmd) {
	data := filepath.Join(t.TempDir(), "train.lmdb")
	epochs := strconv.Itoa(160 * wardentest.Times(500) / 500)
	run := func(leak string, wrap ...string) (string, string) {
		args := append(wrap, python, "../../../../examples/train/train.py", "--data", data, "--records", "4000", "--record-bytes", "20000",
			"--workers", "4", "--persistent", "--leak-worker", leak, "--epochs", epochs)
		var out, errs bytes.Buffer
		cmd := command(args[0], args[1:]...)
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, &errs)
		}
		return wardentest.Checksum(out.String()), errs.String()
	}
	// Bare, the leak would fill the machine before the last epoch.
	want, _ := run("0")
	events1 := filepath.Join(t.TempDir(), "events")
	got, said := run("100", binary, "run", "--limit", "4G", "--accounting", "noshared", "--at", "none", "--at", "20%:recycle", "--events", events1, "--")
	if got != want {
		t.Errorf("checksum %s, want %s", got, want)
	}
	recycled, badExit := 0, 0
	for _, e := range wardentest.Events(t, events1)[event.NameLoader] {
		if e["what"] == string(event.LoaderRecycled) {
			recycled++
			if e["exit"] != nil {
				badExit++
			}
		}
	}
	t.Logf("%d recycles in one training, checksum %s\n%s", recycled, got, said)
	if recycled < wardentest.Times(500) || badExit > 0 {
		t.Errorf("%d recycles, %d of them with a worker that did not exit with 0; want %d", recycled, badExit, wardentest.Times(500))
	}
}
