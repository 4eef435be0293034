package integrations_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

var given = regexp.MustCompile(`mem_mb=(\d+)`)

// TestSnakemake runs Snakemake itself: a rule that is ended at its limit is tried again
// with what rsswarden advised.
func TestSnakemake(t *testing.T) {
	t.Parallel()
	wardentest.NeedPython(t)
	modules, err := exec.Command("../../.ci/snakemake").Output()
	if err != nil {
		t.Skipf("no Snakemake: %v", err)
	}
	p := newPlace(t, "snakemake/Snakefile", "testdata/train.py")
	p.env = append(p.env, "RSSWARDEN_LIMIT=", "XDG_CACHE_HOME="+p.file("cache"))
	const main = `import sys; sys.path.insert(0, sys.argv.pop(1)); from snakemake import main; main()`
	r := p.start(python, "-S", "-c", main, strings.TrimSpace(string(modules)), "--cores", "1", "--scheduler", "greedy")
	status, log := r.ends(), r.stderr.String()
	t.Logf("%s", log)
	if b, err := os.ReadFile(p.file("model-1")); status != 0 || string(b) != "model of 1\n" {
		t.Errorf("status %d, model %q, %v", status, b, err)
	}
	if n := strings.Count(log, "Trying to restart job"); n != 1 {
		t.Errorf("%d restarts", n)
	}
	tries := given.FindAllStringSubmatch(log, -1)
	advised := regexp.MustCompile(`(?s)stopped by rule .*next --limit (\d+)M`).FindStringSubmatch(log)
	if len(tries) != 2 || advised == nil || tries[0][1] != "300" || tries[1][1] != advised[1] {
		t.Errorf("it was given %v, advised was %v", tries, advised)
	}
}

// TestNextflow types the script of the process as Nextflow would, which itself is not to
// be had here: at the limit its status is the one that errorStrategy retries at, and
// with twice the memory it is 0.
func TestNextflow(t *testing.T) {
	t.Parallel()
	text := wardentest.ReadFile(t, "nextflow/train.nf")
	_, script, _ := strings.Cut(string(text), `"""`)
	script, _, _ = strings.Cut(script, `"""`)
	retried := regexp.MustCompile(`task\.exitStatus == (\d+) \?`).FindStringSubmatch(string(text))
	if script == "" || retried == nil {
		t.Fatalf("script %q, retried at %v", script, retried)
	}
	p := newPlace(t, "testdata/train.py")
	p.env = append(p.env, "RSSWARDEN_LIMIT=")
	for attempt, want := range []string{retried[1], "0"} {
		mega := fmt.Sprint(300 << attempt)
		typed := strings.NewReplacer("${task.memory.toMega()}", mega, "${seed}", "1").Replace(script)
		r := p.start("/bin/bash", "-ue", "-c", typed)
		if status := r.ends(); fmt.Sprint(status) != want {
			t.Errorf("with %s MB: status %d, want %s\n%s", mega, status, want, &r.stderr)
		}
	}
	if _, err := os.Stat(filepath.Join(p.dir, "model")); err != nil {
		t.Error(err)
	}
}
