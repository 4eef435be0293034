package probe

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// never is the time after which a test gives up.
const never = time.Minute

// byHand is a reader whose questions the test sees, and answers.
func byHand(s *Set, size int) (r *Reader[int, string], asked chan int, answer chan string) {
	asked, answer = make(chan int), make(chan string)
	return NewQueue(s, size, func(q int) string {
		asked <- q
		return <-answer
	}), asked, answer
}

func TestNoReader(t *testing.T) {
	var none *Reader[int, int]
	_, ok := none.Take()
	if ok || none.Busy() || none.Ask(1, true) {
		t.Error("it takes a question, or has an answer")
	}
}

func TestReaderAnswersOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which fails where a goroutine is left
		r, asked, answer := byHand(new(Set), 1)
		if _, ok := r.Take(); ok || r.Busy() || r.Wait(never) {
			t.Error("an answer without a question")
		}
		for q, want := range []string{"zero", "one", "two"} {
			if !r.Ask(q, false) {
				t.Fatal("not asked")
			}
			if got := <-asked; got != q {
				t.Errorf("asked %d, want %d", got, q)
			}
			if r.Ask(9, false) || !r.Busy() {
				t.Error("a second question is taken while one is under way")
			}
			answer <- want
			synctest.Wait()
			if r.Ask(9, false) {
				t.Error("a second question is taken before the answer to the first is")
			}
			if got, ok := r.Take(); !ok || got != want || r.Busy() {
				t.Errorf("answer %q, %v; busy %v", got, ok, r.Busy())
			}
		}
	})
}

// TestReaderHangs: neither the loop nor another reader waits for it.
func TestReaderHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(Set)
		r, asked, answer := byHand(s, 1)
		r.Ask(1, true)
		<-asked
		other := New(s, func(q int) int { return 2 * q })
		other.Ask(2, true)
		if !other.Wait(never) {
			t.Fatal("another reader has no answer")
		}
		if got, ok := other.Take(); !ok || got != 4 {
			t.Errorf("another reader has %d, %v", got, ok)
		}
		began := time.Now()
		if _, ok := r.Take(); ok || r.Wait(time.Second) || !r.Busy() {
			t.Error("an answer of what hangs")
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("waited for %v, want 1 s", took)
		}
		answer <- "late"
		if !r.Wait(never) || !r.Wait(0) {
			t.Error("no answer once it goes on")
		}
		if got, _ := r.Take(); got != "late" || r.Busy() {
			t.Errorf("the late answer is %q", got)
		}
	})
}

func TestReaderWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(Set)
		a, b := New(s, func(q int) int { return q }), New(s, func(q int) error { return errors.New("cannot read") })
		rings := func() int {
			synctest.Wait()
			select {
			case <-s.C():
				return 1
			default:
				return 0
			}
		}
		for _, c := range []struct {
			a, b  bool
			rings int
		}{{false, false, 0}, {true, false, 1}, {true, true, 1}, {false, true, 1}} {
			a.Ask(1, c.a)
			b.Ask(1, c.b)
			if n := rings() + rings(); n != c.rings {
				t.Errorf("woken %d times by %+v", n, c)
			}
			if got, ok := a.Take(); !ok || got != 1 {
				t.Errorf("answer %d, %v", got, ok)
			}
			if err, ok := b.Take(); !ok || err == nil {
				t.Errorf("the error is %v, %v", err, ok)
			}
		}
	})
}

// TestQueue: questions are answered in their order, those behind one that hangs after it.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, asked, answer := byHand(new(Set), 3)
		for i, want := range []bool{true, true, true, false} {
			if got := r.Ask(i, false); got != want {
				t.Errorf("question %d is taken: %v", i, got)
			}
		}
		<-asked
		answer <- "0"
		<-asked
		synctest.Wait()
		if got, ok := r.Take(); !ok || got != "0" || !r.Busy() {
			t.Errorf("%q, %v before the second is answered", got, ok)
		}
		if !r.Ask(3, false) {
			t.Error("no room after an answer was taken")
		}
		for next := 2; r.Busy(); next++ {
			answer <- "more"
			r.Wait(never)
			if got, ok := r.Take(); !ok || got != "more" {
				t.Errorf("%q, %v", got, ok)
			}
			if r.Busy() {
				if got := <-asked; got != next {
					t.Errorf("asked %d, want %d", got, next)
				}
			}
		}
	})
}

// TestReaderManyTimes: no question is lost where one is put just when the goroutine ends.
func TestReaderManyTimes(t *testing.T) {
	n := 0 // kept between two reads, without a lock
	r := New(new(Set), func(q int) int { n++; return n })
	for i := range 20_000 {
		if !r.Ask(i, true) || !r.Wait(never) {
			t.Fatalf("question %d has no answer", i)
		}
		if got, _ := r.Take(); got != i+1 {
			t.Fatalf("answer %d, want %d", got, i+1)
		}
	}
}

// TestBucket: it is full at first, fills at its share and no further, and pays its debts.
func TestBucket(t *testing.T) {
	b := Bucket{Most: 30 * time.Millisecond, Share: 0.01}
	has := func(now, want, dry time.Duration) {
		t.Helper()
		if got := b.Fill(now); got != want || b.Fill(now) != want || b.Dry() != dry {
			t.Errorf("at %v it has %v and is dry for %v, want %v and %v", now, got, b.Dry(), want, dry)
		}
	}
	has(5*time.Second, 30*time.Millisecond, 0)
	b.Spend(20 * time.Millisecond)
	has(6*time.Second, 20*time.Millisecond, 0)
	has(60*time.Second, 30*time.Millisecond, 0)
	b.Spend(50 * time.Millisecond)
	has(60*time.Second, -20*time.Millisecond, 2*time.Second)
	has(61*time.Second, -10*time.Millisecond, time.Second)
	has(62*time.Second, 0, 0)
	b.Spend(time.Second)
	b.Renew()
	has(62*time.Second, 30*time.Millisecond, 0)
	b.Most, b.Share = 20*time.Millisecond, 0.1
	has(63*time.Second, 20*time.Millisecond, 0)
	b.Spend(40 * time.Millisecond)
	has(63*time.Second+100*time.Millisecond, -10*time.Millisecond, 100*time.Millisecond)
}

// TestBucketOfNothing holds back by debts alone.
func TestBucketOfNothing(t *testing.T) {
	b := Bucket{Share: 0.002}
	if b.Fill(time.Second) != 0 || b.Dry() != 0 {
		t.Error("it holds back before anything was spent")
	}
	b.Spend(2 * time.Millisecond)
	if dry := b.Dry(); dry != time.Second || b.Fill(1500*time.Millisecond) >= 0 || b.Fill(2*time.Second) != 0 {
		t.Errorf("after 2 ms of 0.2 %% it is dry for %v", dry)
	}
}
