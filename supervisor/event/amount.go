package event

import (
	"encoding/json"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Limits on numbers of things are written as numbers: "used" and "limit_count" in place of
// "used_bytes" and "limit_bytes". In Go the fields are the same: one ladder serves both.

// Amount gives what a limit counts, for people: bytes as bytes, a number with its
// digits in threes.
func (n LimitName) Amount(v rss.Bytes) string {
	if n.Counts() {
		return text.Digits(uint64(v))
	}
	return v.String()
}

type (
	plainLimit    Limit
	plainDecision Decision
)

// none shadows a field that is left out.
type none *struct{}

// limitCount is a limit on a number as JSON has it.
type limitCount struct {
	*plainLimit
	Used  none `json:"used_bytes,omitempty"`
	Max   none `json:"used_max_bytes,omitempty"`
	Limit none `json:"limit_bytes,omitempty"`
	limitNumbers
}

type limitNumbers struct {
	UsedCount  *rss.Bytes `json:"used"`
	MaxCount   *rss.Bytes `json:"used_max,omitempty"`
	LimitCount *rss.Bytes `json:"limit_count"`
}

func counted(l *Limit) limitCount {
	c := limitCount{plainLimit: (*plainLimit)(l), limitNumbers: limitNumbers{UsedCount: &l.Used, LimitCount: &l.Limit}}
	if l.UsedMax != l.Used {
		c.MaxCount = &l.UsedMax
	}
	return c
}

// take puts the numbers that were read into the limit.
func (n *limitNumbers) take(l *Limit) {
	if n.UsedCount != nil {
		l.Used, l.UsedMax = *n.UsedCount, *n.UsedCount
	}
	if n.MaxCount != nil {
		l.UsedMax = *n.MaxCount
	}
	if n.LimitCount != nil {
		l.Limit = *n.LimitCount
	}
}

// MarshalJSON writes a count as a count.
func (l Limit) MarshalJSON() ([]byte, error) {
	if l.Name.Counts() {
		return json.Marshal(counted(&l))
	}
	return json.Marshal((*plainLimit)(&l))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (l *Limit) UnmarshalJSON(b []byte) error {
	c := struct {
		*plainLimit
		limitNumbers
	}{plainLimit: (*plainLimit)(l)}
	if err := json.Unmarshal(b, &c); err != nil {
		return err
	}
	c.take(l)
	return nil
}

// MarshalJSON writes the limit's fields beside those of the head.
func (f Found) MarshalJSON() ([]byte, error) { return Beside(f.Head, f.Limit) }

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

// UnmarshalJSON reads what MarshalJSON wrote.
func (f *Found) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, &f.Head); err != nil {
		return err
	}
	return json.Unmarshal(b, &f.Limit)
}

type decisionNumbers struct {
	UsedCount *rss.Bytes `json:"used"`
	Count     *rss.Bytes `json:"limit_count"`
	At        *rss.Bytes `json:"threshold"`
	Ahead     rss.Bytes  `json:"lead,omitempty"`
}

// MarshalJSON writes counts as counts: "used", "limit_count", "threshold".
func (d Decision) MarshalJSON() ([]byte, error) {
	if !d.Limit.Counts() {
		return json.Marshal((*plainDecision)(&d))
	}
	return json.Marshal(struct {
		*plainDecision
		Used      none `json:"used_bytes,omitempty"`
		LimitSize none `json:"limit_bytes,omitempty"`
		Threshold none `json:"threshold_bytes,omitempty"`
		Lead      none `json:"lead_bytes,omitempty"`
		decisionNumbers
	}{plainDecision: (*plainDecision)(&d), decisionNumbers: decisionNumbers{&d.Used, &d.LimitSize, &d.Threshold, d.Lead}})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (d *Decision) UnmarshalJSON(b []byte) error {
	c := struct {
		*plainDecision
		decisionNumbers
	}{plainDecision: (*plainDecision)(d)}
	if err := json.Unmarshal(b, &c); err != nil {
		return err
	}
	if c.UsedCount != nil {
		d.Used = *c.UsedCount
	}
	if c.Count != nil {
		d.LimitSize = *c.Count
	}
	if c.At != nil {
		d.Threshold = *c.At
	}
	if c.Ahead != 0 {
		d.Lead = c.Ahead
	}
	return nil
}
