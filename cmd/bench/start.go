package main

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// starting measures group c: the time from before the fork until the command's
// main runs, in turns.
func (b *bench) starting() error {
	command := b.path("now")
	ways := []*struct {
		name string
		args []string
		runs []float64
	}{
		{"ours", b.under([]string{"--quiet"}, command), nil},
		{"bare", []string{command}, nil},
		{"tini", nil, nil},
	}
	if tini, err := exec.LookPath("tini"); err != nil {
		b.skip("tini: it is not there")
		ways = ways[:2]
	} else {
		ways[2].args = []string{tini, "-s", "--", command}
	}
	rounds := 100
	if b.quick {
		rounds = 5
	}
	for i := range rounds + 1 {
		for _, w := range ways {
			ms, err := b.startOnce(w.args)
			if err != nil {
				return err
			}
			if i > 0 { // the first reads the programs from the disk
				w.runs = append(w.runs, ms)
			}
		}
	}
	r := b.row("from fork to main of the command", "ms")
	for _, w := range ways {
		r.put(w.name, w.name == "ours", w.runs)
	}
	bare, ours, tini := r.median("bare"), r.median("ours"), r.median("tini")
	r.tell("added by us", ours-bare, "ms")
	r.tell("added by tini", tini-bare, "ms")
	r.atMost("added by us to added by tini", (ours-bare)/(tini-bare), 6, "times")
	b.add(r)
	return nil
}

func (b *bench) startOnce(args []string) (ms float64, err error) {
	cmd := exec.CommandContext(b.ctx, args[0], args[1:]...)
	cmd.Env = plain(cmd.Environ())
	began := monotonic()
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("cannot run %s: %w", args[0], err)
	}
	ran, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("cannot understand when %s ran: %w", args[0], err)
	}
	return float64(ran-began) / 1e6, nil
}

// monotonic is CLOCK_MONOTONIC in ns, which other processes can be compared by.
func monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0
	}
	return t.Nano()
}
