package main

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
	"github.com/rsswarden/rsswarden/supervisor/policy"
)

// TestHelpFitsAScreen: a user reads it in a terminal.
func TestHelpFitsAScreen(t *testing.T) {
	all := commands(process{})
	fits := func(name, help string, most int) {
		lines := strings.Split(strings.TrimSuffix(help, "\n"), "\n")
		if len(lines) > most {
			t.Errorf("%s has %d lines, more than %d", name, len(lines), most)
		}
		for _, l := range lines {
			if n := utf8.RuneCountInString(l); n > 80 {
				t.Errorf("%s has %d columns: %s", name, n, l)
			}
		}
	}
	golden.Check(t, "testdata/help.txt", appHelp(all)+"\n== run --help\n"+helpOf(all[0])+"\n== run --help-all\n"+helpAllOf(all[0]))
	fits("--help", appHelp(all), 24)
	for _, c := range all {
		help, whole := helpOf(c), helpAllOf(c)
		fits(c.Name+" --help", help, 24)
		fits(c.Name+" --help-all", whole, 60)
		if n := strings.Count(c.ArgsUsage, "\n") + 1; n < 2 || n > 3 || !strings.HasSuffix(help, "E.g.:  "+strings.ReplaceAll(c.ArgsUsage, "\n", "\n       ")+"\n") {
			t.Errorf("%s --help has the examples %q:\n%s", c.Name, c.ArgsUsage, help)
		}
		if !strings.Contains(appHelp(all), c.Name) {
			t.Errorf("--help lacks %s", c.Name)
		}
		for _, f := range c.Flags {
			if name := f.Names()[0]; !internal(f) && !strings.Contains(whole, "--"+name) {
				t.Errorf("%s --help-all lacks --%s", c.Name, name)
			}
		}
	}
}

// TestExamplesAreRight: what --help shows can be typed.
func TestExamplesAreRight(t *testing.T) {
	all := commands(process{})
	lines := appExamples
	for _, c := range all {
		lines = append(lines, strings.Split(c.ArgsUsage, "\n")...)
	}
	for _, l := range lines {
		_, call, found := strings.Cut(l, programName+" ")
		words := strings.Fields(strings.Split(call, "|")[0])
		i := slices.IndexFunc(all, func(c *cli.Command) bool { return found && c.Name == words[0] })
		if i < 0 {
			t.Errorf("no command in %q", l)
			continue
		}
		for n, w := range words {
			if w == "--" {
				break
			}
			if strings.HasPrefix(w, "-") && flagNamed(all[i].Flags, strings.TrimLeft(w, "-")) == nil {
				t.Errorf("%s has no %s: %q", all[i].Name, w, l)
			}
			if w == "--at" {
				if _, err := policy.Ladder([]string{strings.Trim(words[n+1], "'")}); err != nil {
					t.Errorf("%q: %v", l, err)
				}
			}
		}
	}
}
