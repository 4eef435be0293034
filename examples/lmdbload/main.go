// Lmdbload grows as a PyTorch loader over an LMDB does, without Python.
//
// It starts -workers processes that map one LMDB, and hands them the numbers of
// the records in a fresh random order in each of -epochs epochs. A worker reads
// its records through the map and answers with a digest of each; every page it
// has read stays in its map and counts in its RSS. The kernel holds the data
// once, yet the sum of the workers' RSS goes towards workers × size of the data.
//
// A worker that gets SIGTERM finishes the record it is at and exits 0. The
// parent starts another in its place and hands the records that were not
// answered out again; so it does for a worker that is killed. The checksum it
// prints at the end is a chain over (epoch, batch, record, content) in that
// order: no worker and no replacement changes it.
//
// The workers can be told by their command line, "lmdbload worker …".
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

type options struct {
	data           string
	records, bytes int
	workers        int
	epochs, batch  int
	seed           uint64
	growth         float64 // most that workers may grow, MB a second; 0 is no bound
	verbose        bool
}

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run returns the exit status: 0, 1 for a failure, 2 for bad usage. stderr is a
// file because the workers write to it as well.
func run(args []string, stdin io.Reader, stdout io.Writer, stderr *os.File) int {
	// A worker is known by its first argument; users have no need to type it.
	if len(args) == 2 && args[0] == "worker" {
		return work(args[1], stdin, stdout, stderr)
	}
	var o options
	flags := flag.NewFlagSet("lmdbload", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.data, "data", "", "the LMDB `file`; made if missing")
	flags.IntVar(&o.records, "records", 300, "records in the LMDB")
	flags.IntVar(&o.bytes, "bytes", 1_000_000, "bytes in a record")
	flags.IntVar(&o.workers, "workers", 4, "worker processes")
	flags.IntVar(&o.epochs, "epochs", 3, "times to read all records")
	flags.IntVar(&o.batch, "batch", 8, "records in a batch")
	flags.Uint64Var(&o.seed, "seed", 1, "of the order of the records")
	flags.Float64Var(&o.growth, "growth", 0, "pause after a batch so that the RSS of the workers grows\nby no more than `MB` a second; 0 does not pause")
	flags.BoolVar(&o.verbose, "v", false, "print RSS each second, and each worker that ended, to stderr")
	create := flags.Bool("create", false, "only make the LMDB, or check it where it exists")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	var bad string
	switch {
	case flags.NArg() > 0:
		bad = fmt.Sprintf("unexpected argument %q", flags.Arg(0))
	case o.data == "":
		bad = "-data is needed"
	case o.records < 1 || o.bytes < 8 || o.workers < 1 || o.epochs < 1 || o.batch < 1 || !(o.growth >= 0):
		bad = "-records, -workers, -epochs and -batch must be 1 or more, -bytes 8 or more, -growth 0 or more"
	}
	if bad != "" {
		fmt.Fprintf(stderr, "error: %s\nhint: lmdbload -h lists the options\n", bad)
		return 2
	}
	do := load
	if *create {
		do = func(o options, _ io.Writer, _ *os.File) error { return ensure(o.data, o.records, o.bytes) }
	}
	if err := do(o, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "lmdbload: %v\n", err)
		return 1
	}
	return 0
}

// load reads all records in every epoch and prints the checksum.
func load(o options, stdout io.Writer, stderr *os.File) error {
	if err := createApart(o, stderr); err != nil {
		return err
	}
	log := io.Discard
	if o.verbose {
		log = stderr
	}
	p, err := newPool(o.workers, workerCommand(o.data, stderr), log)
	if err != nil {
		return err
	}
	defer p.close()
	var sum chain
	began := time.Now()
	pace := newPacer(p, o.growth, log)
	for epoch := range o.epochs {
		for batch, records := range batches(o.records, o.batch, o.seed, epoch) {
			contents, err := p.read(records)
			if err != nil {
				return err
			}
			for i, record := range records {
				sum.add(epoch, batch, record, contents[i])
			}
			if err := pace.pause(epoch, batch); err != nil {
				return err
			}
		}
		fmt.Fprintf(stdout, "epoch %d: %d records, %.1f s, %d workers replaced so far, checksum so far %x\n",
			epoch, o.records, time.Since(began).Seconds(), p.replaced, sum.digest[:16])
	}
	fmt.Fprintf(stdout, "checksum %x\n", sum.digest[:16])
	return nil
}

// pacer pauses after a batch, in place of the training step that a real job has
// there. How much RSS one read adds depends on the kernel, from the record's own
// pages to 2 MB: so the pause follows the growth seen, not the records read.
type pacer struct {
	pool    *pool
	rate    float64 // bytes a second, 0 for no bound
	log     io.Writer
	began   time.Time
	next    time.Time // not before it does the next batch start
	said    time.Time
	before  map[int]uint64 // RSS by PID at the last look, bytes
	quietly bool           // nothing to do: no rate and no log
}

func newPacer(p *pool, rateMB float64, log io.Writer) *pacer {
	now := time.Now()
	return &pacer{pool: p, rate: rateMB * 1e6, log: log, began: now, next: now, said: now,
		before: map[int]uint64{}, quietly: rateMB == 0 && log == io.Discard}
}

// pause reads the workers' RSS and waits until what they grew by since the last
// call is within the rate.
func (p *pacer) pause(epoch, batch int) error {
	if p.quietly {
		return nil
	}
	rss := make(map[int]uint64, len(p.pool.workers))
	var each []string
	var sum, grown uint64
	for _, w := range p.pool.workers {
		n, err := readRSS(w.pid())
		if err != nil {
			continue // ended just now: the pool replaces it
		}
		rss[w.pid()] = n
		sum += n
		if before := p.before[w.pid()]; n > before {
			grown += n - before
		}
		each = append(each, strconv.FormatUint(n>>20, 10))
	}
	p.before = rss
	now := time.Now()
	if now.Sub(p.said) >= time.Second {
		p.said = now
		self, _ := readRSS(os.Getpid())
		fmt.Fprintf(p.log, "lmdbload: %.0f s, epoch %d, batch %d: summed RSS %d MiB (parent %d, workers %s)\n",
			now.Sub(p.began).Seconds(), epoch, batch, (sum+self)>>20, self>>20, strings.Join(each, " "))
	}
	if p.rate == 0 {
		return nil
	}
	if p.next.Before(now.Add(-time.Second)) {
		p.next = now.Add(-time.Second) // time not used is not saved up
	}
	p.next = p.next.Add(time.Duration(float64(grown) / p.rate * float64(time.Second)))
	return p.pool.wait(time.Until(p.next))
}

// readRSS reads the resident set of a process from /proc/PID/statm, in bytes
// (proc_pid_statm(5): the second field, in pages).
func readRSS(pid int) (uint64, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0, err
	}
	return parseStatm(b)
}

func parseStatm(b []byte) (uint64, error) {
	fields := strings.Fields(string(b))
	if len(fields) != 7 {
		return 0, errors.New("statm has not 7 fields")
	}
	pages, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("cannot parse resident in statm: %w", err)
	}
	return pages * uint64(os.Getpagesize()), nil
}
