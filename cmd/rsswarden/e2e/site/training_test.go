package site

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestTraining: a user who typed nothing trains over an LMDB of which workers map so much that
// slurmstepd kills the job. With the plugin as it is by default it ends well, with the data of
// a run that nothing limits, and says so in three lines.
func TestTraining(t *testing.T) {
	wardentest.NeedTorch(t)
	s := newSite(t, "")
	s.plugstack(t, "optional "+s.so+" bin="+s.bin)
	train := s.Install(t, "../../../../examples/train/train.py")
	s.Install(t, "../../../../examples/train/data.py")
	args := []string{wardentest.Python, train, "--data", filepath.Join(s.Dir(), "train.lmdb"),
		"--records", strconv.Itoa(wardentest.Few(12000, 4000)), "--record-bytes", "120000", "--epochs", "4"}
	reference := s.Do(t, args[0], append(args[1:], "--workers", "2")...)
	want := wardentest.Checksum(reference.Stdout)
	if reference.Code != 0 || want == "none" {
		t.Fatalf("the run without a limit failed: %+v", reference)
	}
	job := strings.Join(args, " ") + " --persistent --workers 4"
	mem := fmt.Sprint("--mem=", wardentest.Few(3000, 2000))
	bare := s.Submit(t, job, mem, "--rsswarden=off", "--no-requeue").Wait(t)
	if bare.State != "FAILED" && bare.State != "OUT_OF_MEMORY" && bare.Signal != 9 {
		t.Errorf("bare: %s %d:%d, the test proves nothing\n%s", bare.State, bare.ExitCode, bare.Signal, bare.Stderr)
	}
	got := s.Submit(t, job, mem, "--no-requeue").Wait(t)
	if sum := wardentest.Checksum(got.Stdout); got.State != "COMPLETED" || sum != want {
		t.Errorf("%s %d:%d, checksum %s, want %s\n%s%s", got.State, got.ExitCode, got.Signal, sum, want, got.Stdout, got.Stderr)
	}
	said := wardentest.Said(got.Stderr)
	t.Log(said)
	if lines := strings.Split(strings.TrimSpace(said), "\n"); len(lines) != 3 || !strings.Contains(lines[0], "✔ finished, kept under the limit") ||
		!strings.Contains(lines[1], "did ") || !strings.Contains(lines[2], "rsswarden report ") {
		t.Errorf("the user reads:\n%s", got.Stderr)
	}
}

// TestUsersRun: where the user has typed a run, that one decides and speaks.
func TestUsersRun(t *testing.T) {
	s := newSite(t, "")
	hold := s.Install(t, "testdata/hold.py")
	for _, exec := range []string{"", "exec "} {
		got := s.Submit(t, exec+s.bin+" run --limit 190M -- "+wardentest.Python+" "+hold+" 150", "--mem=400").Wait(t)
		if got.State != "COMPLETED" || strings.Count(got.Stderr, "! finished, memory was tight") != 1 ||
			strings.Contains(got.Stderr, "watches this command too") || strings.Contains(got.Stderr, "--rsswarden=off") {
			t.Errorf("%q: %s\n%s", exec, got.State, got.Stderr)
		}
	}
}
