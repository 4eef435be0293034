package text

import (
	"bytes"
	"strings"
)

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
