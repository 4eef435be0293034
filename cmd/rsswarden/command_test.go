package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/supervisor/config"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// commandInC prints where hold_command (supervisor/hold/command.c) finds the command in each
// line, 0 for nowhere, and whether hold_options says that Go takes the line, wants the hook, and
// is quiet; arguments are parted by the byte 31.
const commandInC = `
#include <stdio.h>
#include <string.h>
char **hold_command(char **argv, int *quiet);
int hold_options(char **argv, char **command, int *hooked);
int main(void) {
	static char line[1 << 16], *argv[1000];
	while (fgets(line, sizeof line, stdin) != NULL) {
		int n = 2, quiet = 0, hooked = 1;
		line[strcspn(line, "\n")] = 0;
		char *rest = line + 1;
		if (line[0] != 0) while (rest != NULL) argv[n++] = strsep(&rest, "\x1f");
		argv[n] = NULL;
		char **c = hold_command(argv, &quiet);
		int sure = c != NULL && hold_options(argv, c, &hooked);
		printf("%d %d %d %d\n", c == NULL ? 0 : (int)(c - argv) - 1, sure, hooked, quiet);
	}
}
`

// TestCommandInC: where C has to find the command before there is a Go runtime, it finds the one
// that the Go program does. Where it is sure of the options, to start the command at once, the
// Go program takes them and means the same.
func TestCommandInC(t *testing.T) {
	source, program := filepath.Join(t.TempDir(), "main.c"), filepath.Join(t.TempDir(), "command")
	wardentest.Write(t, source, commandInC)
	if out, err := exec.Command("cc", "-O1", "-D_GNU_SOURCE", "-I../../supervisor/hold", "-o", program, source, "../../supervisor/hold/command.c").CombinedOutput(); err != nil {
		t.Skipf("needs cc: %v\n%s", err, out)
	}
	commands, surely := 0, map[string]int{}
	const some = 5_000
	for range wardentest.Few(1_000_000, some) / some {
		var text bytes.Buffer
		lines := make([][]string, some)
		for i := range lines {
			lines[i] = anyLine()
			for _, a := range lines[i] {
				text.WriteString("\x1f" + a)
			}
			text.WriteByte('\n')
		}
		inC := exec.Command(program)
		inC.Stdin = &text
		out, err := inC.Output()
		wardentest.NoError(t, err)
		found := bufio.NewScanner(bytes.NewReader(out))
		for _, args := range lines {
			var at, sure, hooked, quiet int
			found.Scan()
			_, err := fmt.Sscan(found.Text(), &at, &sure, &hooked, &quiet)
			wardentest.NoError(t, err)
			c := parsed(args)
			want := commandIn(args, c)
			if c != nil && at != want {
				t.Errorf("%q: C finds the command at %d, Go at %d", args, at, want)
			}
			if want > 0 {
				commands++
			}
			if sure == 0 {
				continue
			}
			if c == nil {
				t.Errorf("%q: C is sure, and Go refuses it", args)
				continue
			}
			s, err := settingsOf(process{lookup: func(string) (string, bool) { return "", false }}, c)
			if err != nil || s.Loader != (hooked != 0) || s.Quiet != (quiet != 0) || s.Events != "" || s.Requeues() {
				t.Errorf("%q: C is sure: hook %d, quiet %d; Go has %v, %v, %v", args, hooked, quiet, s.Loader, s.Quiet, err)
			}
			for _, o := range options {
				if c.IsSet(o.name) {
					surely[o.name]++
				}
			}
		}
		if t.Failed() {
			return
		}
	}
	if commands < some/4 {
		t.Errorf("few lines have a command: %d", commands)
	}
	for _, o := range options {
		if surely[o.name] > 0 != judgesInC(o) {
			t.Errorf("C was sure of %d lines with --%s", surely[o.name], o.name)
		}
	}
}

// parsed is what the cli package makes of the arguments of run, nil where it refuses them.
func parsed(args []string) (c *cli.Context) {
	flags := append(watchFlags(true), helpFlag())
	app := &cli.App{
		HideHelp: true, HideHelpCommand: true, HideVersion: true, DisableSliceFlagSeparator: true,
		Writer: io.Discard, ErrWriter: io.Discard, ExitErrHandler: func(*cli.Context, error) {},
		Commands: []*cli.Command{{
			Name: "run", HideHelp: true, HideHelpCommand: true, Flags: flags,
			OnUsageError: func(_ *cli.Context, err error, _ bool) error { return errors.New(err.Error()) },
			Action:       func(ctx *cli.Context) error { c = ctx; return checkColor(ctx) },
		}},
	}
	if app.Run(append([]string{programName, "run"}, args...)) != nil {
		return nil
	}
	return c
}

