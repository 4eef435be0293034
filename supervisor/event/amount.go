package event

import (
	"bytes"
	"encoding/json"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Amount gives what a limit counts, for people: bytes as bytes, a number with its
// digits in threes.
func (n LimitName) Amount(v rss.Bytes) string {
	if n.Counts() {
		return text.Digits(uint64(v))
	}
	return v.String()
}

// asCounts has the names of fields about limits on numbers of things, behind those about bytes.
// In Go the fields are the same: one ladder serves both.
var asCounts = [][2]string{
	{"used_bytes", "used"}, {"used_max_bytes", "used_max"}, {"limit_bytes", "limit_count"}, {"threshold_bytes", "threshold"}, {"lead_bytes", "lead"},
}

// renamed gives the fields of a JSON object their other names, from the one of each pair to the
// other. In a text of JSON every quote has a backslash before it.
func renamed(b []byte, from, to int) []byte {
	for _, n := range asCounts {
		if old := []byte(`"` + n[from] + `":`); bytes.Contains(b, old) {
			b = bytes.ReplaceAll(b, old, []byte(`"`+n[to]+`":`))
		}
	}
	return b
}

type (
	plainLimit    Limit
	plainDecision Decision
)

// MarshalJSON writes a count as a count: "used", "limit_count".
func (l Limit) MarshalJSON() ([]byte, error) {
	if !l.Name.Counts() {
		return json.Marshal((*plainLimit)(&l))
	}
	if l.UsedMax == l.Used {
		l.UsedMax = 0
	}
	b, err := json.Marshal((*plainLimit)(&l))
	return renamed(b, 0, 1), err
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (l *Limit) UnmarshalJSON(b []byte) error {
	err := json.Unmarshal(renamed(b, 1, 0), (*plainLimit)(l))
	if l.Name.Counts() && l.UsedMax == 0 {
		l.UsedMax = l.Used
	}
	return err
}

// MarshalJSON writes counts as counts: "used", "limit_count", "threshold".
func (d Decision) MarshalJSON() ([]byte, error) {
	b, err := json.Marshal((*plainDecision)(&d))
	if d.Limit.Counts() {
		b = renamed(b, 0, 1)
	}
	return b, err
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (d *Decision) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(renamed(b, 1, 0), (*plainDecision)(d))
}

// MarshalJSON writes the limit's fields beside those of the head.
func (f Found) MarshalJSON() ([]byte, error) { return Beside(f.Head, f.Limit) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (f *Found) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, &f.Head); err != nil {
		return err
	}
	return json.Unmarshal(b, &f.Limit)
}

// Beside writes the fields of two objects as those of one.
func Beside(one, other any) ([]byte, error) {
	a, err := json.Marshal(one)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(other)
	if err != nil {
		return nil, err
	}
	return append(append(a[:len(a)-1], ','), b[1:]...), nil
}
