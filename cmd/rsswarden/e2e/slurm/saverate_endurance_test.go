//go:build endurance

package slurm

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/saveratetest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// rateModes is the Slurm in which a job's limit is enforced as its spec says.
var rateModes = []struct {
	accounting saveratetest.Accounting
	mode       slurmtest.Mode
}{{saveratetest.SlurmRSS, slurmtest.Linux}, {saveratetest.SlurmPSS, slurmtest.LinuxPss}, {saveratetest.CgroupV1, slurmtest.Cgroup}}

// rateData is the size of the file that jobs map: no spec has a larger one.
const rateData = 2 << 30

// rateFiles puts a spec and, where there is none, the data into a directory.
func rateFiles(t *testing.T, dir string, spec *saveratetest.Spec) (specFile, data string) {
	t.Helper()
	text, err := json.Marshal(spec)
	wardentest.NoError(t, err)
	specFile, data = filepath.Join(dir, fmt.Sprintf("saverate.%d.json", spec.Seed)), filepath.Join(dir, "saverate.data")
	wardentest.NoError(t, os.WriteFile(specFile, text, 0o644))
	f, err := os.OpenFile(data, os.O_CREATE|os.O_WRONLY, 0o644)
	wardentest.NoError(t, err)
	defer f.Close()
	wardentest.NoError(t, f.Truncate(rateData)) // sparse: its pages are in the page cache all the same
	if spec.File > rateData {
		t.Fatalf("seed %d maps %v", spec.Seed, spec.File)
	}
	return specFile, data
}

// rateFlags are what keep the hook out of a job that is to have none.
func rateFlags(spec *saveratetest.Spec) string {
	if spec.Support == saveratetest.None {
		return "-I "
	}
	return ""
}

// rateBase is what a Python with torch has anonymous: no worker makes copies of that.
const rateBase = 113 * rss.MiB

// TestEnduranceSaveRateModel: what a job has when it is run bare without a limit is
// what its spec says, to within 5 % and 24 MiB. It may be less, never more, by what the
// spec takes for its own and the machine shares: by PSS libraries that other processes
// of the node have mapped; and copies of what of the heap is not the job's to touch.
func TestEnduranceSaveRateModel(t *testing.T) {
	wardentest.NeedTorch(t)
	dir := t.TempDir()
	// One of each kind and accounting: mapped, leaked, both, copies, bursts, a trainer that grows.
	for _, seed := range []uint64{2, 4, 9, 10, 11, 13, 28, 30, 33} {
		spec := saveratetest.New(seed, &saveratetest.Real)
		file, data := rateFiles(t, dir, &spec)
		out, errs, err := wardentest.Output(python, "testdata/saverate/job.py", file, data, "--measure")
		if err != nil {
			t.Fatalf("seed %d: %v\n%s%s", seed, err, out, errs)
		}
		var all, pss, anon rss.Bytes
		if _, err := fmt.Sscanf(out, "peaks rss=%d pss=%d anon=%d", &all, &pss, &anon); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, out)
		}
		got := map[saveratetest.Accounting]rss.Bytes{saveratetest.SlurmRSS: all, saveratetest.SlurmPSS: pss, saveratetest.CgroupV1: anon}[spec.Accounting] + spec.Beside
		want := spec.Peak()
		t.Logf("seed %d, %s: peak %v, by its spec %v", seed, spec.Accounting, got, want)
		slack := want.Scale(0.05) + 24*rss.MiB
		less := slack + rss.Bytes(spec.Workers)*spec.CopyMost.Sub(spec.Heap.Sub(rateBase))
		if spec.Accounting == saveratetest.SlurmPSS {
			less += spec.Libs
		}
		if got > want+slack || got < want.Sub(less) {
			t.Errorf("seed %d, %s: peak %v, by its spec %v, or %v less", seed, spec.Accounting, got, want, less)
		}
	}
}

// rateJob is one job of the real save rate.
type rateJob struct {
	saveratetest.Label
	bare, wrapped *slurmtest.JobRun
	events        string
}

