package record

import (
	"bytes"
	"time"

	"github.com/bmatsuo/lmdb-go/lmdb"
)

// A record that fills up is thinned: of its older samples one in 10 s is kept,
// of those one in 60 s, and so on. The one kept is the fullest, so that peaks
// stay; what decisions were taken on is kept too, as far as mostDecided reaches.
// Where hours apart are still too many the oldest go. A block's first byte is the
// tier that it was thinned to, 0 for not at all.

// gaps are how far samples of a tier lie apart. Tier 0 is as they were taken.
var gaps = [...]time.Duration{0, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour}

const (
	// thinBatch is how many blocks one transaction thins: some milliseconds.
	thinBatch = 64
	// mostBatch bounds the bytes of these: in a tree of thousands each is large.
	mostBatch = 4 << 20
	// mostThinning bounds the transactions in a row where there is no room left.
	mostThinning = 4096
	// crowdedShare is the part of the file in use from which on it is thinned, a
	// batch with each commit, before it is full: to thin takes pages too, and a
	// reader of a live record keeps those that were given up.
	crowdedShare = 0.75
	// routineShare is the part of the file that the bytes of routine events may
	// have. Their pages are less than half full.
	routineShare = 0.1
	// keepShare is the part of a tier's bytes that stays: its newest.
	keepShare = 0.25
	// hoursShare is the part of all that the last tier may have.
	hoursShare = 0.5
)

// tiers counts the bytes of blocks by tier.
type tiers [len(gaps)]int

func (t *tiers) add(tier, n int) { t[tier] += n }

func (t *tiers) sum(o *tiers) {
	for i, n := range o {
		t[i] += n
	}
}

// tierOf returns the tier of a sealed block.
func tierOf(sealed []byte) int {
	if len(sealed) <= crcSize || int(sealed[crcSize]) >= len(gaps) {
		return len(gaps) - 1 // damaged: nothing is ever thinned from there
	}
	return int(sealed[crcSize])
}

// scan counts what is there already.
func (s *store) scan() error {
	s.tiers, s.routine = tiers{}, 0
	return s.env.View(func(txn *lmdb.Txn) (err error) {
		if s.used, err = s.inUse(txn); err != nil {
			return err
		}
		cur, err := txn.OpenCursor(s.dbi)
		if err != nil {
			return err
		}
		defer cur.Close()
		k, v, err := cur.Get(makeKey(keyRoutine, 0), nil, lmdb.SetRange)
		for ; err == nil; k, v, err = cur.Get(nil, nil, lmdb.Next) {
			switch k[0] {
			case keyRoutine:
				s.routine += len(v)
			case keyBlock:
				s.tiers.add(tierOf(v), len(v))
			}
		}
		if !lmdb.IsNotFound(err) {
			return err
		}
		return nil
	})
}

// forget takes out the oldest routine events.
func (s *store) forget() {
	freed := 0
	_ = s.update(func(txn *lmdb.Txn) error {
		freed = 0
		cur, err := txn.OpenCursor(s.dbi)
		if err != nil {
			return err
		}
		defer cur.Close()
		k, v, err := cur.Get(makeKey(keyRoutine, 0), nil, lmdb.SetRange)
		for n := 0; err == nil && n < thinBatch && k[0] == keyRoutine; n++ {
			freed += len(v)
			if err := cur.Del(0); err != nil {
				return err
			}
			k, v, err = cur.Get(nil, nil, lmdb.Next)
		}
		if err != nil && !lmdb.IsNotFound(err) {
			return err
		}
		return nil
	}, func() { s.routine -= freed })
}

// crowded says that room runs out.
func (s *store) crowded() bool {
	return s.used > max(int64(crowdedShare*float64(s.size)), s.futile)
}

// pick returns the tier to thin: the finest with more than its share, where
// nothing newer is worth more than what it would free.
func (t *tiers) pick() (tier int, ok bool) {
	all := 0
	for _, n := range t {
		all += n
	}
	last := len(t) - 1
	if float64(t[last]) > hoursShare*float64(all) {
		return last, true
	}
	for i, n := range t[:last] {
		if float64(n) > keepShare*float64(all) {
			return i, true
		}
		if n > t[tier] {
			tier = i
		}
	}
	return tier, t[tier] > 0
}

// thin thins one batch of blocks, the oldest of one tier, and says whether there
// was one.
func (s *store) thin() bool {
	tier, ok := s.tiers.pick()
	if !ok {
		return false
	}
	var grown tiers
	var passed uint64
	found, done := false, false
	_ = s.update(func(txn *lmdb.Txn) error {
		grown, found = tiers{}, false
		keys, blocks, err := s.oldest(txn, tier)
		if err != nil || len(keys) < 2 {
			return err // the last is still being written
		}
		if _, n, ok := splitKey(keys[len(keys)-1]); ok {
			passed = n + 1
		}
		for i, k := range keys {
			grown.add(tier, -len(blocks[i])-crcSize)
			if err := txn.Del(s.dbi, k, nil); err != nil {
				return err
			}
		}
		if tier == len(gaps)-1 {
			found = true
			return nil
		}
		for _, it := range thinned(blocks, tier+1) {
			key := makeKey(it.kind, it.n)
			grown.add(tier+1, len(it.value)+crcSize)
			if err := txn.Put(s.dbi, key, seal(key, it.value), 0); err != nil {
				return err
			}
		}
		found = true
		return nil
	}, func() {
		s.tiers.sum(&grown)
		s.passed[tier] = max(s.passed[tier], passed)
		done = found
	})
	return done
}

// oldest returns keys and values of the oldest blocks of a tier, but for the
// newest block of all, to which samples are still added.
func (s *store) oldest(txn *lmdb.Txn, tier int) (keys, blocks [][]byte, err error) {
	cur, err := txn.OpenCursor(s.dbi)
	if err != nil {
		return nil, nil, err
	}
	defer cur.Close()
	last, _, err := cur.Get(nil, nil, lmdb.Last)
	if err != nil {
		return nil, nil, err
	}
	last = bytes.Clone(last)
	txn.RawRead = true // what is kept is copied
	defer func() { txn.RawRead = false }()
	size := 0
	k, v, err := cur.Get(makeKey(keyBlock, s.passed[tier]), nil, lmdb.SetRange)
	for ; err == nil && len(keys) < thinBatch && size < mostBatch; k, v, err = cur.Get(nil, nil, lmdb.Next) {
		if bytes.Equal(k, last) {
			break
		}
		if tierOf(v) != tier {
			continue
		}
		keys, size = append(keys, bytes.Clone(k)), size+len(v)
		// What is damaged is dropped here rather than kept as whole.
		block, err := open(k, v)
		if err != nil {
			block = nil
		}
		blocks = append(blocks, bytes.Clone(block))
	}
	if err != nil && !lmdb.IsNotFound(err) {
		return nil, nil, err
	}
	return keys, blocks, nil
}
