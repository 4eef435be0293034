package tell

import (
	"fmt"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Lines takes lines for people. It must neither fail nor block.
type Lines interface {
	Info(line string)
	Warn(line string)
	// Summary takes the end of a run: its lines as they are drawn for a stream, and the same
	// for programs.
	Summary(draw func(text.Style) []string, brief any)
}

// onNode puts the node before each line, for a job whose nodes write to one file.
type onNode struct {
	Lines
	node string
}

func (l onNode) Info(line string) { l.Lines.Info(l.node + ": " + line) }
func (l onNode) Warn(line string) { l.Lines.Warn(l.node + ": " + line) }

func (l onNode) Summary(draw func(text.Style) []string, brief any) {
	l.Lines.Summary(func(style text.Style) []string {
		style.Width = style.Columns() - len(l.node) - 2
		lines := draw(style)
		for i := range lines {
			lines[i] = l.node + ": " + lines[i]
		}
		return lines
	}, brief)
}

// Log keeps the lines on stderr few: a job that runs for days must not fill its log with
// ours. The first lines of a kind are written at once, later ones once a minute with the
// number of those left out. Events have them all.
type Log struct {
	Lines // unlimited
	kinds map[string]*kind
	known map[string]bool // by [Log.Once]
	full  bool            // known was full once
	last  string          // the last line: step and job often have the same
	at    time.Duration
}

type kind struct {
	written int
	last    time.Duration
	hidden  int
}

const (
	freely     = 5 // lines of a kind before it is rationed
	ration     = time.Minute
	sameMoment = time.Second
)

// maxKnown is how many faults are remembered, so that each is written once.
const maxKnown = 1000

// NewLog returns a log that writes to lines.
func NewLog(lines Lines) *Log {
	return &Log{Lines: lines, kinds: map[string]*kind{}, known: map[string]bool{}}
}

// Say writes a line of that kind, unless its ration is used up.
func (l *Log) Say(now time.Duration, kind, line string) { l.ration(now, kind, line, l.Info) }

// fault writes a line on a fault of that part: rationed where there were too many
// different ones to remember.
func (l *Log) fault(now time.Duration, part, line string) {
	if !l.full {
		l.Warn(line)
		return
	}
	l.ration(now, "fault "+part, line, l.Warn)
}

func (l *Log) ration(now time.Duration, name, line string, write func(string)) {
	if line == l.last && now-l.at < sameMoment {
		return
	}
	k := l.kinds[name]
	if k == nil {
		k = &kind{}
		l.kinds[name] = k
	}
	if k.written >= freely && now-k.last < ration {
		k.hidden++
		return
	}
	l.last, l.at = line, now
	if k.hidden > 0 {
		line += fmt.Sprintf(" (and %d more like it since the last)", k.hidden)
	}
	if k.written++; k.written == freely {
		line += " (more like it: one line a minute at most)"
	}
	k.hidden, k.last = 0, now
	write(line)
}

// Once says whether this text of a part is new. Where there is no room to remember more
// all are forgotten: a fault that is repeated does less harm than one left out.
func (l *Log) Once(part, text string) bool {
	key := part + "\x00" + text
	if l.known[key] {
		return false
	}
	if len(l.known) >= maxKnown {
		clear(l.known)
		if !l.full {
			l.Warn(fmt.Sprintf("%d different faults were told; from now on one may be told again, and here those of a part once a minute", maxKnown))
		}
		l.full = true
	}
	l.known[key] = true
	return true
}
