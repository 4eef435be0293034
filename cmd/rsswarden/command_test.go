package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/supervisor/config"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// commandInC prints where hold_command (supervisor/hold/command.c) finds the command in each
// line, 0 for nowhere; arguments are parted by the byte 31.
const commandInC = `
#include <stdio.h>
#include <string.h>
char **hold_command(char **argv, int *quiet);
int main(void) {
	static char line[1 << 16], *argv[1000];
	while (fgets(line, sizeof line, stdin) != NULL) {
		int n = 2, quiet = 0;
		line[strcspn(line, "\n")] = 0;
		char *rest = line + 1;
		if (line[0] != 0) while (rest != NULL) argv[n++] = strsep(&rest, "\x1f");
		argv[n] = NULL;
		char **c = hold_command(argv, &quiet);
		printf("%d\n", c == NULL ? 0 : (int)(c - argv) - 1);
	}
}
`

// TestCommandInC: where C has to find the command before there is a Go runtime, it finds the one
// that the Go program does.
func TestCommandInC(t *testing.T) {
	source, program := filepath.Join(t.TempDir(), "main.c"), filepath.Join(t.TempDir(), "command")
	wardentest.Write(t, source, commandInC)
	if out, err := exec.Command("cc", "-O1", "-D_GNU_SOURCE", "-I../../supervisor/hold", "-o", program, source, "../../supervisor/hold/command.c").CombinedOutput(); err != nil {
		t.Skipf("needs cc: %v\n%s", err, out)
	}
	commands := 0
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
		found := strings.Fields(string(out))
		for i, args := range lines {
			want, known := commandIn(args)
			if known && found[i] != fmt.Sprint(want) {
				t.Errorf("%q: C finds the command at %s, Go at %d", args, found[i], want)
			}
			if want > 0 {
				commands++
			}
		}
		if t.Failed() {
			return
		}
	}
	if commands < some/4 {
		t.Errorf("few lines have a command: %d", commands)
	}
}

// commandIn is where the command begins in the arguments of run, from 1 on, 0 where there is none
// or help is asked for. known is false where the line is refused.
func commandIn(args []string) (at int, known bool) {
	var c *cli.Context
	flags := append(watchFlags(true), helpFlag())
	app := &cli.App{
		HideHelp: true, HideHelpCommand: true, HideVersion: true, DisableSliceFlagSeparator: true,
		Writer: io.Discard, ErrWriter: io.Discard, ExitErrHandler: func(*cli.Context, error) {},
		Commands: []*cli.Command{{
			Name: "run", HideHelp: true, HideHelpCommand: true, Flags: flags,
			OnUsageError: func(_ *cli.Context, err error, _ bool) error { return errors.New(err.Error()) },
			Action:       func(ctx *cli.Context) error { c = ctx; return nil },
		}},
	}
	if app.Run(append([]string{programName, "run"}, args...)) != nil || c == nil {
		return 0, false
	}
	if c.Bool("help") || c.Bool("help-all") || c.NArg() == 0 {
		return 0, true
	}
	return len(args) - c.NArg() + 1, true
}

// anyLine is a line of run, with each option in every form, right or wrong.
func anyLine() (args []string) {
	pick := func(all ...string) string { return all[rand.IntN(len(all))] }
	words := []string{"python3", "train.py", "--", "-", "", "-x", "--quiet", "--epochs", "3", "help", "=", "-=", "--=", "---quiet"}
	for range rand.IntN(5) {
		o := options[rand.IntN(len(options))]
		dashes, value := pick("-", "--"), pick("3G", "90%", "", "--", "-1", "true", "off", "90%:stop", "a=b")
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
