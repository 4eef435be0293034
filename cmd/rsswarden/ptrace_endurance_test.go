//go:build endurance

package main_test

import "testing"

// TestEnduranceSlurmPtrace: jobs that no hook reaches, under a limit that kills
// them bare.
func TestEnduranceSlurmPtrace(t *testing.T) {
	for name, build := range map[string]func(*testing.T) silent{
		"python -I": func(t *testing.T) silent { return isolated(t, "--persistent") },
		"lmdbload":  compiled,
	} {
		t.Run(name, func(t *testing.T) {
			s := build(t)
			s.again(t, times(20), s.want, s.wrapped(""), fine, s.args...)
		})
	}
}
