//go:build rsswarden_faults

package supervisor

import "os"

// faultPoint panics where a test asked for it by RSSWARDEN_FAULT=panic. It is
// built into programs made with -tags rsswarden_faults alone, so that tests can
// see what a bug in the watcher does to the command: nothing.
func faultPoint() {
	if os.Getenv("RSSWARDEN_FAULT") == "panic" {
		panic("asked for by RSSWARDEN_FAULT")
	}
}
