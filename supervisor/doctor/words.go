package doctor

import (
	"strings"
	"unicode"

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

// printable keeps what names of files and programs' words have in them from
// breaking a line or steering a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}

// yesNo is how Slurm writes a truth.
func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
