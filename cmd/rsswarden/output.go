package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/remote"
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

// show prints a value for programs, or what draw makes of it for people: without UTF-8 in ASCII.
func show(p process, asJSON bool, v any, draw func(io.Writer, text.Style) error) error {
	return printed(p, func(w io.Writer) error {
		if asJSON {
			return writeJSON(w, v)
		}
		style := styleOf(p, p.stdout)
		if !style.ASCII {
			return draw(w, style)
		}
		var b bytes.Buffer
		if err := draw(&b, style); err != nil {
			return err
		}
		_, err := io.WriteString(w, style.Plain(b.String()))
		return err
	})
}

func buffered(to io.Writer, write func(io.Writer) error) error {
	w := bufio.NewWriterSize(to, 64<<10)
	err := write(w)
	if e := w.Flush(); err == nil {
		err = e
	}
	return errnoOf(err)
}

// styleOf is how a stream shows what is for people: see no-color.org and
// bixense.com/clicolors.
func styleOf(p process, f *os.File) text.Style {
	width, _, err := term.GetSize(int(f.Fd()))
	s := text.Style{Color: err == nil && p.get("TERM") != "dumb" && p.get("NO_COLOR") == "", ASCII: !utf8Locale(p)}
	if force := p.get("CLICOLOR_FORCE"); force != "" && force != "0" {
		s.Color = true
	}
	if p.color != nil && (*p.color == colorAlways || *p.color == colorNever) {
		s.Color = *p.color == colorAlways
	}
	if width <= 0 {
		if width, err = strconv.Atoi(p.get("COLUMNS")); err != nil || width <= 0 {
			width = s.Columns()
		}
	}
	s.Width = max(leastColumns, min(width, mostColumns))
	return s
}

// What is narrower is folded by the terminal; what is wider is hard to read.
const leastColumns, mostColumns = 20, 160

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
		if shown.status, shown.hint = exitFailed, asked.Hint; asked.Usage {
			shown.status = exitUsage
		}
	}
	hint := strings.Split(shown.hint, "\n") // one line, or a line for each thing to choose from
	for i := range hint {
		hint[i] = oneLine(hint[i])
	}
	fmt.Fprint(p.stderr, p.line(shown.format, "error", sentences(err.Error()), strings.Join(hint, "\n  ")))
	return shown.status
}

func (p process) warn(text string) { fmt.Fprint(p.stderr, p.line("", "warning", text, "")) }

// sentences joins the lines of a text, which are sentences.
func sentences(s string) string {
	return oneLine(strings.ReplaceAll(strings.TrimSpace(s), "\n", "; "))
}

// oneLine keeps names from breaking a line or steering a terminal.
func oneLine(s string) string { return text.Plain(s) }

// line is a line of the holder's in the form of the watcher's. hint may be empty.
func (p process) line(format, level, said, hint string) string {
	if format != "json" {
		style, by := styleOf(p, p.stderr), programName+":"
		if hint != "" {
			hint = "\nhint: " + hint
		}
		if level == "error" {
			by = style.Paint(text.Red, "error:")
		}
		return by + " " + style.Plain(said+hint) + "\n"
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

// streams are kept: a file that is collected is closed, and its number is given to another.
var streams = []*os.File{os.Stdin, os.Stdout, os.Stderr}

// mute keeps the fork of a parked holder from saying anything: the holder says it, where
// there is anything to say before the command runs.
func (p *process) mute() {
	if null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0); err == nil {
		streams = append(streams, null)
		os.Stdout, os.Stderr, p.stdout, p.stderr = null, null, null, null
	}
}
