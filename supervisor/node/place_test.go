package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/wake"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// machine is a node whose processes are made up: nothing is signalled.
type machine struct {
	rsstest.Tree
	dir string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	return &machine{rsstest.Empty(t), parent(t)}
}

// seat is the place of a rank, with what was done for it.
type seat struct {
	*Place
	t        *testing.T
	fs       *machine
	probes   *probe.Set
	sent     []string // "TERM 3002"
	fails    error    // of each signal
	statuses []int
}

// The processes of rank n are 3000 + 10 n: its holder, its watcher, its command.
func (m *machine) member(task int) Member {
	id := func(n int) rss.ProcID { return rss.ProcID{PID: 3000 + 10*task + n, Start: 10} }
	return Member{Holder: id(0), Watcher: id(1), Command: id(2), Task: task, Step: "0", Words: []string{"python"}}
}

// rank has a rank join.
func (m *machine) rank(t *testing.T, task int) *seat {
	t.Helper()
	s := &seat{t: t, fs: m, probes: &probe.Set{}}
	s.Place = New(Options{
		Proc: m.Proc, Probes: s.probes, Bell: wake.New(), Cause: 1,
		Kill: func(id rss.ProcID, sig syscall.Signal) error {
			if s.fails == nil && sig != 0 {
				s.sent = append(s.sent, fmt.Sprintf("%s %d", event.SignalName(sig), id.PID))
			}
			return s.fails
		},
		Override: func(status int) error { s.statuses = append(s.statuses, status); return nil },
	})
	me := m.member(task)
	for _, id := range []rss.ProcID{me.Holder, me.Watcher, me.Command} {
		p := rsstest.Process{PID: id.PID, Parent: me.Holder.PID, Start: id.Start, Comm: "python"}
		if id == me.Holder {
			p.Parent = 1
		}
		m.Put(p)
	}
	wardentest.NoError(t, s.Join([]string{m.dir}, "46@n1.abc", me))
	t.Cleanup(func() { s.Leave(nil) })
	return s
}

// ends removes the processes of a rank.
func (m *machine) ends(task int) {
	for _, id := range []rss.ProcID{m.member(task).Holder, m.member(task).Watcher, m.member(task).Command} {
		m.End(id.PID)
	}
}

// falls waits until the lead has fallen to a follower.
func (s *seat) falls() {
	s.t.Helper()
	select {
	case <-s.probes.C():
	case <-time.After(10 * time.Second):
		s.t.Fatal("the lead does not fall to it")
	}
}

// orders has a leader ask for a stop.
func (s *seat) orders(other *seat, grace time.Duration) {
	s.t.Helper()
	s.Others = []Member{other.Me}
	if asked, n := s.StopOthers("", 137, grace); asked != 1 || len(n.Faults) > 0 {
		s.t.Fatalf("%d were asked, %v", asked, n.Faults)
	}
}

// changes are the ranks in news.
func changes(n News) (all []string) {
	for _, c := range n.Ranks {
		s := fmt.Sprintf("%s %d", c.What, c.Task)
		if c.Ended != nil {
			s += fmt.Sprintf(" %+v", *c.Ended)
		}
		all = append(all, s)
	}
	return all
}

// TestPlaceOfItsOwn: a watcher that could not join leads, without other ranks.
func TestPlaceOfItsOwn(t *testing.T) {
	var p Place
	if !p.Leads() || p.Joined() || p.HasLock() || p.Dir() != nil || p.Stopping() || p.MeetDue(time.Hour, &rss.Sample{}) {
		t.Error("it is not by itself")
	}
	for name, n := range map[string]News{"lead": p.Lead(1), "meet": p.Meet(1), "advance": p.Advance(1)} {
		if len(n.Faults)+len(n.Ranks)+len(n.Lines) > 0 || n.Changed || n.Renewed {
			t.Errorf("%s: %+v", name, n)
		}
	}
	err := p.Keep(Handover{Changes: 1}, func() ([]byte, error) { return []byte("1"), nil })
	if b, kept := p.Kept(); b != nil || errors.Join(err, kept) != nil {
		t.Errorf("it keeps %s, %v, %v", b, err, kept)
	}
	if m := p.Owner(nil, 7); m != &p.Me {
		t.Errorf("process 7 is of rank %+v", m)
	}
	if p.Within(0, time.Hour) != time.Hour {
		t.Error("it wakes")
	}
	p.Leave(nil)
}

