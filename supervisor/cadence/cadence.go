// Package cadence decides when memory is read again: often where a limit may be reached
// soon, seldom where nothing can happen. It is pure: values in, a pause out.
package cadence

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

const (
	// MinPause is the shortest pause between two readings.
	MinPause = 2 * time.Millisecond
	// burst is the fill rate, in bytes a second, that is to be met although
	// nothing like it was seen yet: one process touching huge pages fills about
	// 2 GiB a second. With it a job 4 GiB below its rung is read once a second.
	burst = float64(2 * rss.GiB)
	// burstSlack bounds what is spent on sudden bursts: a job that
	// holds still right below a rung is read every 16 ms, not every 2, and such
	// a burst overshoots the rung by at most 32 MiB.
	burstSlack = 64 * rss.MiB
)

// Pause returns how long to wait before the next reading: half the time that
// the fastest rate seen needs to fill headroom, between [MinPause] and
// interval. So a burst at that rate closes in on its rung in halves and
// overshoots it by what it fills in 2 ms. A burst of 2 GiB/s that was not
// seen yet is assumed too; it may overshoot by up to 32 MiB:
//
//	min(headroom/(2·rate), (headroom+64 MiB)/(2·2 GiB/s))
//
// The caller may wait longer where a reading is expensive.
//
// headroom is what is left before the next rung, by the rule that is next.
func Pause(headroom rss.Bytes, perSecond float64, interval time.Duration) time.Duration {
	wait := (float64(headroom) + float64(burstSlack)) / (2 * burst)
	if perSecond > 0 {
		wait = min(wait, float64(headroom)/(2*perSecond))
	}
	if wait >= interval.Seconds() {
		return max(interval, MinPause)
	}
	return max(time.Duration(wait*float64(time.Second)), MinPause)
}

const (
	// BusyPause is the least pause between two full reads while an action is in
	// flight: its end is to be seen, and measured, when it comes. The longer it
	// takes, the longer the pause: an eighth of that, at most Busiest.
	BusyPause = 20 * time.Millisecond
	Busiest   = 250 * time.Millisecond
	// otherPause is the least pause between two full reads for the sake of limits
	// that the fast read does not look at.
	otherPause = 100 * time.Millisecond
	// LoaderPause is the longest pause where loaders may appear and inotify does not
	// work.
	LoaderPause = 100 * time.Millisecond
	// StoppedPause is the pause at least while all that is summed is stopped,
	// and its sum with it. It bounds how late growth after SIGCONT is seen.
	StoppedPause = 250 * time.Millisecond
	// TracedPause is the pause between two full reads at most where processes are
	// trimmed by ptrace, and tracedShare times what such a read takes: fast reads
	// do not see workers that have just been started, which may touch 3 GiB a
	// second, and nothing in them says that they are there.
	TracedPause = 100 * time.Millisecond
	tracedShare = 50
	// HolderEvery is how often the holder is looked after but at rest, with whatever read
	// falls within Tolerance of that: each wake of an idle process costs more than
	// what it then does.
	HolderEvery = time.Second
	// quietShare is the part of a core that fast reads may take where nothing
	// was seen that fills what is left within an interval, risingShare where
	// something was.
	quietShare  = 0.01
	risingShare = 0.1
	// hintShare is the part of a core that full reads may take for no other reason
	// than that the kernel says memory is short. It does so a hundred times a second
	// where page cache fills a limit, as in most trainings.
	hintShare = 0.02
	// At rest the pause between two full reads is up to restTimes the interval, at most
	// restPause: where nothing has grown for restAfter and half of every limit is free.
	restTimes = 5
	restPause = 5 * time.Second
	restAfter = time.Minute
	// restGrowth is the part of a limit that growth must be to count: half of it is free.
	restGrowth = 0.01
	// HurriedShare is the part of a core that readings of PSS may take in a hurry,
	// and as much again the full reads that use them.
	HurriedShare = 0.05
)

// Limit is what one limit asks for.
type Limit struct {
	Name       event.LimitName
	Accounting event.Accounting
	Limit      rss.Bytes // its size
	Used       rss.Bytes // what grows towards it, in the last read
	Left       rss.Bytes // what was left at the last full read until it is judged again
	Headroom   rss.Bytes // … and what is left now
	PerSecond  float64   // the fastest rate at which it was filled
}

