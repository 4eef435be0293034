package bench

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// measureStart takes the time from before the fork until the command's
// main runs, in turns.
func measureStart(b *bench) {
	command := path("now")
	names, ways := []string{"ours", "bare"}, [][]string{under("--quiet")(command), {command}}
	if tini, err := exec.LookPath("tini"); err != nil {
		b.skip("tini: it is not there")
	} else {
		names, ways = append(names, "tini"), append(ways, []string{tini, "-s", "--", command})
	}
	runs := make([][]float64, len(ways))
	for i := range pick(b, 100, 5) + 1 {
		for k, args := range ways {
			ms := startOnce(b, args)
			if i > 0 { // the first reads the programs from the disk
				runs[k] = append(runs[k], ms)
			}
		}
	}
	r := newRow("from fork to main of the command", "ms")
	for k, name := range names {
		r.put(name, runs[k])
	}
	bare, ours, tini := r.median("bare"), r.median("ours"), r.median("tini")
	r.tell("added by us", ours-bare, "ms")
	r.tell("added by tini", tini-bare, "ms")
	r.atMost("added by us to added by tini", (ours-bare)/(tini-bare), 6, "times")
	b.add(r)
}

func startOnce(b *bench, args []string) (ms float64) {
	cmd := command(args...)
	// CLOCK_MONOTONIC, which other processes can be compared by.
	began := clock(unix.CLOCK_MONOTONIC)
	out, err := cmd.Output()
	if err != nil {
		check(fmt.Errorf("cannot run %s: %w", args[0], err))
	}
	return float64(must(strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64))-began.Nanoseconds()) / 1e6
}
