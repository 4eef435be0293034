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
