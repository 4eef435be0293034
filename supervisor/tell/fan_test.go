package tell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/view"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// stand is a Fan with a stream.
type stand struct {
	*Fan
	t    *testing.T
	said *lines
	path string
}

func newStand(t *testing.T) *stand {
	s := &stand{t: t, said: &lines{}, path: filepath.Join(t.TempDir(), "events")}
	s.Fan = New(s.said, &settings.Settings{Outputs: settings.Outputs{Events: s.path}}, Run{Proc: "/proc", Holder: 1, Node: "n1"})
	t.Cleanup(func() { s.CloseSinks(time.Second) })
	return s
}

// events closes the stream and returns what is in its file.
func (s *stand) events() wardentest.Log {
	s.t.Helper()
	s.CloseSinks(10 * time.Second)
	return wardentest.ReadLog(s.t, s.path)
}

// kept is a recorder that keeps the events.
type kept struct {
	events []any
	looks  int
	begun  bool
}

func (k *kept) Sample(*record.Look)          { k.looks++ }
func (k *kept) Event(_ event.Name, e any)    { k.events = append(k.events, e) }
func (k *kept) Begin()                       { k.begun = true }
func (k *kept) Close(patience time.Duration) {}

// looked is a look at that time that has seen nothing.
func looked(now time.Duration) *Look {
	return &Look{Now: now, View: &view.View{Sample: rss.Sample{Seq: 1}}}
}

func rank(h event.Head) any { return event.Rank{Head: h} }

// TestPutReachesAll: stream, record and clients get the same events in the same order,
// numbered without a gap; a note is the record's alone.
func TestPutReachesAll(t *testing.T) {
	s := newStand(t)
	k := &kept{}
	s.Recorder = k
	client, err := s.Clients.Add(t.Context())
	wardentest.NoError(t, err)
	s.Put(event.NameRank, rank)
	s.Note(event.NameHelp, rank)
	s.samples.put(looked(0), 0, s.Costs)
	s.Fault(0, "loader", errors.New("it is broken"))
	want := []string{"1 rank", "2 sample", "3 fault"}
	var live, streamed []string
	for range want {
		var e map[string]any
		wardentest.NoError(t, json.Unmarshal(<-client, &e))
		live = append(live, fmt.Sprint(e["seq"], " ", e["event"]))
	}
	for _, e := range s.events() {
		streamed = append(streamed, fmt.Sprint(e["seq"], " ", e["event"]))
	}
	if !slices.Equal(live, want) || !slices.Equal(streamed, want) {
		t.Errorf("client %v, stream %v, want %v", live, streamed, want)
	}
	if len(k.events) != 3 || k.events[1].(event.Rank).Event != event.NameHelp || k.events[1].(event.Rank).Seq != 0 {
		t.Errorf("recorded %+v", k.events)
	}
	if n := s.said.count("loader: it is broken"); n != 1 {
		t.Errorf("%d lines", n)
	}
}

