package probe

import (
	"testing"
	"time"
)

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
