package observe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/population"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

// SlurmQuestion asks what slurmstepd enforces, or when the job ends.
type SlurmQuestion struct {
	Job  slurm.Job
	Open bool // the former: Slurm's files do not say
}

// SlurmAnswer is what scontrol said.
type SlurmAnswer struct {
	Open     bool // as in the question
	Rules    slurm.Enforcement
	RulesErr error
	End      time.Time
	EndErr   error
}

// Scontrol runs scontrol(1).
type Scontrol func(ctx context.Context, args ...string) ([]byte, error)

// NewSlurm asks scontrol, and slurmctld only after a random pause: thousands of ranks start
// at once. It takes three questions: the start asks two, and a rule on the job's end may ask
// another.
func NewSlurm(set *probe.Set, lookup func(string) (string, bool), run Scontrol) *probe.Reader[SlurmQuestion, SlurmAnswer] {
	pause := func() { time.Sleep(rand.N(5 * time.Second)) }
	return probe.NewQueue(set, 3, func(ask SlurmQuestion) SlurmAnswer {
		fault.Point("scontrol")
		a := SlurmAnswer{Open: ask.Open}
		if a.Open {
			a.Rules, a.RulesErr = slurm.FindEnforcement(context.Background(), ask.Job, slurm.Search{Lookup: lookup, ReadFile: ReadWithin, Scontrol: run, Pause: pause})
			return a
		}
		pause()
		ctx, cancel := context.WithTimeout(context.Background(), slurm.ScontrolTimeout)
		defer cancel()
		a.End, a.EndErr = slurm.FindEnd(ctx, ask.Job, run)
		return a
	})
}

const (
	// endAhead is how long before a rule on the job's end would fire scontrol
	// is asked once more: an administrator can have moved the end, and what is
	// in the environment stays as it was.
	endAhead = time.Minute
	// endHolds is how long an answer is believed.
	endHolds = 5 * time.Minute
)

// Slurm asks scontrol what files and environment have left open.
type Slurm struct {
	*probe.Reader[SlurmQuestion, SlurmAnswer]
	// Asks says that this process is the one of its node that asks, where several have the
	// job.
	Asks    bool
	askedAt time.Duration // for the job's end last, 0 for never
}

// Begin asks for what is open of these limits.
func (s *Slurm) Begin(now time.Duration, limits *limit.Union) {
	job, ok := limits.Job()
	if ok && limits.LeftOpen() {
		s.ask(now, SlurmQuestion{Job: job, Open: true})
	}
	if ok && job.End.IsZero() {
		s.ask(now, SlurmQuestion{Job: job})
	}
}

func (s *Slurm) ask(now time.Duration, q SlurmQuestion) {
	if !s.Asks && q.Job.LocalID != 0 {
		return
	}
	if !q.Open {
		s.askedAt = now
	}
	s.Ask(q, true)
}

// Slept takes in that the watcher did not run for a while: the job's end has moved if the
// job was suspended.
func (s *Slurm) Slept() { s.askedAt = 0 }

// JobEnd is the time to the job's end, 0 where there is none, and whether it is still being
// asked for: no rule acts on it then. ahead is how long before it the first of them fires,
// 0 for none.
func (o *Observer) JobEnd(now time.Duration, v *view.View, ahead time.Duration) (left time.Duration, asking bool) {
	for i := range v.Limits {
		l := &v.Limits[i]
		if l.Name != event.LimitTime || l.ETA == nil {
			continue
		}
		left = time.Duration(*l.ETA * float64(time.Second))
		if ahead == 0 || left > ahead+endAhead {
			return left, false
		}
		fresh := o.Slurm.askedAt != 0 && now-o.Slurm.askedAt < endHolds
		if job, ok := o.Limits.Job(); ok && !o.Slurm.Busy() && !fresh {
			o.Slurm.ask(now, SlurmQuestion{Job: job})
		}
		return left, o.Slurm.Busy()
	}
	return 0, false
}

// heardSlurm takes in what scontrol said. ahead is that of JobEnd.
func (o *Observer) heardSlurm(a *SlurmAnswer, ahead time.Duration, news *view.News) {
	if a.Open {
		o.Limits.SetEnforcement(a.Rules, a.RulesErr)
		o.enforced(news)
		return
	}
	if a.EndErr == nil || errors.Is(a.EndErr, slurm.ErrNoEnd) {
		o.Limits.SetEnd(a.End)
	} else if ahead > 0 {
		news.Fault("scontrol", a.EndErr) // a rule waits for that end
	}
}

