package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

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
