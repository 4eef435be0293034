package main

import (
	"bytes"
	"strings"
)

// kept is what a program wrote, its first half megabyte: the rest is dropped, and
// it is never held up.
type kept struct{ bytes.Buffer }

const mostKept = 512 << 10

func (k *kept) Write(b []byte) (int, error) {
	if room := mostKept - k.Len(); room > 0 {
		k.Buffer.Write(b[:min(room, len(b))])
	}
	return len(b), nil
}

// lastLine is the last line that is not blank: of a traceback the error.
func (k *kept) lastLine() string {
	all := strings.Split(strings.TrimSpace(k.String()), "\n")
	return oneLine(strings.TrimSpace(all[len(all)-1]))
}
