package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// writeJSON writes a value for programs, which people read on a terminal all the same.
// encoding/json escapes control characters of ASCII; those behind it, of which a terminal
// takes U+009B for the begin of a sequence, and what turns the direction of writing, are
// escaped here. A parser reads the same.
func writeJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(escapedJSON(b.Bytes()))
	return err
}

// escapedJSON has \uXXXX in place of what must not reach a terminal. Outside strings there
// is none of it.
func escapedJSON(text []byte) []byte {
	var out []byte
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if steers := r >= 0x7f && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)); steers {
			if out == nil {
				out = append(make([]byte, 0, len(text)+64), text[:i]...)
			}
			if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
				out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
			} else {
				out = fmt.Appendf(out, `\u%04x`, r)
			}
		} else if out != nil {
			out = append(out, text[i:i+n]...)
		}
		i += n
	}
	if out == nil {
		return text
	}
	return out
}
