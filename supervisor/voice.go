package supervisor

import (
	"fmt"
	"time"

	"github.com/rsswarden/rsswarden/slurm"
)

// Log takes lines for people. It must neither fail nor block.
type Log interface {
	Info(line string)
	Warn(line string)
}

// nodeLog puts the node before each line, in a job whose nodes all write to the
// same file.
type nodeLog struct {
	Log
	node string
}

func (l nodeLog) Info(line string) { l.Log.Info(l.node + ": " + line) }
func (l nodeLog) Warn(line string) { l.Log.Warn(l.node + ": " + line) }

// ofNode is the log of a node of a job, plain where there is no other.
func ofNode(log Log, lookup func(string) (string, bool)) Log {
	if job := RecordJob(lookup); job != nil && job.Nodes > 1 {
		return nodeLog{log, slurm.NodeName(lookup)}
	}
	return log
}

// voice keeps the lines on stderr few: a job that runs for days must not fill
// its log with us. The first lines of a kind are said at once; after them one
// a minute, with the number of those left out. Events have them all.
type voice struct {
	log   Log
	kinds map[string]*kind
	told  map[string]bool
	full  bool   // told was full once
	last  string // the last line: step and job often stand at the same
	at    time.Duration
}

type kind struct {
	said   int
	last   time.Duration
	hidden int
}

const (
	freely     = 5 // lines of a kind before it is rationed
	ration     = time.Minute
	sameMoment = time.Second
	maxToldSet = 1000 // faults remembered, so that each is told once
)

func newVoice(log Log) *voice {
	return &voice{log: log, kinds: map[string]*kind{}, told: map[string]bool{}}
}

// say writes a line of that kind, unless its ration is used up.
func (v *voice) say(now time.Duration, name, line string) { v.ration(now, name, line, v.log.Info) }

// warn writes a line on a fault of that part: rationed where faults have been too
// many to be remembered.
func (v *voice) warn(now time.Duration, part, line string) {
	if !v.full {
		v.log.Warn(line)
		return
	}
	v.ration(now, "fault "+part, line, v.log.Warn)
}

func (v *voice) ration(now time.Duration, name, line string, write func(string)) {
	if line == v.last && now-v.at < sameMoment {
		return
	}
	k := v.kinds[name]
	if k == nil {
		k = &kind{}
		v.kinds[name] = k
	}
	if k.said >= freely && now-k.last < ration {
		k.hidden++
		return
	}
	v.last, v.at = line, now
	if k.hidden > 0 {
		line += fmt.Sprintf(" (and %d more like it since the last)", k.hidden)
	}
	if k.said++; k.said == freely {
		line += " (more like it: one line a minute at most)"
	}
	k.hidden, k.last = 0, now
	write(line)
}

// once says whether this fault is new. Where there is no room to remember more,
// all are forgotten: one that is told twice does less harm than one that nobody
// is told of.
func (v *voice) once(part, text string) bool {
	key := part + "\x00" + text
	if v.told[key] {
		return false
	}
	if len(v.told) >= maxToldSet {
		clear(v.told)
		if !v.full {
			v.log.Warn(fmt.Sprintf("%d different faults were told; from now on one may be told again, and here those of a part once a minute", maxToldSet))
		}
		v.full = true
	}
	v.told[key] = true
	return true
}
