package bench

import (
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// A subject is a program that is watched, and the processes it is.
type subject struct {
	name string
	pids []int
	was  usage                // at the beginning of a run
	runs map[string][]float64 // by the names of quantities
}

// A quantity is a number that each run of a subject gives.
type quantity struct {
	name, unit string
	of         func(was, now usage, took time.Duration) float64
}

// quantities are the rows. CPU is of each run, all else is the value at a run's end.
var quantities = []quantity{
	{"CPU, by schedstat", "% of a core", func(was, now usage, took time.Duration) float64 {
		return 100 * (now.ran - was.ran).Seconds() / took.Seconds()
	}},
	{"RSS", "MiB", func(_, now usage, _ time.Duration) float64 { return now.rss }},
	{"PSS", "MiB", func(_, now usage, _ time.Duration) float64 { return now.pss }},
	{"anonymous memory", "MiB", func(_, now usage, _ time.Duration) float64 { return now.anon }},
	{"threads", "threads", func(_, now usage, _ time.Duration) float64 { return now.threads }},
}

// Who is watched. The limit leaves more than 8 GiB to the rung that
// is next, and need not be had.
const (
	both        = "ours: holder and watcher"
	bothLimited = both + ", --limit 12G"
)

// measureIdle watches all subjects at the same time.
func measureIdle(b *bench) {
	holder, watcher := b.crowdUnder("--quiet")
	subjects := []*subject{
		{name: both, pids: []int{holder, watcher}},
		{name: "ours: holder", pids: []int{holder}},
		{name: "ours: watcher", pids: []int{watcher}},
	}
	holder, watcher = b.crowdUnder("--quiet", "--limit", "12G", "--accounting", "rss")
	subjects = append(subjects, &subject{name: bothLimited, pids: []int{holder, watcher}})
	subjects = append(subjects, idlePeers(b)...)
	// BenchmarkStart has what starting costs.
	b.watch(subjects, pick(b, 5*time.Second, time.Second), pick(b, 6, 2))
	for i, m := range quantities {
		r := b.watched("", m, subjects)
		idleGoals(r)
		if i == 0 {
			r.note("%.1f GiB of the machine's memory were available, which bounds the headroom of the defaults", available())
		}
		b.add(r)
	}
}

// crowdUnder starts 64 sleeping processes under us, and returns who watches them.
func (b *bench) crowdUnder(options ...string) (holder, watcher int) {
	c, _ := b.crowd(64, under(options...))
	return c.pid(), watcherOf(c.pid())
}

// watch watches subjects in so many runs, which take b.idle together.
func (b *bench) watch(subjects []*subject, settle time.Duration, runs int) {
	b.sleep(settle)
	for range runs {
		began := time.Now()
		for _, s := range subjects {
			s.was = usages(s.pids...)
		}
		b.sleep(b.idle() / time.Duration(runs))
		took := time.Since(began)
		for _, s := range subjects {
			now := usages(s.pids...)
			if s.runs == nil {
				s.runs = map[string][]float64{}
			}
			for _, m := range quantities {
				s.runs[m.name] = append(s.runs[m.name], m.of(s.was, now, took))
			}
		}
	}
}

// watched is the row of a quantity.
func (b *bench) watched(what string, m quantity, subjects []*subject) *row {
	r := newRow(what+m.name, m.unit)
	for _, s := range subjects {
		r.put(s.name, s.runs[m.name])
	}
	return r
}

// available is MemAvailable in GiB.
func available() float64 {
	m := must(procFS.Meminfo())
	return float64(*m.MemAvailableBytes) / (1 << 30)
}

func idleGoals(r *row) {
	switch r.name {
	case "CPU, by schedstat":
		r.atMost("defaults", r.median(both), 0.1, r.unit)
		r.atMost("--limit 12G", r.median(bothLimited), 0.1, r.unit)
	case "RSS":
		r.atMost("holder", r.median("ours: holder"), 12, r.unit)
		r.atMost("watcher", r.median("ours: watcher"), 12, r.unit)
	case "PSS":
		r.atMost("both", r.median(both), 16, r.unit)
	case "anonymous memory":
		r.atMost("both", r.median(both), 6, r.unit)
	}
}

// idlePeers starts earlyoom and the psutil loop, those that are there.
func idlePeers(b *bench) (peers []*subject) {
	if name, err := exec.LookPath("earlyoom"); err != nil {
		b.skip("earlyoom: it is not there")
	} else {
		// It kills nothing here, and says nothing: both as good as free.
		cmd := exec.CommandContext(ctx, name, "--dryrun", "-r", "0")
		cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
		// It is the one program here that does not end by itself where we are
		// killed.
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		check(cmd.Start())
		b.atEnd(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
		peers = append(peers, &subject{name: "earlyoom, no tree", pids: []int{cmd.Process.Pid}})
	}
	if b.lacks("psutil", "psutil") {
		return peers
	}
	_, pid := b.crowd(64, nil)
	return append(peers, &subject{name: "psutil loop, each second", pids: []int{b.psutilLoop(pid).pid()}})
}

// psutilLoop starts what sums the RSS of a tree each second.
func (b *bench) psutilLoop(pid int) *child {
	return b.start(python, path("seed.py"), strconv.Itoa(pid), "1")
}

// usage is what one process, or several together, have used so far and hold.
type usage struct {
	ran            time.Duration // of all threads, by schedstat
	rss, pss, anon float64       // MiB, by smaps_rollup
	threads        float64
}

// usages adds up what processes use.
func usages(pids ...int) (u usage) {
	const mib = 1 << 20
	for _, pid := range pids {
		p := must(procFS.Proc(pid))
		roll := must(p.ProcSMapsRollup())
		u.threads += float64(must(p.Stat()).NumThreads)
		u.rss += float64(roll.Rss) / mib
		u.pss += float64(roll.Pss) / mib
		u.anon += float64(roll.Anonymous) / mib
		// schedstat is that of one thread.
		for _, t := range must(procFS.AllThreads(pid)) {
			if s, err := t.Schedstat(); err == nil {
				u.ran += time.Duration(s.RunningNanoseconds)
			}
		}
	}
	return u
}

// watcherOf finds the watcher of a holder, which is started after the command.
func watcherOf(holder int) int {
	for began := time.Now(); time.Since(began) < time.Second; time.Sleep(10 * time.Millisecond) {
		if watchers := wardentest.Watchers(holder); len(watchers) > 0 {
			return watchers[0]
		}
	}
	check(fmt.Errorf("cannot find the watcher of process %d", holder))
	return 0
}

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
