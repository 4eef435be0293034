package observe

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/view"
	"github.com/rsswarden/rsswarden/supervisor/workers"
)

// picklingFor is for how long a process is counted often that is about to send its data set
// to workers that are not forked. torch.multiprocessing then moves each tensor to shared
// memory by itself, and thousands of small ones run out of mappings or descriptors within
// seconds: 60,000 mappings take six.
const picklingFor = 30 * time.Second

// newsMask is what happens to files that are renamed into place, or written.
const newsMask = unix.IN_MOVED_TO | unix.IN_CREATE | unix.IN_MODIFY

// OpenLoaders opens a run directory that loaders talk through, the first or another rank's.
func (o *Observer) OpenLoaders(dir string) (err error) {
	if o.Loader != nil {
		if err = o.Loader.Add(dir); err != nil {
			return err
		}
		err = o.opt.Bell.Watch(o.opt.LoaderNews, newsMask, dir)
		o.Hears = o.Hears && err == nil
		return err
	}
	s := o.opt.Settings
	if o.Loader, err = loader.Open(dir); err != nil {
		return err
	}
	o.Loader.Trials = loader.NewTrials(o.opt.Probes, hold.Environ, o.opt.Start, s.DryRun)
	err = o.opt.Bell.Watch(o.opt.LoaderNews, newsMask, dir)
	o.Hears = err == nil
	err = errors.Join(err, o.Loader.SetPrivate(s.TrimPrivate))
	if s.NoFile > 0 || s.Forks {
		err = errors.Join(err, o.Loader.SetForAll(s.NoFile, s.Forks))
	}
	if s.Revives() {
		err = errors.Join(err, o.Loader.SetRevive(s.Revive))
	}
	return err
}

// HearLoaders takes in what loaders have said, and returns what is new to this run: watched
// says that no watcher before this one has reported anything. rung says that there is news.
func (o *Observer) HearLoaders(now time.Duration, v *view.View, rung, watched bool) (said []loader.Said, news view.News) {
	if o.Loader == nil {
		return nil, nil
	}
	heard := o.Loader.Poll(rung || !o.Hears)
	if o.Loader.Malformed() > 0 {
		news.Fault("loader", errors.New("files in the run directory could not be understood"))
	}
	if slices.ContainsFunc(heard, func(s loader.Said) bool { return s.What == loader.Grown }) {
		// Whose those are may be among the same news: of a worker that is new, and of
		// all of them where this watcher is.
		o.Workers.SetTrainers(o.Loader.Trainers())
	}
	for _, s := range heard {
		// A training may begin before its first watcher does.
		s.Old = s.Old && !watched
		if s.What == loader.Grown {
			o.Workers.Grown(s.Trainer, s.Worker, s.Batches, s.Half, s.Own) // what an earlier watcher was told too
			continue
		}
		if s.Old || s.What == loader.Private { // kept with its loader
			continue
		}
		o.heard(now, v, &s, &news)
		said = append(said, s)
	}
	return said, news
}

// DropLoaders lets go of the run directory of a rank that has ended.
func (o *Observer) DropLoaders(now time.Duration, v *view.View, dir string) (said []loader.Said, news view.News) {
	if o.Loader == nil || dir == "" {
		return nil, nil
	}
	said = o.Loader.Drop(dir)
	for i := range said {
		o.heard(now, v, &said[i], &news)
	}
	return said, news
}

// heard reports what a loader said and remembers what follows from it.
func (o *Observer) heard(now time.Duration, v *view.View, s *loader.Said, news *view.News) {
	news.Add(s.LoaderSaid)
	if o.Diagnosis.State != nil {
		o.Diagnosis.State.Tell(now, &s.LoaderSaid)
	}
	switch s.What {
	case event.LoaderTrimmed:
		if p := v.Sample.Find(s.Worker); p != nil && !s.Old {
			o.Workers.Trimmed(s.Worker, s.After.Sub(p.Shmem))
		}
	case event.LoaderRecycled:
		o.Workers.Replaced(s.Worker, s.New)
	case event.LoaderRevived:
		o.Workers.Replaced(s.Worker, s.New)
		if event.Reason(s.Reason) != event.ReasonRestarted {
			news.Add(view.Line{Kind: "dead worker line", Text: phrase.Revived(&s.LoaderSaid)})
		}
	case event.LoaderHello, event.LoaderIter:
		o.refused(s.PID, news)
	case event.LoaderPickling:
		if s.Sharing != nil {
			o.Counts.Hurry(s.PID, now+picklingFor)
			news.Add(view.Line{Kind: "DataLoader start", Text: phrase.Sharing(s.PID, s.Sharing)})
		}
	case event.LoaderRaised:
		if s.Sharing != nil {
			c, text := workers.RaisedFiles(&s.LoaderSaid)
			news.Add(view.Cured{Cure: c, Text: text})
		}
	case event.LoaderOff:
		news.Add(view.Line{Warn: true, Once: "off", Key: s.Reason,
			Text: fmt.Sprintf("the hook in process %d switched itself off; training goes on: %s", s.PID, s.Reason)})
	}
}

