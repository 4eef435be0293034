package alert

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// network is what a Sender sends by: each host answers in a way of its own.
type network struct {
	mu     sync.Mutex
	got    map[string][]Request
	hosts  map[string]func(context.Context) Answer
	busy   atomic.Int32
	faults wardentest.Text
}

func (n *network) send(ctx context.Context, r Request) Answer {
	if n.busy.Add(1) > 1 {
		panic("two at a time")
	}
	defer n.busy.Add(-1)
	return n.met(r.URL, r)(ctx)
}

func (n *network) leave(r Request) <-chan Answer {
	c, answer := make(chan Answer, 1), n.met("last "+r.URL, r)
	go func() { c <- answer(context.Background()) }()
	return c
}

// met notes a request, and returns what answers it.
func (n *network) met(as string, r Request) func(context.Context) Answer {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.got[as] = append(n.got[as], r)
	host := n.hosts[r.URL]
	return func(ctx context.Context) Answer {
		ctx, cancel := context.WithTimeout(ctx, r.Timeout)
		defer cancel()
		a := host(ctx)
		if a.Error == "" {
			a.Taken = len(r.Bodies)
		}
		return a
	}
}

func (n *network) requests(url string) []Request {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.got[url])
}

func (n *network) count(url string) int { return len(n.requests(url)) }

// host has a host answer so from now on.
func (n *network) host(url string, answer func(context.Context) Answer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[url] = answer
}

const (
	well = "http://well/x"
	hung = "http://hung/x"
	down = "http://down/x"
)

// newNetwork has a host that answers in 50 ms, one that never does, and one that
// refuses.
func newNetwork() *network {
	return &network{got: map[string][]Request{}, hosts: map[string]func(context.Context) Answer{
		well: func(context.Context) Answer {
			time.Sleep(50 * time.Millisecond)
			return Answer{}
		},
		hung: func(ctx context.Context) Answer {
			<-ctx.Done()
			return Answer{Error: "no answer in time", Retry: true}
		},
		down: func(context.Context) Answer { return Answer{Error: "connection refused", Retry: true} },
	}}
}

func (n *network) sender(urls ...string) *Sender {
	var targets []Target
	for _, url := range urls {
		targets = append(targets, Target{Kind: Webhook, URL: url})
	}
	return New(Options{Targets: targets, Send: n.send, Leave: n.leave, Fault: func(text string) { fmt.Fprintln(&n.faults, text) }})
}

// sending is a test of a Sender to some hosts, in a time of its own.
func sending(t *testing.T, urls []string, test func(t *testing.T, n *network, s *Sender)) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		s := n.sender(urls...)
		test(t, n, s)
		s.Close(false)
		synctest.Wait()
	})
}

// TestSenderGoesRound: one that never answers keeps the others from nothing but for
// its 10 s, and is tried less and less.
func TestSenderGoesRound(t *testing.T) {
	sending(t, []string{hung, down, well}, func(t *testing.T, n *network, s *Sender) {
		began := time.Now()
		s.Set([]Alert{at("80%", 81)})
		if time.Since(began) != 0 {
			t.Error("Set has waited")
		}
		time.Sleep(11 * time.Second)
		if n.count(well) != 1 {
			t.Errorf("the one that is well was told %d times", n.count(well))
		}
		time.Sleep(time.Hour)
		if h, d := n.count(hung), n.count(down); h < 30 || h > 130 || d < 30 || d > 150 || n.count(well) != 1 {
			t.Errorf("tried %d, %d and %d times in an hour", h, d, n.count(well))
		}
		if all := n.faults.String(); all != "webhook+http://hung/…: no answer in time; it is tried again\nwebhook+http://down/…: connection refused; it is tried again\n" {
			t.Errorf("faults: %s", all)
		}
		states := s.Receivers()
		if h := states[0]; !h.Failing || h.Untold != 1 || h.Firing != 1 || h.Sent != 0 || h.Error == "" {
			t.Errorf("the hung one: %+v", h)
		}
		if w := states[2]; w.Failing || w.Untold != 0 || w.Sent != 1 || !w.SentAt.After(began) {
			t.Errorf("the one that is well: %+v", w)
		}
	})
}

