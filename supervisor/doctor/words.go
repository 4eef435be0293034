package doctor

import (
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// sums tells what an accounting adds up.
var sums = map[event.Accounting]string{
	event.AccountingRSS:      "summed RSS",
	event.AccountingPSS:      "summed PSS",
	event.AccountingNoShared: "summed RSS less shared pages",
	event.AccountingCgroup:   "what the cgroup cannot reclaim",
	event.AccountingVirtual:  "summed virtual size",
}

// yesNo is how Slurm writes a truth.
func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
