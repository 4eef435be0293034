package observe

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/probe"
)

// SlurmQuestion asks what slurmstepd enforces, where that is open, and when the job
// ends, where that is zero.
type SlurmQuestion struct {
	Job  slurm.Job
	Open bool // Slurm's files do not say what slurmstepd does
	End  time.Time
}

// SlurmAnswer is what scontrol said.
type SlurmAnswer struct {
	Rules    slurm.Enforcement
	RulesErr error
	Open     bool // as in the question
	End      time.Time
	EndErr   error
}

// Scontrol runs scontrol(1).
type Scontrol func(ctx context.Context, args ...string) ([]byte, error)

// NewSlurm asks scontrol, each time after a random pause: thousands of ranks start at once.
// It takes two questions: the start asks one, and a rule on the job's end may ask another.
func NewSlurm(set *probe.Set, lookup func(string) (string, bool), run Scontrol) *probe.Reader[SlurmQuestion, SlurmAnswer] {
	return probe.NewQueue(set, 2, func(ask SlurmQuestion) SlurmAnswer {
		time.Sleep(rand.N(5 * time.Second))
		fault.Point("scontrol")
		ctx, cancel := context.WithTimeout(context.Background(), slurm.ScontrolTimeout)
		defer cancel()
		a := SlurmAnswer{Open: ask.Open, End: ask.End}
		if a.Open {
			a.Rules, a.RulesErr = slurm.FindEnforcement(ctx, ask.Job, slurm.Search{Lookup: lookup, ReadFile: ReadWithin, Scontrol: run})
		}
		if a.End.IsZero() {
			a.End, a.EndErr = slurm.FindEnd(ctx, ask.Job, run)
		}
		return a
	})
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
