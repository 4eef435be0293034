package tell

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
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

// Brief is how long a run lives before the lines about its start are written: they are in
// the way of short commands in which nothing happens.
const Brief = 2 * time.Second

// delayed holds lines back while a run is brief and nothing happens in it. Warnings pass it.
type delayed struct {
	Lines
	young func() bool
	mu    sync.Mutex // some lines come from goroutines of their own
	held  []string
	open  bool
}

func (d *delayed) Info(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held = append(d.held, line); d.open || !d.young() {
		d.flush()
	}
}

// settle writes what was held where something happens, or the run is not brief any more.
func (d *delayed) settle(happens bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.open && (happens || !d.young()) {
		d.flush()
	}
}

// end forgets what is still held: of a run that was brief.
func (d *delayed) end() {
	d.settle(false)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held, d.open = nil, true
}

func (d *delayed) flush() {
	for _, line := range d.held {
		d.Lines.Info(line)
	}
	d.held, d.open = nil, true
}

// Log keeps the lines on stderr few: a job that runs for days must not fill its log with
// ours. The first lines of a kind are written at once; later ones are counted, one line a
// minute for all kinds. Events have them all.
type Log struct {
	*delayed // unlimited
	kinds    map[string]*kind
	known    map[string]bool // by [Log.Once]
	full     bool            // known was full once
	last     string          // the last line: step and job often have the same
	at       time.Duration
}

// Kind is what lines are counted by.
type Kind struct {
	Name  string // lines of each name have a ration of their own
	Thing string // what one of them is about, to be counted: "trim"; empty for Name
	// Share is how full the limit was that the line is about, 0 for none.
	Share float64
}

type kind struct {
	written int
	last    time.Duration // when one was written or counted
	thing   string
	hidden  int
	since   time.Duration // when the first of those came
	peak    float64       // the highest share of those
}

const (
	freely     = 3 // lines of a kind before it is rationed
	ration     = time.Minute
	sameMoment = time.Second
)

// maxKnown is how many faults are remembered, so that each is written once.
const maxKnown = 1000

// NewLog returns a log that writes to lines. young says that the run is brief so far.
func NewLog(lines Lines, young func() bool) *Log {
	return &Log{delayed: &delayed{Lines: lines, young: young}, kinds: map[string]*kind{}, known: map[string]bool{}}
}

// Say writes a line of that kind, unless its ration is used up.
func (l *Log) Say(now time.Duration, kind, line string) { l.SayOf(now, Kind{Name: kind}, line) }

// SayOf is [Log.Say] of a line that is about a limit or is counted under another name.
func (l *Log) SayOf(now time.Duration, of Kind, line string) { l.ration(now, of, line, l.Info) }

// fault writes a line on a fault of that part: rationed where there were too many
// different ones to remember.
func (l *Log) fault(now time.Duration, part, line string) {
	if !l.full {
		l.Warn(line)
		return
	}
	l.ration(now, Kind{Name: "fault " + part, Thing: "fault"}, line, l.Warn)
}

func (l *Log) ration(now time.Duration, of Kind, line string, write func(string)) {
	if line == l.last && now-l.at < sameMoment {
		return
	}
	l.Tick(now)
	k := l.kinds[of.Name]
	if k == nil {
		k = &kind{thing: of.Thing}
		if k.thing == "" {
			k.thing = of.Name
		}
		l.kinds[of.Name] = k
	}
	if k.written >= freely && now-k.last < ration {
		if k.hidden == 0 {
			k.since = now
		}
		k.hidden++
		k.peak = max(k.peak, of.Share)
		return
	}
	l.settle(true)
	l.last, l.at = line, now
	k.written++
	k.last = now
	write(line)
}

// Tick writes a line for what was counted, once the first of it is a minute old:
// "last minute: 31 trims, 7 recycles, peak 94 %".
func (l *Log) Tick(now time.Duration) {
	l.settle(false)
	due, peak := false, 0.0
	counts := map[string]int{}
	for _, k := range l.kinds {
		if k.hidden == 0 {
			continue
		}
		due = due || now-k.since >= ration
		counts[k.thing] += k.hidden
		peak = max(peak, k.peak)
	}
	if !due {
		return
	}
	for _, k := range l.kinds {
		if k.hidden > 0 {
			k.hidden, k.peak, k.last = 0, 0, now
		}
	}
	things := slices.Sorted(maps.Keys(counts))
	slices.SortStableFunc(things, func(a, b string) int { return counts[b] - counts[a] })
	for i, thing := range things {
		things[i] = text.Count(counts[thing], thing)
	}
	line := "last minute: " + strings.Join(things, ", ")
	if peak > 0 {
		line += ", peak " + text.Percent(peak)
	}
	l.Info(line)
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
			l.Warn(fmt.Sprintf("%d different faults so far; from now on some may repeat", maxKnown))
		}
		l.full = true
	}
	l.known[key] = true
	return true
}
