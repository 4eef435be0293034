package supervisor

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestSuccessorKills: the lead falls to who was told to stop; the KILL comes as if it had
// not, and only to its own tree.
func TestSuccessorKills(t *testing.T) {
	first, s, command := twoRanks(t)
	third, thirdID := sleeper(t)
	o := stop
	o.Grace = time.Minute
	first.orders(s, o)
	first.pass(&hold.Exit{})
	if !s.waits() {
		t.Fatal("it does not lead")
	}
	if n := terms(t, command); n != 1 {
		t.Errorf("%d times TERM", n)
	}
	newRank(t, s, s.runtime(), 2, "0", thirdID).follows()
	s.meets(1, 0)
	s.later(30 * time.Second)
	s.node.Advance(s.now())
	if n := terms(t, command); n != 0 {
		t.Errorf("%d times TERM", n) // and it lives
	}
	s.later(32 * time.Second)
	over := make(chan struct{})
	go func() {
		s.loop()
		close(over)
	}()
	dead(t, s.id)
	s.holder.messages <- hold.Exit{Signal: 9}
	yields(t, over, 10*time.Second)
	if !running(third) {
		t.Error("another rank was ended")
	}
	wardentest.Has(t, s.last(event.NameExit), "by", "rsswarden", "code", 137.0)
}

// TestSuccessorStopsAgain: where use is above the rung still the successor stops the ranks that
// were not told, and sends its own command no second TERM; nothing has failed.
func TestSuccessorStopsAgain(t *testing.T) {
	for _, others := range []int{0, 1} {
		first, s, command := twoRanks(t, "90%:stop")
		o := stop
		o.Grace = time.Minute
		first.orders(s, o)
		first.pass(&hold.Exit{})
		if !s.waits() {
			t.Fatal("it does not lead")
		}
		var third *rankStand
		if others > 0 {
			_, id := sleeper(t)
			third = newRank(t, s, s.runtime(), 2, "0", id, "90%:stop")
			third.follows()
			s.meets(1, 0)
		}
		s.uses("0", 950)
		s.full()
		if n := terms(t, command); n != 1 {
			t.Errorf("%d others: %d times TERM", others, n)
		}
		if third != nil && !third.ordered().Stop {
			t.Error("the rank that was not told is not stopped")
		}
		if !slices.Equal(s.holder.overrides, []int{137}) {
			t.Errorf("the holder is to end with %v", s.holder.overrides)
		}
		if s.acts.InFlight() == nil || strings.Contains(s.stderr(), "failed") {
			t.Errorf("%d others: flight %v, said\n%s", others, s.acts.InFlight(), s.stderr())
		}
	}
}

// TestOrdersBeforeNews: an order from before we watched for news is carried out, and so is
// the last one.
func TestOrdersBeforeNews(t *testing.T) {
	for name, carried := range map[string]func(first, s *rankStand){
		"before it follows": func(_, s *rankStand) {
			s.holder.messages <- hold.Exit{}
			s.waits()
		},
		"as it takes over": func(first, s *rankStand) {
			first.pass(&hold.Exit{})
			s.isGivenTheLead()
		},
	} {
		t.Run(name, func(t *testing.T) {
			first, s, command := twoRanks(t)
			first.orders(s, stop)
			carried(first, s)
			if n := terms(t, command); n != 1 {
				t.Errorf("%d times TERM", n)
			}
		})
	}
}

// unstuckHolder tells when it was looked after.
type unstuckHolder struct {
	*fakeHolder
	unstuck chan time.Time
}

func (h unstuckHolder) Unstick() error {
	h.unstuck <- time.Now()
	return nil
}

// TestFollowerLooksAfterTheHolder: two looks see a holder that alone was stopped; the
// end of its command must not wait for them for long.
func TestFollowerLooksAfterTheHolder(t *testing.T) {
	_, s, _ := twoRanks(t)
	h := unstuckHolder{s.holder, make(chan time.Time, 10)}
	s.Link = h
	led := s.startsToFollow()
	began := time.Now()
	yields(t, h.unstuck, 10*time.Second)
	if took := yields(t, h.unstuck, 10*time.Second).Sub(began); took > 9*time.Second {
		t.Errorf("two looks took %v", took)
	}
	s.holder.messages <- hold.Exit{}
	yields(t, led, 10*time.Second)
}
