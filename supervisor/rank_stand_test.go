package supervisor

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/node"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// rankStand is one rank of job 46, whose command is a real process. All ranks of a
// test see one made-up /proc.
type rankStand struct {
	*jobStand
	id rss.ProcID // of the command
}

// newRank makes the watcher of a rank in a step that has a cgroup with 1000 MiB. It
// has neither joined nor opened.
func newRank(t *testing.T, first *rankStand, dir string, task int, step string, command rss.ProcID, rules ...string) *rankStand {
	t.Helper()
	s := newStand(t, func(o *Options) {
		inJob(t, task, dir, "SLURM_STEP_ID="+step)(o)
		o.Settings.Rules, o.Settings.Limit, o.Self = mustRules(rules...), 0, theHolder+task*10+9
		if first != nil {
			o.Proc, o.Sys = first.Proc, first.Sys
		}
	})
	r := &rankStand{&jobStand{stand: s}, command}
	if first != nil {
		s.fs = first.fs
	}
	s.holder.begin.Holder = theHolder + task*10
	s.holder.begin.PID, s.holder.begin.Start = command.PID, command.Start
	s.observe.Pop.Command, s.observe.Pop.Holder = command, s.holder.begin.Holder
	s.fs.Write("proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n")
	s.fs.Write("proc/sys/kernel/random/boot_id", "b\n")
	r.uses("", 0)
	r.uses(step, 10)
	for _, p := range []rsstest.Process{
		{PID: s.holder.begin.Holder, Parent: 1, Start: 4, Comm: "rsswarden"},
		{PID: s.Self, Parent: s.holder.begin.Holder, Start: 5, Comm: "rsswarden"},
		{PID: command.PID, Parent: s.holder.begin.Holder, Start: command.Start, Comm: "python", Anon: rss.MiB},
	} {
		s.fs.Put(p)
		s.fs.Write(fmt.Sprintf("proc/%d/cgroup", p.PID), fmt.Sprintf("4:memory:/slurm/uid_1/job_46/step_%s\n", step))
	}
	return r
}

// leads has a rank join, lead and open.
func (r *rankStand) leads() {
	r.t.Helper()
	if r.join(r.holder.begin); !r.node.Leads() {
		r.t.Fatal("it does not lead")
	}
	r.t.Cleanup(func() { r.pass(nil) })
	r.open(r.holder.begin)
}

// follows has a rank join that does not lead.
func (r *rankStand) follows() {
	r.t.Helper()
	if r.join(r.holder.begin); r.node.Leads() {
		r.t.Fatal("two lead")
	}
	r.t.Cleanup(func() { r.pass(nil) })
}

// meets has the leader meet so many, and learn the limits of so many steps more.
func (r *rankStand) meets(ranks, steps int) {
	r.t.Helper()
	if r.meet(); len(r.node.Others) != ranks {
		r.t.Fatalf("met %+v", r.node.Others)
	}
	r.full()
	for steps > 0 {
		yields(r.t, r.probes.C(), 10*time.Second)
		_, found := r.observe.HearSteps()
		steps -= found
	}
	r.full()
}

// ordersFile is where a leader asks for something, wherever the directory is now.
func (r *rankStand) ordersFile() string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", r.node.Dir().Fd(), nodedir.FileOf("order", r.node.Me.Holder))
}

// ordered is what stands for a rank to do.
func (r *rankStand) ordered() (o node.Order) {
	r.t.Helper()
	data, err := os.ReadFile(r.ordersFile())
	if err == nil && len(data) > 0 {
		err = json.Unmarshal(data, &o)
	}
	wardentest.NoError(r.t, err)
	return o
}

// ended has a rank's command end by a signal while it leads.
func (r *rankStand) ended(signal int) { r.end(&hold.Exit{Signal: signal}) }

// dead waits until a process has ended.
func dead(t *testing.T, id rss.ProcID) {
	t.Helper()
	wardentest.Until(t, fmt.Sprintf("process %v has ended", id), func() bool { return !proctree.Lives("/proc", id) })
}

