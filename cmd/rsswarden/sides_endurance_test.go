//go:build endurance

package main_test

import "testing"

// TestEnduranceSmallTensors is the failure that users report, 20 times in each
// way.
func TestEnduranceSmallTensors(t *testing.T) { smallTensors(t, 20) }
