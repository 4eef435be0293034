package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestSubmititOnSlurm has a real srun start the task of integrations/submitit and Slurm
// send it the USR2 that it would send before the time is up: the training is pickled, and
// the job is back in the queue. As [TestCheckpointRequeue] it does not wait for the second
// turn.
func TestSubmititOnSlurm(t *testing.T) {
	c := slurmtest.Start(t, slurmtest.Linux, slurmtest.Options{})
	bin := filepath.Dir(c.Install(t, wardentest.Program(t, wardentest.Rsswarden)))
	dir := filepath.Join(c.Dir(), "submitit")
	wardentest.NoError(t, os.RemoveAll(dir))
	for _, from := range []string{"integrations/submitit", "integrations/testdata/submitit"} {
		wardentest.NoError(t, os.CopyFS(filepath.Join(dir, filepath.Base(filepath.Dir(from))), os.DirFS(from)))
	}
	modules := "PYTHONPATH=" + dir + "/integrations:" + dir + "/testdata"
	launch := exec.Command(python, "integrations/launch.py")
	launch.Dir, launch.Env = dir, append(os.Environ(), modules, "PYTHONDONTWRITEBYTECODE=1")
	if out, err := launch.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	script, err := os.ReadFile(dir + "/log/submission.sh")
	for _, name := range []string{"log", "log/submitted.pkl"} { // the job's user writes it again
		if err == nil {
			err = os.Chown(filepath.Join(dir, name), c.UID(), -1)
		}
	}
	wardentest.NoError(t, err)
	run := c.Submit(t, string(script), "--export=ALL,PATH="+bin+":/usr/bin:/bin,"+modules, "--mem=500")
	putBack(t, c, run, "step 3\n")
	const read = `import pickle, sys; print(pickle.load(open(sys.argv[1], "rb")).function.step >= 3)`
	ask := exec.Command(python, "-c", read, dir+"/log/submitted.pkl")
	ask.Env = launch.Env
	if out, err := ask.CombinedOutput(); err != nil || string(out) != "True\n" {
		t.Errorf("what was pickled: %s, %v", out, err)
	}
}