// TestWhoIsHere: the leader meets ranks that come and go, once each, and knows whose a
// process is.
func TestWhoIsHere(t *testing.T) {
	m := newMachine(t)
	first, second := m.rank(t, 0), m.rank(t, 1)
	if !first.Leads() || second.Leads() {
		t.Fatal("not the first leads alone")
	}
	if n := first.Lead(time.Second); !n.Changed || !slices.Equal(changes(n), []string{"leads 0"}) || first.From != time.Second {
		t.Errorf("%+v", n)
	}
	if n := second.Follow(false); n.Changed || !slices.Equal(changes(n), []string{"follows 1"}) {
		t.Errorf("%+v", n)
	}
	if n := first.Meet(2 * time.Second); !n.Changed || !slices.Equal(changes(n), []string{"joined 1"}) {
		t.Errorf("%+v", n)
	}
	if n := first.Meet(3 * time.Second); n.Changed || len(n.Ranks) > 0 {
		t.Errorf("met again: %+v", n)
	}
	procs := []rss.Proc{
		{ID: first.Me.Command, Parent: first.Me.Holder.PID},
		{ID: second.Me.Command, Parent: second.Me.Holder.PID},
		{ID: rss.ProcID{PID: 4000, Start: 1}, Parent: second.Me.Command.PID},
	}
	for pid, task := range map[int]int{first.Me.Command.PID: 0, second.Me.Command.PID: 1, 4000: 1, 5000: 0} {
		if got := first.Owner(procs, pid).Task; got != task {
			t.Errorf("process %d is of rank %d", pid, got)
		}
	}
	if r, ok := first.Numbered(1); !ok || first.Title(r) != "rank 1" {
		t.Errorf("%+v, %v", r, ok)
	}
	if _, ok := first.Numbered(9); ok {
		t.Error("there is a rank 9")
	}
	last := &rss.Sample{Procs: procs}
	if first.MeetDue(4*time.Second, last) || first.MeetDue(12*time.Second, last) || !first.MeetDue(13*time.Second, last) {
		t.Error("it looks too often or too seldom where all live")
	}
	if last.Procs = procs[:1]; !first.MeetDue(5*time.Second, last) || first.MeetDue(4*time.Second, last) {
		t.Error("it looks too often or too seldom where a command is gone")
	}
	second.Leave(&Ended{Code: 3})
	m.ends(1)
	if n := first.Meet(14 * time.Second); !n.Changed || !slices.Equal(changes(n), []string{"ended 1 {Code:3 Signal:0}"}) {
		t.Errorf("%+v", n)
	}
	if n := first.Meet(15 * time.Second); n.Changed || len(n.Ranks) > 0 {
		t.Errorf("told again: %+v", n)
	}
}

// TestSuccessorSettles: who inherits the lead from a command that has ended waits a second for
// the end of its own; who inherits it from a watcher that was killed does not.
func TestSuccessorSettles(t *testing.T) {
	for killed, after := range map[bool]time.Duration{false: time.Second, true: 0} {
		m := newMachine(t)
		first, second := m.rank(t, 0), m.rank(t, 1)
		second.Follow(false)
		if second.Advance(5 * time.Second); second.Leads() || second.HasLock() || second.Successor {
			t.Fatal("two lead")
		}
		if killed {
			first.post.lock.Close() // as the kernel does
		} else {
			first.Leave(&Ended{})
		}
		second.falls()
		for at := 5 * time.Second; at < 5*time.Second+after; at += 100 * time.Millisecond {
			if second.Advance(at); second.Leads() || !second.Successor || !second.HasLock() {
				t.Fatalf("it leads %v after", at)
			}
			if left := second.Within(at, time.Hour); left != 5*time.Second+after-at {
				t.Errorf("it would wake in %v", left)
			}
		}
		if second.Advance(5*time.Second + after); !second.Leads() {
			t.Errorf("killed %v: it does not lead after %v", killed, after)
		}
	}
}

