package supervisor

import (
	"fmt"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// This file holds what people read about limits that are none on memory that
// is summed: on numbers of things, on one process, on /dev/shm.

// side is the front of every line about such a limit: "memory mappings 81 % of
// 65,530, in process 4711 (trainer) (kernel, by ENOMEM of mmap; limit from
// vm.max_map_count)".
func side(l *event.Limit) string {
	line := fmt.Sprintf("%s %s of %s", l.Name.Thing(), text.Percent(l.Ratio()), l.Name.Amount(l.Limit))
	switch l.Scope {
	case event.ScopeNode:
		line += ", of all users of the node"
	case event.ScopeUser:
		line += ", of all your processes on the node"
	}
	if l.PID != 0 {
		line += fmt.Sprintf(", in process %d", l.PID)
		if l.Role != "" && l.Role != rss.RoleOther {
			line += " (" + string(l.Role) + ")"
		}
	}
	who := l.Enforcer
	if l.LimitSource != "" {
		who += "; limit from " + l.Place()
	}
	if l.Age >= 1 {
		read := "counted"
		if !l.Name.Counts() {
			read = "read"
		}
		who += fmt.Sprintf("; %s %.0f s ago", read, l.Age)
	}
	return line + " (" + who + ")"
}
