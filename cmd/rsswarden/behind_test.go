package main

import (
	"strings"
	"testing"
)

// TestBehind: an option of ours that stands behind the command is asked about, once, and
// only where nobody said by -- where the command begins.
func TestBehind(t *testing.T) {
	for line, want := range map[string]string{
		"run | train.py --limit 4G":                          "--limit 4G stands behind train.py and is left to it; if rsswarden is meant: rsswarden run --limit 4G -- train.py …; if not, write -- before train.py",
		"run --quiet | python train.py --limit=4G":           "--limit=4G stands behind python",
		"run | python train.py --at 85%:trim":                "--at 85%:trim stands",
		"run | python train.py --at 85%:trim --limit 4G":     "--at 85%:trim stands",
		"run | python train.py --dry-run --x":                "--dry-run stands behind python",
		"run | python train.py --alert http://me:key@host":   "--alert URL stands behind python",
		"run -- | python train.py --limit 4G":                "",
		"run --limit 3G -- | python train.py --limit 4G":     "",
		"run | python train.py --limit all":                  "", // no value of ours
		"run | python train.py --limit":                      "",
		"run | python train.py --limit -1":                   "",
		"run | python train.py --limits 4G":                  "",
		"run | python train.py --config x.yaml --quiet":      "",
		"run | python train.py --help":                       "",
		"run | torchrun train.py -- --limit 4G":              "",
		"run | rsswarden run --limit 4G python":              "",
		"run --limit 3G | python train.py":                   "",
		"run | python -c --limit 4G":                         "--limit 4G stands",
		"run --dry-run | true":                               "",
		"run | python train.py --alert http://me:key@host/x": "--alert URL stands",
	} {
		ours, command, _ := strings.Cut(line, " | ")
		got := behind(strings.Fields("rsswarden "+ours+" "+command), strings.Fields(command))
		if want == "" && got != "" || !strings.HasPrefix(got, want) || strings.Contains(got, "key") {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}