// TestEnduranceSaveRate is the save rate in a real Slurm with a real PyTorch: jobs
// that fit by the oracle complete, and nothing is done to innocents. Those that are no
// innocents are run bare too, for how many the limit kills. RSSWARDEN_TIMES runs
// fewer.
func TestEnduranceSaveRate(t *testing.T) {
	wardentest.NeedTorch(t)
	var jobs, fits, bareKilled, carried, lost, innocents, touched, budgets int
	for _, m := range rateModes {
		t.Run(string(m.mode), func(t *testing.T) {
			c := slurmtest.Start(t, m.mode, slurmtest.Usual)
			program, script := c.Install(t, binary), c.Install(t, "testdata/saverate/job.py")
			for seed := uint64(1); seed <= uint64(wardentest.Times(int(saveratetest.Real.Seeds))); seed++ {
				spec := saveratetest.New(seed, &saveratetest.Real)
				if spec.Accounting != m.accounting {
					continue
				}
				j := submitRateJob(t, c, &spec, program, script)
				jobs++
				got := j.wrapped.Wait(t)
				completed := got.State == "COMPLETED" && got.ExitCode == 0
				killed := "-"
				if j.bare != nil {
					bare := j.bare.Wait(t)
					if killed = bare.State; bare.State != "COMPLETED" {
						bareKilled++
						if completed && j.Fits {
							carried++
						}
					}
				}
				acted, budget := rateActions(t, j.events)
				t.Logf("%v: bare %s, wrapped %s %d:%d, %d actions, %d workers kept to a budget", j.Label, killed, got.State, got.ExitCode, got.Signal, acted, budget)
				if j.Fits {
					fits++
					if !completed {
						lost++
						t.Errorf("seed %d fits and is %s %d:%d\n%s%s", seed, got.State, got.ExitCode, got.Signal, got.Stdout, got.Stderr)
					}
				}
				if j.Innocent {
					innocents++
					if acted > 0 {
						touched++
						t.Errorf("seed %d is an innocent and was acted upon %d times\n%s", seed, acted, got.Stderr)
					}
					if budget > 0 {
						budgets++
					}
				}
			}
		})
	}
	t.Logf("%d jobs: killed bare %d; of %d that fit killed wrapped %d, carried %d; %d innocents, acted on %d, trimmed by budget %d",
		jobs, bareKilled, fits, lost, carried, innocents, touched, budgets)
}

// submitRateJob submits a job wrapped and, where it is no innocent, bare. Both run at
// once: they sleep between their batches.
func submitRateJob(t *testing.T, c *slurmtest.Cluster, spec *saveratetest.Spec, program, script string) rateJob {
	t.Helper()
	j := rateJob{Label: spec.Label()}
	file, data := rateFiles(t, c.Dir(), spec)
	train := strings.Join([]string{python, rateFlags(spec) + script, file, data}, " ")
	mem := "--mem=" + strconv.FormatUint(uint64(spec.Limit/rss.MiB), 10)
	j.wrapped = c.Submit(t, "exec "+program+" run --record none --events $PWD/events -- "+train, mem, "--no-requeue", "-n1", "-c2")
	j.events = filepath.Join(j.wrapped.Dir, "events")
	if !j.Innocent {
		j.bare = c.Submit(t, "exec "+train, mem, "--no-requeue", "-n1", "-c2")
	}
	return j
}

// rateActions is how often something was done, or tried, and whether workers kept to a
// budget by themselves.
func rateActions(t *testing.T, path string) (acted, budget int) {
	t.Helper()
	all := wardentest.Events(t, path)
	for _, e := range all[event.NameDecision] {
		if e["action"] != string(event.ActionWarn) {
			acted++
		}
	}
	for _, e := range all[event.NameLoader] {
		if e["what"] == string(event.LoaderTrimmed) && e["reason"] == "budget" {
			budget++
		}
	}
	return acted, budget
}
