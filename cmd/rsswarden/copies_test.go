package main_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestCopiesByDefault runs the example over an array in memory on the newest Python that
// Debian has: by its default the four workers get a copy each, and the finding says so,
// live and in the report. With what it advises there is nothing to find, the tree's PSS is
// less by the copies, and the training is the same.
func TestCopiesByDefault(t *testing.T) {
	sid := debian.Need(t, debian.Sid)
	t.Setenv("PYTHONDONTWRITEBYTECODE", "1")
	const data = 1000 * 120_000
	dir := t.TempDir()
	sum := regexp.MustCompile(`(?m)^checksum \S+$`)
	sums, peaks := map[string]string{}, map[string]float64{} // of PSS
	for _, start := range []string{"default", "fork"} {
		log, records := filepath.Join(dir, start+".events"), filepath.Join(dir, start+".records")
		stdout, stderr, err := output(sid.Argv(binary, "run", "--limit", "4G", "--accounting", "pss", "--events", log, "--record", records, "--",
			"python3", "-W", "ignore", "../../examples/train/train.py", "--data", filepath.Join(dir, "data.lmdb"), "--records", "1000",
			"--workers", "4", "--persistent", "--epochs", "8", "--step-ms", "40", "--in-memory", "--start", start))
		if err != nil {
			t.Fatalf("%s: %v\n%s%s", start, err, stdout, stderr)
		}
		sums[start] = sum.FindString(stdout)
		all := events(t, log)
		peaks[start], _ = all[event.NameExit][0]["peaks"].(map[string]any)["pss_bytes"].(float64)
		found := slices.DeleteFunc(all[event.NameDiagnosis], func(e map[string]any) bool { return e["finding"] != string(event.FindingCopies) })
		report, _, err := output([]string{binary, "report", "--no-slurm", records})
		if err != nil {
			t.Fatal(err)
		}
		if start == "fork" {
			if len(found) > 0 || strings.Contains(report, string(event.FindingCopies)) {
				t.Errorf("a finding for forked workers: %v\n%s", found, report)
			}
			continue
		}
		if len(found) == 0 {
			t.Fatalf("no finding\n%s", said(stderr))
		}
		last := found[len(found)-1]
		bytes, _ := last["bytes"].(float64)
		if text := fmt.Sprint(last["evidence"]); !regexp.MustCompile(`each of the 4 workers holds .* MiB .*Python 3\.\d+ starts them by forkserver`).MatchString(text) ||
			last["confidence"] != string(event.Certain) || bytes < 4*data || bytes > 4*(data+64<<20) {
			t.Errorf("found %v", last)
		}
		if text := fmt.Sprint(last["advice"]); !strings.Contains(text, `multiprocessing_context="fork" shares it`) {
			t.Errorf("advice %s", text)
		}
		for name, text := range map[string]string{"summary": said(stderr), "report": report} {
			if !strings.Contains(text, "copies of data") || !strings.Contains(text, "forkserver") {
				t.Errorf("the %s has no finding:\n%s", name, text)
			}
		}
	}
	t.Logf("peaks of PSS %v", peaks)
	if peaks["default"]-peaks["fork"] < 3*data { // of 4 copies, as PSS is read now and then
		t.Errorf("with fork the peak falls from %.0f to %.0f bytes, with 4 copies of %d found", peaks["default"], peaks["fork"], data)
	}
	if sums["default"] == "" || sums["default"] != sums["fork"] {
		t.Errorf("%v", sums)
	}
}
