package supervisor

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
)

const (
	// busyPause is the pause between two full ticks while an action is in
	// flight: its end is to be seen, and measured, when it comes.
	busyPause = 20 * time.Millisecond
	// loaderPause is the pause at most, where loaders may appear and inotify
	// does not tell.
	loaderPause = 100 * time.Millisecond
)

// loop runs until the command has ended.
func (w *watcher) loop() {
	timer := time.NewTimer(w.pause(w.now()))
	unstick := time.NewTicker(time.Second)
	defer unstick.Stop()
	for {
		select {
		case e := <-w.Link.Exited():
			w.end(&e)
			return
		case <-w.Link.Gone():
			// The holder is gone without a word. It may have said one that is
			// still in the channel.
			select {
			case e := <-w.Link.Exited():
				w.end(&e)
			default:
				w.end(nil)
			}
			return
		case <-unstick.C:
			if err := w.Link.Unstick(); err != nil {
				w.fault("holder", err)
			}
			continue
		case a := <-w.asked:
			w.answered(a)
		case <-w.news.woken():
			if w.poll() {
				w.full()
			}
		case <-timer.C:
			w.tick()
		}
		timer.Reset(w.pause(w.now()))
	}
}

// tick takes a fast look, and a full one where that is due or called for.
func (w *watcher) tick() {
	faultPoint()
	now := w.now()
	if w.flight != nil || w.binding < 0 || now-w.fullAt >= w.Settings.Interval || w.news == nil && w.loader != nil {
		w.full()
		return
	}
	b := &w.readings[w.binding]
	rung := w.ladder.NextRung(b)
	fast, ok := w.limits.Fast(now, rung, w.tree.SumRSS)
	if !ok {
		w.full()
		return
	}
	w.rate(b.Name).Add(now, growing(&fast.Limit))
	b.Used, b.UsedMax, b.Charged = fast.Limit.Used, fast.Limit.UsedMax, fast.Limit.Charged
	if growing(&fast.Limit) >= min(rung, w.again(b)) {
		w.full()
	}
}

// again is the use from which on a limit whose rungs were crossed is judged
// anew: a worker that had nothing to give back may have by then.
func (w *watcher) again(l *event.Limit) rss.Bytes {
	first := w.ladder.NextRung(&event.Limit{Name: l.Name, Limit: l.Limit})
	return max(first, w.fullUsed+max(policy.MinGain(0), l.Limit/100))
}

// pause is how long to wait before the next look.
func (w *watcher) pause(now time.Duration) time.Duration {
	pause := w.Settings.Interval
	if w.flight != nil {
		pause = min(pause, busyPause)
	}
	if w.loader != nil && w.news == nil {
		pause = min(pause, loaderPause)
	}
	if w.binding >= 0 {
		b := &w.readings[w.binding]
		headroom := min(w.ladder.NextRung(b), w.again(b)).Sub(growing(b))
		pause = min(pause, policy.Pause(headroom, w.rate(b.Name).PerSecond(now), w.Settings.Interval))
	}
	// A full look is due an interval after the last, whatever the headroom.
	if left := w.fullAt + w.Settings.Interval - now; left > 0 {
		pause = min(pause, left)
	}
	return max(pause, policy.MinPause)
}

// growing is the reading whose growth counts between two full looks. One
// counter bounds PSS and what is not shared only from above, while the upper
// bound of a cgroup's use is its whole charge, page cache included.
func growing(l *event.Limit) rss.Bytes {
	switch l.Accounting {
	case event.AccountingPSS, event.AccountingNoShared:
		return l.UsedMax
	}
	return l.Used
}

func (w *watcher) rate(name event.LimitName) *policy.Rate {
	r := w.rates[name]
	if r == nil {
		r = &policy.Rate{}
		w.rates[name] = r
	}
	return r
}

// full reads everything, judges it and acts.
func (w *watcher) full() {
	w.poll()
	w.read()
	w.step()
	now := w.now()
	for _, warning := range w.limits.Warnings() {
		w.fault(warning.Part, &said{warning.Text})
	}
	if now-w.sampleAt >= w.Settings.Interval {
		w.putSample()
	}
}

// said is a sentence as an error.
type said struct{ text string }

func (s *said) Error() string { return s.text }

// read takes a sample and reads the limits against it.
func (w *watcher) read() {
	at := time.Now()
	now := at.Sub(w.started)
	procs, gaps, err := w.tree.Tree(w.command)
	if err != nil {
		w.fault("proctree", err)
	}
	extra, more := w.limits.Extra(w.tree, procs)
	w.pss.update(now, procs, extra)
	w.seq++
	w.last = rss.Sample{
		Seq: w.seq, At: at, Mono: now, Took: time.Since(at),
		Procs: procs, Extra: extra, Gaps: gaps.Add(more),
	}
	w.pool.update(&w.last, w.command.PID)
	w.workers.mark(&w.last, w.loader, w.pool)
	w.readings = w.limits.Read(&w.last)
	w.fullAt = now
	for i := range w.readings {
		l := &w.readings[i]
		w.rate(l.Name).Add(now, growing(l))
	}
	w.sum.peak(&w.last, w.readings)
}

// step lets the ladder judge the last reading and carries out what it says.
func (w *watcher) step() {
	w.stepAction()
	now := w.now()
	in := policy.Input{Now: now, Limits: w.readings, Can: w.can}
	for i := range w.readings {
		if l := &w.readings[i]; l.Name == event.LimitTime && l.ETA != nil {
			in.JobEnd = time.Duration(*l.ETA * float64(time.Second))
		}
	}
	res := w.ladder.Step(in)
	w.readings = res.Limits
	w.binding = policy.Binding(w.readings)
	if w.binding >= 0 {
		w.fullUsed = w.readings[w.binding].Used
	}
	w.budget()
	for _, s := range res.Skipped {
		w.skipped(s)
	}
	for _, d := range res.Decisions {
		w.putSample()
		w.decide(d)
	}
}

// poll takes in what loaders said, and tells whether there is a new one, for
// which a budget must be found before it has outgrown every limit.
func (w *watcher) poll() (added bool) {
	if w.loader == nil {
		return false
	}
	heard := w.loader.Poll()
	if n := w.loader.Malformed(); n > w.workers.malformed {
		w.workers.malformed = n
		w.fault("loader", &said{"files in the run directory could not be understood"})
	}
	for _, s := range heard {
		if s.Old {
			continue
		}
		w.heard(s)
		added = added || s.What == event.LoaderHello || s.What == event.LoaderIter
		if w.flight != nil {
			w.said = append(w.said, action.Said{LoaderSaid: s.LoaderSaid, Request: s.Request})
		}
	}
	return added
}

// putSample writes what the limits stand at.
func (w *watcher) putSample() {
	w.sampleAt = w.now()
	w.put(event.NameSample, func(h event.Head) any {
		roles := map[rss.Role]int{}
		for i := range w.last.Procs {
			roles[w.last.Procs[i].Role]++
		}
		return event.Sample{Head: h, Limits: w.readings, Procs: roles, Gaps: w.last.Gaps, Dropped: w.stream.Dropped()}
	})
}

// find returns the reading of the limit that a decision was about: by name,
// the fullest.
func find(limits []event.Limit, name event.LimitName) *event.Limit {
	var best *event.Limit
	for i := range limits {
		if l := &limits[i]; l.Name == name && (best == nil || l.Ratio() > best.Ratio()) {
			best = l
		}
	}
	return best
}
