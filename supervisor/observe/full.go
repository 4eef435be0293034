package observe

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/population"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

// Full takes a sample and reads the limits against it. last is what was seen before.
func (o *Observer) Full(now time.Duration, last *view.View) (v *view.View, news view.News) {
	at := time.Now()
	procs, extra, gaps, err := o.population(last, &news)
	if err != nil {
		news.Fault("proctree", err)
		// What is a little old is nearer to the truth than nothing, or than a part.
		procs, extra, gaps = slices.Clone(last.Sample.Procs), slices.Clone(last.Sample.Extra), last.Sample.Gaps
	}
	o.PSS.Update(now, procs, extra)
	o.files.Update(now, last.Limits, procs, extra)
	s := rss.Sample{
		Seq: last.Sample.Seq + 1, At: at, Mono: now, Took: time.Since(at),
		Procs: procs, Extra: extra, Gaps: gaps,
	}
	var roles map[int]rss.Role
	if o.Loader != nil {
		roles = o.Loader.Roles()
		o.Workers.SetTrainers(o.Loader.Trainers())
	}
	for _, owner := range o.Workers.Update(&s, roles, append(slices.Clone(o.Pop.Tasks()), o.Pop.Command)...) {
		news.Fault("worker-match", fmt.Errorf("process %d starts no new worker where one has ended: no more of its workers are signalled", owner.PID))
	}
	limits := append(o.Limits.Read(&s), o.Counts.Read(now, procs, o.Pop.Command.PID, len(o.Workers.Trainers()) > 0)...)
	for i := range limits {
		l := &limits[i] // what is certain of a sum of PSS may be more than readings say that are seconds old
		l.Used = max(l.Used, min(o.LeastOf(l), l.UsedMax))
	}
	v = last.Next(now, s, limits)
	return v, news
}

// Fast reads the watched limit, and says whether a full read is needed: it has reached
// next, from which on it is judged again, or could not be read.
func (o *Observer) Fast(now time.Duration, last *view.View, next rss.Bytes) (v *view.View, full bool) {
	fast, ok := o.Limits.Fast(now, next, o.Pop.SumRSS)
	if !ok || fast.ID() != last.Limits[last.Watched].ID() {
		return last, true
	}
	return last.Fast(now, &fast), view.Growing(&fast) >= next
}

// population reads the tree and what counts beside it.
func (o *Observer) population(last *view.View, news *view.News) (procs, extra []rss.Proc, gaps rss.Gaps, err error) {
	procs, gaps, err = o.Pop.Read()
	if o.steps.of(o.Pop.Job(), false) {
		o.Limits.Replace(o.steps.parts(o.Pop.Name))
	}
	if err != nil {
		return nil, nil, gaps, err
	}
	// The first look is before the first line.
	if _, in := o.Limits.Job(); in && last.Sample.Seq > 0 && !o.Pop.FollowsJob() {
		if srun := population.Srun(procs); srun != 0 {
			news.Add(view.Line{Text: phrase.SrunInside(srun), Warn: true, Once: "srun"})
		}
	}
	extra, more, err := o.Limits.Extra(o.Pop.Tree, procs)
	return procs, extra, gaps.Add(more), err
}

// WatchLimits has the bell ring when the kernel says that one of these was met: it does so
// in memory.events of each level of cgroup v2, every 10 ms at most.
func (o *Observer) WatchLimits(limits []event.Limit) (err error) {
	for i := range limits {
		l := &limits[i]
		if l.Level == "" {
			continue
		}
		file := filepath.Join(l.Level, "memory.events")
		if _, missing := os.Stat(file); missing == nil {
			err = cmp.Or(err, o.opt.Bell.Watch(o.opt.LimitMet, unix.IN_MODIFY, file))
		}
	}
	return err
}

// LeastOf is the least that the anonymous memory of a trainer and its workers counts for
// l, 0 where that is not known. A process that is watched from outside may share with others
// outside.
func (o *Observer) LeastOf(l *event.Limit) rss.Bytes {
	if o.PSS == nil || o.Loader == nil || o.Pop.Attached() || l.Accounting != event.AccountingPSS || o.Limits.Step(l) != "" && o.Pop.IsJob() {
		return 0
	}
	return o.Workers.PSSFloor()
}

// Warnings are what could not be read or followed since the last call.
func (o *Observer) Warnings() (news view.News) {
	warn(o.Limits.Warnings(), &news)
	for _, err := range o.PSS.Told() {
		news.Fault("pss", err)
	}
	return news
}
