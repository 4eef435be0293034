package alert

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// network is what a Sender sends by: each host answers in a way of its own.
type network struct {
	mu    sync.Mutex
	got   map[string][]Request
	hosts map[string]func(context.Context) Answer
	busy  int
}

func (n *network) send(ctx context.Context, r Request) Answer {
	n.mu.Lock()
	n.busy++
	if n.busy > 1 {
		panic("two at a time")
	}
	n.got[r.URL] = append(n.got[r.URL], r)
	answer := n.hosts[r.URL]
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	a := answer(ctx)
	if a.Error == "" {
		a.Taken = len(r.Bodies)
	}
	n.mu.Lock()
	n.busy--
	n.mu.Unlock()
	return a
}

func (n *network) leave(r Request) <-chan Answer {
	c := make(chan Answer, 1)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.got["last "+r.URL] = append(n.got["last "+r.URL], r)
	answer := n.hosts[r.URL]
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), r.Timeout)
		defer cancel()
		a := answer(ctx)
		if a.Error == "" {
			a.Taken = len(r.Bodies)
		}
		c <- a
	}()
	return c
}

func (n *network) requests(url string) []Request {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.got[url])
}

func (n *network) count(url string) int { return len(n.requests(url)) }

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
	return New(Options{Targets: targets, Send: n.send, Leave: n.leave})
}

// TestSenderGoesRound: one that never answers keeps the others from nothing but for
// its 10 s, and is tried less and less.
func TestSenderGoesRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		s := n.sender(hung, down, well)
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
		var faults []string
		for len(s.Faults()) > 0 {
			faults = append(faults, <-s.Faults())
		}
		if all := strings.Join(faults, "\n"); all != "webhook+http://hung/…: no answer in time; it is tried again\nwebhook+http://down/…: connection refused; it is tried again" {
			t.Errorf("faults: %s", all)
		}
		standing := s.Standing()
		if h := standing[0]; !h.Failing || h.Untold != 1 || h.Firing != 1 || h.Sent != 0 || h.Error == "" {
			t.Errorf("the hung one: %+v", h)
		}
		if w := standing[2]; w.Failing || w.Untold != 0 || w.Sent != 1 || !w.SentAt.After(began) {
			t.Errorf("the one that is well: %+v", w)
		}
		s.Close(false)
		synctest.Wait()
	})
}

// TestSenderQueueIsBounded: a thousand changes while nobody answers are a thousand
// that were overtaken, and one that waits.
func TestSenderQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		s := n.sender(hung)
		for range 1000 {
			s.Set([]Alert{at("80%", 81)})
			time.Sleep(time.Second)
			s.Set(nil)
			time.Sleep(keepFiring)
			s.Set(nil)
		}
		if r := s.Standing()[0]; r.Overtaken != 1999 || r.Untold != 1 || r.Lost != 0 || r.Sent != 0 {
			t.Errorf("%+v", r)
		}
		for _, r := range n.requests(hung) {
			if len(r.Bodies) != 1 {
				t.Fatalf("%d messages in one request", len(r.Bodies))
			}
		}
		// It is there again: told once, of how things stand.
		n.mu.Lock()
		n.hosts[hung] = n.hosts[well]
		n.mu.Unlock()
		time.Sleep(2 * time.Minute)
		if r := s.Standing()[0]; r.Sent != 1 || r.Untold != 0 || r.Failing {
			t.Errorf("%+v", r)
		}
		s.Close(false)
		synctest.Wait()
	})
}

// TestSenderHeld: nothing is started where there is no memory for it, and at once when
// there is.
func TestSenderHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		s := n.sender(well)
		s.Room(None)
		s.Set([]Alert{at("97%", 98)})
		time.Sleep(time.Hour)
		if r := s.Standing()[0]; n.count(well) != 0 || !r.Held || r.Untold != 1 {
			t.Errorf("told %d times: %+v", n.count(well), r)
		}
		s.Room(Plenty)
		time.Sleep(time.Second)
		if r := s.Standing()[0]; n.count(well) != 1 || r.Held || r.Untold != 0 {
			t.Errorf("told %d times: %+v", n.count(well), r)
		}
		s.Room(None)
		s.Close(true)() // what held the memory has ended
		if n.count("last "+well) != 1 {
			t.Error("not told at the end")
		}
		synctest.Wait()
	})
}

