package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// The burst begins with 2 of 4 GiB in use, 1 GiB below the only rung.
const (
	burstFill = 2048
	burstRung = "75%:warn"
)

// bursting measures group d: each burst is met by us, watching its process, and
// by a poll beside us.
func (b *bench) bursting() error {
	for _, rate := range []float64{0.5, 1, 4} {
		if err := b.burstsAt(rate); err != nil {
			return fmt.Errorf("cannot measure bursts of %v GiB/s: %w", rate, err)
		}
	}
	return nil
}

func (b *bench) burstsAt(rate float64) error {
	var ours, polled, rates []float64
	for i := range b.bursts {
		got, err := b.burst(rate, i)
		if err != nil {
			return err
		}
		ours, polled, rates = append(ours, got.ours), append(polled, got.poll), append(rates, got.rate)
	}
	r := b.row(fmt.Sprintf("passed the rung by, at %v GiB/s", rate), "MiB")
	r.ours("ours: used less threshold of the decision", ours)
	r.peer("a poll each second", polled)
	if rate == 1 {
		r.atMost("median", r.Series[0].Median, 16, "MiB")
		r.atMost("p95", r.Series[0].P95, 64, "MiB")
	}
	r.note("it grew by %s GiB/s (median)", figure(quantile(rates, 0.5)))
	b.add(r)
	return nil
}

// burstRun is what one burst gave, in MiB.
type burstRun struct {
	ours, poll float64
	rate       float64 // GiB/s, as it was
}

// burst is one burst. We are attached to a process that is half full already:
// had we seen it fill, we would know the rate that it can grow by, and look more
// often than at one that has not grown yet.
func (b *bench) burst(rate float64, n int) (got burstRun, err error) {
	// As far as a poll needs to see it for sure: the GiB to the rung, and more
	// than a second's growth.
	growth := 1024 + int(rate*1.2*1024)
	grow, err := b.start(b.path("grow"), strconv.Itoa(burstFill), strconv.Itoa(int(rate*1024)), strconv.Itoa(growth))
	if err != nil {
		return got, err
	}
	defer grow.end()
	pid, err := grow.expect("filled")
	if err != nil {
		return got, err
	}
	events := b.path(fmt.Sprintf("burst-%v-%d.jsonl", rate, n))
	ours, err := b.start(b.program, "attach", "--quiet", "--limit", "4G", "--accounting", "rss",
		"--at", "none", "--at", burstRung, "--events", events, strconv.Itoa(pid))
	if err != nil {
		return got, err
	}
	// Our watch ends with what it watches.
	defer func() {
		grow.end()
		if ended := ours.end(); err == nil {
			err = ended
		}
		if err == nil {
			err = got.decided(events)
		}
	}()
	for began := time.Now(); !started(events); {
		if time.Since(began) > 10*time.Second {
			return got, fmt.Errorf("cannot see the watch begin")
		}
		if err := b.sleep(5 * time.Millisecond); err != nil {
			return got, err
		}
	}
	stop, seen := make(chan struct{}), make(chan float64, 1)
	defer close(stop)
	go pollFrom(pid, 3<<30, stop, seen)
	if err := b.sleep(500*time.Millisecond + rand.N(2500*time.Millisecond)); err != nil {
		return got, err
	}
	if _, err := grow.in.Write([]byte{1}); err != nil {
		return got, fmt.Errorf("cannot begin the burst: %w", err)
	}
	ns, err := grow.expect("grown")
	if err != nil {
		return got, err
	}
	got.rate = float64(growth) / 1024 / (float64(ns) / 1e9)
	select {
	case got.poll = <-seen:
		return got, nil
	case <-time.After(3 * time.Second):
		return got, fmt.Errorf("cannot tell what the poll saw: it saw nothing")
	}
}

// started says that the first look has been taken.
func started(events string) bool {
	text, err := os.ReadFile(events)
	return err == nil && bytes.Contains(text, []byte(`"event":"start"`))
}

// decided reads by how much the rung had been passed when the rule fired.
func (r *burstRun) decided(events string) error {
	text, err := os.ReadFile(events)
	if err != nil {
		return fmt.Errorf("cannot read the events: %w", err)
	}
	for line := range bytes.Lines(text) {
		var head event.Head
		if err := json.Unmarshal(line, &head); err != nil {
			return fmt.Errorf("cannot read the events: %w", err)
		}
		if head.Event != event.NameDecision {
			continue
		}
		var d event.Decision
		if err := json.Unmarshal(line, &d); err != nil {
			return fmt.Errorf("cannot read the decision: %w", err)
		}
		if d.Limit == event.LimitUser && d.Rule == burstRung {
			r.ours = (float64(d.Used) - float64(d.Threshold)) / (1 << 20)
			return nil
		}
	}
	return fmt.Errorf("no decision was made")
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
