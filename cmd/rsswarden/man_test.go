package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor"
	"github.com/rsswarden/rsswarden/supervisor/config"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// shownManual is the page as a reader has it. What man warns of fails the test.
func shownManual(t *testing.T, page string) string {
	t.Helper()
	if _, err := exec.LookPath("man"); err != nil {
		t.Skip("no man:", err)
	}
	file := filepath.Join(t.TempDir(), "page.1")
	if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("man", "--warnings", "-l", file)
	cmd.Env = append(os.Environ(), "MANWIDTH=2000", "LC_ALL=C.UTF-8")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("man warns: %v\n%s", err, &stderr)
	}
	return string(out)
}

// TestManualTellsAll: each command and each option is in the page, under its own
// heading, and each event, limit, action and status.
func TestManualTellsAll(t *testing.T) {
	shown := shownManual(t, manual(process{}))
	_, rest, _ := strings.Cut(shown, "\nCOMMANDS")
	chapters, _, _ := strings.Cut(rest, "\nRULES\n")
	words := strings.Join(strings.Fields(shown), " ")
	for _, c := range commands(process{}, new(int)) {
		_, text, found := strings.Cut(chapters, "\n   "+programName+" "+c.Name+"\n")
		if !found {
			t.Errorf("no chapter of %s", c.Name)
			continue
		}
		if next := strings.Index(text, "\n   "+programName+" "); next >= 0 {
			text = text[:next]
		}
		for _, f := range c.Flags {
			name := regexp.MustCompile(`--` + regexp.QuoteMeta(f.Names()[0]) + `\b`)
			if !internal(f) && !name.MatchString(text) {
				t.Errorf("the chapter of %s does not tell of --%s:\n%s", c.Name, f.Names()[0], text)
			}
		}
		for _, l := range append(strings.Split(c.UsageText, "\n"), examplesOf[c.Name]...) {
			if !strings.Contains(shown, l) {
				t.Errorf("the manual does not show %q", l)
			}
		}
	}
	for _, o := range append(slices.Clone(watchOptions), runOptions...) {
		if text := strings.Join(strings.Fields(about[o.name]), " "); !strings.Contains(words, text) {
			t.Errorf("of %s the manual does not say %q", o.name, text)
		}
	}
	for _, name := range eventNames(t) {
		if !regexp.MustCompile(`(?m)^ {7}` + name + `( |$)`).MatchString(shown) {
			t.Errorf("no event %s in the manual", name)
		}
	}
	if len(limitsTold) != len(event.Limits) || len(actionsTold) != len(event.Actions) {
		t.Errorf("%d limits and %d actions, want %d and %d", len(limitsTold), len(actionsTold), len(event.Limits), len(event.Actions))
	}
	for i, l := range limitsTold {
		if l.name != event.Limits[i] {
			t.Errorf("limit %s, want %s", l.name, event.Limits[i])
		}
	}
	for i, a := range actionsTold {
		if a.action != event.Actions[i] || !strings.HasPrefix(a.form, string(a.action)) {
			t.Errorf("action %s, want %s", a.form, event.Actions[i])
		}
	}
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(b), "\n## Exit status\n")
	table, _, _ = strings.Cut(table, "\n## ")
	rows := regexp.MustCompile(`(?m)^\| ([0-9]+) \|`).FindAllStringSubmatch(table, -1)
	if len(rows) < 5 {
		t.Errorf("the README tells of %d statuses", len(rows))
	}
	for _, row := range rows {
		if !slices.ContainsFunc(statuses, func(s [2]string) bool { return s[0] == row[1] }) {
			t.Errorf("the README tells of status %s, the manual does not", row[1])
		}
	}
}

// eventNames are the values of the constants of type event.Name.
func eventNames(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../supervisor/event/lists.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "Name" {
			for _, v := range spec.Values {
				name, err := strconv.Unquote(v.(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, name)
			}
		}
		return true
	})
	if len(names) < 10 {
		t.Fatalf("only %q", names)
	}
	return names
}

// TestClosedValues: what completion offers for an option is all that the option takes.
func TestClosedValues(t *testing.T) {
	for _, o := range append(slices.Clone(watchOptions), runOptions...) {
		var s supervisor.Settings
		if o.name == "record" || o.kind != config.Text {
			continue
		}
		err := o.apply(&s, []string{"no such value"})
		values, closed := closedValues[o.name]
		if closed && (err == nil || !strings.HasSuffix(err.Error(), " is none of "+alternatives(values, "and"))) {
			t.Errorf("--%s says %v, completion has %q", o.name, err, values)
		}
		if !closed && err != nil && strings.Contains(err.Error(), " is none of ") {
			t.Errorf("completion has no values of --%s: %v", o.name, err)
		}
	}
}