// counter is a process that says which of TERM and WINCH it got, and lives on.
func counter(t *testing.T) (*rsstest.Child, rss.ProcID) {
	t.Helper()
	c := rsstest.StartChild(t, exec.Command("/bin/sh", "-c",
		"trap 'echo TERM' TERM; trap 'echo WINCH' WINCH; echo ready; while kill -0 $PPID; do sleep 0.05; done"))
	t.Cleanup(func() { _ = unix.Kill(c.PID, unix.SIGKILL) })
	if line, err := c.Line(); line != "ready" {
		t.Fatal(line, err)
	}
	start, err := proctree.StartTime("/proc", c.PID)
	wardentest.NoError(t, err)
	return c, rss.ProcID{PID: c.PID, Start: start}
}

// terms is how often it got TERM since it was last asked. Of signals that wait the
// one with the lower number is met first, and that is TERM.
func terms(t *testing.T, c *rsstest.Child) (n int) {
	t.Helper()
	wardentest.NoError(t, unix.Kill(c.PID, unix.SIGWINCH))
	for {
		switch line, err := c.Line(); line {
		case "TERM":
			n++
		case "WINCH":
			return n
		default:
			t.Fatal(line, err)
		}
	}
}

// twoRanks are a leader and a follower in the same step, whose command lives on
// after TERM.
func twoRanks(t *testing.T, rules ...string) (first, s *rankStand, command *rsstest.Child) {
	t.Helper()
	dir := runtimeDir(t)
	_, firstID := sleeper(t)
	command, id := counter(t)
	first = newRank(t, nil, dir, 0, "0", firstID, rules...)
	first.leads()
	s = newRank(t, first, dir, 1, "0", id, rules...)
	s.follows()
	first.meets(1, 0)
	return first, s, command
}

// orders has the leader ask for something.
func (r *rankStand) orders(other *rankStand, o node.Order) {
	r.t.Helper()
	o.ID = uint64(time.Now().UnixNano())
	data, err := json.Marshal(o)
	if err == nil {
		err = os.WriteFile(other.ordersFile(), data, 0o600)
	}
	wardentest.NoError(r.t, err)
}

// stop is what a leader asks for, with KILL a second after TERM at the earliest.
var stop = node.Order{Stop: true, StopStatus: 137}

// startsToFollow has a rank follow beside the test. It is over before the test is.
func (r *rankStand) startsToFollow() <-chan bool {
	led, over := make(chan bool, 1), make(chan struct{})
	go func() {
		led <- r.waits()
		close(over)
	}()
	r.t.Cleanup(func() {
		select {
		case r.holder.messages <- hold.Exit{}:
		case <-over: // the test has said so
		}
		<-over
	})
	return led
}

// waits has a rank follow until it leads. It returns false where its command has ended.
func (s *stand) waits() (leads bool) {
	s.openFollowing(s.holder.begin)
	timer := time.NewTimer(s.sleep(s.pause(s.now())))
	for !s.node.Leads() {
		if s.turn(timer) {
			return false
		}
	}
	return true
}

// yields waits for what comes within a time.
func yields[T any](t *testing.T, c <-chan T, within time.Duration) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(within):
		t.Fatalf("nothing within %v", within)
	}
	return v
}

// runtime is where the ranks meet.
func (r *rankStand) runtime() string {
	dir, _ := r.Lookup("RSSWARDEN_RUNTIME")
	return dir
}

// sleeper is a process that lasts until the test ends it.
func sleeper(t *testing.T) (*exec.Cmd, rss.ProcID) {
	t.Helper()
	c := exec.Command("/bin/sleep", "1000")
	if err := c.Start(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	start, err := proctree.StartTime("/proc", c.Process.Pid)
	wardentest.NoError(t, err)
	return c, rss.ProcID{PID: c.Process.Pid, Start: start}
}
