package probe

import "time"

// Bucket is processor time to spend: it fills at a share of the time that passes, and a
// debt must be paid before anything is spent again.
type Bucket struct {
	Most  time.Duration // that it holds; it is full at first
	Share float64       // of a core, above 0

	has   time.Duration // below 0 it is a debt
	at    time.Duration
	begun bool
}

// Fill adds what has come since the last call, and returns what there is now.
func (b *Bucket) Fill(now time.Duration) time.Duration {
	if !b.begun {
		b.begun, b.has = true, b.Most
	}
	b.has, b.at = min(b.has+time.Duration(float64(now-b.at)*b.Share), b.Most), now
	return b.has
}

// Spend takes out what something has cost.
func (b *Bucket) Spend(cost time.Duration) { b.has -= cost }

// Dry is how long after the last Fill a debt is paid.
func (b *Bucket) Dry() time.Duration {
	if b.has >= 0 {
		return 0
	}
	return time.Duration(float64(-b.has) / b.Share)
}

// Renew fills it up.
func (b *Bucket) Renew() { b.has = b.Most }
