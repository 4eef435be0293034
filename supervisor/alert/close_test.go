package alert

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

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
