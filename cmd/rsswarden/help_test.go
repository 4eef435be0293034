package main

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor"
	"github.com/rsswarden/rsswarden/supervisor/config"
)

// TestHelpFitsAScreen: a user reads it in a terminal.
func TestHelpFitsAScreen(t *testing.T) {
	var status int
	c := runCommand(process{}, &status)
	help := helpText(c.UsageText, c.Flags, c.Description)
	all := strings.Split(strings.TrimSuffix(help, "\n"), "\n")
	if len(all) > 24 {
		t.Errorf("run --help has %d lines, a screen 24", len(all))
	}
	for _, l := range all {
		if len(l) > 80 {
			t.Errorf("%d columns: %s", len(l), l)
		}
	}
	for _, o := range append(append([]option{configOption}, watchOptions...), runOptions...) {
		if !strings.Contains(help, "\n  --"+o.name+" ") && (o.usage != "" || !strings.Contains(help, " --"+o.name)) {
			t.Errorf("run --help does not tell of --%s", o.name)
		}
	}
}

const example = "../../examples/rsswarden.toml"

// TestExampleIsTheReference: the file that users copy has every option, with
// its default and a value that works.
func TestExampleIsTheReference(t *testing.T) {
	b, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	if string(b) != reference() {
		t.Errorf("examples/rsswarden.toml is not what the options are; it should read\n%s", reference())
	}
	// As it stands it changes nothing.
	file, problems := config.Parse(example, b, keys(), true)
	if len(problems) > 0 || len(file.Values) > 0 || len(file.Lock) > 0 {
		t.Errorf("the example sets %v, locks %v: %v", file.Values, file.Lock, problems)
	}
	// With every line in force it can be used by a site.
	var inForce strings.Builder
	for l := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(l, "#"); ok && !strings.HasPrefix(rest, " ") && rest != "\n" {
			l = rest
		}
		inForce.WriteString(l)
	}
	file, problems = config.Parse(example, []byte(inForce.String()), keys(), true)
	problems = append(problems, unusable(file)...)
	for _, p := range problems {
		t.Errorf("%v (%s)", p, p.Hint)
	}
	for _, k := range keys() {
		value, ok := file.Values[k.Name]
		if !ok {
			t.Errorf("the example does not show %s", k.Name)
		}
		var s, other supervisor.Settings
		for _, o := range append(watchOptions, runOptions...) {
			if o.name != k.Name {
				continue
			}
			if err := o.apply(&s, o.standard().values); err != nil {
				t.Errorf("the default of %s: %v", o.name, err)
			}
			if err := o.apply(&other, value.Values); err != nil {
				t.Error(err)
			}
			if string(s.Encode()) == string(other.Encode()) && o.name != "accounting" {
				t.Errorf("the example of %s is its default", o.name)
			}
		}
	}
	if len(file.Lock) == 0 {
		t.Error("the example does not show lock")
	}
}

// TestSentences: an error of several lines is several sentences.
func TestSentences(t *testing.T) {
	err := errors.Join(errors.New("cannot make a"), errors.New("cannot make b\x1b[31m"))
	if got, want := sentences(err.Error()+"\n"), "cannot make a; cannot make b [31m"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