// TestSenderQueueIsBounded: of a thousand changes without an answer one waits.
func TestSenderQueueIsBounded(t *testing.T) {
	sending(t, []string{hung}, func(t *testing.T, n *network, s *Sender) {
		for range 1000 {
			s.Set([]Alert{at("80%", 81)})
			time.Sleep(time.Second)
			s.Set(nil)
			time.Sleep(keepFiring)
			s.Set(nil)
		}
		if r := s.Receivers()[0]; r.Untold != 1 || r.Lost != 0 || r.Sent != 0 {
			t.Errorf("%+v", r)
		}
		for _, r := range n.requests(hung) {
			if len(r.Bodies) != 1 {
				t.Fatalf("%d messages in one request", len(r.Bodies))
			}
		}
		// It is there again: told once, of how things stand.
		n.host(hung, n.hosts[well])
		time.Sleep(2 * time.Minute)
		if r := s.Receivers()[0]; r.Sent != 1 || r.Untold != 0 || r.Failing {
			t.Errorf("%+v", r)
		}
	})
}

// TestSenderResolvesByItself: the end of a rung is sent without a further look.
func TestSenderResolvesByItself(t *testing.T) {
	sending(t, []string{well}, func(t *testing.T, n *network, s *Sender) {
		s.Set([]Alert{at("80%", 81)})
		time.Sleep(time.Second)
		s.Set(nil)
		time.Sleep(keepFiring + time.Second)
		if r := n.requests(well); len(r) != 2 || !strings.Contains(string(r[1].Bodies[0]), `"status":"resolved"`) {
			t.Errorf("told %d times", len(r))
		}
	})
}

func TestNilSender(t *testing.T) {
	var s *Sender
	if s.Open() != nil || s.Receivers() != nil {
		t.Error("a nil Sender has receivers or open alerts")
	}
}

// told hands a receiver what it is due, and says whether there was anything.
func tell(t *testing.T, r *receiver, b *Store, now time.Time, a Answer) bool {
	t.Helper()
	for _, e := range b.forgotten() {
		r.forget(e)
	}
	due, ok := r.next(b)
	if !ok || due.After(now) {
		return false
	}
	l, err := r.load(b, now)
	wardentest.NoError(t, err)
	if a.Error == "" {
		a.Taken = len(l.bodies)
	}
	r.done(l, a, now, 1)
	return true
}

var (
	taken   = Answer{}
	refused = Answer{Error: "connection refused", Retry: true}
	wrong   = Answer{Error: "HTTP status 400", Status: 400}
)

// TestBackOff: a receiver that fails is tried less and less often, up to once a
// minute, and at once again when it took something.
func TestBackOff(t *testing.T) {
	b, r := NewStore(), newReceiver(Target{Kind: Webhook})
	b.Set(noon, []Alert{at("80%", 81)})
	now := noon
	for _, wait := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		if !tell(t, r, b, now, refused) {
			t.Fatalf("not tried after %v", now.Sub(noon))
		}
		if tell(t, r, b, now.Add(wait*time.Second-time.Millisecond), refused) {
			t.Fatalf("tried before %v s were over", int(wait))
		}
		now = now.Add(wait * time.Second)
	}
	if !tell(t, r, b, now, taken) || tell(t, r, b, now.Add(time.Hour), taken) {
		t.Error("wanted it sent once")
	}
	b.End(now)
	if !tell(t, r, b, now, taken) || r.Sent != 2 || r.Failed != 8 || r.Lost != 0 {
		t.Errorf("%+v", r.ReceiverState)
	}
}

// TestJitter: half of the pause is by chance, and what a server asks for is kept.
func TestJitter(t *testing.T) {
	b, r := NewStore(), newReceiver(Target{Kind: Webhook})
	b.Set(noon, []Alert{at("80%", 81)})
	l, err := r.load(b, noon)
	wardentest.NoError(t, err)
	if r.done(l, refused, noon, 0); r.due != noon.Add(500*time.Millisecond) {
		t.Errorf("again after %v", r.due.Sub(noon))
	}
	if r.done(l, Answer{Error: "HTTP status 429", Retry: true, Later: time.Hour}, noon, 0); r.due != noon.Add(time.Hour) {
		t.Errorf("again after %v", r.due.Sub(noon))
	}
}