// TestLeadThatCannotBeHad: two leaders are better than none.
func TestLeadThatCannotBeHad(t *testing.T) {
	m := newMachine(t)
	first, second := m.rank(t, 0), m.rank(t, 1)
	lock := filepath.Join(second.Dir().Name(), lockName)
	wardentest.NoError(t, errors.Join(os.Remove(lock), os.Mkdir(lock, 0o700)))
	second.Follow(false)
	second.falls()
	n := second.Advance(time.Second)
	if !second.Leads() || second.Joined() || !second.Successor || len(n.Faults) != 1 {
		t.Errorf("leads %v, has a place %v, %+v", second.Leads(), second.Joined(), n)
	}
	_ = os.Remove(lock)
	first.Leave(nil)
}

// TestStopAsAsked: a command gets TERM once, KILL after the grace, and KILL again and
// again with all of its tree; its rsswarden ends with the leader's status.
func TestStopAsAsked(t *testing.T) {
	m := newMachine(t)
	first, s := m.rank(t, 0), m.rank(t, 1)
	m.Put(rsstest.Process{PID: 4001, Parent: s.Me.Command.PID, Start: 20, Comm: "python"})
	s.Follow(false)
	first.orders(s, 10*time.Second)
	n := s.Advance(time.Minute)
	if !n.Stopped || n.Status != 137 || !s.Stopping() || !slices.Equal(s.sent, []string{"TERM 3012"}) || !slices.Equal(s.statuses, []int{137}) {
		t.Fatalf("%+v, sent %v, statuses %v", n, s.sent, s.statuses)
	}
	first.orders(s, time.Hour) // nothing follows from it
	if n := s.Advance(time.Minute + 11*time.Second - 1); n.Stopped || len(s.sent) != 1 {
		t.Errorf("stopped again %v, sent %v", n.Stopped, s.sent)
	}
	if left := s.Within(time.Minute, time.Hour); left != 11*time.Second {
		t.Errorf("KILL is due in %v", left)
	}
	s.sent = nil
	killed := []string{"KILL 3012", "KILL 4001"}
	n = s.Advance(time.Minute + 11*time.Second)
	if !slices.Equal(s.sent, killed) || len(n.Lines) != 1 || !strings.HasSuffix(n.Lines[0], " after SIGTERM: SIGKILL now") {
		t.Errorf("sent %v, said %q", s.sent, n.Lines)
	}
	s.sent = nil
	if n = s.Advance(time.Minute + 11*time.Second + killEvery); !slices.Equal(s.sent, killed) || len(n.Lines) > 0 {
		t.Errorf("sent %v, said %q", s.sent, n.Lines)
	}
	s.sent, s.fails = nil, syscall.EPERM
	if n = s.Advance(time.Hour); len(n.Faults) != 2 {
		t.Errorf("faults %v", n.Faults)
	}
}

// TestKillLeavesNothingOpen: a command that KILL does not end, as it waits for a file
// server, gets it for hours.
func TestKillLeavesNothingOpen(t *testing.T) {
	m := newMachine(t)
	first, s := m.rank(t, 0), m.rank(t, 1)
	first.orders(s, 0)
	s.Advance(time.Second)
	open := func() (n int) {
		fds, err := filepath.Glob("/proc/self/fd/*")
		wardentest.NoError(t, err)
		for _, fd := range fds {
			if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, m.Proc) {
				n++
			}
		}
		return n
	}
	before := open()
	for i := range 20 {
		s.Advance(time.Duration(i) * time.Minute)
	}
	if n := open() - before; len(s.sent) < 20 || n > 0 {
		t.Errorf("%d signals, %d descriptors stay open", len(s.sent), n)
	}
}