// readPatience is how long one configuration file may take: it may lie on a
// network file system that does not answer.
const readPatience = 2 * time.Second

// ReadWithin reads a configuration file, or gives up.
func ReadWithin(name string) ([]byte, error) {
	type content struct {
		b   []byte
		err error
	}
	r := probe.New(nil, func(name string) (c content) {
		c.b, c.err = slurm.ReadFile(name)
		return c
	})
	if r.Ask(name, false); !r.Wait(readPatience) {
		return nil, fmt.Errorf("cannot read %s: no answer within %v", name, readPatience)
	}
	got, _ := r.Take()
	return got.b, got.err
}

// stepLimits are the limits of each step that is watched. What is found of a step counts
// for as long as it lasts.
type stepLimits struct {
	proc    string
	probes  *probe.Set
	find    func(pid int) (*limit.Set, []limit.Warning)
	own     *limit.Set // of the command that we hold or attached to; nil for a job
	ownStep string
	steps   []string
	// sets are the limits of other steps; nil while they are looked for.
	sets    map[string]*limit.Set
	looking []*probe.Reader[[]rss.ProcID, stepSet]
}

// stepSet is the limits of a step that is not ours.
type stepSet struct {
	step     string
	set      *limit.Set
	warnings []limit.Warning
}

// of makes these the limits of the job's steps, and says whether they are others than
// before. Those of a new step are looked for on the side, as Slurm's files may hang, or at
// once. Those of steps that are gone are closed by who replaces them.
func (l *stepLimits) of(j *population.Job, atOnce bool) (changed bool) {
	if slices.Equal(l.steps, j.Steps) {
		return false
	}
	l.steps = slices.Clone(j.Steps)
	for step := range l.sets {
		if !slices.Contains(l.steps, step) {
			delete(l.sets, step)
		}
	}
	for _, step := range l.steps {
		if _, asked := l.sets[step]; asked || l.own != nil && step == l.ownStep {
			continue
		}
		l.sets[step] = nil
		r := probe.New(l.probes, func(ids []rss.ProcID) stepSet { return l.findStep(step, ids) })
		r.Ask(j.In(step), !atOnce)
		for atOnce && !r.Wait(time.Minute) {
		}
		l.looking = append(l.looking, r)
	}
	return true
}

// findStep finds the limits of a step by the first of its processes that still lives then.
// Of one that ended meanwhile nothing is found: where all have, what could not be read of
// them is no warning.
func (l *stepLimits) findStep(step string, ids []rss.ProcID) stepSet {
	s := stepSet{step: step}
	for _, id := range ids {
		if s.set != nil {
			s.set.Close()
		}
		if s.set, s.warnings = l.find(id.PID); proctree.Lives(l.proc, id) {
			return s
		}
	}
	s.warnings = nil
	return s
}

// take takes in the limits that were found, and says of how many steps.
func (l *stepLimits) take() (warnings []limit.Warning, found int) {
	l.looking = slices.DeleteFunc(l.looking, func(r *probe.Reader[[]rss.ProcID, stepSet]) bool {
		s, ok := r.Take()
		if !ok {
			return false
		}
		found++
		if set, asked := l.sets[s.step]; !asked || set != nil {
			s.set.Close() // the step has ended meanwhile
			return true
		}
		l.sets[s.step] = s.set
		warnings = append(warnings, s.warnings...)
		return true
	})
	return warnings, found
}

// parts are the limits that have been found. As long as our own step is the only one they
// need no names.
func (l *stepLimits) parts(job string) []limit.Part {
	if l.own != nil && len(l.steps) <= 1 {
		return []limit.Part{{Set: l.own}}
	}
	var parts []limit.Part
	if l.own != nil {
		parts = append(parts, limit.Part{Name: PartName(job, l.ownStep), Set: l.own})
	}
	for _, step := range l.steps {
		if set := l.sets[step]; set != nil {
			parts = append(parts, limit.Part{Name: PartName(job, step), Set: set})
		}
	}
	return parts
}

// PartName is what the limits of a step are called among those of several, "46.0".
func PartName(job, step string) string {
	job, _, _ = strings.Cut(job, ".") // of a step that we attached to
	return job + "." + step
}
