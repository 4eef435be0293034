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
	{"in order", event.AccountingRSS, true, nil},
	{"leak", event.AccountingRSS, false, []string{"--limit", "1000M"}},
	{"copies", event.AccountingPSS, false, []string{"--limit", "1000M", "--at", "none", "--at", "70%:recycle"}},
}

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
		run(&r.whole, whole, "--limit", "64G", "--at", "none", "--loader", "off", "--trim", "off")
		run(&r.short, short, "--limit", "64G")
		if job.acted != nil {
			run(&r.acted, whole, job.acted...)
		}
	}
	group.Wait()
	var ratios []float64
	for i, job := range wholeJobs {
		r := &results[i]
		bare := peakOf(&r.whole)
		n := r.short.Need
		if n == nil || r.live.Need == nil || r.live.Outcome != event.RunRunning || r.short.Outcome != event.RunCancelled {
			t.Errorf("%s: need %+v, while it ran %+v; %s, %s", job.shape, n, r.live.Need, r.short.Outcome, r.live.Outcome)
			continue
		}
		t.Logf("%s: bare %v; two minutes: %v so far, %v to %v, %q, %v/min; with %v", job.shape, bare, n.Peak, n.Without.Low, n.Without.High, n.Open, 60*n.Rate, n.With)
		switch {
		case bare < n.Without.Low, n.Without.High > 0 && bare > n.Without.High:
			t.Errorf("%s: it is not in the range", job.shape)
		case job.known && n.Open != "", n.Open == "" && n.Without.Wide():
			t.Errorf("%s: no range: %+v", job.shape, n)
		}
		if job.acted != nil {
			bound := r.acted.Next.Without
			t.Logf("%s with %v: %s, peak %v, at most %v without actions, %.2f of the bare peak", job.shape, job.acted, r.acted.Outcome, peakOf(&r.acted), bound, bound.Of(bare))
			if bound < bare {
				t.Errorf("%s: the bound is too low", job.shape)
			}
			ratios = append(ratios, bound.Of(bare))
		}
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

// runWhole runs a training under rsswarden, and returns what a report says of it. One that
// is interrupted is asked about while it runs, too.
func runWhole(t *testing.T, shape, file string, length time.Duration, options []string, interrupt bool, live *analysis.Brief) (b analysis.Brief, err error) {
	dir := t.TempDir()
	lasts := length
	if interrupt {
		lasts *= 2
	}
	args := append([]string{"run", "--record", filepath.Join(dir, "record")}, options...)
	cmd := exec.Command(binary, append(args, "--", python, "testdata/whole_job.py", shape, file, fmt.Sprint(lasts.Seconds()))...)
	cmd.Env = wardentest.Env("TMPDIR="+dir, "XDG_STATE_HOME="+dir)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return b, err
	}
	if interrupt {
		time.Sleep(length - 5*time.Second)
		if *live, err = reportOf(dir); err != nil {
			return b, err
		}
		time.Sleep(5 * time.Second)
		_ = cmd.Process.Signal(syscall.SIGINT)
	}
	if err := cmd.Wait(); err != nil && !interrupt {
		return b, fmt.Errorf("%w\n%s", err, out.String())
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
