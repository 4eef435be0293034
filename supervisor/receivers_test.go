package supervisor

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
	"github.com/rsswarden/rsswarden/supervisor/workers"
)

// family is a tree of processes that said hello or not.
func family(s *stand, hello ...int) {
	s.read()
	var all []event.Trainer
	for _, pid := range hello {
		if p := s.view.Sample.Find(pid); p != nil {
			all = append(all, event.Trainer{ID: p.ID})
		}
	}
	s.observe.Workers.SetTrainers(all)
}

// catches lets a process of the made-up tree catch signals: the digits of SigCgt.
func (s *stand) catches(pid int, set string) {
	name := filepath.Join("proc", itoa(pid), "status")
	s.fs.Write(name, s.fs.Read(name)+"SigCgt:\t"+set+"\n")
}

const usr2 = "0000000000000800"

func TestReceivers(t *testing.T) {
	role := func(s *stand, pid int, role rss.Role) { s.view.Sample.Find(pid).Role = role }
	for _, c := range []struct {
		name   string
		rule   string
		set    func(*stand)
		want   []int
		reason event.Reason
		detail string
	}{
		{"the command alone", "90%:signal=USR2", func(s *stand) { s.catches(theCommand, usr2); family(s) }, []int{theCommand}, "", ""},
		{"without a handler", "90%:signal=USR2", func(s *stand) { s.catches(theCommand, "0000000000000400"); family(s) }, nil,
			event.ReasonNotCaught, "USR2, process 5000001"},
		{"a container's runtime, which would pass it on", "90%:signal=USR2", func(s *stand) {
			s.catches(theCommand, usr2)
			s.catches(worker2, usr2)
			s.put(worker3, worker1, rss.MiB, 0)
			family(s)
			s.view.Sample.Find(theCommand).Comm, s.view.Sample.Find(worker1).Comm = "starter", "appinit"
		}, []int{worker2}, "", "not to process 5000013, without a handler for USR2"},
		{"a program of its name, which runs nothing", "90%:signal=USR2", func(s *stand) {
			s.fs.End(worker1)
			s.fs.End(worker2)
			s.catches(theCommand, usr2)
			family(s)
			s.view.Sample.Find(theCommand).Comm = "starter"
		}, []int{theCommand}, "", ""},
		{"status without SigCgt", "90%:signal=USR2", func(s *stand) { family(s) }, nil, event.ReasonNotCaught, ""},
		{"every trainer", "90%:signal=USR2", func(s *stand) {
			for _, pid := range []int{theCommand, worker1, worker2} {
				s.catches(pid, usr2)
			}
			family(s, theCommand, worker1, worker2)
			role(s, worker1, rss.RoleTrainer)
			role(s, worker2, rss.RoleTrainer)
			role(s, theCommand, rss.RoleAgent)
		}, []int{worker1, worker2}, "", ""},
		{"one of them deaf", "90%:signal=USR2", func(s *stand) {
			s.catches(worker2, usr2)
			family(s, worker1, worker2)
			role(s, worker1, rss.RoleTrainer)
			role(s, worker2, rss.RoleTrainer)
		}, []int{worker2}, "", "not to process 5000011, without a handler for USR2"},
		{"no worker that said hello", "90%:signal=USR2", func(s *stand) {
			s.catches(worker1, usr2)
			s.catches(theCommand, usr2)
			family(s, theCommand, worker1)
			role(s, worker1, rss.RoleWorker)
		}, []int{theCommand}, "", ""},
		{"the uppermost where none has a loader", "90%:signal=USR2", func(s *stand) {
			s.catches(worker1, usr2)
			s.put(worker3, worker1, rss.MiB, 0)
			s.catches(worker3, usr2)
			family(s, worker1, worker3)
		}, []int{worker1}, "", ""},
		{"an agent alone", "90%:signal=TERM", func(s *stand) {
			s.catches(theCommand, "0000000000004000")
			family(s, theCommand)
			role(s, theCommand, rss.RoleAgent)
		}, nil, event.ReasonNoTrainer, "only starts ranks"},
		{"the command has ended", "90%:signal=USR2", func(s *stand) { s.fs.End(theCommand); s.read() }, nil, event.ReasonVanished, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStand(t)
			s.put(theCommand, theHolder, 10*rss.MiB, 0)
			s.put(worker1, theCommand, 10*rss.MiB, 0)
			s.put(worker2, theCommand, 10*rss.MiB, 0)
			s.open(s.holder.begin)
			c.set(s)
			to, h := s.acts.Receivers(mustRules(c.rule)[0], nil)
			var got []int
			for _, p := range to {
				got = append(got, p.ID.PID)
			}
			if len(got) != len(c.want) || len(got) > 0 && got[0] != c.want[0] || len(got) > 1 && got[1] != c.want[1] {
				t.Errorf("goes to %v, want %v", got, c.want)
			}
			if h.OK != (len(c.want) > 0) || h.Reason != c.reason || !strings.Contains(h.Detail, c.detail) {
				t.Errorf("%+v, want %q, … %s …", h, c.reason, c.detail)
			}
		})
	}
}

