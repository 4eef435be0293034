package main

import (
	"slices"
	"strings"
	"testing"
)

// TestSuggestFlags: a guess is an option that there is, and no guess is made where too many fit.
func TestSuggestFlags(t *testing.T) {
	run := flagNames(watchFlags(true))
	for word, want := range map[string]string{
		"limt": "--limit", "dry_run": "--dry-run", "memory": "--limit", "int": "--interval", "config-file": "--config",
		"token": "--alert-token-file", "json": "--log-format json", "g": "--grace", "l": "", "x": "", "wxyz": "",
		"timeout": "--checkpoint-timeout", "n": "--dry-run", "1": "", "": "",
	} {
		if got := strings.Join(suggestFlags(run, word), " or "); got != want {
			t.Errorf("--%s: %q, want %q", word, got, want)
		}
	}
	if got := flagNames(targetFlags()); slices.Contains(got, "--as-node") || !slices.Contains(got, "--node") {
		t.Errorf("options %v", got)
	}
	known := slices.Concat(flagNames(targetFlags()), []string{"--pid"}, []string{"--version", "--help"})
	for word, like := range foreignFlags {
		if !slices.Contains(known, like) {
			t.Errorf("the hint for --%s is %s, which no command has", word, like)
		}
	}
}

// TestSuggestRule: a guess is a rule, and none is made of what may mean anything. What is
// said about the others is in mistakesrules.txtar.
func TestSuggestRule(t *testing.T) {
	for text, want := range map[string]string{
		"recycle:90%":           "did you mean '90%:recycle'?",
		"90%=trim":              "did you mean '90%:trim'?",
		"user 0.9:stop":         "did you mean 'user 90%:stop'?",
		"RSS >= 85%:Warn":       "did you mean '85%:warn'?",
		"free < 2G:recycle":     "did you mean 'free<2G:recycle'?",
		"90%:sigusr1":           "did you mean '90%:signal=USR1'?",
		"85%:trim, 95%:stop":    "give each rule an --at of its own: --at '85%:trim' --at '95%:stop'",
		"90%:exec=notify a,b:c": "did you mean '90%:exec=notify a,b:c'?", // it is one, and was not asked about
		"85%:explode":           "",
		"185%:warn":             "",
		"3G:stop":               "",
		"90%:signal=KILL":       "",
		"90%:":                  "",
		"90%":                   "",
		"recycle":               "",
		"::":                    "",
		",":                     "",
		"":                      "",
	} {
		if got := suggestRule(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestMisplacedFlag: an option of ours that came after the command is named, once, and only
// where no -- says where the command begins.
func TestMisplacedFlag(t *testing.T) {
	for line, want := range map[string]string{
		"run | train.py --limit 4G":                          "--limit 4G came after the command, so train.py gets it",
		"run --quiet | python train.py --limit=4G":           "--limit=4G came after the command, so python gets it",
		"run | python train.py --at 85%:trim":                "--at 85%:trim came after the command",
		"run | python train.py --at 85%:trim --limit 4G":     "--at 85%:trim came after the command",
		"run | python train.py --dry-run --x":                "--dry-run came after the command, so python gets it",
		"run | python train.py --alert http://me:key@host":   "--alert URL came after the command, so python gets it",
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
		"run | python -c --limit 4G":                         "--limit 4G came after the command",
		"run --dry-run | true":                               "",
		"run | python train.py --alert http://me:key@host/x": "--alert URL came after the command",
	} {
		ours, command, _ := strings.Cut(line, " | ")
		got := misplacedFlag(strings.Fields("rsswarden "+ours+" "+command), strings.Fields(command))
		if want == "" && got != "" || !strings.HasPrefix(got, want) || strings.Contains(got, "key") {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}