// Input is what a Pace looks at.
type Input struct {
	Now     time.Duration
	Limits  []Limit
	Watched int // index in Limits of the one that fast reads look at, -1 for none
	// Flight is for how long the action in flight has gone on, below 0 where there is none.
	Flight time.Duration
	// Unheard says that loaders may appear and nothing tells.
	Unheard bool
	// Stopped says that every process that counts is stopped.
	Stopped bool
	// Traced says that the watched limit counts what is trimmed by ptrace, and Took how
	// long the last read of processes took.
	Traced bool
	Took   time.Duration
	// Wake is how soon the loop must wake for anything else, [Never] where it need not.
	Wake time.Duration
}

// Never is a pause that nothing ends.
const Never = time.Duration(1<<63 - 1)

// Pace decides when the loop wakes next, whether memory is read then, and whether in full
// or by one counter. It has no clock: times are those of the loop's.
type Pace struct {
	Interval   time.Duration // between two full reads, at most, but at rest
	Tolerance  time.Duration // by how much something may come early in a wake that is there anyway
	Processors int           // of this machine
	Fast       rss.Meter     // what a fast read takes
	Full       rss.Meter     // what a full one does
	FullAt     time.Duration // when the last full read was

	due    time.Duration // when memory is read next, 0 where that is to be decided
	unseen bool          // a reading of PSS came after the last full read, and much depends on it
	holder time.Duration // when the holder was looked after last
	in     Input         // the last one
	rest   rest
}

// rest knows since when nothing has grown and no process has begun.
type rest struct {
	since  time.Duration
	most   map[event.LimitID]rss.Bytes // of each limit on memory
	newest uint64                      // the latest start of a process
	procs  int
}

func (r *rest) read(now time.Duration, v *view.View) {
	if r.most == nil {
		r.most = map[event.LimitID]rss.Bytes{}
	}
	r.procs = len(v.Sample.Procs)
	for i := range v.Sample.Procs {
		if start := v.Sample.Procs[i].ID.Start; start > r.newest {
			r.since, r.newest = now, start
		}
	}
	for i := range v.Limits {
		l := &v.Limits[i]
		if used := view.Growing(l); l.Name.Memory() && l.Limit > 0 && used >= r.most[l.ID()]+l.Limit.Scale(restGrowth) {
			r.since, r.most[l.ID()] = now, used
		}
	}
}

// longest is the longest pause there may be now: the interval, or more where it rests. Many
// processes may grow at once where there are processors for them, each as fast as one of eight.
func (p *Pace) longest(in *Input) (pause time.Duration, rests bool) {
	if in.Now-p.rest.since < restAfter || p.rest.procs == 0 || in.Flight >= 0 {
		return p.Interval, false
	}
	pause = max(p.Interval, min(restTimes*p.Interval, restPause))
	wide := rss.Bytes(max(8, min(p.rest.procs, p.Processors)))
	for i := range in.Limits {
		l := &in.Limits[i]
		if !l.Name.Memory() || l.Limit == 0 || l.Name == event.LimitThrottle {
			continue
		}
		if l.Used > l.Limit/2 {
			return p.Interval, false
		}
		pause = min(pause, Pause(l.Left*8/wide, l.PerSecond, pause))
	}
	return max(pause, p.Interval), true
}

// Old says that what was read last is older than the interval, as it may be at rest.
func (p *Pace) Old(now time.Duration) bool { return now-p.FullAt > p.Interval }

// Acts says when a limit is judged again, and what is acted on by ptrace.
type Acts interface {
	// Next is the use from which on a limit with this use is judged again.
	Next(l *event.Limit, used rss.Bytes) rss.Bytes
	// TracesFor says that a limit counts what is trimmed by ptrace.
	TracesFor(l *event.Limit) bool
}

// Input returns what follows from a view, for the caller to add what else there is. It is
// good until the next call.
func (p *Pace) Input(now time.Duration, v *view.View, a Acts) *Input {
	in := &p.in
	*in = Input{
		Now: now, Limits: in.Limits[:0], Watched: v.Watched, Flight: -1, Stopped: v.Stopped, Took: v.Sample.Took, Wake: Never,
	}
	for i := range v.Limits {
		l := &v.Limits[i]
		used := view.Growing(l)
		one := Limit{Name: l.Name, Accounting: l.Accounting, Limit: l.Limit, Used: used, PerSecond: v.Rates[i].PerSecond(now)}
		if i == v.Watched {
			next := a.Next(l, v.From)
			one.Left, one.Headroom = next-v.From, next.Sub(used)
			in.Traced = a.TracesFor(l)
		} else {
			one.Left = a.Next(l, used) - used
		}
		in.Limits = append(in.Limits, one)
	}
	return in
}

