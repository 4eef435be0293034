package supervisor

import (
	"fmt"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// This file holds what people read about limits that are none on memory that
// is summed: on numbers of things, on one process, on /dev/shm.

// sides tells of each such limit what runs out, and what to change before it
// does, in the words of who documents it.
var sides = map[event.LimitName]struct{ what, cure string }{
	event.LimitMaps: {"memory mappings",
		`each tensor that goes to a worker started by spawn or forkserver takes one: set_start_method("fork"), or one large tensor in the place of many; only root can raise vm.max_map_count`},
	event.LimitFDs: {"descriptors",
		`ulimit -n raises it up to the hard limit, --nofile where PyTorch needs it; or set_start_method("fork")`},
	event.LimitSHM: {"/dev/shm",
		"lower prefetch_factor, num_workers or the batch size; what is killed leaves its files behind there"},
	event.LimitTasks: {"tasks",
		"threads count: set OMP_NUM_THREADS, lower num_workers"},
	event.LimitAS: {"address space",
		"ulimit -v unlimited where the hard limit allows it: virtual size is not memory"},
	event.LimitMemlock: {"locked memory",
		"ulimit -l raises it up to the hard limit; pin_memory=False, or smaller communication buffers"},
}

// side is the front of every line about such a limit: "memory mappings 81 % of
// 65,530, in process 4711 (trainer) (kernel, by ENOMEM of mmap; limit from
// vm.max_map_count)".
func side(l *event.Limit) string {
	text := fmt.Sprintf("%s %s of %s", sides[l.Name].what, percent(l.Used, l.Limit), l.Name.Amount(l.Limit))
	if l.PID != 0 {
		text += fmt.Sprintf(", in process %d", l.PID)
		if l.Role != "" && l.Role != rss.RoleOther {
			text += " (" + string(l.Role) + ")"
		}
	}
	who := l.Enforcer
	if l.LimitSource != "" {
		who += "; limit from " + l.Place()
	}
	if l.Age >= 1 {
		who += fmt.Sprintf("; counted %.0f s ago", l.Age)
	}
	return text + " (" + who + ")"
}
