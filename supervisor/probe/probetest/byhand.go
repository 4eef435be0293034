// Package probetest has a reader whose questions the test answers.
package probetest

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/probe"
)

// ByHand is a reader whose questions the test gets, and answers.
type ByHand[Q, A any] struct {
	*probe.Reader[Q, A]
	asks    chan Q
	answers chan A
	pending bool // a question that the test got has no answer yet
}

// New returns a reader in a set.
func New[Q, A any](s *probe.Set) *ByHand[Q, A] {
	h := &ByHand[Q, A]{asks: make(chan Q), answers: make(chan A)}
	h.Reader = probe.New(s, func(q Q) A {
		h.asks <- q
		return <-h.answers
	})
	return h
}

// Asked returns the open question, once.
func (h *ByHand[Q, A]) Asked() (q Q, ok bool) {
	if h.pending || !h.Busy() {
		return q, false
	}
	h.pending = true
	return <-h.asks, true
}

// Pending says that a question that the test got has no answer yet.
func (h *ByHand[Q, A]) Pending() bool { return h.pending }

// Answer answers the open question; the answer is ready to be taken when it returns.
func (h *ByHand[Q, A]) Answer(t testing.TB, a A) {
	t.Helper()
	h.Asked()
	if !h.pending {
		t.Fatal("nothing was asked")
	}
	h.answers <- a
	if !h.Wait(time.Minute) {
		t.Fatal("the answer does not come")
	}
	h.pending = false
}