// TestReceiversByEnvironment: attached, no process can say hello, and the environment tells
// which train.
func TestReceiversByEnvironment(t *testing.T) {
	const term = "0000000000004000"
	for _, c := range []struct {
		name   string
		rule   string
		ranks  int // of torchrun
		known  bool
		want   []int
		reason event.Reason
		detail string
	}{
		{"ranks of torchrun, which catches TERM itself", "90%:signal=TERM", 2, true, []int{worker1, worker2}, "", ""},
		{"rank 0 of them", "90%:signal=TERM@rank0", 2, true, []int{worker1}, "", ""},
		{"no rank 0", "90%:signal=TERM@rank0", 0, true, nil, event.ReasonNoRank0, "no RANK, LOCAL_RANK or SLURM_PROCID"},
		{"no ranks", "90%:signal=TERM", 0, true, []int{theCommand}, "", ""},
		{"none of them catches it", "90%:signal=USR2", 2, true, nil, event.ReasonNotCaught, "USR2, processes 5000011 and 5000012"},
		{"nothing was read yet", "90%:signal=TERM", 2, false, nil, event.ReasonNoTrainer, "not known yet"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStand(t, attachedTo(""))
			for i, pid := range []int{theCommand, worker1, worker2} {
				if pid != theCommand {
					s.put(pid, theCommand, 10*rss.MiB, 0)
				}
				environ := "A=b\x00"
				if i > 0 && i <= c.ranks {
					environ = fmt.Sprintf("LOCAL_RANK=%d\x00RANK=%d\x00", i-1, i-1)
				}
				s.fs.Write(filepath.Join("proc", itoa(pid), "environ"), environ)
				s.catches(pid, term)
			}
			if s.open(s.holder.begin); c.known {
				s.known()
			} else {
				s.observe.Workers = workers.New(workers.Options{Proc: s.Proc})
				s.observe.Workers.Update(&s.view.Sample, nil)
			}
			to, h := s.acts.Receivers(mustRules(c.rule)[0], nil)
			var got []int
			for _, p := range to {
				got = append(got, p.ID.PID)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("goes to %v, want %v", got, c.want)
			}
			if h.OK != (len(c.want) > 0) || h.Reason != c.reason || h.Later == c.known || !strings.Contains(h.Detail, c.detail) {
				t.Errorf("%+v, want %q, … %s …", h, c.reason, c.detail)
			}
			if c.ranks > 0 && c.known {
				s.fs.End(worker1)
				s.fs.End(worker2)
				s.read()
				if to, h := s.acts.Receivers(mustRules(c.rule)[0], nil); len(to) > 0 || !strings.Contains(h.Detail, "the command only starts ranks, and there is none now") {
					t.Errorf("between two sets of ranks: %+v", h)
				}
			}
		})
	}
}

// TestSignalIsSentOnceACrossing to a real process, and the ladder goes on.
func TestSignalIsSentOnceACrossing(t *testing.T) {
	s := newStand(t, func(o *Options) { o.Settings.Rules = mustRules("80%:trim", "93%:signal=TERM") })
	command, id := counter(t)
	s.fs.End(theCommand)
	s.holder.begin.PID, s.holder.begin.Start, s.observe.Pop.Command = id.PID, id.Start, id
	size := func(mib rss.Bytes) {
		s.fs.Put(rsstest.Process{PID: id.PID, Start: id.Start, Parent: theHolder, Comm: "sh", Anon: mib * rss.MiB})
		s.catches(id.PID, "0000000000004000")
	}
	size(500)
	s.open(s.holder.begin)
	for range 2 {
		for range 5 {
			size(950)
			s.full()
			s.later(time.Minute)
		}
		if n := terms(t, command); n != 1 {
			t.Errorf("%d times TERM", n)
		}
		size(500)
		s.full()
	}
	s.does("")
	sent := slices.DeleteFunc(named(s.events(), event.NameOutcome), func(o map[string]any) bool { return o["ok"] != true })
	for _, o := range sent {
		wardentest.Has(t, o, "detail", "process "+itoa(id.PID), "freed_bytes", 0.0)
	}
	if len(sent) != 2 {
		t.Errorf("%d outcomes", len(sent))
	}
	s.told("TERM sent to process " + itoa(id.PID))
}

func TestSignalWithoutReceiverIsSaid(t *testing.T) {
	s := opened(t, func(o *Options) { o.Settings.Rules = mustRules("5%:signal=USR2") })
	s.full()
	s.times(1, "signal=USR2 skipped: the process has no handler for this signal (USR2, process 5000001)")
	wardentest.Has(t, only(t, s.events(), event.NameOutcome), "reason", string(event.ReasonNotCaught), "ok", false)
}

func itoa(n int) string { return strconv.Itoa(n) }
