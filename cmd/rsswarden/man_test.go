package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
	"github.com/rsswarden/rsswarden/rss/rsstest/reference"
	"github.com/rsswarden/rsswarden/supervisor/config"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// shownManual is the page as a reader sees it. What man warns of fails the test.
func shownManual(t *testing.T, page string) string {
	t.Helper()
	if _, err := exec.LookPath("man"); err != nil {
		t.Skip("no man:", err)
	}
	file := filepath.Join(t.TempDir(), "page.1")
	wardentest.NoError(t, os.WriteFile(file, []byte(page), 0o644))
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

// TestManual: man shows the page without a warning, with each command, its usage and
// examples, and each event. What it says of options is golden in docs/reference.
func TestManual(t *testing.T) {
	shown := shownManual(t, manual(process{}, commands(process{})))
	for _, c := range commands(process{}) {
		for _, l := range slices.Concat([]string{"\n   " + programName + " " + c.Name + "\n"}, strings.Split(c.UsageText, "\n"), strings.Split(c.ArgsUsage, "\n")) {
			if !strings.Contains(shown, l) {
				t.Errorf("the manual does not show %q", l)
			}
		}
	}
	for _, name := range event.Names() {
		if !regexp.MustCompile(`(?m)^ {7}` + string(name) + `( |$)`).MatchString(shown) {
			t.Errorf("no event %s in the manual", name)
		}
	}
}

// TestReference: what docs/reference says of commands, options, rules, statuses and
// variables is what the program has.
func TestReference(t *testing.T) {
	commandsPage().Check(t, "docs/reference/commands.md")
	configurationPage().Check(t, "docs/reference/configuration.md")
	rulesPage(t).Check(t, "docs/reference/rules.md")
	reference.Check(t, "examples/rsswarden.toml", configurationExample())
	reference.Check(t, "supervisor/hold/at_once.h", atOnceTable())
}

func commandsPage() *reference.Page {
	p := reference.New("Commands of rsswarden", "`rsswarden man` shows the same. Options of runs as variables and keys of files are in\n"+
		"[configuration](configuration.md), rules in [rules](rules.md), events in [events](events.md).")
	all := commands(process{})
	var usage []string
	for _, c := range all {
		usage = append(usage, c.UsageText)
	}
	p.Verbatim(strings.Join(usage, "\n"))
	p.Section("Commands")
	writeCommands(p, all)
	p.Section("Examples")
	for _, c := range all {
		p.Verbatim(c.ArgsUsage)
	}
	p.Section("Exit status")
	writeStatuses(p)
	p.Section("Files")
	writePairs(p, manFiles)
	return p
}

func configurationPage() *reference.Page {
	p := reference.New("Options, variables, keys", "Each option of `run` may be given as a flag, as a variable of the environment, and as a key of the file of `--config` and of the\n"+
		"site's file, /etc/rsswarden.toml. [Its flag](commands.md#rsswarden-run) explains each;\n"+
		"[rsswarden.toml](../../examples/rsswarden.toml) is a whole file.")
	p.Text(manPrecedence)
	var rows [][]string
	for _, o := range options {
		of := "run, attach"
		if flagNamed(attachCommand(process{}).Flags, o.name) == nil {
			of = "run"
		}
		kind := map[config.Kind]string{config.Text: "text", config.List: "list of texts", config.Truth: "true or false"}[o.kind]
		if o.kind == config.Text && !strings.HasPrefix(o.example, `"`) {
			kind = "number"
		}
		rows = append(rows, []string{"`" + o.flag() + "`", "`" + variableOf(o.name) + "`", kind, "`" + o.name + " = " + o.example + "`", o.shownDefault(), of})
	}
	p.Table([]string{"flag", "variable", "value", "in a file, for instance", "default", "of"}, rows)
	p.Section("Keys of the site's file alone")
	p.Text("`lock` is a list of options that users cannot change.")
	p.Section("Environment")
	writePairs(p, variables)
	return p
}

// rulesPage has what the parser takes, asked of the parser.
func rulesPage(t *testing.T) *reference.Page {
	p := reference.New("Rules of --at", "[Rules](../rules.md) says what each is good for.")
	writeRules(p)
	p.Section("Which actions go with which limit and condition")
	p.Text("This is what is taken when it is written. An action that cannot help a limit is refused when the rule fires, with the reason.")
	takes := func(rule string) bool { _, err := event.ParseRule(rule); return err == nil }
	var rows [][]string
	for _, l := range event.Limits {
		row := []string{"`" + string(l) + "`"}
		for _, cond := range []string{"50%", "free<1G", "eta<5m"} {
			var can []string
			for _, a := range event.Actions {
				form, _, _ := strings.Cut(a.Form(), ",")
				if form = strings.Replace(form, "SIG", "USR2", 1); takes(fmt.Sprintf("%s %s:%s", l, cond, form)) {
					can = append(can, string(a))
				}
			}
			switch {
			case len(can) == len(event.Actions):
				can = []string{"all actions"}
			case len(can) == 0:
				can = []string{"no"}
			}
			row = append(row, strings.Join(can, ", "))
		}
		rows = append(rows, row)
	}
	p.Table([]string{"limit", "`N%`", "`free<SIZE`", "`eta<DURATION`"}, rows)
	p.Section("The ladder without --at")
	ladder, err := policy.Ladder(nil)
	wardentest.NoError(t, err)
	var lines []string
	for _, r := range ladder {
		lines = append(lines, r.String())
	}
	p.Verbatim(strings.Join(lines, "\n"))
	return p
}

const referenceHead = `# Options of rsswarden: for one job as a file of yours,
#
#     rsswarden run --config rsswarden.toml -- python train.py
#
# or for every job of a site as /etc/rsswarden.toml. A line that begins with "#"
# and a name is an example: take the "#" away to put it in force. Keys are named
# as the flags are. Text stands in quotes; numbers, true and false do not.
#
# What is set in several places comes from the first of these: the flag, the
# environment (RSSWARDEN_LIMIT=3G), the file of --config, /etc/rsswarden.toml,
# the default. Lists are taken whole. The start event (--events FILE) tells of
# every option where its value came from. RSSWARDEN=off reads none of this.
#
# A mistake in a file of yours is an error, and nothing is started. A mistake in
# /etc/rsswarden.toml is a warning, and the job runs with the rest of it; that
# file must belong to root, and only root may be able to write it.
`

const referenceLock = `
# In /etc/rsswarden.toml only: users cannot change these. A locked option has
# the value of that file, or its default where the file does not set it. A job
# that asks for something else runs without it, with a warning.
#lock = ["trim-private", "worker-signal"]
`

// configurationExample describes every option in the form of a configuration file.
func configurationExample() string {
	var b strings.Builder
	b.WriteString(referenceHead)
	for _, o := range options {
		fmt.Fprintf(&b, "\n# %s\n", strings.ReplaceAll(o.about, "\n", "\n# "))
		fmt.Fprintf(&b, "# Flag %s, environment %s, default %s.\n", o.flag(), variableOf(o.name), o.shownDefault())
		fmt.Fprintf(&b, "#%s = %s\n", o.name, o.example)
	}
	b.WriteString(referenceLock)
	return b.String()
}

// flag is an option as it stands on the command line.
func (o option) flag() string { return strings.TrimSpace("--" + o.name + " " + valueName(o.usage)) }

// TestExampleWorks: the file that users copy has every option, with its default and a
// value that works.
func TestExampleWorks(t *testing.T) {
	const example = "../../examples/rsswarden.toml"
	text := string(wardentest.ReadFile(t, example))
	// As it stands it changes nothing.
	file, problems := config.Parse(example, []byte(text), keys(), true)
	if len(problems) > 0 || len(file.Values) > 0 || len(file.Lock) > 0 {
		t.Errorf("the example sets %v, locks %v: %v", file.Values, file.Lock, problems)
	}
	// With every line in force it can be used by a site.
	text = regexp.MustCompile(`(?m)^#([^ \n])`).ReplaceAllString(text, "$1")
	file, problems = config.Parse(example, []byte(text), keys(), true)
	for _, p := range append(problems, unusable(file)...) {
		t.Errorf("%v (%s)", p, p.Hint)
	}
	for _, o := range options {
		var s, other settings.Settings
		if value, ok := file.Values[o.name]; !ok {
			t.Errorf("the example does not show %s", o.name)
		} else if err := errors.Join(o.apply(&s, o.standard().values), o.apply(&other, value.Values)); err != nil {
			t.Errorf("%s: %v", o.name, err)
		} else if string(s.Encode()) == string(other.Encode()) && o.name != "accounting" {
			t.Errorf("the example of %s is its default", o.name)
		}
	}
	if len(file.Lock) == 0 {
		t.Error("the example does not show lock")
	}
}

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
