package alert

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// told hands a receiver what it is due, and says whether there was anything.
func tell(t *testing.T, r *receiver, b *Book, now time.Time, a Answer) bool {
	t.Helper()
	r.look(b)
	due, ok := r.next(b)
	if !ok || due.After(now) {
		return false
	}
	l, err := r.load(b, now)
	if err != nil {
		t.Fatal(err)
	}
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
	b, r := NewBook(), newReceiver(Target{Kind: Webhook})
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
		t.Error("it is told once")
	}
	b.End(now)
	if !tell(t, r, b, now, taken) || r.Sent != 2 || r.Failed != 8 || r.Lost+r.Overtaken != 0 {
		t.Errorf("%+v", r.Counts)
	}
}

// TestJitter: half of the pause is by chance, and what a server asks for is kept.
func TestJitter(t *testing.T) {
	b, r := NewBook(), newReceiver(Target{Kind: Webhook})
	b.Set(noon, []Alert{at("80%", 81)})
	r.look(b)
	l, err := r.load(b, noon)
	if err != nil {
		t.Fatal(err)
	}
	if r.done(l, refused, noon, 0); r.due != noon.Add(500*time.Millisecond) {
		t.Errorf("again after %v", r.due.Sub(noon))
	}
	if r.done(l, Answer{Error: "HTTP status 429", Retry: true, Later: time.Hour}, noon, 0); r.due != noon.Add(time.Hour) {
		t.Errorf("again after %v", r.due.Sub(noon))
	}
}

// TestNewestStateWins: what a receiver that was away is told is how things stand, and
// what it never knew is counted.
func TestNewestStateWins(t *testing.T) {
	b, r := NewBook(), newReceiver(Target{Kind: Webhook})
	b.Set(noon, []Alert{at("80%", 81)})
	tell(t, r, b, noon, refused)
	b.End(noon.Add(time.Minute)) // overtakes "firing"
	tell(t, r, b, noon.Add(time.Minute), refused)
	b.Set(noon.Add(2*time.Minute), []Alert{at("80%", 81)}) // overtakes "resolved"
	if !tell(t, r, b, noon.Add(3*time.Minute), taken) || r.Overtaken != 2 || r.Lost != 0 || r.Sent != 1 {
		t.Errorf("%+v", r.Counts)
	}
	// Resolved and never told of for 5 minutes: lost, and said so.
	b.End(noon.Add(4 * time.Minute))
	tell(t, r, b, noon.Add(4*time.Minute), refused)
	b.Tick(noon.Add(10 * time.Minute))
	if tell(t, r, b, noon.Add(10*time.Minute), taken) || r.Lost != 1 || len(r.told)+len(r.met) != 0 {
		t.Errorf("%+v, %v, %v", r.Counts, r.told, r.met)
	}
}

// TestRefused: what a webhook or Alertmanager refused it is asked again after a minute,
// for as long as it is so: somebody may have mended it.
func TestRefused(t *testing.T) {
	for _, kind := range []Kind{Webhook, Alertmanager} {
		b, r := NewBook(), newReceiver(Target{Kind: kind})
		b.Set(noon, []Alert{at("80%", 81)})
		if !tell(t, r, b, noon, wrong) || tell(t, r, b, noon.Add(59*time.Second), taken) || !tell(t, r, b, noon.Add(time.Minute), taken) || r.Lost != 0 || len(r.untold(b)) != 0 {
			t.Errorf("%s: %+v", kind, r.Counts)
		}
	}
}

// TestRefusedKeepsNothingBack: one message that a webhook does not take is no reason not
// to tell it the others.
func TestRefusedKeepsNothingBack(t *testing.T) {
	b, r := NewBook(), newReceiver(Target{Kind: Webhook})
	b.Set(noon, []Alert{at("80%", 81), at("85%", 86), at("90%", 91)})
	now := noon
	for range 2 {
		r.look(b)
		due, ok := r.next(b)
		if !ok {
			break
		}
		now = later(now, due)
		l, err := r.load(b, now)
		if err != nil {
			t.Fatal(err)
		}
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
		t.Errorf("%d untold, %+v", len(left), r.Counts)
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
		b, r := NewBook(), newReceiver(Target{Kind: Webhook})
		if manager {
			r.target.Kind = Alertmanager
		}
		for n := range min(max(alerts, 0), 20) {
			b.Set(noon, []Alert{at(fmt.Sprint(n, "%"), 81)})
		}
		for n := range 3 {
			now := noon.Add(time.Duration(n) * time.Hour)
			r.look(b)
			l, err := r.load(b, now)
			if err != nil {
				t.Fatal(err)
			}
			sent := r.Sent
			r.done(l, a, now, 1)
			if r.Sent < sent || r.Sent > sent+len(l.of) {
				t.Fatalf("%d of %d taken", r.Sent-sent, len(l.of))
			}
		}
	})
}

// TestResend: Alertmanager is told each minute of what fires, and for 5 minutes that
// it is resolved.
func TestResend(t *testing.T) {
	b, r := NewBook(), newReceiver(Target{Kind: Alertmanager})
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
	b, r := NewBook(), newReceiver(Target{Kind: Webhook})
	b.Set(noon, []Alert{at("80%", 81), at("85%", 86), at("90%", 91)})
	if !tell(t, r, b, noon, Answer{Taken: 2, Error: "HTTP status 500", Retry: true}) || len(r.untold(b)) != 1 || r.Sent != 2 {
		t.Errorf("%+v, %d untold", r.Counts, len(r.untold(b)))
	}
	// No number of a program's makes us read past the end.
	for _, taken := range []int{-1, 99} {
		r.done(load{}, Answer{Taken: taken, Error: "x", Retry: true}, noon, 1)
	}
}
