package main

import (
	"slices"
	"strings"
	"testing"
)

// TestMeant: a guess is an option that there is, and no guess is made where too many fit.
func TestMeant(t *testing.T) {
	options := optionNames(runFlags())
	for word, want := range map[string]string{
		"limt": "--limit", "dry_run": "--dry-run", "memory": "--limit", "int": "--interval", "config-file": "--config",
		"token": "--alert-token-file", "json": "--log-format json", "g": "--grace", "l": "", "x": "", "wxyz": "",
		"timeout": "--checkpoint-timeout", "n": "--dry-run", "1": "", "": "",
	} {
		if got := strings.Join(meant(options, word), " or "); got != want {
			t.Errorf("--%s: %q, want %q", word, got, want)
		}
	}
	if got := optionNames(whomFlags()); slices.Contains(got, "--as-node") || !slices.Contains(got, "--node") {
		t.Errorf("options %v", got)
	}
	for word, likes := range calledElsewhere {
		for _, like := range likes {
			name, _, _ := strings.Cut(like, " ")
			var known []string
			for _, f := range [][]string{options, optionNames(whomFlags()), optionNames(narrowFlags()), optionNames(topCommand(process{}, nil).Flags), {"--version", "--help"}} {
				known = append(known, f...)
			}
			if !slices.Contains(known, name) {
				t.Errorf("--%s is told as %s, which no command has", word, like)
			}
		}
	}
}
