package event

import (
	"encoding/json"
	"time"
)

// Handover is what the ladder took in of what the leader before it had done. It is
// written to the record alone: with it the ladder can be run again.
type Handover struct {
	Head
	// Ran is how long the run had lasted at that moment, on the clock of samples,
	// which nobody sets. Clock is the moment on the clock of the memory's times.
	Ran   time.Duration `json:"ran_ns"`
	Clock time.Duration `json:"clock_ns"`
	// Own is the level under which the memory has the limits of the watcher's own
	// step, which have none while it is alone; empty outside a step.
	Own string `json:"own_level,omitempty"`
	// Memory is what the ladder remembers, as package policy writes it.
	Memory json.RawMessage `json:"memory"`
}
