package bench

import (
	"bytes"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/trim"
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
	// BenchmarkStart has what starting costs. Memory is read less often from the first minute on.
	b.watch(subjects, pick(b, 70*time.Second, time.Second), pick(b, 6, 2))
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
		r.atMost("defaults", r.median(both), 0.05, r.unit)
		r.atMost("--limit 12G", r.median(bothLimited), 0.05, r.unit)
	case "RSS":
		r.atMost("holder", r.median("ours: holder"), 2, r.unit)
		r.atMost("both", r.median(both), 16, r.unit)
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

// measureStart takes the time from before the fork until the command's main runs, and from
// there, as it ends at once, until who started it sees its end, in turns.
func measureStart(b *bench) {
	command := path("now")
	names := []string{"ours", "ours: options read first", "bare"}
	ways := [][]string{under("--quiet")(command), under("--quiet", "--at", "99%:warn")(command), {command}}
	if tini, err := exec.LookPath("tini"); err != nil {
		b.skip("tini: it is not there")
	} else {
		names, ways = append(names, "tini"), append(ways, []string{tini, "-s", "--", command})
	}
	runs, ends := make([][]float64, len(ways)), make([][]float64, len(ways))
	for i := range pick(b, 100, 5) + 1 {
		for k, args := range ways {
			start, end := startOnce(b, args)
			if i > 0 { // the first reads the programs from the disk
				runs[k], ends[k] = append(runs[k], start), append(ends[k], end)
			}
		}
	}
	r := newRow("from fork to main of the command", "ms")
	for k, name := range names {
		r.put(name, runs[k])
	}
	bare, ours, read, tini := r.median("bare"), r.median("ours"), r.median("ours: options read first"), r.median("tini")
	r.tell("added by us", ours-bare, "ms")
	r.tell("added where options are read first", read-bare, "ms")
	r.tell("added by tini", tini-bare, "ms")
	r.atMost("added by us to added by tini", (ours-bare)/(tini-bare), 1.5, "times")
	r.atMost("added where options are read first to added by tini", (read-bare)/(tini-bare), 6, "times")
	b.add(r)
	r = newRow("from main of a command that ends at once to its end", "ms")
	for k, name := range names {
		r.put(name, ends[k])
	}
	r.atMost("added by us", r.median("ours")-r.median("bare"), 20, "ms")
	b.add(r)
}

// startOnce returns both times in ms.
func startOnce(b *bench, args []string) (start, end float64) {
	cmd := command(args...)
	// CLOCK_MONOTONIC, which other processes can be compared by.
	began := clock(unix.CLOCK_MONOTONIC)
	out, err := cmd.Output()
	if err != nil {
		check(fmt.Errorf("cannot run %s: %w", args[0], err))
	}
	ended := clock(unix.CLOCK_MONOTONIC)
	main := must(strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64))
	return float64(main-began.Nanoseconds()) / 1e6, float64(ended.Nanoseconds()-main) / 1e6
}

// trained is what helpers/overhead.py says of one training.
type trained struct {
	Seconds     float64 `json:"seconds"`
	Work        float64 `json:"work"`
	CPU         float64 `json:"cpu"`
	Hook        float64 `json:"hook"`
	Hooked      bool    `json:"hooked"`
	Supervisors int     `json:"supervisors"`

	wall float64 // from start to end, in s
}

