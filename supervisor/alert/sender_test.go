package alert

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// network is what a Sender sends by: each host answers in a way of its own.
type network struct {
	mu     sync.Mutex
	got    map[string][]Request
	hosts  map[string]func(context.Context) Answer
	busy   int
	faults []string
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

func (n *network) fault(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = append(n.faults, text)
}

func (n *network) allFaults() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.faults)
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
	return New(Options{Targets: targets, Send: n.send, Leave: n.leave, Fault: n.fault})
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
		if all := strings.Join(n.allFaults(), "\n"); all != "webhook+http://hung/…: no answer in time; it is tried again\nwebhook+http://down/…: connection refused; it is tried again" {
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

func TestNilSender(t *testing.T) {
	var s *Sender
	if s.Open() != nil || s.Standing() != nil {
		t.Error("a nil Sender is somebody")
	}
}