// commandIn is where the command begins in the arguments of run, from 1 on, 0 where there is none
// or help is asked for.
func commandIn(args []string, c *cli.Context) int {
	if c == nil || c.Bool("help") || c.Bool("help-all") || c.NArg() == 0 {
		return 0
	}
	return len(args) - c.NArg() + 1
}

// anyValue is a value, right or wrong.
func anyValue(o option) string {
	values := []string{
		"3G", "90%", "", "--", "-1", "true", "off", "90%:stop", "a=b", "1s", "99s", "500ms", "100ms", "0s", "1ms", "5m", "100s", "1", "99", "007", "256",
		"1e3", "3GB", "3 G", "12k", "999999T", "1000000", "0", "0%", "100%", "101%", "0.5%", "+5", "0x10", "٣", " 3G", "auto", "none", "all", "auto none",
	}
	if o.name != "" && rand.IntN(2) == 0 {
		values = append(o.values, strings.Trim(o.example, `"`), o.def)
	}
	return values[rand.IntN(len(values))]
}

// anyLine is a line of run, with each option in every form, right or wrong.
func anyLine() (args []string) {
	pick := func(all ...string) string { return all[rand.IntN(len(all))] }
	words := []string{"python3", "train.py", "--", "-", "", "-x", "--quiet", "--epochs", "3", "help", "=", "-=", "--=", "---quiet"}
	for range rand.IntN(5) {
		o := options[rand.IntN(len(options))]
		if rand.IntN(2) == 0 { // else few lines have only what C judges
			for !judgesInC(o) {
				o = options[rand.IntN(len(options))]
			}
		}
		dashes, value := pick("-", "--"), anyValue(o)
		switch {
		case rand.IntN(20) == 0:
			args = append(args, pick("--help", "-h", "--help-all", "--help=false", "-h=1", "--nonsense", "--nonsense=1"))
		case o.kind == config.Truth && rand.IntN(2) == 0:
			args = append(args, dashes+o.name)
		case o.kind == config.Truth:
			args = append(args, dashes+o.name+"="+pick("true", "false", "0", "1", "F", "T", "", "maybe"))
		case rand.IntN(2) == 0:
			args = append(args, dashes+o.name+"="+value)
		default:
			args = append(args, dashes+o.name, value)
		}
	}
	for range rand.IntN(4) {
		args = append(args, pick(words...))
	}
	return args
}

// judgedInC are the options whose values C judges beside those that are true or false, or have
// a list of words.
var judgedInC = map[string]string{"limit": "SIZE", "grace": "DURATION", "interval": "DURATION", "stop-status": "NUMBER", "record": "WORD"}

func judgesInC(o option) bool {
	return judgedInC[o.name] != "" || o.kind == config.Truth || len(o.values) > 0
}

// atOnceTable is what C has to know to start a command at once.
func atOnceTable() string {
	var b strings.Builder
	b.WriteString(`// Code generated by make reference; DO NOT EDIT.

// What start.c and command.c know of the Go program, to start a command at once.
#ifndef RSSWARDEN_AT_ONCE_H
#define RSSWARDEN_AT_ONCE_H

`)
	fmt.Fprintf(&b, "enum { AT_ONCE_FLUSH = %d }; // ms\n", flushPatience.Milliseconds())
	b.WriteString(`
enum { OPTION_TRUTH, OPTION_WORD, OPTION_SIZE, OPTION_DURATION, OPTION_NUMBER };
struct run_option {
	const char *name;
	int kind;
	const char *words; // that it takes
};
static const struct run_option run_options[] = {
`)
	for _, o := range options {
		words, kind := o.values, judgedInC[o.name]
		switch {
		case o.name == "record":
			words = []string{settings.RecordAuto, settings.RecordNone}
		case o.kind == config.Truth:
			kind = "TRUTH"
		case len(words) > 0:
			kind = "WORD"
		}
		if judgesInC(o) {
			fmt.Fprintf(&b, "\t{%q, OPTION_%s, %q},\n", o.name, kind, strings.Join(words, " "))
		}
	}
	files, dirs := loader.HookContents()
	fmt.Fprintf(&b, `};

#define HOOK_NAME %q
struct hook_file {
	const char *name;
	long size;
	int entries; // of a directory, "." and ".." too; -1: Python's own; else 0
};
static const struct hook_file hook_files[] = {
`, loader.HookName())
	entries := map[string]int{".": -1} // it is in none
	for name := range dirs {
		entries[name] += 2
		entries[path.Dir(name)]++
	}
	for name := range files {
		entries[path.Dir(name)]++
	}
	for _, name := range slices.Sorted(maps.Keys(dirs)) {
		if path.Base(name) == "__pycache__" {
			entries[name] = -1
		}
		fmt.Fprintf(&b, "\t{%q, 0, %d},\n", name, entries[name])
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&b, "\t{%q, %d, 0},\n", name, files[name].Size)
	}
	b.WriteString("};\n\n#endif\n")
	return b.String()
}
