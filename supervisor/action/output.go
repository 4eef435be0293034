package action

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/rsswarden/rsswarden/supervisor/text"
)

// The most of a program's output that is passed on.
const (
	maxLines = 50
	maxLine  = 400
)

// passOn hands the lines of a program's output to say, the first of them and of
// each so much, and reads the rest, so that the program never waits for us.
func passOn(r io.Reader, say func(string)) {
	b := bufio.NewReaderSize(r, maxLine)
	lines, long := 0, false
	for {
		part, err := b.ReadSlice('\n')
		if len(part) > 0 && !long {
			if lines++; lines <= maxLines {
				say(text.Plain(strings.TrimRight(string(part), "\r\n")))
			}
		}
		long = err == bufio.ErrBufferFull
		if err != nil && !long {
			break
		}
	}
	if lines > maxLines {
		say(fmt.Sprintf("(%d more lines are left out)", lines-maxLines))
	}
}