// TestNewestStateWins: a receiver that was away gets the present state, and what it missed
// is counted.
func TestNewestStateWins(t *testing.T) {
	b, r := NewStore(), newReceiver(Target{Kind: Webhook})
	b.Set(noon, []Alert{at("80%", 81)})
	tell(t, r, b, noon, refused)
	b.End(noon.Add(time.Minute))
	tell(t, r, b, noon.Add(time.Minute), refused)
	b.Set(noon.Add(2*time.Minute), []Alert{at("80%", 81)})
	if !tell(t, r, b, noon.Add(3*time.Minute), taken) || r.Lost != 0 || r.Sent != 1 {
		t.Errorf("%+v", r.ReceiverState)
	}
	// Resolved and not delivered for 5 minutes: lost, and reported as such.
	b.End(noon.Add(4 * time.Minute))
	tell(t, r, b, noon.Add(4*time.Minute), refused)
	b.Tick(noon.Add(10 * time.Minute))
	if tell(t, r, b, noon.Add(10*time.Minute), taken) || r.Lost != 1 || len(r.told) != 0 {
		t.Errorf("%+v, %v", r.ReceiverState, r.told)
	}
}

// TestRefused: what a webhook or Alertmanager refused it is asked again after a minute,
// for as long as it is so: the receiver may have been fixed.
func TestRefused(t *testing.T) {
	for _, kind := range []Kind{Webhook, Alertmanager} {
		b, r := NewStore(), newReceiver(Target{Kind: kind})
		b.Set(noon, []Alert{at("80%", 81)})
		if !tell(t, r, b, noon, wrong) || tell(t, r, b, noon.Add(59*time.Second), taken) || !tell(t, r, b, noon.Add(time.Minute), taken) || r.Lost != 0 || len(r.untold(b)) != 0 {
			t.Errorf("%s: %+v", kind, r.ReceiverState)
		}
	}
}

// TestRefusedKeepsNothingBack: one message that a webhook does not take is no reason
// to keep back the others.
func TestRefusedKeepsNothingBack(t *testing.T) {
	b, r := NewStore(), newReceiver(Target{Kind: Webhook})
	b.Set(noon, []Alert{at("80%", 81), at("85%", 86), at("90%", 91)})
	now := noon
	for range 2 {
		due, ok := r.next(b)
		if !ok {
			break
		}
		now = later(now, due)
		l, err := r.load(b, now)
		wardentest.NoError(t, err)
		n := 0
		for n < len(l.bodies) && !strings.Contains(string(l.bodies[n]), `"rung":"80%"`) {
			n++
		}
		a := wrong
		if a.Taken = n; n == len(l.bodies) {
			a = Answer{Taken: n}
		}
		r.done(l, a, now, 1)
	}
	if left := r.untold(b); len(left) != 1 || left[0].Rung != "80%" || r.Sent != 2 {
		t.Errorf("%d untold, %+v", len(left), r.ReceiverState)
	}
	if now.Sub(noon) > 10*time.Second {
		t.Errorf("the others were told after %v", now.Sub(noon))
	}
}

func later(x, y time.Time) time.Time {
	if x.After(y) {
		return x
	}
	return y
}

// FuzzAnswer: no answer of the program that carries messages is the end of us, and none
// has us believe that more was taken than was sent.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"taken":99,"error":"x"}`), 1, true)
	f.Add([]byte(`{"taken":-1,"retry":true,"later_ns":-5}`), 3, false)
	f.Add([]byte(`{"taken":1,"status":403,"error":"no"}`), 1, false)
	f.Fuzz(func(t *testing.T, answer []byte, alerts int, manager bool) {
		var a Answer
		if json.Unmarshal(answer, &a) != nil {
			return
		}
		b, r := NewStore(), newReceiver(Target{Kind: Webhook})
		if manager {
			r.Target.Kind = Alertmanager
		}
		for n := range min(max(alerts, 0), 20) {
			b.Set(noon, []Alert{at(fmt.Sprint(n, "%"), 81)})
		}
		for n := range 3 {
			now := noon.Add(time.Duration(n) * time.Hour)
			l, err := r.load(b, now)
			wardentest.NoError(t, err)
			sent := r.Sent
			r.done(l, a, now, 1)
			if r.Sent < sent || r.Sent > sent+len(l.of) {
				t.Fatalf("%d of %d taken", r.Sent-sent, len(l.of))
			}
		}
	})
}

