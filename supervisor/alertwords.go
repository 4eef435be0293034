package supervisor

import (
	"fmt"

	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// This file has the last words on alerts.

// lastAlerts waits for those who have always answered, for a moment, and says what
// was not told, or may not have been.
func (w *watcher) lastAlerts() {
	if w.alerts.wait == nil {
		return
	}
	w.alerts.wait()
	for _, r := range w.alerts.sender.Standing() {
		for _, text := range lastWordsOf(&r) {
			if r.Failing || r.Missed+r.Dropped > 0 {
				w.tell.Warn(text)
			} else {
				w.tell.Info(text) // it has always answered, and may be slow
			}
		}
	}
}

// lastWordsOf tells of one receiver at the end.
func lastWordsOf(r *alert.Standing) (all []string) {
	because := ""
	if r.Error != "" {
		because = ": " + r.Error
	}
	switch n := text.Count(r.Untold, "alert"); {
	case r.Untold == 0:
	case r.Asked && r.Failing:
		all = append(all, fmt.Sprintf("alert: %v was told at the end how %s stood, and was not waited for; it failed before%s", r.Target, n, because))
	case r.Asked:
		all = append(all, fmt.Sprintf("alert: %v was told at the end how %s stood; whether it took that is not known", r.Target, n))
	default:
		all = append(all, fmt.Sprintf("alert: %v was not told how %s stood at the end%s", r.Target, n, because))
	}
	if r.Missed > 0 {
		all = append(all, fmt.Sprintf("alert: %v was not told of the end of %s in time%s", r.Target, text.Count(r.Missed, "earlier alert"), because))
	}
	if r.Dropped > 0 {
		all = append(all, fmt.Sprintf("alert: %v was not told of %s: too many at a time", r.Target, text.Count(r.Dropped, "alert")))
	}
	return all
}
