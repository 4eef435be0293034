package report

import (
	"fmt"

	"github.com/rsswarden/rsswarden/rss"
)

// adviseFinding is what to write instead of what the newest job was found to do, the
// weightiest finding alone: what older jobs did may have been mended since.
func adviseFinding(k *kind) (Line, bool) {
	newest := k.newest()
	for i := range k.jobs {
		if k.jobs[i].last() != newest {
			continue
		}
		var all diagnoses
		for _, f := range k.jobs[i].runs {
			tree := rss.Bytes(0)
			key, _ := k.key()
			if f.exit != nil && f.exit.Peaks.RSS != nil {
				tree = *f.exit.Peaks.RSS
			}
			all.add(f.run.Meta.ID, f.run.Wall, &f.grown, tree, key.accounting)
		}
		for _, d := range all.sorted() {
			if len(d.Advice) == 0 || len(d.Evidence) == 0 {
				continue
			}
			return Line{Line: d.Advice[0], Why: findingTitle(&d, len(k.jobs[i].runs)), Evidence: fmt.Sprintf("%s (%s)", d.Evidence[0], d.Run)}, true
		}
	}
	return Line{}, false
}
