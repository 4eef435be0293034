package torch

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestBrokenHookNextRung: the hook of a trainer breaks, and no worker of it can be recycled
// any more. Why is said, the next rung is taken, and the training's data and end are its
// own.
func TestBrokenHookNextRung(t *testing.T) {
	t.Parallel()
	wardentest.NeedTorch(t)
	data := filepath.Join(t.TempDir(), "train.lmdb")
	args := []string{python, "../../../../examples/train/train.py", "--data", data, "--records", "3000", "--record-bytes", "20000",
		"--workers", "2", "--persistent", "--epochs", "2", "--leak-worker", "80", "--step-ms", "6"}
	out, errs, err := wardentest.Output(args...)
	want := wardentest.Checksum(out)
	if err != nil || want == "" {
		t.Fatalf("bare: %v\n%s", err, errs)
	}
	for name, c := range map[string]struct {
		file, text string // what is added to which file of the hook
		instead    bool   // … or written over it
		says       []string
		whole      bool // it is not broken
	}{
		"whole":        {file: "recycle.py", whole: true, says: []string{": recycled worker "}},
		"raises":       {file: "recycle.py", text: raisingRecycler, says: []string{"switched itself off; training goes on: RuntimeError: broken", "recycle skipped: no DataLoader workers found"}},
		"is deaf":      {file: "iterators.py", text: "\ndef _poll(iterator): pass\n"}, // its answer is waited for until long after
		"is no Python": {file: "patch.py", text: "def broken(:\n", instead: true, says: []string{"recycle skipped: no DataLoader workers found"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			list, fired := filepath.Join(dir, "events"), filepath.Join(dir, "fired")
			redirect := ">>"
			if c.instead {
				redirect = ">"
			}
			// As a disk does that gives other bytes than it was given: after they were checked.
			spoil := fmt.Sprintf(`printf %%s "$SPOIL" %s "${PYTHONPATH%%%%:*}/_rsswarden/%s" && exec "$@"`, redirect, c.file)
			run := []string{"run", "--events", list, "--limit", "1000M", "--accounting", "noshared", "--interval", "100ms",
				"--at", "none", "--at", "user 50%:recycle", "--at", "user 60%:exec=touch " + fired, "--", "sh", "-c", spoil, "sh"}
			cmd := exec.Command(binary, append(run, args...)...)
			cmd.Env = wardentest.Env("XDG_CACHE_HOME="+dir, "SPOIL="+c.text)
			got, said, err := wardentest.Run(cmd)
			if err != nil {
				t.Errorf("%v\n%s", err, said)
			}
			if sum := wardentest.Checksum(got); sum != want {
				t.Errorf("checksum %s, bare %s", sum, want)
			}
			if _, err := os.Stat(fired); (err == nil) == c.whole {
				t.Errorf("the next rung: %v\n%s", err, said)
			}
			wardentest.Says(t, said, c.says...)
			for _, o := range wardentest.Events(t, list)[event.NameOutcome] {
				if o["detail"] == "swap" && o["ok"] == true && !c.whole {
					t.Errorf("a worker was recycled: %v", o)
				}
			}
		})
	}
}

// raisingRecycler is a bug in what a loader is recycled by.
const raisingRecycler = `
def _broken(*_, **__): raise RuntimeError("broken")
Recycler.__init__ = _broken
`
