package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// stormRate is how many children a second are started.
const stormRate = 2000

// planted is what the grandchild holds.
const planted = 256 * rss.MiB

// storming measures group g: we watch a storm, and a psutil loop beside us.
func (b *bench) storming() error {
	events := b.path("storm.jsonl")
	c, err := b.start(b.under([]string{"--quiet", "--limit", "12G", "--accounting", "rss", "--events", events},
		b.path("storm"), strconv.Itoa(stormRate), strconv.FormatFloat(b.storm.Seconds(), 'f', 3, 64))...)
	if err != nil {
		return err
	}
	defer c.end()
	pid, err := c.expect("begin")
	if err != nil {
		return err
	}
	watcher, err := watcherOf(c.pid())
	if err != nil {
		// It is started after the command, and may not be there yet.
		time.Sleep(100 * time.Millisecond)
		if watcher, err = watcherOf(c.pid()); err != nil {
			return err
		}
	}
	var loop *child
	if why := b.missing("psutil"); why != "" {
		b.skip("psutil: " + why)
	} else if loop, err = b.start(python, b.path("seed.py"), strconv.Itoa(pid), "1"); err != nil {
		return err
	}
	got, err := b.stormRuns(c, loop, watcher)
	if err != nil {
		return err
	}
	// The last full look is at most a second old, and so is the last poll.
	if err := b.sleep(2500 * time.Millisecond); err != nil {
		return err
	}
	theirs := -1.0
	if loop != nil {
		loop.in.Close()
		if line, err := loop.line(); err == nil {
			sum, _ := strconv.ParseUint(line, 10, 64)
			theirs = found(rss.Bytes(sum))
		}
		loop.end()
	}
	if err := c.end(); err != nil {
		return err
	}
	ours, err := lastUsed(events)
	if err != nil {
		return err
	}

	r := b.row(fmt.Sprintf("CPU while %d a second are forked", stormRate), "% of a core")
	r.ours("ours: holder and watcher", got.ours)
	if loop != nil {
		r.peer("psutil loop, each second", got.psutil)
	}
	// We look once a second here, and a run may hold one look more than another.
	r.atMost("all runs together", mean(got.ours), 5, "% of a core")
	r.note("%.0f a second were forked", float64(got.forks)/b.storm.Seconds())
	b.add(r)
	r = b.row("orphans forked in the storm that are missed", "of 1")
	r.ours("ours", []float64{1 - found(ours)})
	if theirs >= 0 {
		r.peer("psutil", []float64{1 - theirs})
	}
	r.atMost("missed by us", 1-found(ours), 0, "")
	b.add(r)
	return nil
}

// found is 1 where a sum has the grandchild's memory in it.
func found(sum rss.Bytes) float64 {
	if sum >= planted {
		return 1
	}
	return 0
}

// stormed is the CPU that was used in each run, and the forks in all.
type stormed struct {
	ours, psutil []float64
	forks        int
}

// stormRuns cuts the storm into runs, until it says that it has ended.
func (b *bench) stormRuns(c, loop *child, watcher int) (got stormed, err error) {
	type end struct {
		forks int
		err   error
	}
	ended := make(chan end, 1)
	go func() {
		n, err := c.expect("end")
		ended <- end{n, err}
	}()
	length := max(b.storm/6, time.Second)
	read := func() (ours, theirs usage, err error) {
		if ours, err = usages(c.pid(), watcher); err == nil && loop != nil {
			theirs, err = usages(loop.pid())
		}
		return ours, theirs, err
	}
	was, theirs, err := read()
	if err != nil {
		return got, err
	}
	for began := time.Now(); ; {
		over := false
		select {
		case e := <-ended:
			over, got.forks, err = true, e.forks, e.err
		case <-b.ctx.Done():
			err = b.ctx.Err()
		case <-time.After(length):
		}
		if err != nil {
			return got, err
		}
		took := time.Since(began)
		now, their, err := read()
		if err != nil {
			return got, err
		}
		if over && took < length/2 {
			return got, nil // a run cut short by the storm's end
		}
		got.ours = append(got.ours, 100*(now.ran-was.ran).Seconds()/took.Seconds())
		if loop != nil {
			got.psutil = append(got.psutil, 100*(their.ran-theirs.ran).Seconds()/took.Seconds())
		}
		if over {
			return got, nil
		}
		was, theirs, began = now, their, time.Now()
	}
}

// lastUsed is what --limit counted in the last sample.
func lastUsed(events string) (used rss.Bytes, err error) {
	text, err := os.ReadFile(events)
	if err != nil {
		return 0, fmt.Errorf("cannot read the events: %w", err)
	}
	for line := range bytes.Lines(text) {
		var s event.Sample
		if err := json.Unmarshal(line, &s); err != nil {
			return 0, fmt.Errorf("cannot read the events: %w", err)
		}
		if s.Event != event.NameSample {
			continue
		}
		for _, l := range s.Limits {
			if l.Name == event.LimitUser {
				used = l.Used
			}
		}
	}
	return used, nil
}
