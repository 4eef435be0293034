package tell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
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
	if _, err := f.Clients.Add(t.Context()); !errors.Is(err, errEnded) {
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
