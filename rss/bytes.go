package rss

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is an amount of memory in bytes.
type Bytes uint64

// Powers of 1024, as Slurm and the kernel count.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
	TiB Bytes = 1 << 40
)

// unitNames are the units, the largest first.
var unitNames = []struct {
	size Bytes
	name string
}{{TiB, " TiB"}, {GiB, " GiB"}, {MiB, " MiB"}, {KiB, " KiB"}, {1, " B"}}

// String gives b to three significant digits in the largest power of 1024
// that leaves a number of at least 1: "612 MiB", "2.73 GiB".
func (b Bytes) String() string {
	for _, u := range unitNames[:len(unitNames)-1] {
		if b < u.size {
			continue
		}
		v := float64(b) / float64(u.size)
		digits := 2
		switch {
		case v >= 99.95:
			digits = 0
		case v >= 9.995:
			digits = 1
		}
		return strconv.FormatFloat(v, 'f', digits, 64) + u.name
	}
	return strconv.FormatUint(uint64(b), 10) + " B"
}

// Typed gives the size of a limit as people type it: in MiB below 10 GiB unless it is whole
// GiB, "1100 MiB" and "3.0 GiB".
func (b Bytes) Typed() string {
	u, name := b.unit()
	return b.in(u) + name
}

// UsedOf gives use and limit in the unit of the limit: "1034 of 1100 MiB", "1.6 of 3.0 GiB";
// but what would round to nothing in its own: "30.0 MiB of 100 GiB".
func UsedOf(used, limit Bytes) string {
	u, name := limit.unit()
	if 0 < used && used < u/20 {
		return used.String() + " of " + limit.in(u) + name
	}
	return used.in(u) + " of " + limit.in(u) + name
}

// unit is that of a limit: no TiB, and bytes for 0.
func (b Bytes) unit() (Bytes, string) {
	for _, u := range unitNames[1:] {
		if b >= u.size && (u.size < GiB || b >= 10*GiB || b%GiB == 0) {
			return u.size, u.name
		}
	}
	return 1, " B"
}

// in is the number of units: with one decimal of GiB below 100, and of what is small.
func (b Bytes) in(unit Bytes) string {
	v, digits := float64(b)/float64(unit), 0
	if whole := b%unit == 0; unit == GiB && v < 99.95 || !whole && v < 9.95 && unit != GiB {
		digits = 1
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// Sub returns b less c, and 0 where c is the larger: counters read one after
// the other may cross.
func (b Bytes) Sub(c Bytes) Bytes {
	if c >= b {
		return 0
	}
	return b - c
}

// Of returns b as a share of limit, 0.91 for 91 %; 0 where limit is 0.
func (b Bytes) Of(limit Bytes) float64 {
	if limit == 0 {
		return 0
	}
	return float64(b) / float64(limit)
}

// Scale returns b times f, rounded down and never below 0.
func (b Bytes) Scale(f float64) Bytes {
	v := float64(b) * f
	switch {
	case math.IsNaN(v) || v <= 0:
		return 0
	case v >= math.MaxUint64:
		return math.MaxUint64
	}
	return Bytes(v)
}

// ErrSize is wrapped by the errors of ParseBytes.
var ErrSize = errors.New("not a size")

// ParseBytes reads a size as sbatch reads --mem: a number without a suffix is
// in MiB; K, M, G and T, each also as KB or KiB, in either case, are powers of
// 1024. A fraction ("1.5G") is accepted, a sign is not.
func ParseBytes(s string) (Bytes, error) {
	t := strings.TrimSpace(s)
	n := 0
	for n < len(t) && (t[n] >= '0' && t[n] <= '9' || t[n] == '.') {
		n++
	}
	v, err := strconv.ParseFloat(t[:n], 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %q", ErrSize, s)
	}
	unit := MiB
	switch strings.ToUpper(strings.TrimSpace(t[n:])) {
	case "", "M", "MB", "MIB":
	case "B":
		unit = 1
	case "K", "KB", "KIB":
		unit = KiB
	case "G", "GB", "GIB":
		unit = GiB
	case "T", "TB", "TIB":
		unit = TiB
	default:
		return 0, fmt.Errorf("%w: %q: unknown unit %q", ErrSize, s, t[n:])
	}
	v *= float64(unit)
	if v >= math.MaxInt64 {
		return 0, fmt.Errorf("%w: %q is too large", ErrSize, s)
	}
	return Bytes(v), nil
}
