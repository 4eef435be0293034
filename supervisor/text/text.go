// Package text makes what others have written fit to be shown: names of files and
// processes, command lines, what programs print, and records. None of it may steer a
// terminal, break a line, or change the direction of what follows it.
package text

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Plain returns s as one line of printable text: each white space is a space, and all
// else that does not print, or is no UTF-8, is U+FFFD.
func Plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return utf8.RuneError
		}
		return r // for a byte that is no UTF-8 that is U+FFFD too
	}, s)
}

// JSON returns JSON text with \uXXXX for all that would steer a terminal that shows it.
// encoding/json leaves U+007F to U+009F, of which terminals take U+009B for ESC [, and
// what changes the direction of writing as they are. A parser reads the same text.
func JSON(doc []byte) []byte {
	var out []byte
	for i := 0; i < len(doc); {
		r, n := utf8.DecodeRune(doc[i:])
		switch {
		case !steers(r) && (r != utf8.RuneError || n > 1):
			if out != nil {
				out = append(out, doc[i:i+n]...)
			}
			i += n
			continue
		case out == nil:
			out = append(make([]byte, 0, len(doc)+64), doc[:i]...)
		}
		if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		} else {
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		i += n
	}
	if out == nil {
		return doc
	}
	return out
}

// steers is true for no character that JSON has outside of strings.
func steers(r rune) bool {
	return r >= 0x7f && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp))
}

// JoinLines puts a text of several lines, such as errors that were joined, on one.
func JoinLines(s string) string {
	if !strings.ContainsAny(s, "\r\n") {
		return s
	}
	text := ""
	for line := range strings.Lines(s) {
		switch line = strings.TrimSpace(line); {
		case line == "":
		case text == "":
			text = line
		case strings.HasSuffix(text, ":"):
			text += " " + line
		default:
			text += "; " + line
		}
	}
	return text
}

// Bounded keeps the first half megabyte of what a program writes. It drops the rest and
// never holds the program up.
type Bounded struct{ bytes.Buffer }

const boundedBytes = 512 << 10

func (k *Bounded) Write(b []byte) (int, error) {
	if room := boundedBytes - k.Len(); room > 0 {
		k.Buffer.Write(b[:min(room, len(b))])
	}
	return len(b), nil
}

// LastLine is the last line that is not blank: of a traceback the error.
func (k *Bounded) LastLine() string {
	all := strings.Split(strings.TrimSpace(k.String()), "\n")
	return Plain(strings.TrimSpace(all[len(all)-1]))
}