// TestResend: what fires is sent to Alertmanager each minute, and a resolution for 5
// minutes.
func TestResend(t *testing.T) {
	b, r := NewStore(), newReceiver(Target{Kind: Alertmanager})
	b.Set(noon, []Alert{at("80%", 81)})
	n := 0
	for s := range 1200 {
		now := noon.Add(time.Duration(s) * time.Second)
		if s == 290 {
			b.End(now)
		}
		b.Tick(now)
		if tell(t, r, b, now, taken) {
			n++
		}
	}
	// At 0, 60, 120, 180 and 240 s; at 290 and 4 times after that, until 590.
	if n != 5+5 {
		t.Errorf("told %d times", n)
	}
}

// TestInPart: what of several was taken is known, the rest is tried again.
func TestInPart(t *testing.T) {
	b, r := NewStore(), newReceiver(Target{Kind: Webhook})
	b.Set(noon, []Alert{at("80%", 81), at("85%", 86), at("90%", 91)})
	if !tell(t, r, b, noon, Answer{Taken: 2, Error: "HTTP status 500", Retry: true}) || len(r.untold(b)) != 1 || r.Sent != 2 {
		t.Errorf("%+v, %d untold", r.ReceiverState, len(r.untold(b)))
	}
	// No number of a program's makes us read past the end.
	for _, taken := range []int{-1, 99} {
		r.done(load{}, Answer{Taken: taken, Error: "x", Retry: true}, noon, 1)
	}
}

// TestClose: all are told once more, one that has always answered is waited for, and
// no other.
func TestClose(t *testing.T) {
	slow := func(n *network) {
		n.host(well, func(context.Context) Answer {
			time.Sleep(time.Minute)
			return Answer{}
		})
	}
	for name, test := range map[string]struct {
		urls   []string
		before func(*network) // right before Close
		takes  time.Duration
	}{
		"well":                     {[]string{well}, nil, 50 * time.Millisecond},
		"hung":                     {[]string{hung}, nil, 0},
		"refused":                  {[]string{down}, nil, 0},
		"all":                      {[]string{hung, down, well}, nil, 50 * time.Millisecond},
		"hangs from now on":        {[]string{well}, slow, lastPatience},
		"hangs from now on, twice": {[]string{well, hung}, slow, lastPatience},
	} {
		t.Run(name, func(t *testing.T) {
			sending(t, test.urls, func(t *testing.T, n *network, s *Sender) {
				s.Set([]Alert{at("80%", 81)})
				time.Sleep(25 * time.Second)
				if test.before != nil {
					test.before(n)
				}
				began := time.Now()
				s.Close(true)()
				if took := time.Since(began); took != test.takes {
					t.Errorf("the end has waited for %v", took)
				}
				for _, r := range s.Receivers() {
					last := n.requests("last " + r.Target.URL)
					if len(last) != 1 || !strings.Contains(string(last[0].Bodies[0]), Resolved) || last[0].Timeout > lastTime {
						t.Errorf("%v got %d messages at the end", r.Target, len(last))
					}
					answered := r.Target.URL == well && test.before == nil
					if r.Asked == answered || (r.Untold == 0) != answered {
						t.Errorf("%v: asked %v, %d untold", r.Target, r.Asked, r.Untold)
					}
				}
				time.Sleep(2 * time.Minute)
			})
		})
	}
}

// TestCloseWithNothing: no process is started where there is nothing to send, and none
// where another leader goes on.
func TestCloseWithNothing(t *testing.T) {
	sending(t, []string{well}, func(t *testing.T, n *network, s *Sender) {
		s.Close(true)()
		s = n.sender(well)
		s.Set([]Alert{at("80%", 81)})
		time.Sleep(time.Second)
		s.Close(false)()
		if n.count("last "+well) != 0 {
			t.Error("told at the end")
		}
	})
}

