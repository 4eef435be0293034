// Package bench measures what rsswarden costs and how fast it is, beside its peers.
//
//	go test ./bench -run '^$' -bench 'Trees|Start' -benchtime 1x -timeout 0 | tee bench.txt
//	go tool benchstat -col /who bench.txt    # ours beside the peers', with the ratios
//	go tool benchstat OLD.txt NEW.txt
//
// A line of the output is one run. Ours and the peers take turns, a run each, so that all
// meet the same machine; what is watched for a minute is watched at the same time. What
// follows from the runs is in lines that begin with #, with its goal if it has one. A missed
// goal is no error: figures of one machine prove nothing on another. -short takes few and
// short runs, which only show that all works. A comment at each function says what it measures.
//
// What not to conclude: SumRSS, procfs with PIDs known and the C loop do less than psutil:
// they do not look for new processes. A full look lists /proc only where something was
// forked, so other work on the machine makes it more expensive. earlyoom reads two numbers of the
// whole machine. What grows in Bursts is mapped, not charged: it counts in RSS, in no
// cgroup. The poll of Bursts is the best of its kind, one read of one file. Ratios of added
// time, as in Start, are of small differences: below twenty runs they say nothing. A loaded
// machine makes all figures larger, and not by one factor.
package bench

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

var (
	programFlag = flag.String("rsswarden", "", "measure this `FILE` rather than build the tree's own")
	idleFlag    = flag.Duration("idle", time.Minute, "how long to watch what sleeps")
	pairsFlag   = flag.Int("pairs", 10, "pairs of trainings; an interval worth its name needs 30")
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == readerRole {
		os.Exit(beReader(os.Args[2:]))
	}
	flag.Parse()
	os.Exit(inDirectory(m.Run))
}

// The end of ctx ends what is being measured; workDir is for what is built and written.
var (
	ctx     context.Context
	workDir string
)

func inDirectory(run func() int) int {
	var stop func()
	ctx, stop = signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	var err error
	if workDir, err = os.MkdirTemp("", "rsswarden-bench-"); err != nil {
		fmt.Fprintln(os.Stderr, "cannot make a directory:", err)
		return 1
	}
	defer os.RemoveAll(workDir)
	return run()
}

// BenchmarkTrees is one sum of RSS over a tree of 64 and of 1,000 sleeping processes, back to
// back (a run is the mean of a few) and after a pause of 200 ms (a run is one): SumRSS as in
// a fast look, Trees as in a full one, psutil as in the scripts that we replace,
// prometheus/procfs, and a C loop of preads, the least it can cost; each in a process of its
// own.
func BenchmarkTrees(b *testing.B) { run(b, measureTrees) }

// BenchmarkIdle is what holder and watcher take while 64 processes sleep, with the defaults
// and with a limit on summed RSS, beside earlyoom and a psutil loop.
func BenchmarkIdle(b *testing.B) { run(b, measureIdle) }

// BenchmarkStart is the time until a command runs: bare, under tini, under us.
func BenchmarkStart(b *testing.B) { run(b, measureStart) }

// BenchmarkBursts is by how much a burst has passed a rung when our decision is made, and
// when a poll each second sees it; attached to a process that has not grown yet.
func BenchmarkBursts(b *testing.B) { run(b, measureBursts) }

// BenchmarkTraining is what a PyTorch training loses, in pairs of a bare and a wrapped run.
func BenchmarkTraining(b *testing.B) { run(b, measureTraining) }

// BenchmarkTrim is how long ptrace stops a process while 1 GiB of its mapped file is given
// back, beside its own madvise, and what the process reads meanwhile.
func BenchmarkTrim(b *testing.B) { run(b, measureTrim) }

// BenchmarkRecord is the record: bytes a process and sample of a real run, a report of a full
// record, the list of 10,000 runs. What a sample takes in the watcher's loop and in its writer
// is in supervisor/record/store.
func BenchmarkRecord(b *testing.B) { run(b, measureRecord) }

// BenchmarkNode is the node's daemon: a look at 100, 300 and 1,000 jobs of ten processes in
// real cgroups, beside procfs; what rsswardend takes for 1,000 at 10 s, scraped and not, while
// all processes sleep, and while each takes or gives back 16 pages.
func BenchmarkNode(b *testing.B) { run(b, measureNode) }

func run(b *testing.B, measure func(*bench)) {
	if b.N > 1 {
		return // it was measured
	}
	wardentest.NoError(b, (&bench{name: b.Name(), quick: testing.Short(), out: os.Stdout}).run(measure))
}