// Read notes a full read and what it saw.
func (p *Pace) Read(now time.Duration, v *view.View) {
	p.FullAt, p.unseen = now, false
	p.rest.read(now, v)
}

// Again has the next read decided again: memory is being read.
func (p *Pace) Again() { p.due = 0 }

// Due says whether memory is to be read in this wake.
func (p *Pace) Due(now time.Duration) bool { return now+MinPause >= p.due }

// Holder says whether the holder is to be looked after in this wake, as each so long, and
// notes that it is.
func (p *Pace) Holder(now, each time.Duration) bool {
	if now-p.holder < each-p.Tolerance {
		return false
	}
	p.holder = now
	return true
}

// HolderEvery is how often the holder is looked after: as often as memory is read at rest.
func (p *Pace) HolderEvery(in *Input) time.Duration {
	if pause, rests := p.longest(in); rests {
		return max(HolderEvery, min(pause, restPause))
	}
	return HolderEvery
}

// HolderDue is how long after now that is due.
func (p *Pace) HolderDue(now, each time.Duration) time.Duration { return p.holder + each - now }

// Hint says whether the kernel's word that memory is short is worth a full read: not where
// one was taken just now, or such reads are expensive here. What is left out is no loss:
// fast reads go on, and a full one comes within the interval.
func (p *Pace) Hint(now time.Duration) bool {
	return now-p.FullAt >= min(max(BusyPause, p.Full.Pause(hintShare)), p.Interval)
}

// Hurry says whether a reading of PSS on which much depends is worth a full read now.
// Otherwise that comes as soon as such reads may take HurriedShare of a core.
func (p *Pace) Hurry(now time.Duration) bool {
	p.unseen, p.due = true, 0
	return now-p.FullAt >= p.Full.Pause(HurriedShare)
}

// FullDue says whether the next read is to be a full one, whatever a fast one would say.
func (p *Pace) FullDue(in *Input) bool { return in.Now-p.FullAt >= p.FullPause(in) }

// FullPause is how long after the last full read that is.
func (p *Pace) FullPause(in *Input) time.Duration {
	longest, _ := p.longest(in)
	pause := longest
	if in.Flight >= 0 {
		pause = min(pause, max(BusyPause, min(in.Flight/8, Busiest)))
	}
	if in.Unheard {
		pause = min(pause, LoaderPause)
	}
	if p.unseen {
		pause = min(pause, p.Full.Pause(HurriedShare))
	}
	if in.Traced {
		pause = min(pause, max(TracedPause, tracedShare*in.Took))
	}
	for i := range in.Limits {
		l := &in.Limits[i]
		if i == in.Watched || !l.Name.Memory() || in.covered(l) {
			continue
		}
		pause = min(pause, max(Pause(l.Left, l.PerSecond, longest), otherPause))
	}
	return pause
}

// covered says that a limit asks for no reads of its own: it has no size or
// ends nothing, or it counts as the watched one does and has no less left.
func (in *Input) covered(l *Limit) bool {
	if l.Limit == 0 || l.Name == event.LimitThrottle {
		return true
	}
	if in.Watched < 0 {
		return false
	}
	b := &in.Limits[in.Watched]
	return l.Accounting == b.Accounting && l.Left >= b.Left
}

// Next is how long the loop may wait. When memory is read next is decided once after each
// read: wakes for anything else do not put it off.
func (p *Pace) Next(in *Input) time.Duration {
	if p.due <= in.Now {
		p.due = in.Now + p.readPause(in)
	}
	pause := min(p.due-in.Now, in.Wake)
	if holder := p.HolderDue(in.Now, p.HolderEvery(in)); pause > holder+p.Tolerance {
		pause = holder
	}
	return max(pause, MinPause)
}

// readPause is how long to wait before memory is read.
func (p *Pace) readPause(in *Input) time.Duration {
	pause := p.FullAt + p.FullPause(in) - in.Now
	if in.Watched >= 0 {
		b := &in.Limits[in.Watched]
		longest, _ := p.longest(in)
		pause = min(pause, max(Pause(b.Headroom, b.PerSecond, longest), p.fastFloor(in, b)))
	}
	return pause
}

// fastFloor is the least pause before a fast read, by what such a read costs
// here: 4,000 processes are expensive to sum.
func (p *Pace) fastFloor(in *Input, b *Limit) time.Duration {
	if in.Stopped && b.Accounting != event.AccountingCgroup && b.Name != event.LimitNode {
		return StoppedPause
	}
	share := quietShare
	if b.PerSecond*p.Interval.Seconds() >= float64(b.Headroom) {
		share = risingShare
	}
	return p.Fast.Pause(share)
}
