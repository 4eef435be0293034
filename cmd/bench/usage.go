package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// usage is what one process, or several together, have used so far and hold.
type usage struct {
	ran      time.Duration // of all threads, by schedstat
	ticks    time.Duration // utime and stime, to the 10 ms
	switches float64       // voluntary ones, of all threads
	rss, pss float64       // MiB, by smaps_rollup
	anon     float64       // MiB
	threads  float64
	fds      float64
}

// usages adds up what processes use.
func usages(pids ...int) (usage, error) {
	var sum usage
	for _, pid := range pids {
		u, err := usageOf(pid)
		if err != nil {
			return sum, fmt.Errorf("cannot read what process %d uses: %w", pid, err)
		}
		sum.ran += u.ran
		sum.ticks += u.ticks
		sum.switches += u.switches
		sum.rss, sum.pss, sum.anon = sum.rss+u.rss, sum.pss+u.pss, sum.anon+u.anon
		sum.threads, sum.fds = sum.threads+u.threads, sum.fds+u.fds
	}
	return sum, nil
}

func usageOf(pid int) (u usage, err error) {
	fs, err := procfs.NewFS("/proc")
	if err != nil {
		return u, err
	}
	p, err := fs.Proc(pid)
	if err != nil {
		return u, err
	}
	stat, err := p.Stat()
	if err != nil {
		return u, err
	}
	// A tick is 10 ms wherever Linux runs, as far as /proc tells it.
	u.ticks = time.Duration(stat.UTime+stat.STime) * 10 * time.Millisecond
	u.threads = float64(stat.NumThreads)
	roll, err := p.ProcSMapsRollup()
	if err != nil {
		return u, err
	}
	const mib = 1 << 20
	u.rss, u.pss, u.anon = float64(roll.Rss)/mib, float64(roll.Pss)/mib, float64(roll.Anonymous)/mib
	fds, err := p.FileDescriptorsLen()
	if err != nil {
		return u, err
	}
	u.fds = float64(fds)
	// schedstat and the switches in status are those of one thread each.
	threads, err := fs.AllThreads(pid)
	if err != nil {
		return u, err
	}
	for _, t := range threads {
		if s, err := t.Schedstat(); err == nil {
			u.ran += time.Duration(s.RunningNanoseconds)
		}
		if s, err := t.NewStatus(); err == nil {
			u.switches += float64(s.VoluntaryCtxtSwitches)
		}
	}
	return u, nil
}

// watcherOf finds the watcher of a holder, which is its child and has a name of
// its own.
func watcherOf(holder int) (int, error) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", holder))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for word := range strings.FieldsSeq(string(text)) {
			name, _ := os.ReadFile("/proc/" + word + "/cmdline")
			if strings.HasPrefix(string(name), "rss-watcher\x00") {
				return strconv.Atoi(word)
			}
		}
	}
	return 0, fmt.Errorf("cannot find the watcher of process %d", holder)
}
