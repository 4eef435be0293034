package train_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestGPUWithoutGPU: what `make gpu` runs says why it cannot here, and compares as it
// would on a GPU when it may use the processor.
func TestGPUWithoutGPU(t *testing.T) {
	needTorch(t)
	program := wardentest.Program(t, wardentest.Rsswarden)
	home := "HOME=" + t.TempDir()
	cmd := exec.Command(python, "gpu.py", "--rsswarden", program)
	cmd.Env = append(os.Environ(), home, "CUDA_VISIBLE_DEVICES=")
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != 77 || !strings.HasPrefix(string(out), "skipped: torch ") {
		t.Errorf("without a GPU: status %d\n%s", got, out)
	}

	cmd = debian.Need(t, debian.Trixie).Command("python3", "gpu.py", "--rsswarden", program, "--device", "cpu",
		"--records", "600", "--epochs", "5", "--step-ms", "50")
	cmd.Env = append(os.Environ(), home)
	out, _ = cmd.CombinedOutput()
	recycled := regexp.MustCompile(`(?m)^  workers recycled [1-9]`).FindAll(out, -1)
	if got := cmd.ProcessState.ExitCode(); got != 0 || len(recycled) == 0 {
		t.Errorf("on the processor: status %d\n%s", got, out)
	}
}