// TestSampleDue: one each interval and whenever a decision wants it, which puts the next
// off; what we cost comes once a minute.
func TestSampleDue(t *testing.T) {
	s := newStand(t)
	var got []string
	for _, at := range []struct{ now, every time.Duration }{
		{9 * time.Second, 10 * time.Second}, {10 * time.Second, 10 * time.Second}, {19 * time.Second, 10 * time.Second}, {19 * time.Second, 0},
		{28 * time.Second, 10 * time.Second}, {29 * time.Second, 10 * time.Second}, {time.Minute, 10 * time.Second}, {2*time.Minute - 1, 10 * time.Second}, {2 * time.Minute, 0},
	} {
		cost := false
		s.Readers.Costs = func() ([]event.Cost, error) { cost = true; return nil, nil }
		before := s.seq
		if s.samples.put(looked(at.now), at.every, s.Costs); s.seq > before {
			got = append(got, fmt.Sprint(at.now, cost))
		}
	}
	if want := []string{"10s false", "19s false", "29s false", "1m0s true", "1m59.999999999s false", "2m0s true"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestClientBehind: a client that does not read loses events and holds up nothing.
func TestClientBehind(t *testing.T) {
	f := New(&lines{}, &settings.Settings{}, Run{})
	ctx, cancel := context.WithCancel(t.Context())
	client, err := f.Clients.Add(ctx)
	wardentest.NoError(t, err)
	for range clientRoom + 10 {
		f.Put(event.NameRank, rank)
	}
	cancel()
	n := 0
	for range client { // until it is closed
		n++
	}
	if n != clientRoom || f.Clients.Takes(event.NameRank) {
		t.Errorf("%d events, want %d; is there one still: %v", n, clientRoom, f.Clients.Takes(event.NameRank))
	}
	f.Clients.Close()
	if _, err := f.Clients.Add(t.Context()); !errors.Is(err, control.ErrEnded) {
		t.Errorf("after the end: %v", err)
	}
}

// TestDroppedSamplesAreAllCounted: also those that were dropped while the count of
// earlier ones was on its way.
func TestDroppedSamplesAreAllCounted(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	wardentest.NoError(t, syscall.Mkfifo(fifo, 0o600))
	f := New(&lines{}, &settings.Settings{Outputs: settings.Outputs{Events: fifo}}, Run{}) // without a reader
	for f.samples.dropped == 0 {
		f.samples.put(looked(0), 0, f.Costs)
	}
	for range 9 {
		f.samples.put(looked(0), 0, f.Costs)
	}
	if f.samples.dropped != 10 {
		t.Errorf("%d counted, want 10", f.samples.dropped)
	}
	reader, err := os.Open(fifo) // once it is opened to be written: no file is made in its place while the directory is removed
	wardentest.NoError(t, err)
	wardentest.NoError(t, reader.Close())
	f.CloseSinks(0)
}

// TestFaultsAreAllInTheStream: the event log has all, stderr a ration.
func TestFaultsAreAllInTheStream(t *testing.T) {
	s := newStand(t)
	const kinds = 3*maxKnown + 10
	for i := range kinds {
		s.Fault(0, "limits", errors.New(fmt.Sprint("kind ", i)))
		s.Fault(0, "limits", errors.New(fmt.Sprint("kind ", i)))
	}
	s.Fault(0, "loader", errors.New("it is broken"))
	if n := s.said.count("different faults so far"); n != 1 {
		t.Errorf("said %d times that there are too many", n)
	}
	if n := s.said.count("limits: kind "); n < maxKnown || n > maxKnown+2*freely {
		t.Errorf("%d lines", n)
	}
	if s.said.count("loader: it is broken") != 1 {
		t.Error("another part pays for it")
	}
	told := map[any]int{}
	for _, e := range s.events() {
		told[e["part"]]++
	}
	if told["limits"] != kinds || told["loader"] != 1 {
		t.Errorf("events %v, want all %d", told, kinds)
	}
}

// TestTell tells each in its way, in the order given.
func TestTell(t *testing.T) {
	f := newStand(t)
	news := view.News{
		event.Found{Limit: event.Limit{Name: event.LimitUser}},
		view.Line{Text: "a fact"},
		view.Line{Text: "told once", Warn: true, Once: "part", Key: "a"},
		event.LoaderSaid{What: event.LoaderHello, PID: 7},
		view.Cured{Cure: event.Cure{PID: 7}, Text: "cured"},
	}
	news.Fault("proctree", errors.New("cannot read"))
	news.Fault("proctree", nil)
	f.Tell(time.Second, news)
	f.Tell(2*time.Second, news)
	want := []string{"a fact", "told once", "cured", "proctree: cannot read", "a fact"}
	if !slices.Equal(f.said.all, want) {
		t.Errorf("said %q", f.said.all)
	}
	var names []any
	for _, e := range f.events() {
		names = append(names, e["event"])
	}
	if want := []any{"limit", "loader", "cure", "fault", "limit", "loader", "cure"}; !slices.Equal(names, want) {
		t.Errorf("told %v", names)
	}
}

// TestOutcomesOfBytes keep their bytes, whichever way they go.
func TestOutcomesOfBytes(t *testing.T) {
	o := event.Outcome{Decision: 3, Before: 7, After: 5, Freed: 2, OK: true}
	for _, l := range event.Limits {
		b, err := json.Marshal(outcomeOf(l, o))
		wardentest.NoError(t, err)
		var back event.Outcome
		if err := json.Unmarshal(b, &back); err != nil || back.Decision != 3 || !back.OK {
			t.Errorf("%s: %s (%v)", l, b, err)
		}
		if has := strings.Contains(string(b), "_bytes"); has == l.Counts() {
			t.Errorf("%s: %s", l, b)
		}
	}
}

// TestSkipsLeaveRoomForFaults: what is said once must not be used up by what is
// said of other processes each time.
func TestSkipsLeaveRoomForFaults(t *testing.T) {
	s := newStand(t)
	rule, err := event.ParseRule("5%:signal=USR2")
	wardentest.NoError(t, err)
	l := &event.Limit{Name: event.LimitUser, Used: 50, Limit: 100}
	for pid := range maxKnown {
		s.Skipped(0, &policy.Skipped{
			Rule: rule, On: l.ID(), Used: l.Used, LimitSize: l.Limit, Reason: event.ReasonNotCaught, Detail: fmt.Sprint("USR2, process ", pid+1),
		}, l)
	}
	if n := s.said.count("signal=USR2 skipped: the process has no handler for this signal (USR2, process 1)"); n != 1 {
		t.Errorf("%q", s.said.all)
	}
	if s.Fault(0, "loader", errors.New("it is broken")); s.said.count("loader: it is broken") != 1 {
		t.Errorf("%q", s.said.all)
	}
	if n := len(s.events()); n != maxKnown+1 || s.Sum.Saved.Skipped() != maxKnown {
		t.Errorf("%d events, %d skipped", n, s.Sum.Saved.Skipped())
	}
}

func TestSignalsAreToldAgain(t *testing.T) {
	var s signals
	winch := event.Signal{Signal: "SIGWINCH"}
	told := 0
	for i := range 100 {
		if s.fresh(time.Duration(i)*50*time.Millisecond, winch) {
			told++
		}
	}
	if told != 5 {
		t.Errorf("told %d times in 5 s", told)
	}
	for i := range 10 * mostSignals {
		if !s.fresh(time.Hour, event.Signal{Signal: "SIGUSR1", Sender: i}) {
			t.Fatalf("the one of sender %d was not told", i)
		}
	}
	if len(s) > mostSignals {
		t.Errorf("%d are remembered", len(s))
	}
}

// slowSink is a sink as one that writes beside the loop: what it took last is written when it
// is closed.
type slowSink struct {
	samples bool
	took    []event.Name
	closed  int // when it had taken so many
}

func (s *slowSink) Takes(name event.Name) bool   { return s.samples || name != event.NameSample }
func (s *slowSink) Event(name event.Name, _ any) { s.took = append(s.took, name) }
func (s *slowSink) Close(time.Duration)          { s.closed = len(s.took) }

// TestSinks: each gets what it takes, samples too, and is closed behind the exit event.
func TestSinks(t *testing.T) {
	for _, following := range []bool{false, true} {
		f := New(&lines{}, &settings.Settings{Outputs: settings.Outputs{Record: settings.RecordNone}}, Run{ID: "0123456789abcdef"})
		f.Readers.Costs = func() ([]event.Cost, error) { return nil, nil }
		few, all := &slowSink{}, &slowSink{samples: true}
		f.sinks = append(f.sinks, few)
		if f.samples.put(looked(0), 0, f.Costs); f.seq != 0 {
			t.Error("a sample is made that no sink takes")
		}
		f.sinks = append(f.sinks, all)
		f.samples.put(looked(0), 0, f.Costs)
		if following {
			f.EndFollowing(&Ending{Said: true})
			f.CloseFollowing()
		} else {
			f.End(&Ending{Said: true}, 0)
		}
		want := []event.Name{event.NameSample, event.NameExit}
		if !slices.Equal(all.took, want) || all.closed != 2 || !slices.Equal(few.took, want[1:]) || few.closed != 1 {
			t.Errorf("following %v: %+v and %+v", following, all, few)
		}
	}
}

// raised is the rung of a warning at 80 % that is crossed.
func raised(t *testing.T) []policy.Raised {
	t.Helper()
	r, err := event.ParseRule("80%:warn")
	wardentest.NoError(t, err)
	return []policy.Raised{{Rule: r, Name: event.LimitUser, Limit: crossed(true)}}
}

// TestLastWordsOnAlerts: alerts are counted, not what became of them on the way, and an
// answer that was not waited for counts as neither sent nor lost.
func TestLastWordsOnAlerts(t *testing.T) {
	for want, is := range map[string]alert.ReceiverState{
		"": {Sent: 9, Error: "an old one"},
		"the last state of 2 alerts was sent to webhook+https://h/…, which has not answered yet":                          {Untold: 2, Asked: true},
		"the last state of 1 alert was sent to webhook+https://h/… without waiting; it failed before: connection refused": {Untold: 1, Asked: true, Failing: true, Error: "connection refused", Failed: 7},
		"webhook+https://h/… did not get the last state of 1 alert: HTTP status 403":                                      {Untold: 1, Failing: true, Error: "HTTP status 403"},
		"webhook+https://h/… did not get 2 earlier states: connection refused":                                            {Lost: 2, Error: "connection refused"},
	} {
		is.Target = alert.Target{Kind: alert.Webhook, URL: "https://h/x"}
		if got := strings.Join(lastWordsOf(&is), "\n"); strings.TrimPrefix(got, "alert: ") != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestAlertsDryRun: a line for each crossing, and none while it lasts.
func TestAlertsDryRun(t *testing.T) {
	s := newStand(t)
	s.set.Alerts, s.set.DryRun = []alert.Target{{Kind: alert.Webhook, URL: "https://h/x"}}, true
	s.Alerts.Open(AlertOptions{}, 0)
	for i, current := range [][]policy.Raised{raised(t), raised(t), nil, raised(t)} {
		s.Alerts.Raise(time.Duration(i)*time.Minute, current, nil)
	}
	if n := s.said.count("would alert webhook+https://h/…: "); n != 2 || len(s.said.all) != 2 {
		t.Errorf("%q", s.said.all)
	}
	s.Alerts.Close(true)
	if s.Alerts.Last(); s.Alerts.OpenIDs() != "" || s.Alerts.Receivers() != nil {
		t.Error("a dry run has receivers")
	}
}

// TestAlertFailure: a receiver that begins to fail is reported as a fault, once.
func TestAlertFailure(t *testing.T) {
	s := newStand(t)
	s.set.Alerts, s.set.AlertProgram = []alert.Target{{Kind: alert.Webhook, URL: "https://h/x"}}, "/nonexistent"
	s.Alerts.Open(AlertOptions{Start: (*exec.Cmd).Start}, 0)
	s.Alerts.Raise(0, raised(t), nil)
	select {
	case e := <-s.Failures():
		s.Failed(0, e)
		s.Failed(0, e)
	case <-time.After(time.Minute):
		t.Fatal("no failure")
	}
	s.Alerts.Close(false)
	const want = "webhook+https://h/…: cannot start /nonexistent"
	if n := s.said.count("alert: " + want); n != 1 {
		t.Errorf("%q", s.said.all)
	}
	if all := s.events(); len(all) != 1 || all[0]["part"] != "alert" || !strings.Contains(fmt.Sprint(all[0]["error"]), want) {
		t.Errorf("%v", all)
	}
}

// TestAlertStep: an alert names the step that its limit is of.
func TestAlertStep(t *testing.T) {
	for _, test := range []struct {
		name  event.LimitName
		scope event.Scope
		level string
		want  string
	}{
		{event.LimitSlurm, event.ScopeStep, "", "7"},
		{event.LimitSlurm, event.ScopeStep, "46.batch", "batch"},
		{event.LimitSlurm, event.ScopeJob, "", ""},
		{event.LimitCgroup, event.ScopeStep, "/sys/fs/cgroup/memory/slurm/uid_1/job_46/step_0/task_0", "0"},
		{event.LimitCgroup, event.ScopeJob, "/sys/fs/cgroup/memory/slurm/uid_1/job_46", ""},
		{event.LimitUser, event.ScopeTree, "", "7"},
		{event.LimitMaps, event.ScopeProcess, "", "7"},
		{event.LimitNode, event.ScopeNode, "", ""},
		{event.LimitTime, event.ScopeJob, "", ""},
	} {
		if got := stepOf(&policy.Raised{Name: test.name, Scope: test.scope, Level: test.level}, "7"); got != test.want {
			t.Errorf("%s of %s at %q: step %q, want %q", test.name, test.scope, test.level, got, test.want)
		}
	}
}

// refusing is a job whose scontrol cannot be started.
func refusing(*exec.Cmd) error { return errors.New("cannot start scontrol") }

// crossed is a limit whose warning is crossed, nil for not.
func crossed(yes bool) *event.Limit {
	if !yes {
		return nil
	}
	return &event.Limit{Name: event.LimitUser, Used: 85, Limit: 100}
}

// TestCommentDue: when a warning is first crossed, three times in a run and five minutes
// apart.
func TestCommentDue(t *testing.T) {
	s := newStand(t)
	c := &s.Alerts.Comment
	s.set.DryRun, c.job = true, "46"
	for i, step := range []struct {
		at            time.Duration
		crossed, want bool
	}{
		{0, true, true}, {time.Second, true, false}, {2 * time.Second, false, false}, {3 * time.Second, true, false},
		{4 * time.Second, false, false}, {commentEvery, true, true}, {2 * commentEvery, true, false}, // crossed all the time
		{3 * commentEvery, false, false}, {3 * commentEvery, true, true}, {4 * commentEvery, false, false}, {4 * commentEvery, true, false},
	} {
		before := c.written
		s.Alerts.Comment.warning(step.at, crossed(step.crossed), alert.Plenty)
		if due := c.written > before; due != step.want {
			t.Errorf("%d: due %v", i, due)
		}
	}
	if n := s.said.count("would set the comment of job 46: rsswarden: memory by --limit 85 % of 100 B on n1 at "); n != mostComments {
		t.Errorf("%d lines: %q", n, s.said.all)
	}
}

// TestCommentRefused: a failure is reported once, and not tried again; where the queue of
// failures is full it is counted.
func TestCommentRefused(t *testing.T) {
	for name, full := range map[string]bool{"told": false, "no room": true} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			s.Alerts.Comment.start, s.Alerts.Comment.job = refusing, "46"
			for full && len(s.failed.queue) < cap(s.failed.queue) {
				s.failed.tell("alert", "of another")
			}
			s.Alerts.Comment.warning(0, crossed(true), alert.Plenty)
			<-s.Alerts.Comment.writing.over
			s.Failed(0, <-s.Failures())
			want := map[bool]string{false: "alert-comment: ", true: "1 failure not shown: too many at once"}[full]
			if n := s.said.count(want); n != 1 {
				t.Errorf("%d lines: %q", n, s.said.all)
			}
			s.Alerts.Comment.warning(time.Minute, nil, alert.Plenty)
			if s.Alerts.Comment.warning(time.Hour, crossed(true), alert.Plenty); s.Alerts.Comment.written != 1 || !s.Alerts.Comment.refused() {
				t.Error("tried again")
			}
		})
	}
}

// TestLastCommentWaits: the last words come after what is being written, and not at all
// where that takes too long.
func TestLastCommentWaits(t *testing.T) {
	s := newStand(t)
	s.Alerts.Comment.start, s.Alerts.Comment.job = refusing, "46"
	before := &writing{over: make(chan struct{})}
	s.Alerts.Comment.writing = before
	s.Alerts.Comment.Last(&event.Exit{Brief: event.Brief{Outcome: event.RunOK}}, -1, time.Millisecond)()
	if len(s.said.all) != 0 {
		t.Errorf("written beside another: %q", s.said.all)
	}
	write := s.Alerts.Comment.Last(&event.Exit{Brief: event.Brief{Outcome: event.RunOK}}, -1, time.Minute)
	close(before.over)
	if write(); s.said.count("alert-comment: ") != 1 {
		t.Errorf("%q", s.said.all)
	}
}
