package integrations_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestLightning: with the callback a training saves a checkpoint when rsswarden asks it
// to, and goes on to its end; without rsswarden the same program saves none.
func TestLightning(t *testing.T) {
	t.Parallel()
	wardentest.NeedTorch(t)
	for _, c := range []struct {
		name  string
		words []string
		saves bool
	}{
		{"asked", []string{"rsswarden", "run", "--limit", "400M", "--at", "93%:signal=USR2", "--", python, "train.py"}, true},
		{"without rsswarden", []string{python, "train.py"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, "lightning/train.py", "lightning/when_asked.py")
			here, err := os.Getwd()
			wardentest.NoError(t, err)
			p.env = append(p.env, "PYTHONPATH="+here+"/testdata/lightning")
			r := p.start(c.words...)
			if status := r.ends(); status != 0 || r.stdout.String() != "trained 200 steps\n" {
				t.Fatalf("status %d, %q\n%s", status, &r.stdout, &r.stderr)
			}
			_, err = os.Stat(p.file("asked.ckpt"))
			if (err == nil) != c.saves {
				t.Fatalf("the checkpoint: %v\n%s", err, &r.stderr)
			}
			if !c.saves {
				return
			}
			out, err := exec.Command(python, "-W", "ignore", "-c", `import torch; print(torch.load("`+p.file("asked.ckpt")+`")["global_step"])`).Output()
			var step int
			if _, scanErr := fmt.Sscan(string(out), &step); err != nil || scanErr != nil || step == 0 || step >= 200 {
				t.Errorf("saved at step %q, %v", out, err)
			}
			if n := strings.Count(r.stderr.String(), ": USR2 sent to process "); n != 1 {
				t.Errorf("it was asked %d times:\n%s", n, &r.stderr)
			}
		})
	}
}
