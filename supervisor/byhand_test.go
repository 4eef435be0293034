package supervisor

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/probe"
)

// byHand is a reader whose questions the test gets, and answers.
type byHand[Q, A any] struct {
	*probe.Reader[Q, A]
	asks    chan Q
	answers chan A
	pending bool // a question that the test got has no answer yet
}

func newByHand[Q, A any](s *probe.Set) *byHand[Q, A] {
	h := &byHand[Q, A]{asks: make(chan Q), answers: make(chan A)}
	h.Reader = probe.New(s, func(q Q) A {
		h.asks <- q
		return <-h.answers
	})
	return h
}

// asked returns a question that was put since, once.
func (h *byHand[Q, A]) asked() (q Q, ok bool) {
	if h.pending || !h.Busy() {
		return q, false
	}
	h.pending = true
	return <-h.asks, true
}

// answer has the answer ready to be taken to what was asked.
func (h *byHand[Q, A]) answer(t *testing.T, a A) {
	t.Helper()
	h.asked()
	if !h.pending {
		t.Fatal("nothing was asked")
	}
	h.answers <- a
	if !h.Wait(time.Minute) {
		t.Fatal("the answer does not come")
	}
	h.pending = false
}
