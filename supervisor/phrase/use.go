package phrase

import (
	"fmt"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Use is what is used of a limit, both in one unit: "1034 of 1100 MiB", "900 of 1,024".
func Use(n event.LimitName, used, limit rss.Bytes) string {
	if n.Counts() {
		return n.Amount(used) + " of " + n.Amount(limit)
	}
	return rss.UsedOf(used, limit)
}

// LimitName is what a limit is called: by the option where that set it.
func LimitName(l *event.Limit) string {
	if l.Name == event.LimitUser {
		return "--limit"
	}
	return string(l.Name)
}

// Rate is bytes a second: "66 MiB/s".
func Rate(perSecond rss.Bytes) string { return Roughly(perSecond) + "/s" }

// Roughly is an estimate, or a sum that needs no more digits: "66 MiB", "3.5 GiB".
func Roughly(b rss.Bytes) string {
	unit, name := rss.MiB, "MiB"
	switch {
	case b >= rss.GiB:
		unit, name = rss.GiB, "GiB"
	case b < rss.MiB:
		unit, name = rss.KiB, "KiB"
	}
	v := float64(b) / float64(unit)
	if v < 9.95 {
		return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") + " " + name
	}
	return fmt.Sprintf("%.0f %s", v, name)
}

// Skipped says which actions could not help, and why: "trim and recycle skipped: no DataLoader
// workers found".
func Skipped(s *event.Saved) string {
	var whys []string
	by := map[string][]string{} // actions by why
	for i := range s.Actions {
		a := &s.Actions[i]
		if a.Worked > 0 || len(a.Reasons) == 0 || a.Action == event.ActionWarn {
			continue
		}
		most := event.Reason("")
		for r, n := range a.Reasons {
			if m := a.Reasons[most]; n > m || n == m && r < most {
				most = r
			}
		}
		why := a.Action.Why(most)
		if by[why] == nil {
			whys = append(whys, why)
		}
		by[why] = append(by[why], string(a.Action))
	}
	for i, why := range whys {
		whys[i] = text.List(by[why], text.All) + " skipped: " + why
	}
	return strings.Join(whys, "; ")
}