// TestStopOfTheEnded: the status of a command that ended by itself is kept.
func TestStopOfTheEnded(t *testing.T) {
	for _, c := range []struct {
		err    error
		faults int
	}{{syscall.ESRCH, 0}, {syscall.EPERM, 1}} {
		m := newMachine(t)
		first, s := m.rank(t, 0), m.rank(t, 1)
		first.orders(s, 0)
		s.fails = c.err
		if n := s.Advance(time.Second); n.Stopped || s.Stopping() || len(s.statuses) > 0 || len(n.Faults) != c.faults {
			t.Errorf("%v: %+v, statuses %v", c.err, n, s.statuses)
		}
	}
}

// TestStopWithoutAnOrder: a rank whose watcher cannot be asked gets its TERM from the
// leader, and one whose watcher can only from that.
func TestStopWithoutAnOrder(t *testing.T) {
	for _, c := range []struct {
		name   string
		breaks func(t *testing.T, m *machine, orders string, watcher int)
		says   string
	}{
		{"it can be asked", func(*testing.T, *machine, string, int) {}, ""},
		{"its watcher has ended", func(_ *testing.T, m *machine, _ string, pid int) { m.End(pid) }, "the watcher of rank 1 has ended: its command gets TERM from here"},
		{"its watcher is a zombie", func(_ *testing.T, m *machine, _ string, pid int) {
			m.Put(rsstest.Process{PID: pid, Parent: 1, Start: 10, Comm: "rsswarden", State: 'Z'})
		}, "the watcher of rank 1 has ended"},
		{"another has its PID", func(_ *testing.T, m *machine, _ string, pid int) {
			m.Put(rsstest.Process{PID: pid, Parent: 1, Start: 11, Comm: "sh"})
		}, "the watcher of rank 1 has ended"},
		{"no file for orders", func(t *testing.T, _ *machine, orders string, _ int) {
			wardentest.NoError(t, os.Remove(orders))
		}, "no such file or directory: its command gets TERM from here"},
		{"no room for orders", func(t *testing.T, _ *machine, orders string, _ int) { // O_TRUNC succeeds, the write fails
			wardentest.NoError(t, errors.Join(os.Remove(orders), os.Symlink("/dev/full", orders)))
		}, "cannot write order."},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			first, second := m.rank(t, 0), m.rank(t, 1)
			first.Lead(1)
			first.Meet(1)
			c.breaks(t, m, second.post.Orders(), second.Me.Watcher.PID)
			if asked, n := first.StopOthers("7", 137, 0); asked > 0 || len(n.Faults) > 0 {
				t.Errorf("%d of another step were asked, %v", asked, n.Faults)
			}
			asked, n := first.StopOthers("0", 137, time.Minute)
			var faults []string
			for _, f := range n.Faults {
				faults = append(faults, f.Err.Error())
			}
			if asked != 1 || (len(faults) > 0) != (c.says != "") || !strings.Contains(strings.Join(faults, "\n"), c.says) {
				t.Errorf("%d were asked, faults %q, want %q", asked, faults, c.says)
			}
			if direct := slices.Equal(first.sent, []string{"TERM 3012"}); direct != (c.says != "") {
				t.Errorf("sent %v", first.sent)
			}
			if c.says != "" {
				return
			}
			if second.Advance(1); !slices.Equal(second.sent, []string{"TERM 3012"}) {
				t.Errorf("its watcher sent %v", second.sent)
			}
		})
	}
}