// measureTraining trains pairs of a bare and a wrapped run, the order of
// the two changing from pair to pair, and then longer ones with the hook timed,
// which would slow the pairs down. In a short one our start is most of what we
// take.
func measureTraining(b *bench) {
	if b.lacks("PyTorch", "torch, lmdb, numpy") {
		return
	}
	job := []string{must(filepath.Abs("../examples/train/train.py")), "--data", path("train.lmdb"),
		"--records", pick(b, "1500", "200"), "--record-bytes", "60000", "--workers", "2", "--persistent", "--epochs"}
	long := append([]string{"timed"}, append(slices.Clone(job), pick(b, "240", "4"))...)
	job = append(job, pick(b, "24", "2"))
	wrapped := func(args []string) trained {
		t := trainOnce(b, under("--quiet"), args)
		if !t.Hooked || t.Supervisors != 2 {
			check(fmt.Errorf("cannot see rsswarden at work: hook %v, %d processes of 2", t.Hooked, t.Supervisors))
		}
		return t
	}
	// The first makes the data, and reads all into the page cache.
	trainOnce(b, nil, job)
	pairs := pick(b, *pairsFlag, 2)
	var bare, ours, ratios, bareWork, oursWork, cpu, hook, start []float64
	for i := range pairs {
		var alone, t trained
		for j := range 2 {
			if (i+j)%2 == 0 {
				alone = trainOnce(b, nil, job)
			} else {
				t = wrapped(job)
			}
		}
		bare, ours = append(bare, alone.Seconds), append(ours, t.Seconds)
		bareWork, oursWork = append(bareWork, alone.Work), append(oursWork, t.Work)
		ratios = append(ratios, alone.Seconds/t.Seconds)
		start = append(start, 1000*t.CPU)
	}
	seconds := 0.0
	for range pick(b, 3, 1) {
		t := wrapped(long)
		cpu = append(cpu, 100*t.CPU/t.wall)
		hook = append(hook, 100*t.Hook/t.wall)
		seconds = t.wall
	}

	r := newRow("time of the training", "s")
	r.put("ours", ours)
	r.put("bare", bare)
	low, middle, high := interval(ratios)
	r.tell("throughput, wrapped to bare", middle, "times")
	r.atMost("its 95 % interval, from", low, 1, "times")
	r.atLeast("its 95 % interval, to", high, 1, "times")
	if pairs < 30 {
		r.note("%d pairs; 30 are asked for", pairs)
	}
	b.add(r)
	// It depends less on what else the machine does.
	r = newRow("processor time of trainer and workers", "s")
	r.put("ours", oursWork)
	r.put("bare", bareWork)
	r.tell("ours to bare", r.times("ours", "bare"), "times")
	b.add(r)
	r = newRow("what we take", "% of wall time")
	r.put("ours: CPU of holder and watcher", cpu)
	r.put("ours: time inside the hook, all processes", hook)
	r.atMost("both", quantile(cpu, 0.5)+quantile(hook, 0.5), 0.5, "%")
	r.note("trainings of %.0f s; in the short ones above our CPU was %.0f ms, most of it the start", seconds, quantile(start, 0.5))
	b.add(r)
}

func trainOnce(b *bench, wrap wrapper, args []string) (t trained) {
	line := append([]string{python, "-W", "ignore", path("overhead.py")}, args...)
	if wrap != nil {
		line = wrap(line...)
	}
	cmd := command(line...)
	cmd.WaitDelay = 10 * time.Second
	began := time.Now()
	out, err := cmd.Output()
	if end := (*exec.ExitError)(nil); errors.As(err, &end) {
		err = fmt.Errorf("%w: %s", err, end.Stderr)
	}
	if err != nil {
		check(fmt.Errorf("cannot train: %w", err))
	}
	t.wall = time.Since(began).Seconds()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &t); err != nil {
		check(fmt.Errorf("cannot understand what the training cost: %w", err))
	}
	return t
}

// interval returns the geometric mean of ratios and its 95 % interval by
// Student's t, on logarithms.
func interval(ratios []float64) (low, middle, high float64) {
	n := float64(len(ratios))
	var sum, squares float64
	for _, r := range ratios {
		sum += math.Log(r)
	}
	m := sum / n
	for _, r := range ratios {
		squares += (math.Log(r) - m) * (math.Log(r) - m)
	}
	if n < 2 {
		return math.NaN(), math.Exp(m), math.NaN()
	}
	half := student(n-1) * math.Sqrt(squares/(n-1)/n)
	return math.Exp(m - half), math.Exp(m), math.Exp(m + half)
}

// student is the 97.5 % quantile of Student's t, by the Cornish-Fisher
// expansion (Abramowitz and Stegun 26.7.5), and by the table where that is
// more than 1 % off.
func student(df float64) float64 {
	if few := []float64{12.706, 4.303, 3.182, 2.776}; int(df) <= len(few) {
		return few[int(df)-1]
	}
	const z = 1.959964
	g1 := (z*z*z + z) / 4
	g2 := (5*math.Pow(z, 5) + 16*z*z*z + 3*z) / 96
	return z + g1/df + g2/(df*df)
}

