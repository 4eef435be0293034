package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

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
	for began := time.Now(); !started(file); b.sleep(5 * time.Millisecond) {
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

// started says that the first look has been taken.
func started(events string) bool {
	text, err := os.ReadFile(events)
	return err == nil && bytes.Contains(text, []byte(`"event":"start"`))
}

// eventsOf yields the events of that name in a file.
func eventsOf[E any](file string, name event.Name) iter.Seq[E] {
	return func(yield func(E) bool) {
		for line := range bytes.Lines(must(os.ReadFile(file))) {
			var head event.Head
			check(json.Unmarshal(line, &head))
			if head.Event != name {
				continue
			}
			var e E
			check(json.Unmarshal(line, &e))
			if !yield(e) {
				return
			}
		}
	}
}

// passedRung is by how much the rung had been passed when the rule fired.
func passedRung(events string) float64 {
	for d := range eventsOf[event.Decision](events, event.NameDecision) {
		if d.Limit == event.LimitUser && d.Rule == burstRung {
			return (float64(d.Used) - float64(d.Threshold)) / (1 << 20)
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

// stormRate is how many children a second are started.
const stormRate = 2000

// planted is what the grandchild holds.
const planted = 256 * rss.MiB

// measureStorm has us watch a storm, and a psutil loop beside us.
func measureStorm(b *bench) {
	events := path("storm.jsonl")
	storm := pick(b, 30*time.Second, 4*time.Second)
	c := b.start(under("--quiet", "--limit", "12G", "--accounting", "rss", "--events", events)(
		path("storm"), strconv.Itoa(stormRate), strconv.FormatFloat(storm.Seconds(), 'f', 3, 64))...)
	pid := c.expect("begin")
	watcher := watcherOf(c.pid())
	var loop *child
	if !b.lacks("psutil", "psutil") {
		loop = b.psutilLoop(pid)
	}
	got := stormRuns(b, c, loop, watcher, storm/6)
	// The last full look is at most a second old, and so is the last poll.
	b.sleep(2500 * time.Millisecond)
	theirs := -1.0
	if loop != nil {
		loop.in.Close()
		if line, err := loop.out.ReadString('\n'); err == nil {
			sum, _ := strconv.ParseUint(strings.TrimSpace(line), 10, 64)
			theirs = missed(rss.Bytes(sum))
		}
		loop.end()
	}
	check(c.end())
	var used rss.Bytes // as --limit counted it in the last sample
	for s := range eventsOf[event.Sample](events, event.NameSample) {
		for _, l := range s.Limits {
			if l.Name == event.LimitUser {
				used = l.Used
			}
		}
	}
	r := newRow(fmt.Sprintf("CPU while %d a second are forked", stormRate), "% of a core")
	r.put("ours: holder and watcher", got.ours)
	r.put("psutil loop, each second", got.psutil)
	// We look once a second here, and a run may hold one look more than another.
	r.atMost("all runs together", mean(got.ours), 5, "% of a core")
	r.note("%.0f a second were forked", float64(got.forks)/storm.Seconds())
	b.add(r)
	r = newRow("orphans forked in the storm that are missed", "of 1")
	r.put("ours", []float64{missed(used)})
	if theirs >= 0 {
		r.put("psutil", []float64{theirs})
	}
	r.atMost("missed by us", missed(used), 0, "")
	b.add(r)
}

// missed is 0 where a sum has the grandchild's memory in it, else 1.
func missed(sum rss.Bytes) float64 {
	if sum >= planted {
		return 0
	}
	return 1
}

// stormed is the CPU that was used in each run, and the forks in all.
type stormed struct {
	ours, psutil []float64
	forks        int
}

// stormRuns cuts the storm into runs, until it says that it has ended.
func stormRuns(b *bench, c, loop *child, watcher int, length time.Duration) (got stormed) {
	ended := make(chan error, 1)
	go func() {
		var err error
		defer func() { ended <- err }()
		defer catch(&err)
		got.forks = c.expect("end")
	}()
	read := func() (ours, theirs time.Duration) {
		if loop != nil {
			theirs = usages(loop.pid()).ran
		}
		return usages(c.pid(), watcher).ran, theirs
	}
	ours, theirs := read()
	for began, over := time.Now(), false; !over; {
		select {
		case err := <-ended:
			check(err)
			over = true
		case <-ctx.Done():
			check(ctx.Err())
		case <-time.After(length):
		}
		took := time.Since(began)
		if over && took < length/2 {
			break // a run cut short by the storm's end
		}
		now, their := read()
		got.ours = append(got.ours, 100*(now-ours).Seconds()/took.Seconds())
		if loop != nil {
			got.psutil = append(got.psutil, 100*(their-theirs).Seconds()/took.Seconds())
		}
		ours, theirs, began = now, their, time.Now()
	}
	return got
}