// TestPieces: the holder of another rank is asked for a piece by its watcher, and what came
// of it is taken once. A successor passes nothing on: the answer is not waited for.
func TestPieces(t *testing.T) {
	m := newMachine(t)
	first, second := m.rank(t, 0), m.rank(t, 1)
	first.Lead(1)
	first.Meet(1)
	ask := func() News {
		t.Helper()
		wardentest.NoError(t, first.Ask(&first.Others[0], json.RawMessage(`{"pid":7}`)))
		return second.Advance(1)
	}
	n := ask()
	if string(n.Trim) != `{"pid":7}` || n.Order == 0 {
		t.Fatalf("%+v", n)
	}
	if again := second.Advance(1); again.Trim != nil {
		t.Error("it is asked again")
	}
	if _, ok, _ := first.Answered(); ok {
		t.Error("an answer before there is one")
	}
	wardentest.NoError(t, errors.Join(second.Answer(n.Order-1, "old", nil), second.Answer(n.Order, 9, nil)))
	if piece, ok, err := first.Answered(); !ok || err != nil || string(piece) != "9" {
		t.Errorf("%s, %v, %v", piece, ok, err)
	}
	if _, ok, _ := first.Answered(); ok {
		t.Error("taken twice")
	}
	n = ask()
	wardentest.NoError(t, second.Answer(n.Order, nil, errors.New("no")))
	if _, ok, err := first.Answered(); !ok || err == nil || err.Error() != "no" {
		t.Errorf("%v, %v", ok, err)
	}
	second.Successor = true
	if n := ask(); n.Trim != nil {
		t.Errorf("a successor is asked: %+v", n)
	}
}

// TestBlind: where the kernel reports no changes they are looked for periodically.
func TestBlind(t *testing.T) {
	m := newMachine(t)
	first, second := m.rank(t, 0), m.rank(t, 1)
	path := first.Dir().Name()
	wardentest.NoError(t, os.Rename(path, path+".moved"))
	for _, n := range []News{first.Lead(1), second.Follow(false)} {
		if len(n.Faults) != 1 || !strings.Contains(n.Faults[0].Err.Error(), "samples are taken instead") {
			t.Errorf("%v", n.Faults)
		}
	}
	if second.Within(1, time.Hour) != blindEvery || !first.MeetDue(meetEvery, &rss.Sample{}) {
		t.Error("changes are not looked for")
	}
}

// TestKeepWhatIsNew: what the ladder remembers is written where that has changed, and not
// before there is anything.
func TestKeepWhatIsNew(t *testing.T) {
	m := newMachine(t)
	p := m.rank(t, 0)
	for i, c := range []struct {
		is  Handover
		due bool
	}{
		{Handover{}, false},
		{Handover{Waiting: 7}, false},
		{Handover{Changes: 1}, true},
		{Handover{Changes: 1}, false},
		{Handover{Changes: 1, Waiting: 7}, true},
		{Handover{Changes: 1, Waiting: 7, Alerts: "a"}, true},
		{Handover{}, true},
		{Handover{}, false},
	} {
		due := false
		err := p.Keep(c.is, func() ([]byte, error) {
			due = true
			return []byte(fmt.Sprint(i)), nil
		})
		if due != c.due || err != nil {
			t.Errorf("%d, %+v: kept %v, %v", i, c.is, due, err)
		}
	}
	if b, err := p.Kept(); string(b) != "6" || err != nil {
		t.Errorf("kept %s, %v", b, err)
	}
	start := time.Duration(p.Me.Holder.Start) * 10 * time.Millisecond
	if p.SomeoneSince(start) || !p.SomeoneSince(start+10*time.Millisecond) {
		t.Error("who was here when is not known")
	}
}

