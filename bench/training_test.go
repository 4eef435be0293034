package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

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
