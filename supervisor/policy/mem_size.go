package policy

import (
	"strconv"

	"github.com/rsswarden/rsswarden/rss"
)

// LeastMem is the least that is advised, whatever the peak.
const LeastMem = 64 * rss.MiB

// NeatMem rounds up to a size people write: a multiple of a sixteenth of the
// power of two below it, and of 1 MiB at least.
func NeatMem(b rss.Bytes) rss.Bytes { return roundUp(b, 16) }

// GuessMem rounds up twice as roughly: a guess should look like one.
func GuessMem(b rss.Bytes) rss.Bytes { return roundUp(b, 8) }

func roundUp(b, parts rss.Bytes) rss.Bytes {
	step := rss.MiB
	for b/step >= 2*parts {
		step *= 2
	}
	return (b + step - 1) / step * step
}

// MemArg writes a size as --mem takes it: "3584M", "4G". What is no multiple
// of 1 MiB is rounded up.
func MemArg(b rss.Bytes) string {
	if b >= rss.GiB && b%rss.GiB == 0 {
		return strconv.FormatUint(uint64(b/rss.GiB), 10) + "G"
	}
	return strconv.FormatUint(uint64((b+rss.MiB-1)/rss.MiB), 10) + "M"
}