// TestKept: what the leader keeps is there for the next one, and goes with the last.
func TestKept(t *testing.T) {
	m := newMachine(t)
	first, second := m.rank(t, 0), m.rank(t, 1)
	dir := first.Dir().Name()
	if data, err := second.Kept(); data != nil || err != nil {
		t.Fatalf("%s, %v before anything was kept", data, err)
	}
	for i, text := range []string{`{"v":1}`, `{"v":1,"rungs":[]}`} {
		wardentest.NoError(t, first.Keep(Handover{Changes: uint64(i) + 1}, func() ([]byte, error) { return []byte(text), nil }))
		if data, err := second.Kept(); string(data) != text || err != nil {
			t.Errorf("%s, %v, want %s", data, err, text)
		}
	}
	for _, text := range []string{"", "{", strings.Repeat(" ", mostBytes) + "{}"} {
		wardentest.NoError(t, os.WriteFile(filepath.Join(dir, firedName), []byte(text), 0o600))
		if data, err := second.Kept(); err == nil {
			t.Errorf("%.10q was read as %s", text, data)
		}
	}
	second.Follow(false)
	first.Leave(nil)
	second.falls()
	if _, err := os.Stat(filepath.Join(dir, firedName)); err != nil {
		t.Errorf("it went with the leader: %v", err)
	}
	second.Leave(nil)
	gone(t, dir)
}

// TestPlaceIsRenewed each minute, and a follower hears of orders by the new file.
func TestPlaceIsRenewed(t *testing.T) {
	m := newMachine(t)
	first, second := m.rank(t, 0), m.rank(t, 1)
	second.Follow(false)
	wardentest.NoError(t, os.Remove(second.post.Orders()))
	if n := second.Advance(renewEvery - 1); n.Renewed {
		t.Error("it is looked after at each look")
	}
	if n := second.Advance(renewEvery); !n.Renewed || len(n.Faults) > 0 {
		t.Errorf("%+v", n)
	}
	for len(second.opt.Bell.C()) > 0 {
		<-second.opt.Bell.C()
	}
	first.orders(second, 0)
	select {
	case <-second.opt.Bell.C():
	case <-time.After(10 * time.Second):
		t.Error("the bell does not ring for the new file")
	}
}

// TestLateJoinIsGivenUp: a file system that answers after we went on alone leaves no
// lead behind that is not used.
func TestLateJoinIsGivenUp(t *testing.T) {
	m := newMachine(t)
	next := m.member(1)
	m.Put(rsstest.Process{PID: m.member(0).Holder.PID, Parent: 1, Start: 10, Comm: "rsswarden"})
	m.Put(rsstest.Process{PID: next.Holder.PID, Parent: 1, Start: 10, Comm: "rsswarden"})
	answer, joined := make(chan bool), make(chan string, 1)
	post, led, err := joinWithin(time.Millisecond, func() (*post, error) {
		<-answer
		p, err := joinAny(m.Proc, []string{m.dir}, "46@n1.abc", m.member(0))
		if err == nil {
			joined <- filepath.Join(p.dir.Name(), nodedir.FileOf("rank", m.member(0).Holder))
		}
		return p, err
	})
	if post != nil || led || err == nil {
		t.Fatalf("joined %v, leads %v, %v", post, led, err)
	}
	close(answer)
	p := m.rank(t, 1)
	if !p.Leads() { // the other has it for a moment
		p.Follow(false)
		p.falls()
	}
	file := <-joined
	wardentest.Until(t, "it is gone", func() bool { _, err := os.Lstat(file); return err != nil })
}

// TestEndsOfOthers: ranks that end together with ours are reported once.
func TestEndsOfOthers(t *testing.T) {
	m := newMachine(t)
	first, second, last := m.rank(t, 0), m.rank(t, 1), m.rank(t, 2)
	last.Follow(false)
	second.Leave(&Ended{Signal: 9})
	first.Leave(&Ended{})
	m.ends(1)
	last.falls()
	third := m.rank(t, 3)
	if n, alone := last.Ends(); alone || !slices.Equal(changes(n), []string{"ended 1 {Code:0 Signal:9}"}) { // the leader has reported its own
		t.Errorf("%q", changes(n))
	}
	third.Leave(nil)
	m.ends(3)
	if n, alone := last.Ends(); len(n.Ranks) > 0 || !alone {
		t.Errorf("%q, alone %v", changes(n), alone)
	}
}
