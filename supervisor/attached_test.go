package supervisor

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/attach"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/population"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// attachedTo makes a watcher of what we did not start.
func attachedTo(noHook string, cannot ...string) func(*Options) {
	return func(o *Options) {
		o.Able = attach.FromOutside(noHook, cannot)
		o.Link.(*fakeHolder).begin.Holder = 0
	}
}

// attachedToJob makes one of a job.
func attachedToJob(j *population.Job) func(*Options) {
	return func(o *Options) {
		attachedTo("")(o)
		o.Job = func() population.Job { return *j }
	}
}

// TestAttachedLastWords: how it ended is not known, and perhaps it has not.
func TestAttachedLastWords(t *testing.T) {
	for name, c := range map[string]struct {
		job     string
		ended   bool
		stopped bool
		by      string
		words   string
	}{
		"ended":    {"", true, false, "command", "process 5000001 has ended, its parent knows how"},
		"left":     {"", false, false, "detached", "process 5000001 runs on, unwatched"},
		"stopped":  {"", true, true, "rsswarden", "✖ stopped by rsswarden"},
		"job":      {"46", true, false, "command", "job 46 has no process left on this node"},
		"job left": {"46", false, false, "detached", "job 46 runs on, unwatched"},
	} {
		t.Run(name, func(t *testing.T) {
			s := opened(t, func(o *Options) {
				attachedTo("because", "it is so")(o)
				if c.job != "" {
					o.Job = func() population.Job {
						id := rss.ProcID{PID: theCommand, Start: 10}
						return population.Job{Name: c.job, Roots: []rss.ProcID{id}, Steps: []string{"0"}, StepOf: map[rss.ProcID]string{id: "0"}}
					}
				}
			})
			s.tell.Sum.Stopped = c.stopped
			var exit *hold.Exit
			if c.ended {
				exit = &hold.Exit{}
			}
			s.end(exit)
			all := s.events()
			end, start := named(all, event.NameExit)[0], named(all, event.NameStart)[0]
			outcome := map[string]string{"command": "unknown", "detached": "unknown", "rsswarden": "stopped"}[c.by]
			wardentest.Has(t, end, "by", c.by, "code", nil, "signal", nil, "outcome", outcome)
			if start["attached"] != true || start["cannot"].([]any)[0] != "it is so" {
				t.Errorf("start %v", start)
			}
			s.told(c.words, "attached: it is so\n")
		})
	}
}

// TestAttachedToUs: where we run in what we watch, we do not end ourselves.
func TestAttachedToUs(t *testing.T) {
	s := opened(t, attachedTo(""))
	s.acts.Self = os.Getpid()
	if err := s.acts.Kill(rss.ProcID{PID: os.Getpid()}, unix.SIGKILL); err != nil {
		t.Error(err)
	}
}

// TestAttachedJob: all of a job is watched, and asked.
func TestAttachedJob(t *testing.T) {
	const task = theCommand + 50
	roots := []rss.ProcID{{PID: theCommand, Start: 10}, {PID: task, Start: 20}}
	job := population.Job{
		Name: "46", Roots: roots, Tasks: roots, Steps: []string{"0", "batch"},
		StepOf: map[rss.ProcID]string{roots[0]: "0", roots[1]: "batch"},
	}
	s := newStand(t, attachedToJob(&job))
	s.fs.Put(rsstest.Process{PID: task, Parent: 1, Start: 20, Comm: "python", Anon: 200 * rss.MiB})
	s.open(s.holder.begin)
	if u := s.user(); u.Used != 300*rss.MiB {
		t.Errorf("the job uses %v, want that of both tasks", u.Used)
	}
	s.told("watching job 46 here: steps 0 and batch, 2 processes\n")
	var asked []int
	for _, p := range s.observe.Pop.Commands(&s.view.Sample, "") {
		asked = append(asked, p.ID.PID)
	}
	if len(asked) != 2 || asked[1] != task {
		t.Errorf("asked %v", asked)
	}
	// No such processes exist outside the made-up tree.
	if err := s.acts.Kill(s.observe.Pop.Command, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("whether it lives: %v", err)
	}

	// The first task has ended, with its step.
	s.fs.End(theCommand)
	job.Roots = roots[1:]
	job.Tasks, job.Steps = job.Roots, []string{"batch"}
	s.full()
	if u := s.user(); u.Used != 200*rss.MiB || s.observe.Pop.Command.PID != task {
		t.Errorf("the job uses %v, its command is %v", u.Used, s.observe.Pop.Command)
	}
}