// TestSenderTellsAheadOfNoRoom: what Alertmanager was told last before there was no
// room lasts, however long ago it was told the rest; and it is told that it is over.
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
		s.Room(Near)
		time.Sleep(2 * time.Second)
		if n.count(well) != 2 {
			t.Fatalf("told %d times when it was near", n.count(well))
		}
		s.Room(None)
		time.Sleep(50 * time.Minute)
		if left := time.Until(ends()); n.count(well) != 2 || left < 0 {
			t.Errorf("told %d times, over for %v", n.count(well), -left)
		}
		s.Room(Plenty)
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

// TestSenderInherits: what was left open is resolved in its time, and what fires still is
// told of once more.
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

// TestSenderUntoldIsOpen: what nobody has heard the end of is left to who is next.
func TestSenderUntoldIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		s := n.sender(well, down)
		s.Set([]Alert{at("80%", 81)})
		time.Sleep(time.Second)
		s.Set(nil)
		time.Sleep(keepFiring + time.Minute)
		if open := s.Open(); len(open) != 1 {
			t.Errorf("%d are open", len(open))
		}
		s.Close(false)
		synctest.Wait()
	})
}

// TestSenderResolvesByItself: nobody need look for a rung that was left to be told of.
func TestSenderResolvesByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		s := n.sender(well)
		s.Set([]Alert{at("80%", 81)})
		time.Sleep(time.Second)
		s.Set(nil)
		time.Sleep(keepFiring + time.Second)
		if r := n.requests(well); len(r) != 2 || !strings.Contains(string(r[1].Bodies[0]), `"status":"resolved"`) {
			t.Errorf("told %d times", len(r))
		}
		s.Close(false)
		synctest.Wait()
	})
}

// TestClose: all are told once more, one that has always answered is waited for, and
// no other.
func TestClose(t *testing.T) {
	slow := func(n *network) {
		n.hosts[well] = func(context.Context) Answer {
			time.Sleep(time.Minute)
			return Answer{}
		}
	}
	for name, test := range map[string]struct {
		urls   []string
		before func(*network) // right before Close
		least  time.Duration
		most   time.Duration
		last   []string
	}{
		"well":                     {[]string{well}, nil, 50 * time.Millisecond, 50 * time.Millisecond, []string{well}},
		"hung":                     {[]string{hung}, nil, 0, 0, []string{hung}},
		"refused":                  {[]string{down}, nil, 0, 0, []string{down}},
		"all":                      {[]string{hung, down, well}, nil, 50 * time.Millisecond, 50 * time.Millisecond, []string{hung, down, well}},
		"hangs from now on":        {[]string{well}, slow, lastPatience, lastPatience, []string{well}},
		"hangs from now on, twice": {[]string{well, hung}, slow, lastPatience, lastPatience, []string{well, hung}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork()
				s := n.sender(test.urls...)
				s.Set([]Alert{at("80%", 81)})
				time.Sleep(25 * time.Second)
				if test.before != nil {
					n.mu.Lock()
					test.before(n)
					n.mu.Unlock()
				}
				began := time.Now()
				wait := s.Close(true)
				wait()
				if took := time.Since(began); took < test.least || took > test.most {
					t.Errorf("the end has waited for %v", took)
				}
				for _, url := range test.last {
					if n.count("last "+url) != 1 || !strings.Contains(string(n.requests("last " + url)[0].Bodies[0]), Resolved) || n.requests("last " + url)[0].Timeout > lastTime {
						t.Errorf("%s was told %d times at the end", url, n.count("last "+url))
					}
				}
				for _, r := range s.Standing() {
					answered := r.Target.URL == well && test.before == nil
					if r.Asked == answered || (r.Untold == 0) != answered {
						t.Errorf("%v: asked %v, %d untold", r.Target, r.Asked, r.Untold)
					}
				}
				time.Sleep(2 * time.Minute)
				synctest.Wait()
			})
		})
	}
}

// TestCloseWithNothing: nothing is started where there is nothing to tell, and none
// where another goes on.
func TestCloseWithNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		s := n.sender(well)
		s.Close(true)()
		s = n.sender(well)
		s.Set([]Alert{at("80%", 81)})
		time.Sleep(time.Second)
		s.Close(false)()
		if n.count("last "+well) != 0 {
			t.Error("told at the end")
		}
		synctest.Wait()
	})
}

func TestNilSender(t *testing.T) {
	var s *Sender
	if s.Faults() != nil || s.Standing() != nil {
		t.Error("a nil Sender is somebody")
	}
}