// refused says once why nothing is recycled with the torch of a process, where it is
// so for good.
func (o *Observer) refused(pid int, news *view.News) {
	if line, why := workers.Trainers(o.Loader.Trainers()).NotRecycled(pid); line != "" {
		news.Add(view.Line{Warn: true, Text: line, Once: "hello", Key: why})
	}
}

// Budget is what each worker was told to keep mapped at most.
type Budget struct {
	Each rss.Bytes // 0 for as much as it likes
	N    int       // of so many workers
}

// SetBudget writes what each worker may keep mapped, and returns it where that differs from
// what they had, else nil: growth faster than our reads is met in the worker itself.
func (o *Observer) SetBudget(v *view.View, ladder Ladder) (*Budget, error) {
	if s := o.opt.Settings; o.Loader == nil || !s.Trim.Hook() || s.DryRun {
		return nil, nil
	}
	o.Workers.SetTrainers(o.Loader.Trainers())
	var bounds []workers.Bound
	for i := range v.Limits {
		l := &v.Limits[i]
		if rung, ok := ladder.Rung(event.ActionTrim, l); ok {
			bounds = append(bounds, workers.Bound{Limit: *l, Rung: rung, Rest: o.LeastOf(l)})
		}
	}
	last := o.Loader.Budget()
	each, _, n := o.Workers.Budget(bounds, last)
	if each == last {
		return nil, nil
	}
	return &Budget{each, n}, o.Loader.SetBudget(each)
}

// bySum is what part of what is left below a sum of RSS counts as left: a process that is
// forked from a trainer counts there as much as the trainer, from the start.
const bySum = 4

// SetLeft writes how much memory is left for each trainer below the limits for which workers
// are recycled: what replaces them may take some of it.
func (o *Observer) SetLeft(v *view.View, ladder Ladder) error {
	if o.Loader == nil || o.opt.Settings.DryRun {
		return nil
	}
	left, known := rss.Bytes(math.MaxInt64), false
	for i := range v.Limits {
		l := &v.Limits[i]
		if _, ok := ladder.Rung(event.ActionRecycle, l); ok {
			room := l.Limit.Sub(max(l.Used, l.UsedMax))
			if l.Accounting == event.AccountingRSS || l.Accounting == event.AccountingNoShared {
				room /= bySum
			}
			left, known = min(left, room), true
		}
	}
	if !known {
		return nil
	}
	return o.Loader.SetLeft(left / rss.Bytes(max(len(o.Workers.Trainers()), 1)))
}

// CheckHook reports trainings that the loader hook does not reach: once for each cause, for
// any number of ranks.
func (o *Observer) CheckHook() (news view.News) {
	if o.Loader == nil || o.Pop.Attached() {
		return nil
	}
	if u := o.Workers.CheckHook(o.opt.Settings.Dir, o.Pop.RankCommands()); u != nil {
		news.Add(event.LoaderSaid{What: event.LoaderUnreached, PID: u.PID, Reason: u.Why},
			view.Line{Text: u.Line(o.opt.Settings.Trim.Ptrace()), Warn: true, Once: "unreached", Key: u.Why})
	}
	return news
}

// TryTorch has the torches of trainers tried that are not known, and tells what came of
// that once.
func (o *Observer) TryTorch(now time.Duration, v *view.View) (news view.News) {
	if o.Loader == nil {
		return nil
	}
	for _, n := range o.Loader.Trials.Advance(now, leastLeft(v.Limits), o.Loader) {
		for _, err := range n.Errs {
			news.Fault("trial", err)
		}
		if n.Why != "" {
			news.Add(view.Line{Text: fmt.Sprintf("PyTorch %s is untested, workers are not recycled: %s; try rsswarden doctor --torch -- %s",
				n.Torch.Torch, n.Why, n.Torch.Executable)})
			continue
		}
		o.Workers.SetTrainers(o.Loader.Trainers())
		for _, t := range o.Workers.Trainers() {
			if t.Key != n.Torch.Key || n.Again {
				continue
			}
			tried := event.LoaderSaid{What: event.LoaderTried, PID: t.ID.PID, Trial: t.Trial, Reason: t.Why}
			if n.Unrevived != "" {
				tried.Reason = "workers that die are not replaced: " + n.Unrevived
			}
			news.Add(tried)
			o.refused(t.ID.PID, &news)
		}
	}
	return news
}

// leastLeft is what the fullest limit on memory leaves.
func leastLeft(limits []event.Limit) rss.Bytes {
	least := rss.Bytes(1) << 62
	for i := range limits {
		if l := &limits[i]; l.Name.Memory() {
			least = min(least, l.Limit.Sub(l.Used))
		}
	}
	return least
}
