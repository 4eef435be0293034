package saveratetest_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/saveratetest"
)

var scales = map[string]*saveratetest.Scale{"simulated": &saveratetest.Simulated, "real": &saveratetest.Real, "steady": &saveratetest.Steadies}

// TestLabels: the labels are those that were written before any of the jobs was run
// under rsswarden, to the byte. They are never rewritten: a change of the
// generator or the oracle gives the new labels another name and says so.
func TestLabels(t *testing.T) {
	for name, scale := range scales {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			for seed := uint64(1); seed <= scale.Seeds; seed++ {
				s := saveratetest.New(seed, scale)
				fmt.Fprintln(&b, s.Label())
			}
			file := "testdata/" + name + ".txt"
			want, err := os.ReadFile(file)
			if os.IsNotExist(err) && os.Getenv("SAVERATE_FIRST") != "" {
				err = os.WriteFile(file, []byte(b.String()), 0o644)
				want = []byte(b.String())
			}
			if err != nil {
				t.Fatal(err)
			}
			got, old := strings.Split(b.String(), "\n"), strings.Split(string(want), "\n")
			for i := range min(len(got), len(old)) {
				if got[i] != old[i] {
					t.Fatalf("labelled again:\n%s\nwas\n%s", got[i], old[i])
				}
			}
			if len(got) != len(old) {
				t.Errorf("%d labels, were %d", len(got)-1, len(old)-1)
			}
		})
	}
}

// TestMix: what the jobs of each scale are.
func TestMix(t *testing.T) {
	for name, scale := range scales {
		t.Run(name, func(t *testing.T) {
			jobs := int(scale.Seeds)
			classes, accountings, innocents, fits, curable := map[saveratetest.Class]int{}, map[saveratetest.Accounting]int{}, 0, 0, 0
			for seed := uint64(1); seed <= scale.Seeds; seed++ {
				s := saveratetest.New(seed, scale)
				l := s.Label()
				classes[s.Class]++
				accountings[s.Accounting]++
				if l.Innocent {
					innocents++
				}
				if l.Fits {
					fits++
				}
				if l.Fits && l.Peak > s.Limit {
					curable++
				}
				if s.Class == saveratetest.Innocent != l.Innocent {
					t.Errorf("seed %d was made %s: %v", seed, s.Class, l)
				}
				if s.Class == saveratetest.Curable && (!l.Fits || l.Peak <= s.Limit) {
					t.Errorf("seed %d was made to be carried: %v", seed, l)
				}
				if s.Class == saveratetest.Hopeless && l.Fits {
					t.Errorf("seed %d was made to die: %v", seed, l)
				}
			}
			t.Logf("%d jobs: %v %v; %d innocents, %d fit, of which bare %d would be killed", jobs, classes, accountings, innocents, fits, curable)
			if scale.Steady {
				if fits != jobs || curable > 0 {
					t.Errorf("%d of %d fit, and %d would be killed bare", fits, jobs, curable)
				}
			} else if innocents < jobs*30/100 || curable < jobs*30/100 {
				t.Errorf("too few of a kind")
			}
			for _, a := range scale.Accountings {
				if accountings[a] < jobs/10 {
					t.Errorf("%d of %d jobs are under %s", accountings[a], jobs, a)
				}
			}
		})
	}
}

// job is one that is small enough to be added up by hand.
func job(a saveratetest.Accounting) saveratetest.Spec {
	return saveratetest.Spec{
		Accounting: a, Steps: 100, Workers: 2, Support: saveratetest.Recycle, Limit: 1000,
		Heap: 100, Libs: 50, WorkerLibs: 20, Fresh: 10, Beside: 5,
	}
}

