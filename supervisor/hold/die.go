package hold

import "os"

// Die ends this process as the command ended: with its exit status, or by the
// same signal, without a core of our own. It never returns.
func (s Status) Die() {
	if s.Signal == 0 {
		os.Exit(s.Code)
	}
	dieBy(s.Signal)
	// The first process of a PID namespace is not killed by its own signals.
	os.Exit(128 + s.Signal)
}
