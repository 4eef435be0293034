//go:build endurance

package diagnosis_test

import "testing"

// TestEnduranceScripts runs each script five times.
func TestEnduranceScripts(t *testing.T) { runScripts(t, 5, 5) }
