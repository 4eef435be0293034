package record

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// gaps are the distances of samples in each tier; a block's first byte is its tier. Tier
// 0 is as the samples were taken. A record that fills up keeps of its older samples one
// in 10 s, of those one a minute, and so on: the fullest, so that peaks stay, and up to
// mostDecided on which rules fired.
var gaps = [...]time.Duration{0, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour}

// Tiers is how many tiers there are. The oldest blocks of the last are deleted.
const Tiers = len(gaps)

func TierOf(sealed []byte) int {
	if len(sealed) <= crcSize || int(sealed[crcSize]) >= Tiers {
		return Tiers - 1 // damaged: nothing is ever thinned from there
	}
	return int(sealed[crcSize])
}

// mostDecided is how many samples at decisions are kept of one stretch. There may
// be a decision each second for days.
const mostDecided = 8

func Thin(blocks [][]byte, tier int) []Item {
	var out []Item
	var enc Encoder
	var first time.Duration
	flush := func() {
		if !enc.Empty() {
			out = append(out, BlockItem(first, enc.Block(tier)))
		}
	}
	put := func(s *Sample) {
		if enc.Full() {
			flush()
		}
		if enc.Empty() {
			first = s.At
		}
		enc.Add(s)
	}
	// What is kept of the stretch from since on: the first that decisions were
	// taken on, and the fullest. alone says that this is none of those.
	var keep []Sample
	fullest, decided, alone, since := -1, 0, false, time.Duration(-1)
	end := func() {
		for i := range keep {
			put(&keep[i])
		}
		keep, fullest, decided = keep[:0], -1, 0
	}
	var d decoder
	for _, b := range blocks {
		if len(b) == 0 {
			continue
		}
		for s := range d.samples(b) {
			if since < 0 || s.At-since >= gaps[tier] {
				end()
				since = s.At
			}
			better := fullest < 0 || fuller(s, &keep[fullest])
			first := s.AtDecision && decided < mostDecided
			if !better && !first {
				continue
			}
			if better {
				if fullest >= 0 && alone {
					keep = slices.Delete(keep, fullest, fullest+1)
				}
				fullest, alone = len(keep), !first
			}
			if first {
				decided++
			}
			keep = append(keep, s.clone())
		}
	}
	end()
	flush()
	return out
}

// clone copies what a decoder will overwrite.
func (s *Sample) clone() Sample {
	c := *s
	c.Limits, c.Procs, c.Roles = slices.Clone(s.Limits), slices.Clone(s.Procs), slices.Clone(s.Roles)
	return c
}

// fuller says that a was nearer to a limit than b, or larger where there is none.
func fuller(a, b *Sample) bool {
	x, y := a.fullness(), b.fullness()
	if x != y {
		return x > y
	}
	return a.sumRSS() > b.sumRSS()
}

func (s *Sample) fullness() float64 {
	most := 0.0
	for i := range s.Limits {
		most = max(most, s.Limits[i].Ratio())
	}
	return most
}

func (s *Sample) sumRSS() rss.Bytes {
	var sum rss.Bytes
	for i := range s.Procs {
		sum += s.Procs[i].RSS()
	}
	return sum
}