// TestSums: what each accounting counts of each kind of memory.
func TestSums(t *testing.T) {
	const base, kernel, pss = 100 + 50 + 5 + 2*(100+20+10), 100 + 5 + 2*10, 100 + 50 + 5 + 2*10
	for name, c := range map[string]struct {
		change           func(*saveratetest.Spec)
		rss, pss, kernel rss.Bytes
	}{
		"nothing":        {func(s *saveratetest.Spec) {}, base, pss, kernel},
		"mapped":         {func(s *saveratetest.Spec) { s.File, s.Map = 80, 4 }, base + 2*80, pss + 80, kernel},
		"half mapped":    {func(s *saveratetest.Spec) { s.File, s.Map = 400, 4 }, base + 2*200, pss + 300, kernel},
		"leak":           {func(s *saveratetest.Spec) { s.Leak = 3 }, base + 300, pss + 300, kernel + 300},
		"copies":         {func(s *saveratetest.Spec) { s.Copy, s.CopyMost = 1, 30 }, base, pss + 60, kernel + 60},
		"burst":          {func(s *saveratetest.Spec) { s.Burst, s.BurstAt, s.BurstFor = 70, 13, 1 }, base + 70, pss + 70, kernel + 70},
		"trainer's leak": {func(s *saveratetest.Spec) { s.Grow = 2 }, base + 200, pss + 200, kernel + 200},
		"page cache":     {func(s *saveratetest.Spec) { s.Cache = 1000 }, base, pss, kernel},
	} {
		for a, want := range map[saveratetest.Accounting]rss.Bytes{saveratetest.SlurmRSS: c.rss, saveratetest.SlurmPSS: c.pss, saveratetest.CgroupV1: c.kernel, saveratetest.CgroupV2: c.kernel} {
			s := job(a)
			c.change(&s)
			if got := s.Peak(); got != want {
				t.Errorf("%s by %s: %d, want %d", name, a, got, want)
			}
		}
	}
}

// TestOracle: what can be given back is taken out, where the job's loader can give
// it back, and nothing else; fresh workers are put in where workers are replaced.
func TestOracle(t *testing.T) {
	for name, c := range map[string]struct {
		change      func(*saveratetest.Spec)
		rss, kernel int64 // less than the peak; more is negative
	}{
		"nothing":          {func(s *saveratetest.Spec) {}, 0, 0},
		"leak":             {func(s *saveratetest.Spec) { s.Leak = 3 }, 300 - 2*130, 300 - 2*10},
		"leak, trim alone": {func(s *saveratetest.Spec) { s.Leak, s.Support = 3, saveratetest.Trim }, 0, 0},
		"mapped":           {func(s *saveratetest.Spec) { s.File, s.Map = 80, 4 }, 160, 0},
		"mapped, trim":     {func(s *saveratetest.Spec) { s.File, s.Map, s.Support = 80, 4, saveratetest.Trim }, 160, 0},
		"mapped, no hook":  {func(s *saveratetest.Spec) { s.File, s.Map, s.Support = 80, 4, saveratetest.None }, 0, 0},
		"trainer's leak":   {func(s *saveratetest.Spec) { s.Grow = 2 }, 0, 0},
		"copies":           {func(s *saveratetest.Spec) { s.Copy, s.CopyMost = 1, 30 }, 0, 0},
		// A worker that replaces another late is forked from a larger trainer.
		"both leak": {func(s *saveratetest.Spec) { s.Leak, s.Grow = 5, 2 }, 500 - 2*(130+200), 500 - 2*10},
	} {
		for a, less := range map[saveratetest.Accounting]int64{saveratetest.SlurmRSS: c.rss, saveratetest.CgroupV2: c.kernel} {
			s := job(a)
			c.change(&s)
			if got := int64(s.Peak()) - int64(s.Oracle()); got != less {
				t.Errorf("%s by %s: the oracle is %d below the peak, want %d", name, a, got, less)
			}
		}
	}
}

// TestLabel: the words that a job gets.
func TestLabel(t *testing.T) {
	leaky := job(saveratetest.CgroupV1)
	leaky.Leak = 3 // peak 425, oracle 145
	for _, c := range []struct {
		limit          rss.Bytes
		fits, innocent bool
		word           string
	}{
		{1000, true, true, " innocent"}, {532, true, true, " innocent"}, {500, true, false, " fits-bare"}, {424, true, false, " fits"},
		{145, true, false, " fits"}, {144, false, false, " does-not-fit"},
	} {
		leaky.Limit = c.limit
		if l := leaky.Label(); l.Fits != c.fits || l.Innocent != c.innocent || !strings.HasSuffix(l.String(), c.word) {
			t.Errorf("limit %d: %v", c.limit, l)
		}
	}
}
