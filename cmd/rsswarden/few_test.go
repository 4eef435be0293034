package main_test

import "os"

// few is how many of all cases a test has time for: all of them where
// RSSWARDEN_ENDURANCE is set, as `make endurance` does.
func few(all, some int) int {
	if os.Getenv("RSSWARDEN_ENDURANCE") != "" {
		return all
	}
	return some
}