// TestSenderHeld: nothing is started where there is no memory for it, and at once when
// there is.
func TestSenderHeld(t *testing.T) {
	sending(t, []string{well}, func(t *testing.T, n *network, s *Sender) {
		s.SetHeadroom(None)
		s.Set([]Alert{at("97%", 98)})
		time.Sleep(time.Hour)
		if r := s.Receivers()[0]; n.count(well) != 0 || !r.Held || r.Untold != 1 {
			t.Errorf("told %d times: %+v", n.count(well), r)
		}
		s.SetHeadroom(Plenty)
		time.Sleep(time.Second)
		if r := s.Receivers()[0]; n.count(well) != 1 || r.Held || r.Untold != 0 {
			t.Errorf("told %d times: %+v", n.count(well), r)
		}
		s.SetHeadroom(None)
		s.Close(true)() // what held the memory has ended
		if n.count("last "+well) != 1 {
			t.Error("not told at the end")
		}
	})
}

// TestSenderTellsAheadOfNoRoom: what was sent to Alertmanager last before memory ran short
// lasts, however old the rest; and its resolution is sent.
func TestSenderTellsAheadOfNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		s := New(Options{Targets: []Target{{Kind: Alertmanager, URL: well}}, Send: n.send, Leave: n.leave})
		ends := func() time.Time {
			var all []postable
			r := n.requests(well)
			if err := json.Unmarshal(r[len(r)-1].Bodies[0], &all); err != nil || len(all) != 1 {
				t.Fatalf("%d alerts, %v", len(all), err)
			}
			return all[0].EndsAt
		}
		a := at("80%", 81)
		a.Since = time.Now()
		s.Set([]Alert{a})
		time.Sleep(2 * time.Second)
		if left := time.Until(ends()); n.count(well) != 1 || left > holds {
			t.Fatalf("told %d times, the last lasts for %v", n.count(well), left)
		}
		s.SetHeadroom(Near)
		time.Sleep(2 * time.Second)
		if n.count(well) != 2 {
			t.Fatalf("told %d times when it was near", n.count(well))
		}
		s.SetHeadroom(None)
		time.Sleep(50 * time.Minute)
		if left := time.Until(ends()); n.count(well) != 2 || left < 0 {
			t.Errorf("told %d times, over for %v", n.count(well), -left)
		}
		s.SetHeadroom(Plenty)
		time.Sleep(time.Second)
		s.Set(nil)
		time.Sleep(keepFiring + time.Second)
		if left := time.Until(ends()); left > 0 {
			t.Errorf("the rung was left, and it fires for %v more", left)
		}
		s.Close(false)
		synctest.Wait()
	})
}

