package policy

import (
	"maps"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

const (
	// spikeRise is within how long memory rises that is taken at once: one interval between
	// two samples. spikeHold is within how long half of it is given back; what is kept for
	// longer is growth, or a phase of the job, and no spike.
	spikeRise = time.Second
	spikeHold = 30 * time.Second
	// spikeAgo is for how long a spike that is not seen again is still expected.
	spikeAgo = time.Hour
	// leastSpike is the part of a limit from which on a spike matters for it.
	leastSpike = 0.02
)

// spikes are the spikes that were seen of one thing: of all that a limit counts, or of one
// class of processes. Those within spikeHold count as one: workers that start together each
// load an index, once. Of three such moments the highest are kept.
type spikes [3]struct {
	at   time.Duration // of the first, 0 for none
	high rss.Bytes     // of the highest
	pid  int           // … and who took it, 0 for a limit
}

func (s *spikes) add(now time.Duration, high rss.Bytes, pid int) {
	least := 0
	for i := range s {
		e := &s[i]
		if e.at > 0 && now-e.at < spikeHold {
			if high > e.high {
				e.high, e.pid = high, pid
			}
			return
		}
		if now-e.at >= spikeAgo {
			e.at, e.high = 0, 0
		}
		if e.high < s[least].high {
			least = i
		}
	}
	s[least].at, s[least].high, s[least].pid = max(now, 1), high, pid
}

// expected is what may be taken at once again, and who took as much: the second highest, as
// what was seen once may never come again. 0 where there is none.
func (s *spikes) expected(now time.Duration) (second rss.Bytes, pid int) {
	var first rss.Bytes
	who := 0
	for _, e := range s {
		switch {
		case e.at == 0 || now-e.at >= spikeAgo:
		case e.high > first:
			second, pid, first, who = first, who, e.high, e.pid
		case e.high > second:
			second, pid = e.high, e.pid
		}
	}
	return second, pid
}

// rise follows one value, to tell what rises at once and falls again.
type rise struct {
	seen bool
	turn time.Duration // when this spikeRise began
	low  [2]rss.Bytes  // the least of it, and of the one before
	last rss.Bytes
	at   time.Duration // when the highest rise was that has not fallen yet
	base rss.Bytes     // … from there
	top  rss.Bytes     // … to there
}

// add takes a reading. It returns how high a spike was that is over now, 0 for none.
func (r *rise) add(now time.Duration, used rss.Bytes) (over rss.Bytes) {
	if !r.seen {
		r.seen = true
		r.drop(now, used)
	}
	if now-r.turn >= spikeRise {
		r.low[0], r.low[1], r.turn = used, r.low[0], now
	}
	r.low[0], r.last = min(r.low[0], used), used
	least, high := min(r.low[0], r.low[1]), r.top-r.base
	switch {
	case used-least > high || now-r.at >= spikeHold:
		r.at, r.base, r.top = now, least, used
	case used <= r.top-high/2 && high > 0:
		r.drop(now, used)
		return high
	}
	return 0
}

func (r *rise) drop(now time.Duration, used rss.Bytes) {
	r.at, r.turn, r.low, r.base, r.top, r.last = now, now, [2]rss.Bytes{used, used}, used, used, used
}

// up is what of a spike that is not over is used now.
func (r *rise) up() rss.Bytes {
	return r.last.Sub(r.base)
}

// class names processes that do the same: the workers of one trainer, or one trainer.
type class struct {
	role  rss.Role
	owner int
}

// classSpikes are the spikes of a class, and what of one is used now.
type classSpikes struct {
	spikes
	up rss.Bytes
}

// process is the anonymous memory of a process, which every limit counts in full.
type process struct {
	rise
	now  time.Duration // when it was seen last
	peak rss.Bytes     // the highest RSS it ever had
	rest rss.Bytes     // the most of its RSS that was not anonymous
	of   class
}

// Processes takes in the processes of a full read, with their roles.
func (o *Forecasts) Processes(now time.Duration, procs []rss.Proc) {
	if o.procs == nil {
		o.procs, o.classes = map[rss.ProcID]*process{}, map[class]*classSpikes{}
	}
	for _, c := range o.classes {
		c.up = 0
	}
	for i := range procs {
		p := &procs[i]
		of := class{p.Role, p.ID.PID}
		switch {
		case p.Role.IsWorker():
			of.owner = p.Parent
		case p.Role != rss.RoleTrainer:
			continue
		}
		e := o.procs[p.ID]
		if e == nil || e.of != of {
			e = &process{of: of, peak: p.Peak}
			o.procs[p.ID] = e
		}
		e.now, e.rest = now, max(e.rest, p.RSS.Sub(p.Anon))
		if p.Peak > e.peak {
			// Between two samples. At least that much of it was anonymous: the rest was never
			// more than in a sample.
			e.peak = p.Peak
			e.add(now, max(p.Peak.Sub(e.rest), p.Anon))
		}
		over, c := e.add(now, p.Anon), o.classes[of]
		if over >= event.MinGain(0) {
			if c == nil {
				c = &classSpikes{}
				o.classes[of] = c
			}
			c.add(now, over, p.ID.PID)
		}
		if c != nil {
			c.up = max(c.up, e.up())
		}
	}
	maps.DeleteFunc(o.procs, func(_ rss.ProcID, e *process) bool { return e.now != now })
	if len(o.classes) > 2*len(o.procs)+16 { // of trainers that are gone
		clear(o.classes)
	}
}

// spike is what may be taken at once of a limit, as was seen more than once: by all that it
// counts, or by one process. It is nil where that is little of the limit.
func (o *Forecasts) spike(now time.Duration, l *event.Limit, f *forecaster) *event.Spike {
	least := max(event.MinGain(0), l.Limit.Scale(leastSpike))
	high, _ := f.spikes.expected(now)
	most := event.Spike{Bytes: high, Up: min(f.rise.up(), high)}
	if high < least {
		most = event.Spike{}
	}
	// Those of processes are no part of a sum of sizes, or maybe of another of several steps.
	if l.Accounting != event.AccountingVirtual && (l.Name != event.LimitSlurm || l.Level == "") {
		for of, c := range o.classes {
			high, pid := c.expected(now)
			s := event.Spike{Bytes: high, Up: min(c.up, high), PID: pid, Role: of.role}
			if more := s.Ahead() > most.Ahead(); high >= least && (more || s.Ahead() == most.Ahead() && (most.PID == 0 || s.PID < most.PID)) {
				most = s
			}
		}
	}
	if most.Bytes == 0 {
		return nil
	}
	return &most
}
