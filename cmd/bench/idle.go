package main

import (
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// A subject is what group b watches: a program and the processes it is.
type subject struct {
	name string
	ours bool
	pids []int
	was  usage // at the beginning of a run
	runs map[string][]float64
}

// measures are the rows of group b. CPU and switches are of each run, all else
// is as it stands at a run's end.
var measures = []struct {
	name, unit string
	of         func(was, now usage, took time.Duration) float64
}{
	{"CPU, by schedstat", "% of a core", func(was, now usage, took time.Duration) float64 {
		return 100 * (now.ran - was.ran).Seconds() / took.Seconds()
	}},
	{"CPU, by utime and stime", "% of a core", func(was, now usage, took time.Duration) float64 {
		return 100 * (now.ticks - was.ticks).Seconds() / took.Seconds()
	}},
	{"voluntary context switches", "a second", func(was, now usage, took time.Duration) float64 {
		return (now.switches - was.switches) / took.Seconds()
	}},
	{"RSS", "MiB", func(_, now usage, _ time.Duration) float64 { return now.rss }},
	{"PSS", "MiB", func(_, now usage, _ time.Duration) float64 { return now.pss }},
	{"anonymous memory", "MiB", func(_, now usage, _ time.Duration) float64 { return now.anon }},
	{"threads", "threads", func(_, now usage, _ time.Duration) float64 { return now.threads }},
	{"descriptors", "descriptors", func(_, now usage, _ time.Duration) float64 { return now.fds }},
}

// Who group b's series are. The limit leaves more than 8 GiB to the rung that
// is next, and need not be had.
const (
	both        = "ours: holder and watcher"
	bothLimited = both + ", --limit 12G"
)

// idling measures group b: all subjects at the same time.
func (b *bench) idling() error {
	var subjects []*subject
	for _, w := range []struct {
		name    string
		options []string
	}{{both, []string{"--quiet"}}, {bothLimited, []string{"--quiet", "--limit", "12G", "--accounting", "rss"}}} {
		c, _, err := b.crowd(64, func(command ...string) []string { return b.under(w.options, command...) })
		if err != nil {
			return err
		}
		defer c.end()
		watcher, err := watcherOf(c.pid())
		if err != nil {
			return err
		}
		subjects = append(subjects, &subject{name: w.name, ours: true, pids: []int{c.pid(), watcher}})
		if w.name == both {
			subjects = append(subjects,
				&subject{name: "ours: holder", ours: true, pids: []int{c.pid()}},
				&subject{name: "ours: watcher", ours: true, pids: []int{watcher}})
		}
	}
	peers, stop, err := b.idlePeers()
	defer stop()
	if err != nil {
		return err
	}
	subjects = append(subjects, peers...)

	// What starting costs is group c's.
	settle, runs := 5*time.Second, 6
	if b.quick {
		settle, runs = time.Second, 2
	}
	if err := b.sleep(settle); err != nil {
		return err
	}
	for range runs {
		if err := b.idleRun(subjects, b.idle/time.Duration(runs)); err != nil {
			return err
		}
	}
	first := len(b.report.Rows)
	for _, m := range measures {
		r := b.row(m.name, m.unit)
		for _, s := range subjects {
			r.put(s.name, s.ours, s.runs[m.name])
		}
		idleGoals(r)
		if len(b.report.Rows) == first {
			r.note("%.1f GiB of the machine's memory were available, which bounds the headroom of the defaults", available())
		}
		b.add(r)
	}
	return nil
}

func (b *bench) idleRun(subjects []*subject, length time.Duration) error {
	began := time.Now()
	var err error
	for _, s := range subjects {
		if s.was, err = usages(s.pids...); err != nil {
			return err
		}
	}
	if err := b.sleep(length); err != nil {
		return err
	}
	took := time.Since(began)
	for _, s := range subjects {
		now, err := usages(s.pids...)
		if err != nil {
			return err
		}
		if s.runs == nil {
			s.runs = map[string][]float64{}
		}
		for _, m := range measures {
			s.runs[m.name] = append(s.runs[m.name], m.of(s.was, now, took))
		}
	}
	return nil
}

func idleGoals(r *Row) {
	switch r.Name {
	case "CPU, by schedstat":
		r.atMost("defaults", r.median(both), 0.1, r.Unit)
		r.atMost("--limit 12G", r.median(bothLimited), 0.1, r.Unit)
	case "CPU, by utime and stime":
		// In ticks of 10 ms: the mean of the runs is what was counted.
		r.tell("defaults, all runs together", mean(r.Series[0].Runs), r.Unit)
	case "RSS":
		r.atMost("holder", r.median("ours: holder"), 12, r.Unit)
		r.atMost("watcher", r.median("ours: watcher"), 12, r.Unit)
	case "PSS":
		r.atMost("both", r.median(both), 16, r.Unit)
	case "anonymous memory":
		r.atMost("both", r.median(both), 6, r.Unit)
	}
}

// idlePeers starts earlyoom and the psutil loop, those that are there, and
// returns what ends them.
func (b *bench) idlePeers() (peers []*subject, stop func(), err error) {
	var ends []func() error
	stop = func() {
		for _, end := range ends {
			end()
		}
	}
	if name, err := exec.LookPath("earlyoom"); err != nil {
		b.skip("earlyoom: it is not there")
	} else {
		// It kills nothing here, and says nothing: both as good as free.
		cmd := exec.CommandContext(b.ctx, name, "--dryrun", "-r", "0")
		cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
		// It is the one program here that does not end by itself where we are
		// killed.
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			return nil, stop, fmt.Errorf("cannot start earlyoom: %w", err)
		}
		ends = append(ends, func() error {
			cmd.Process.Kill()
			return cmd.Wait()
		})
		peers = append(peers, &subject{name: "earlyoom, no tree", pids: []int{cmd.Process.Pid}})
	}
	if why := b.missing("psutil"); why != "" {
		b.skip("psutil: " + why)
		return peers, stop, nil
	}
	crowd, pid, err := b.crowd(64, nil)
	if err != nil {
		return nil, stop, err
	}
	ends = append(ends, crowd.end)
	loop, err := b.start(python, b.path("seed.py"), strconv.Itoa(pid), "1")
	if err != nil {
		return nil, stop, err
	}
	ends = append(ends, loop.end)
	return append(peers, &subject{name: "psutil loop, each second", pids: []int{loop.pid()}}), stop, nil
}

// sleep waits, or returns an error where the run is to end.
func (b *bench) sleep(d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-b.ctx.Done():
		return b.ctx.Err()
	}
}
