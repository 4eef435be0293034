package slurm

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestReadmeJob submits the README's own batch script.
func TestReadmeJob(t *testing.T) {
	t.Parallel()
	c := slurmtest.Start(t, slurmtest.Linux, slurmtest.Usual)
	bin := filepath.Dir(c.Install(t, binary))
	run := c.Submit(t, rsstest.Block(t, "## My job died last night"), "--export=ALL,PATH="+bin+":/usr/bin:/bin", "--chdir="+readmeFolder(t, c, bin))
	if got := run.Wait(t); got.State != "COMPLETED" || got.Stdout != "trained\n" {
		t.Errorf("%s, stdout %q\n%s", got.State, got.Stdout, got.Stderr)
	}
}

// readmeFolder is a folder with a train.py, and a python beside the program.
func readmeFolder(t *testing.T, c *slurmtest.Cluster, bin string) string {
	t.Helper()
	dir := filepath.Join(c.Dir(), "readme")
	wardentest.NoError(t, os.Mkdir(dir, 0o755))
	wardentest.NoError(t, os.WriteFile(filepath.Join(dir, "train.py"), []byte("print('trained')\n"), 0o644))
	wardentest.NoError(t, os.Symlink(python, filepath.Join(bin, "python")))
	return dir
}

var digits = regexp.MustCompile(`[0-9]+(\.[0-9]+)?`)
var bars = regexp.MustCompile(`[█▏▎▍▌▋▊▉░]+`)

// shape leaves of a line what does not differ from run to run: no numbers, and
// nothing behind the first parenthesis.
func shape(line string) string {
	line, _, _ = strings.Cut(line, "(")
	line = strings.TrimSpace(bars.ReplaceAllString(line, ""))
	if front, _, found := strings.Cut(line, " watching "); found {
		line = front + " watching"
	}
	return digits.ReplaceAllString(line, "#")
}

// sampleShown wants the lines of a README block among those of a real run.
func sampleShown(t *testing.T, words, stderr string) {
	t.Helper()
	real := map[string]bool{}
	for line := range strings.Lines(wardentest.Said(stderr)) {
		real[shape(line)] = true
	}
	for line := range strings.Lines(rsstest.Block(t, words)) {
		if !real[shape(line)] {
			t.Errorf("the README shows\n%s\nno line like it in\n%s", line, wardentest.Said(stderr))
		}
	}
}
