//go:build endurance

package run

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// wholeJobs are trainings of testdata/whole_job.py, and how their limit adds up.
var wholeJobs = []struct {
	shape string
	by    event.Accounting
	known bool     // two minutes are enough for a range
	acted []string // options of the run with actions; none for no such run
}{
	{"random", event.AccountingRSS, true, []string{"--limit", "750M"}},
	{"random, slow", event.AccountingRSS, false, nil},
	{"in order", event.AccountingRSS, true, []string{"--limit", "750M"}},
	{"leak", event.AccountingRSS, false, []string{"--limit", "1000M"}},
	{"copies", event.AccountingPSS, false, []string{"--limit", "1000M", "--at", "none", "--at", "70%:recycle"}},
}

// bare are the options of a run in which nothing is done.
var bare = []string{"--limit", "64G", "--at", "none", "--loader", "off", "--trim", "off"}

// TestEnduranceWholeJob: two minutes of a training, which ^C ends, say what all of it needs
// bare, by a range that is at most 40 % of its high end wide, or why they cannot. What runs
// that were acted on would have needed without is a bound on what they need bare.
func TestEnduranceWholeJob(t *testing.T) {
	if out, err := exec.Command(python, "-c", "import lmdb, torch").CombinedOutput(); err != nil {
		t.Skipf("no PyTorch or LMDB in %s: %v %s", python, err, out)
	}
	file := filepath.Join(t.TempDir(), "data.mdb")
	if out, err := exec.Command(python, "testdata/whole_job.py", "random", file, "0").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const short, whole = 130 * time.Second, 240 * time.Second
	var group sync.WaitGroup
	type result struct{ live, short, acted, whole analysis.Brief }
	results := make([]result, len(wholeJobs))
	for i, job := range wholeJobs {
		r := &results[i]
		run := func(to *analysis.Brief, length time.Duration, options ...string) {
			group.Go(func() {
				b, err := runWhole(t, job.shape, file, length, append(options, "--accounting", string(job.by)), to == &r.short, &r.live)
				if err != nil {
					t.Errorf("%s: %v", job.shape, err)
				}
				*to = b
			})
		}
		run(&r.whole, whole, bare...)
		run(&r.short, short, "--limit", "64G")
		if job.acted != nil {
			run(&r.acted, whole, job.acted...)
		}
	}
	group.Wait()
	var ratios []float64
	for i, job := range wholeJobs {
		r := &results[i]
		truth := peakOf(&r.whole)
		n := r.short.Need
		if n == nil || r.live.Need == nil || r.live.Outcome != event.RunRunning || r.short.Outcome != event.RunCancelled {
			t.Errorf("%s: need %+v, while it ran %+v; %s, %s", job.shape, n, r.live.Need, r.short.Outcome, r.live.Outcome)
			continue
		}
		t.Logf("%s: bare %v; two minutes: %v so far, %v to %v, %q, %v/min; with %v", job.shape, truth, n.Peak, n.Without.Low, n.Without.High, n.Open, 60*n.Rate, n.With)
		switch {
		case truth < n.Without.Low, n.Without.High > 0 && truth > n.Without.High:
			t.Errorf("%s: it is not in the range", job.shape)
		case job.known && n.Open != "", n.Open == "" && n.Without.Wide():
			t.Errorf("%s: no range: %+v", job.shape, n)
		}
		if job.acted != nil {
			t.Logf("%s with %v: %s", job.shape, job.acted, r.acted.Outcome)
			ratios = append(ratios, boundOf(t, job.shape, &r.acted, truth))
		}
	}
	for name, options := range map[string][]string{"train.py": {"--epochs", "4"}, "train.py, a leak": {"--epochs", "3", "--leak-worker", "120"}} {
		train := append([]string{wardentest.Path(t, "examples/train/train.py"), "--data", filepath.Join(t.TempDir(), "train.lmdb"),
			"--records", "4000", "--workers", "3", "--persistent", "--step-ms", "8"}, options...)
		seen, err := runTraining(t, train, bare, nil)
		wardentest.NoError(t, err)
		acted, err := runTraining(t, train, []string{"--limit", "1000M"}, nil)
		wardentest.NoError(t, err)
		ratios = append(ratios, boundOf(t, name, &acted, peakOf(&seen)))
	}
	slices.Sort(ratios)
	if median := ratios[len(ratios)/2]; median > 1.5 {
		t.Errorf("bounds are %.2f of the bare peak in the median", median)
	}
}

func peakOf(b *analysis.Brief) rss.Bytes {
	if b.Peak == nil {
		return 0
	}
	return b.Peak.Used
}

// boundOf is by how much what a run would have needed at most without actions is above what
// it needs bare.
func boundOf(t *testing.T, name string, acted *analysis.Brief, truth rss.Bytes) float64 {
	t.Helper()
	bound := acted.Next.Without
	t.Logf("%s: peak %v, at most %v without actions; bare %v: %.2f", name, peakOf(acted), bound, truth, bound.Of(truth))
	if bound < truth {
		t.Errorf("%s: the bound is too low", name)
	}
	return bound.Of(truth)
}

// runWhole runs a training of testdata for so long. One that is interrupted is asked about
// while it runs, too.
func runWhole(t *testing.T, shape, file string, length time.Duration, options []string, interrupt bool, live *analysis.Brief) (b analysis.Brief, err error) {
	lasts, interrupted := length, (func(*exec.Cmd, string) error)(nil)
	if interrupt {
		lasts *= 2
		interrupted = func(cmd *exec.Cmd, dir string) (err error) {
			time.Sleep(length - 5*time.Second)
			if *live, err = reportOf(dir); err != nil {
				return err
			}
			time.Sleep(5 * time.Second)
			return cmd.Process.Signal(syscall.SIGINT)
		}
	}
	return runTraining(t, []string{"testdata/whole_job.py", shape, file, fmt.Sprint(lasts.Seconds())}, options, interrupted)
}

// runTraining runs a Python program under rsswarden, and returns what a report says of it.
func runTraining(t *testing.T, program, options []string, interrupt func(cmd *exec.Cmd, dir string) error) (b analysis.Brief, err error) {
	dir := t.TempDir()
	args := append([]string{"run", "--record", filepath.Join(dir, "record")}, options...)
	cmd := exec.Command(binary, append(append(args, "--", python), program...)...)
	cmd.Env = wardentest.Env("TMPDIR="+dir, "XDG_STATE_HOME="+dir)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return b, err
	}
	if interrupt != nil {
		err = interrupt(cmd, dir)
	}
	if ended := cmd.Wait(); ended != nil && interrupt == nil {
		return b, fmt.Errorf("%w\n%s", ended, out.String())
	}
	if err != nil {
		return b, err
	}
	return reportOf(dir)
}

// reportOf is the summary of a run's report.
func reportOf(dir string) (b analysis.Brief, err error) {
	cmd := exec.Command(binary, "report", "--json", filepath.Join(dir, "record"))
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+dir)
	out, err := cmd.Output()
	if err != nil {
		return b, fmt.Errorf("report: %w", err)
	}
	rep := struct {
		Summary *analysis.Brief `json:"summary"`
	}{&b}
	return b, json.Unmarshal(out, &rep)
}