// The burst begins with 2 of 4 GiB in use, 1 GiB below the only rung.
const (
	burstFill = 2048
	burstRung = "75%:warn"
)

// measureBursts has each burst met by us, watching its process, and
// by a poll beside us.
func measureBursts(b *bench) {
	for _, rate := range []float64{0.5, 1, 4} {
		var ours, polled, rates []float64
		for i := range pick(b, 20, 2) {
			b.scope(func() {
				got := oneBurst(b, rate, i)
				ours, polled, rates = append(ours, got.ours), append(polled, got.poll), append(rates, got.rate)
			})
		}
		r := newRow(fmt.Sprintf("passed the rung by, at %v GiB/s", rate), "MiB")
		r.put("ours: used less threshold of the decision", ours)
		r.put("a poll each second", polled)
		if rate == 1 {
			r.atMost("median", r.series[0].median(), 16, "MiB")
			r.atMost("p95", quantile(r.series[0].runs, 0.95), 64, "MiB")
		}
		r.note("it grew by %s GiB/s (median)", figure(quantile(rates, 0.5)))
		b.add(r)
	}
}

// burstRun is what one burst gave, in MiB.
type burstRun struct {
	ours, poll float64
	rate       float64 // GiB/s, as it was
}

// oneBurst is one burst. We are attached to a process that is half full already:
// had we seen it fill, we would know the rate that it can grow by, and look more
// often than at one that has not grown yet.
func oneBurst(b *bench, rate float64, n int) (got burstRun) {
	// As far as a poll needs to see it for sure: the GiB to the rung, and more
	// than a second's growth.
	growth := 1024 + int(rate*1.2*1024)
	grow := b.start(path("grow"), strconv.Itoa(burstFill), strconv.Itoa(int(rate*1024)), strconv.Itoa(growth))
	pid := grow.expect("filled")
	file := path(fmt.Sprintf("burst-%v-%d.jsonl", rate, n))
	ours := b.start(program(), "attach", "--quiet", "--limit", "4G", "--accounting", "rss",
		"--at", "none", "--at", burstRung, "--events", file, strconv.Itoa(pid))
	// Our watch ends with what it watches, also where the burst fails.
	b.atEnd(func() { grow.end() })
	for began := time.Now(); !strings.Contains(wardentest.Read(file), `"event":"start"`); b.sleep(5 * time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			check(errors.New("cannot see the watch begin"))
		}
	}
	stop, seen := make(chan struct{}), make(chan float64, 1)
	defer close(stop)
	go pollFrom(pid, 3<<30, stop, seen)
	b.sleep(500*time.Millisecond + rand.N(2500*time.Millisecond))
	must(grow.in.Write([]byte{1}))
	got.rate = float64(growth) / 1024 / (float64(grow.expect("grown")) / 1e9)
	select {
	case got.poll = <-seen:
	case <-time.After(3 * time.Second):
		check(errors.New("cannot tell what the poll saw: it saw nothing"))
	}
	grow.end()
	check(ours.end())
	got.ours = passedRung(file)
	return got
}

// passedRung is by how much the rung had been passed when the rule fired.
func passedRung(events string) float64 {
	for _, d := range wardentest.ParseLog(must(os.ReadFile(events))).Of(event.NameDecision) {
		if d["rule"] == burstRung {
			return (d["used_bytes"].(float64) - d["threshold_bytes"].(float64)) / (1 << 20)
		}
	}
	check(errors.New("no decision was made"))
	return 0
}

// pollFrom reads the RSS of a process each second, and says by how many MiB it
// was above the rung when it first was.
func pollFrom(pid int, rung uint64, stop <-chan struct{}, seen chan<- float64) {
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticks.C:
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		words := strings.Fields(string(text))
		if err != nil || len(words) < 2 {
			return
		}
		pages, _ := strconv.ParseUint(words[1], 10, 64)
		if used := pages * uint64(os.Getpagesize()); used >= rung {
			seen <- float64(used-rung) / (1 << 20)
			return
		}
	}
}

