package main

import (
	"fmt"
	"strings"

	"github.com/rsswarden/rsswarden/supervisor/control"
)

// writeAlerts tells of each receiver of --alert what it knows, and what it was not
// told.
func writeAlerts(b *strings.Builder, st *control.Status) {
	for _, a := range st.Alerts {
		fmt.Fprintf(b, "  alerts to %s: %d firing, %d sent", a.Receiver, a.Firing, a.Sent)
		for _, n := range []struct {
			n    int
			what string
		}{{a.Untold, "not told yet"}, {a.Failed, "failed"}, {a.Overtaken, "overtaken by a newer state"}, {a.Lost, "lost"}} {
			if n.n > 0 {
				fmt.Fprintf(b, ", %d %s", n.n, n.what)
			}
		}
		if a.Held {
			b.WriteString(", waits: too little is left before a limit to tell it")
		}
		if a.SentAt != nil {
			fmt.Fprintf(b, "; the last taken at %s", clockOf(*a.SentAt, st.Time))
		}
		if a.Error != "" && a.FailedAt != nil {
			fmt.Fprintf(b, "; failed at %s: %s", clockOf(*a.FailedAt, st.Time), oneLine(a.Error))
		}
		b.WriteByte('\n')
	}
}
