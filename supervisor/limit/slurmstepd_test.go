package limit_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
)

// TestMain lets the test binary be an eater, and in a Slurm job a process that
// holds memory or one that reads limits.
func TestMain(m *testing.M) {
	rsstest.BeEater()
	if len(os.Args) == 3 && os.Args[1] == "hold" {
		n, _ := strconv.Atoi(os.Args[2])
		b, err := syscall.Mmap(-1, 0, n<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			os.Exit(1)
		}
		for i := range b {
			b[i] = 1
		}
		waitForStop(nil)
	}
	if len(os.Args) == 2 && os.Args[1] == "count" {
		count()
	}
	code := m.Run()
	if err := slurmtest.Shutdown(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// waitForStop ends the process once there is a file "stop"; do runs each time
// it was looked for.
func waitForStop(do func()) {
	for {
		if _, err := os.Stat("stop"); err == nil {
			os.Exit(0)
		}
		if do != nil {
			do()
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// count is rsswarden in small: it reads the slurm limit of the step it is in
// and puts it into the file "seen".
func count() {
	set, _ := limit.Find(context.Background(), limit.Config{
		Proc: "/proc", Sys: "/sys", PID: os.Getpid(), Lookup: os.LookupEnv, Slurm: slurm.Search{Lookup: os.LookupEnv},
	})
	tree := proctree.New("/proc")
	began := time.Now()
	waitForStop(func() {
		procs, _, err := tree.Tree(rss.ProcID{PID: os.Getpid()})
		if err != nil {
			return
		}
		extra, _, _ := set.Extra(tree, procs)
		if set.NeedsPSS() {
			for _, list := range [][]rss.Proc{procs, extra} {
				for i := range list {
					if p, err := tree.PSS(list[i].ID); err == nil {
						list[i].PSS = &p
					}
				}
			}
		}
		for _, l := range set.Read(&rss.Sample{Mono: time.Since(began), Procs: procs, Extra: extra}) {
			if l.Name == event.LimitSlurm {
				os.WriteFile("seen.new", fmt.Appendf(nil, "%s %d %d %s", l.Accounting, l.Used, l.Limit, l.LimitSource), 0o644)
				os.Rename("seen.new", "seen")
			}
		}
	})
}

var usedLine = regexp.MustCompile(`memory used:(\d+) limit:(\d+) B`)

// TestRealSlurmstepd compares our number with the one slurmstepd writes into
// its log, in a step with a child, one in a session of its own and an orphan.
func TestRealSlurmstepd(t *testing.T) {
	if testing.Short() {
		t.Skip("starts Slurm four times")
	}
	for mode, acc := range map[slurmtest.Mode]event.Accounting{
		slurmtest.Linux:         event.AccountingRSS,
		slurmtest.LinuxPss:      event.AccountingPSS,
		slurmtest.LinuxNoShared: event.AccountingNoShared,
		slurmtest.CgroupKill:    event.AccountingCgroup,
	} {
		t.Run(string(mode), func(t *testing.T) {
			c := slurmtest.Start(t, mode, slurmtest.Options{})
			run := c.Submit(t, fmt.Sprintf("( ( %[1]s hold 40 & ) )\nsetsid %[1]s hold 30 &\n%[1]s hold 20 &\n%[1]s count\n", c.InstallSelf(t)), "--mem=500")
			stop := filepath.Join(run.Dir, "stop")
			t.Cleanup(func() { os.WriteFile(stop, nil, 0o644) })
			var ours, theirs uint64
			var seen string
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
				b, _ := os.ReadFile(filepath.Join(run.Dir, "seen"))
				seen = string(b)
				var word, source string
				var max uint64
				fmt.Sscan(seen, &word, &ours, &max, &source)
				all := usedLine.FindAllStringSubmatch(run.Log(), -1)
				if len(all) > 0 && word == string(acc) && max == 500<<20 && source == "RLIMIT_RSS" {
					theirs, _ = strconv.ParseUint(all[len(all)-1][1], 10, 64)
					// Both stand at the peak: 20 and 30 MiB at the least.
					if theirs > 50<<20 && diff(ours, theirs) <= 1<<20 {
						t.Logf("%s: slurmstepd %d, ours %d", strings.TrimSpace(seen), theirs, ours)
						return
					}
				}
				if time.Now().After(deadline) {
					t.Fatalf("slurmstepd %d, ours %q", theirs, seen)
				}
			}
		})
	}
}

func diff(a, b uint64) uint64 { return max(a, b) - min(a, b) }