// trimFile is how much is mapped.
const trimFile = rss.GiB

// mapped is a process with two threads and a large mapping.
type mapped struct {
	*child
	id rss.ProcID
	t  *trim.Tracer
	// pace is what the watcher goes by too.
	pace trim.Pace
}

// measureTrim has a process shrunk by ptrace, beside its own call of
// madvise, and what a thread of it reads meanwhile.
func measureTrim(b *bench) {
	m := b.mapped()
	window := pick(b, time.Second, 200*time.Millisecond)
	var ours, own, stops, alone, trimmed []float64
	for range pick(b, 15, 3) {
		alone = append(alone, m.reads(func() { b.sleep(window) }))
		trimmed = append(trimmed, m.reads(func() {
			took, each := m.trim()
			ours, stops = append(ours, took), append(stops, each...)
			b.sleep(window)
		}))
		m.ask("touch")
		own = append(own, m.ask("drop")*1e3)
	}
	r := newRow("1 GiB of a mapped file is given back", "ms")
	r.put("ours: the tracer's time, by ptrace", ours)
	r.put("the process's own madvise", own)
	r.atMost("tracer's time, per GiB", quantile(ours, 0.5), 20, "ms")
	r.atMost("longest of all stops", slices.Max(stops), 2, "ms")
	r.tell("95 of 100 stops are shorter than", quantile(stops, 0.95), "ms")
	r.tell("median stop", quantile(stops, 0.5), "ms")
	r.note("%d stops; all threads stop in one, and a thread of the process reads all the time", len(stops))
	b.add(r)
	r = newRow("pages that the thread reads at random", "1000/s")
	r.put("1 GiB trimmed each second", trimmed)
	r.put("left alone", alone)
	r.tell("left to it", quantile(trimmed, 0.5)/quantile(alone, 0.5), "of what it reads alone")
	r.note("it has to bring each page it meets again back by a minor fault")
	b.add(r)
}

func (b *bench) mapped() *mapped {
	file := path("mapped.bin")
	part := make([]byte, 16*rss.MiB)
	must(crand.Read(part))
	check(os.WriteFile(file, bytes.Repeat(part, int(trimFile)/len(part)), 0o600))
	m := &mapped{child: b.start(path("mapped"), file), t: trim.NewTracer()}
	b.atEnd(m.t.Close)
	m.line()
	m.id = rss.ProcID{PID: m.pid(), Start: must(proctree.StartTime("/proc", m.pid()))}
	m.ask("touch")
	return m
}

func (m *mapped) ask(what string) float64 {
	m.say("%s", what)
	return must(strconv.ParseFloat(m.line(), 64))
}

// reads is how many thousand pages a second the thread reads while f runs.
func (m *mapped) reads(f func()) float64 {
	before := m.ask("count")
	began := time.Now()
	f()
	after := m.ask("count")
	return (after - before) / 1e3 / time.Since(began).Seconds()
}

// trim gives back all of the mapping and returns the milliseconds that the
// tracer took for a GiB, and how long each stop was.
func (m *mapped) trim() (took float64, stops []float64) {
	plan := new(trim.Planner).Plan(trim.CheckOptions{Proc: "/proc", ID: m.id})
	if plan.Refusal != trim.None || len(plan.Mappings) != 1 {
		check(fmt.Errorf("cannot plan: %v %s %d mappings", plan.Refusal, plan.Detail, len(plan.Mappings)))
	}
	var resident rss.Bytes
	for pieces := plan.Mappings[0].Pieces; len(pieces) > 0; {
		p, n := m.pace.Take(pieces)
		pieces = pieces[n:]
		began := time.Now()
		a := m.t.Do(p)
		took += float64(time.Since(began).Microseconds()) / 1e3
		if a.Refusal != trim.None {
			check(fmt.Errorf("cannot trim: %s", a.Refusal.Reason()))
		}
		m.pace.Add(p, a.Dropping)
		stops = append(stops, float64(a.Stop.Microseconds())/1e3)
		resident += p.Resident
	}
	return took / resident.Of(rss.GiB), stops
}
