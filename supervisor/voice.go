package supervisor

import (
	"fmt"
	"time"

	"go.uber.org/zap"
)

// voice keeps the lines on stderr few: a job that runs for days must not fill
// its log with us. The first lines of a kind are said at once; after them one
// a minute, with the number of those left out. Events have them all.
type voice struct {
	log   *zap.Logger
	kinds map[string]*kind
	told  map[string]bool
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
	maxToldSet = 1000 // faults remembered, so that each is said once
)

func newVoice(log *zap.Logger) *voice {
	return &voice{log: log, kinds: map[string]*kind{}, told: map[string]bool{}}
}

// say writes a line of that kind, unless its ration is used up.
func (v *voice) say(now time.Duration, name, line string) {
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
	k.said++
	k.hidden, k.last = 0, now
	v.log.Info(line)
}

// once says whether this fault is new.
func (v *voice) once(part, text string) bool {
	key := part + "\x00" + text
	if v.told[key] || len(v.told) >= maxToldSet {
		return false
	}
	v.told[key] = true
	return true
}
