//go:build endurance

package main_test

import "testing"

// TestEnduranceDiagnosis runs each program five times.
func TestEnduranceDiagnosis(t *testing.T) { diagnose(t, times(5)) }

// TestEnduranceDiagnosisWithoutHook: what is read from outside tells as much, but for
// what only malloc_trim(3) shows.
func TestEnduranceDiagnosisWithoutHook(t *testing.T) { diagnose(t, 1, "--loader", "off") }
