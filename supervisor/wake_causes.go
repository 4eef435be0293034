package supervisor

import (
	"github.com/rsswarden/rsswarden/supervisor/wake"
)

// What the bell rings for.
const (
	loaderNews wake.Cause = 1 << iota // something was put into a run directory
	rankNews                          // a rank came or went, or answers
	limitMet                          // a limit of cgroup v2 has slowed a process, was met, or had one killed
	stalled                           // tasks of the node wait for memory
	actionDue                         // the action in flight goes on
)
