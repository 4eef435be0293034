package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/remote"
	"github.com/rsswarden/rsswarden/supervisor/screen"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// toFile writes a file whole or not at all; an empty name is none.
func toFile(name string, write func(io.Writer) error) error {
	if name == "" {
		return nil
	}
	err := nodedir.Replace(name, func(w io.Writer) error { return buffered(w, write) })
	hint := "name a file in a directory that you may write to and that has room"
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nodedir.ErrSpecial):
		hint = "name a file, or /dev/stdout for a pipe: " + programName + " report --html /dev/stdout | ..."
	case errors.Is(err, nodedir.ErrOthers):
		hint = "name a file in a directory of yours"
	}
	return recordFailure(fmt.Errorf("cannot write %s: %w", name, errnoOf(err)), hint)
}

// printed writes to standard output.
func printed(p process, write func(io.Writer) error) error {
	if err := buffered(p.stdout, write); err != nil {
		return recordFailure(fmt.Errorf("cannot write to standard output: %w", err), "write it to a file elsewhere, or to one with more room")
	}
	return nil
}

// show prints a value for programs, or its text.
func show(p process, asJSON bool, v any, text func(io.Writer) error) error {
	return printed(p, func(w io.Writer) error {
		if asJSON {
			return writeJSON(w, v)
		}
		return text(w)
	})
}

// put prints what a command found, as show does; no room for it is no [failure].
func put(p process, what string, asJSON bool, v any, text func(io.Writer)) error {
	var b bytes.Buffer
	var err error
	if asJSON {
		err = writeJSON(&b, v)
	} else {
		text(&b)
	}
	if err == nil {
		_, err = p.stdout.Write(b.Bytes())
	}
	if err != nil {
		return fmt.Errorf("cannot print %s: %w", what, errnoOf(err))
	}
	return nil
}

func buffered(to io.Writer, write func(io.Writer) error) error {
	w := bufio.NewWriterSize(to, 64<<10)
	err := write(w)
	if e := w.Flush(); err == nil {
		err = e
	}
	return errnoOf(err)
}

// styleOf is how standard output shows text: in colour on a terminal unless NO_COLOR
// (no-color.org) or TERM=dumb says otherwise, or where CLICOLOR_FORCE does.
func styleOf(p process) text.Style {
	forced := p.get("CLICOLOR_FORCE")
	return text.Style{Color: colours(p) || forced != "" && forced != "0", ASCII: !utf8Locale(p), Width: paperWidth(p)}
}

// colours says whether to colour: on a terminal, unless NO_COLOR is set (no-color.org).
func colours(p process) bool {
	_, err := unix.IoctlGetTermios(int(p.stdout.Fd()), unix.TCGETS)
	return err == nil && p.get("NO_COLOR") == "" && p.get("TERM") != "dumb"
}

// paperWidth is how wide what is printed once may be: as the terminal, else COLUMNS, else 80.
func paperWidth(p process) int {
	if term.IsTerminal(int(p.stdout.Fd())) {
		return screen.SizeOf(p.stdout).W
	}
	if n, err := strconv.Atoi(p.get("COLUMNS")); err == nil && n >= 20 && n <= 1000 {
		return n
	}
	return 80
}

// textOf is a frame as standard output shows it.
func textOf(p process, f *screen.Frame) string {
	if styleOf(p).Color || term.IsTerminal(int(p.stdout.Fd())) && p.get("TERM") != "dumb" {
		return f.Styled()
	}
	return f.Text()
}

// utf8Locale says whether the locale is one of UTF-8, locale(7).
func utf8Locale(p process) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(p.get(name)); v != "" {
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}

// writeJSON writes a value for programs, which people read on a terminal all the same.
func writeJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(text.JSON(b.Bytes()))
	return err
}

// fail prints an error with its hint and returns the exit status.
func fail(p process, err error) int {
	shown := &failure{status: exitCannotRun}
	var asked *remote.Error
	if !errors.As(err, &shown) && errors.As(err, &asked) {
		if shown.status, shown.hint = exitNotAll, asked.Hint; asked.Usage {
			shown.status = exitUsage
		}
	}
	fmt.Fprint(p.stderr, line(shown.format, "error", sentences(err.Error()), oneLine(shown.hint)))
	return shown.status
}

func (p process) warn(text string) { fmt.Fprint(p.stderr, line("", "warning", text, "")) }

// sentences joins the lines of a text, which are sentences.
func sentences(s string) string {
	return oneLine(strings.ReplaceAll(strings.TrimSpace(s), "\n", "; "))
}

// oneLine keeps names from breaking a line or steering a terminal.
func oneLine(s string) string { return text.Plain(s) }

// plainLines does so for each line of a text.
func plainLines(text string) string {
	var b strings.Builder
	for l := range strings.Lines(text) {
		b.WriteString(oneLine(strings.TrimSuffix(l, "\n")) + "\n")
	}
	return b.String()
}

// line is a line of the holder's in the form of the watcher's. hint may be empty.
func line(format, level, said, hint string) string {
	if format != "json" {
		if hint != "" {
			hint = "\nhint: " + hint
		}
		if level == "error" {
			return "error: " + said + hint + "\n"
		}
		return programName + ": " + said + hint + "\n"
	}
	b, err := json.Marshal(struct {
		Level string `json:"level"`
		Time  string `json:"time"`
		Msg   string `json:"msg"`
		Hint  string `json:"hint,omitempty"`
	}{level, time.Now().Format(time.RFC3339), said, hint})
	if err != nil {
		return "" // strings are always encoded
	}
	return string(text.JSON(b)) + "\n"
}
