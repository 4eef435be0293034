package rss

import (
	"testing"
	"time"
)

func TestRate(t *testing.T) {
	var r Rate
	if got := r.PerSecond(time.Hour); got != 0 {
		t.Errorf("nothing seen: %v", got)
	}
	r.Add(0, GiB)
	r.Add(10*time.Millisecond, 2*GiB) // too soon to tell
	if got := r.PerSecond(10 * time.Millisecond); got != 0 {
		t.Errorf("after 10 ms: %v", got)
	}
	r.Add(time.Second, GiB+100*MiB)
	if got := r.PerSecond(time.Second); got != float64(100*MiB) {
		t.Errorf("rate %v, want 100 MiB/s", Bytes(got))
	}
	r.Add(2*time.Second, GiB) // falling is no filling
	r.Add(3*time.Second, GiB+50*MiB)
	if got, want := r.PerSecond(61*time.Second), float64(50*MiB); got != want {
		t.Errorf("a minute later %v, want half", Bytes(got))
	}
	r.Add(2*time.Second, 100*GiB) // time going back
	r.Add(123*time.Second, GiB+50*MiB+120*40*MiB)
	if got, want := Bytes(r.PerSecond(123*time.Second)), 40*MiB; got != want {
		t.Errorf("rate %v, want the newer and now faster %v", got, want)
	}
	r.Skip()
	r.Add(183*time.Second, 500*GiB) // grew while not read
	if got, want := Bytes(r.PerSecond(183*time.Second)), 20*MiB; got != want {
		t.Errorf("rate %v after a gap, want %v: half of what it was a minute before", got, want)
	}
}
