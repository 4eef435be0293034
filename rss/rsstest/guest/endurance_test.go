//go:build endurance

package guest

import (
	"io/fs"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// packages are those whose tests ask the kernel for what not every one has: pidfds,
// ptrace's newer requests, smaps_rollup, cgroup v2. Those that need a C compiler skip.
var packages = []string{"rss/proctree", "rss/cgroup", "supervisor/trim", "supervisor/action"}

// musts are tests that may not skip there.
var musts = map[string][]string{
	"rss/cgroup":        {"TestRealCgroup", "TestRealOOMKill", "TestEvents"},
	"supervisor/action": {"TestKillSparesAThread"},
}

// notThere are tests of how long something takes, which is more in a guest, of how much
// memory this process has while its threads begin, and of a directory that changes
// within the second that ext2's stamps are cut to.
const notThere = "^TestSumSmapsHeld$|^TestCostOfThisProcess$|^TestFileWatch$/^a_directory"

// TestEnduranceOldestKernel runs the tests of these packages on [Oldest], in one guest.
// One that finds there less than it needs says so and skips.
func TestEnduranceOldestKernel(t *testing.T) {
	files := map[string]string{}
	if err := AddDynamic(files, "/", "/bin/bash"); err != nil {
		t.Fatal(err)
	}
	for _, p := range packages {
		addTests(t, files, p)
	}
	out, exit := Run(t, Options{
		Kernel: Oldest(), Binary: TestBinary(t), Args: append([]string{"tests", notThere}, packages...),
		Env: []string{"TMPDIR=/disk"}, Files: files, DiskMB: 800, MemMB: 1024, Timeout: 25 * time.Minute,
	})
	if exit != 0 {
		t.Errorf("in the guest: status %d\n%s", exit, out)
	}
	for _, p := range packages {
		t.Run(p, func(t *testing.T) {
			_, said, begun := strings.Cut(out, "@begin "+p+"\n")
			said, end, ended := strings.Cut(said, "\n@end "+p+" ")
			if !begun || !ended || !strings.HasPrefix(end, "<nil>\n") {
				t.Errorf("it has not passed:\n%s", said)
			}
			results := regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (\w+) `).FindAllStringSubmatch(said, -1)
			count := map[string][]string{}
			for _, r := range results {
				count[r[1]] = append(count[r[1]], r[2])
			}
			t.Logf("%d passed, %d failed, %d skipped %q", len(count["PASS"]), len(count["FAIL"]), len(count["SKIP"]), count["SKIP"])
			for _, name := range musts[p] {
				if !slices.Contains(count["PASS"], name) {
					t.Errorf("%s has not passed", name)
				}
			}
		})
	}
}

// addTests builds the tests of a package as a static program, C and all, and adds it
// with what they read.
func addTests(t *testing.T, files map[string]string, p string) {
	t.Helper()
	source, err := filepath.Abs("../../../" + p)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "tests")
	cmd := exec.Command("go", "test", "-c", "-vet=off", "-tags=netgo,osusergo", "-ldflags=-s -w -linkmode=external -extldflags=-static", "-o", program, ".")
	cmd.Dir = source
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cannot build the tests of %s: %v: %s", p, err, out)
	}
	files["/guest/tests/"+p+".test"] = program
	err = filepath.WalkDir(source, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files["/guest/tests/"+strings.TrimPrefix(name, strings.TrimSuffix(source, p))] = name
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
