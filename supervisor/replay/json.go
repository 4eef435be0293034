package replay

import (
	"encoding/json"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

type plainDecision Decision

// MarshalJSON writes a limit on a number as package event does: "used" and
// "limit_count" in the place of "used_bytes" and "limit_bytes".
func (d Decision) MarshalJSON() ([]byte, error) {
	if !d.Limit.Counts() {
		return json.Marshal((*plainDecision)(&d))
	}
	type none *struct{}
	recorded := any(d.Recorded)
	if r := d.Recorded; r != nil {
		recorded = struct {
			ID   uint64    `json:"id"`
			At   float64   `json:"at_s"`
			Rule string    `json:"rule"`
			Used rss.Bytes `json:"used"`
		}{r.ID, r.At, r.Rule, r.Used}
	}
	return event.Beside(struct {
		*plainDecision
		Used     none `json:"used_bytes,omitempty"`
		Size     none `json:"limit_bytes,omitempty"`
		Recorded none `json:"recorded,omitempty"`
	}{plainDecision: (*plainDecision)(&d)}, struct {
		Used     rss.Bytes `json:"used"`
		Size     rss.Bytes `json:"limit_count"`
		Recorded any       `json:"recorded"`
	}{d.Used, d.Size, recorded})
}