// TestAlertsNeedRoom: no process is started where it might be what ends the job, and
// a small job is reported at 80 % all the same.
func TestAlertsNeedRoom(t *testing.T) {
	for name, test := range map[string]struct {
		limit event.Limit
		want  Headroom
	}{
		"room":             {event.Limit{Name: event.LimitCgroup, Used: 70 * rss.MiB, Limit: 100 * rss.MiB}, Plenty},
		"little":           {event.Limit{Name: event.LimitCgroup, Used: 94 * rss.MiB, Limit: 100 * rss.MiB}, Near},
		"none":             {event.Limit{Name: event.LimitCgroup, Used: 95 * rss.MiB, Limit: 100 * rss.MiB}, None},
		"a small job":      {event.Limit{Name: event.LimitCgroup, Used: 40 * rss.MiB, Limit: 50 * rss.MiB}, Near},
		"… of Slurm":       {event.Limit{Name: event.LimitSlurm, Used: 96 * rss.MiB, Limit: 120 * rss.MiB}, Near},
		"a large job":      {event.Limit{Name: event.LimitCgroup, Used: 80 * rss.GiB, Limit: 100 * rss.GiB}, Near},
		"none for certain": {event.Limit{Name: event.LimitSlurm, Used: 50 * rss.MiB, UsedMax: 99 * rss.MiB, Limit: 100 * rss.MiB}, None},
		"above":            {event.Limit{Name: event.LimitSlurm, Used: 200 * rss.MiB, Limit: 100 * rss.MiB}, None},
		"tasks":            {event.Limit{Name: event.LimitTasks, Used: 384, Limit: 512}, Plenty},
		"few tasks":        {event.Limit{Name: event.LimitTasks, Used: 490, Limit: 512}, Near},
		"the last tasks":   {event.Limit{Name: event.LimitTasks, Used: 497, Limit: 512}, None},
		"not counted":      {event.Limit{Name: event.LimitUser, Used: 99 * rss.MiB, Limit: 100 * rss.MiB}, Plenty},
		"does not kill":    {event.Limit{Name: event.LimitThrottle, Used: 99 * rss.MiB, Limit: 100 * rss.MiB}, Plenty},
		"not read":         {event.Limit{Name: event.LimitCgroup}, Plenty},
	} {
		if got := HeadroomOf([]event.Limit{test.limit}); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestMain is also the program that carries requests: the URL says how it behaves.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == SendCommand {
		carry()
		return
	}
	os.Exit(m.Run())
}

func carry() {
	var r Request
	data, err := io.ReadAll(os.Stdin)
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	how, file, _ := strings.Cut(r.URL, " ")
	if file != "" { // it says who it is, and then what it met
		fds, _ := os.ReadDir("/proc/self/fd")
		names := ""
		for _, fd := range fds {
			to, err := os.Readlink("/proc/self/fd/" + fd.Name())
			if err == nil && !strings.HasPrefix(to, "anon_inode:") {
				names += fd.Name() + "=" + to + "\n"
			}
		}
		cmdline, _ := os.ReadFile("/proc/self/cmdline")
		sid, _, _ := syscall.Syscall(syscall.SYS_GETSID, 0, 0, 0)
		text := fmt.Sprintf("%d\n%q\n%v\n%s%s", os.Getpid(), cmdline, int(sid) == os.Getpid(), names, strings.Join(os.Environ(), "\n"))
		if os.WriteFile(file+".new", []byte(text), 0o600) != nil || os.Rename(file+".new", file) != nil {
			os.Exit(3)
		}
	}
	switch how {
	case "hang":
		time.Sleep(time.Hour)
	case "die":
		os.Exit(1)
	case "garbage":
		fmt.Println("\x00{{{")
	case "flood":
		for range 1 << 12 {
			fmt.Println(strings.Repeat("x", 1024))
		}
	default:
		_ = json.NewEncoder(os.Stdout).Encode(Answer{Taken: len(r.Bodies), Status: 200})
	}
	if err != nil {
		os.Exit(2)
	}
}

func program(t *testing.T) *Program {
	t.Helper()
	self, err := os.Executable()
	wardentest.NoError(t, err)
	return &Program{Path: self, Env: []string{"A=1"}, Start: (*exec.Cmd).Start}
}

func request(url string, patience time.Duration) Request {
	return Request{URL: url, Token: "s3cret", Bodies: []json.RawMessage{[]byte(`{"x":1}`)}, Timeout: patience}
}

// TestProgram: what comes of a process that carries a request, well or not.
func TestProgram(t *testing.T) {
	p := program(t)
	for how, want := range map[string]Answer{
		"well":    {Taken: 1, Status: 200},
		"die":     {Error: "rsswardend ended without an answer", Retry: true},
		"garbage": {Error: "rsswardend ended without an answer", Retry: true},
		"flood":   {Error: "rsswardend ended without an answer", Retry: true},
	} {
		if got := p.Send(t.Context(), request(how, 30*time.Second)); got != want {
			t.Errorf("%s: %+v", how, got)
		}
	}
	p.Path = filepath.Join(t.TempDir(), "gone")
	if got := p.Send(t.Context(), request("well", time.Second)); !strings.HasPrefix(got.Error, "cannot start ") || !got.Retry {
		t.Errorf("without the program: %+v", got)
	}
	big := request("well", time.Second)
	big.Bodies[0] = []byte(`"` + strings.Repeat("x", MostRequest) + `"`)
	if got := p.Send(t.Context(), big); !strings.Contains(got.Error, "cannot write the request") {
		t.Errorf("too much: %+v", got)
	}
}

// met waits for what the program has written and reads its PID from it.
func met(t *testing.T, file string) (pid int, text string) {
	t.Helper()
	wardentest.Until(t, "written: "+file, func() bool { return wardentest.Read(file) != "" })
	line, rest, _ := strings.Cut(wardentest.Read(file), "\n")
	pid, err := strconv.Atoi(line)
	wardentest.NoError(t, err)
	return pid, rest
}

func gone(t *testing.T, pid int) {
	t.Helper()
	wardentest.Until(t, "the end of the process", func() bool { return syscall.Kill(pid, 0) != nil })
}

// TestProgramIsKilled: one that hangs has its time, or until we end, and leaves
// nothing behind.
func TestProgramIsKilled(t *testing.T) {
	p := program(t)
	file := filepath.Join(t.TempDir(), "met")
	if got := p.Send(t.Context(), request("hang "+file, 100*time.Millisecond)); got.Error != "no answer in time" || !got.Retry {
		t.Errorf("%+v", got)
	}
	pid, _ := met(t, file)
	gone(t, pid)
	ctx, cancel := context.WithCancel(t.Context())
	other := file + "2"
	done := make(chan Answer, 1)
	go func() { done <- p.Send(ctx, request("hang "+other, time.Hour)) }()
	pid, _ = met(t, other)
	cancel()
	<-done
	gone(t, pid)
}

// TestProgramInherits: no file of ours, and the environment that it is given; no secret is in
// its command line or environment, and no signal to our process group meets it.
func TestProgramInherits(t *testing.T) {
	open, err := os.Open("/etc/passwd")
	wardentest.NoError(t, err)
	defer open.Close()
	file := filepath.Join(t.TempDir(), "met")
	if got := program(t).Send(t.Context(), request("well "+file, time.Minute)); got.Error != "" {
		t.Fatalf("%+v", got)
	}
	_, text := met(t, file)
	if strings.Contains(text, "s3cret") || strings.Contains(text, "passwd") || !strings.Contains(text, "\nA=1") || !strings.Contains(text, `send\x00"`) {
		t.Errorf("it met\n%s", text)
	}
	if lines := strings.Split(text, "\n"); lines[1] != "true" {
		t.Error("it is in our session")
	}
}

// TestLeave: a process that may outlive us reports its result while there is a reader.
func TestLeave(t *testing.T) {
	p := program(t)
	if got := <-p.Leave(request("well", time.Minute)); got.Taken != 1 {
		t.Errorf("%+v", got)
	}
	p.Path = "/nonexistent"
	if got := <-p.Leave(request("well", time.Minute)); got.Error == "" {
		t.Errorf("%+v", got)
	}
}

// TestSenderInherits: what was left open is resolved in its time, and what still fires is
// sent once more.
func TestSenderInherits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		first, next := n.sender(well), n.sender(well)
		first.Set([]Alert{at("80%", 91), at("90%", 91)})
		time.Sleep(time.Second)
		first.Set([]Alert{at("80%", 85)})
		first.Close(false)
		open := first.Open()
		if len(open) != 2 {
			t.Fatalf("%d are open", len(open))
		}
		next.Inherit(open)
		next.Set([]Alert{at("80%", 85)})
		time.Sleep(time.Second)
		again := n.requests(well)[1:]
		if len(again) != 1 || len(again[0].Bodies) != 1 || !strings.Contains(string(again[0].Bodies[0]), `"rung":"80%"`) {
			t.Errorf("told again: %s", again)
		}
		time.Sleep(keepFiring)
		rest := n.requests(well)[2:]
		if len(rest) != 1 || len(rest[0].Bodies) != 1 || !strings.Contains(string(rest[0].Bodies[0]), `"status":"resolved"`) || !strings.Contains(string(rest[0].Bodies[0]), `"rung":"90%"`) {
			t.Errorf("told then: %s", rest)
		}
		if open := next.Open(); len(open) != 1 || open[0].Rung != "80%" {
			t.Errorf("%d are open", len(open))
		}
		next.Close(false)
		synctest.Wait()
	})
}

// TestSenderUntoldIsOpen: alerts whose end was not delivered are left to the next leader.
func TestSenderUntoldIsOpen(t *testing.T) {
	sending(t, []string{well, down}, func(t *testing.T, n *network, s *Sender) {
		s.Set([]Alert{at("80%", 81)})
		time.Sleep(time.Second)
		s.Set(nil)
		time.Sleep(keepFiring + time.Minute)
		if open := s.Open(); len(open) != 1 {
			t.Errorf("%d are open", len(open))
		}
	})
}
