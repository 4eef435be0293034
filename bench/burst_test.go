package bench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
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
