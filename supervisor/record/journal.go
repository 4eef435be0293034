package record

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// The journal is a file of JSON lines with the schema of --events, and a first
// line "run" with the [Meta]. It may lie on a network file system: lines are
// appended, seldom, and nothing is ever locked, mapped or rewritten.

const (
	// journalSuffix ends the name of a journal; in front of it stands the ID.
	journalSuffix = ".jsonl"
	// softJournal is the size from which on only what is rare is written,
	// mostJournal where it ends. lastRoom of it is kept for the exit.
	softJournal = 512 << 10
	mostJournal = 1 << 20
	lastRoom    = 32 << 10
	// A sample is written when a limit has moved by so much of itself since the
	// last, by less where little is left, or when the run is longer by so much.
	journalMove = 0.05
	journalNear = 0.01
	nearLimit   = 0.8
	journalAge  = 0.10
	// quietJournal is the size at which only a run that is twice as long has
	// another sample where nothing moves: however long it is, 64 KiB hold them.
	quietJournal = 48 << 10
	// leastAge is the time between two samples at least where nothing moves.
	leastAge = 30 * time.Second
	// seldomAge is how much longer the run must be for another event of a kind
	// once softJournal is reached, and mostKinds how many kinds are told apart.
	seldomAge = 0.02
	mostKinds = 256
)

// NameRun is the name of a journal's first line.
const NameRun event.Name = "run"

// runLine is the first line of a journal. It comes again when the place of the
// full record is known.
type runLine struct {
	event.Head
	Run Meta `json:"run"`
}

func makeRunLine(m Meta) ([]byte, error) {
	return json.Marshal(runLine{event.Head{V: event.Version, Time: m.Start, Event: NameRun}, m})
}

// sampleLine is a sample as a journal has it.
type sampleLine struct {
	event.Head
	Limits []event.Limit `json:"limits"`
	Roles  []RoleSum     `json:"roles"`
	// Decision says that a rule fired on it.
	Decision bool `json:"decision,omitempty"`
}

// journaler writes the journal.
type journaler struct {
	opt   *Options
	last  *Look             // the last that was written
	known map[limitKey]bool // limits that have been told with their sources
	// kinds is when an event of a kind was written last, and decided the last
	// decision that was.
	kinds   map[string]time.Duration
	decided uint64
	whys    whys

	mu     sync.Mutex
	lines  [][]byte
	size   int // of all lines so far
	sync   bool
	off    bool
	closed bool
	wake   chan struct{}
	done   chan struct{}
}

func (j *journaler) init(opt *Options) {
	j.opt, j.wake, j.done = opt, make(chan struct{}, 1), make(chan struct{})
	j.known, j.kinds = map[limitKey]bool{}, map[string]time.Duration{}
}

// event takes in one event, with its JSON.
func (j *journaler) event(name event.Name, v any, line []byte) {
	warns := false // what may end the run in a moment is not one of many
	switch e := v.(type) {
	case event.LoaderSaid:
		warns = j.whys.pickling(&e)
		if e.What != event.LoaderOff && e.What != event.LoaderRefused && e.What != event.LoaderHello && e.What != event.LoaderUnreached && !warns {
			return
		}
	case event.Diagnosis:
		if !j.whys.diagnosis(&e, len(line)) {
			return
		}
	case event.Cure:
		if !j.whys.cure(&e) {
			return
		}
	case event.Help, event.Handover: // the one is often, the other may be large
		return
	}
	size := j.written()
	if routine(name, v) && !warns && size > softJournal/4 || size > softJournal && !j.seldom(name, v) {
		return
	}
	if d, ok := v.(event.Decision); ok {
		j.decided = d.ID
	}
	most := mostJournal - lastRoom
	if name == event.NameExit {
		most = mostJournal
	}
	j.put(line, most, name == event.NameDecision || name == event.NameExit)
}

// seldom says that no event of this kind was written for long, by how long the
// run is. Of a decision that was written the outcome is written too.
func (j *journaler) seldom(name event.Name, v any) bool {
	kind := string(name)
	switch e := v.(type) {
	case event.Exit:
		return true
	case event.Outcome:
		return e.Decision == j.decided
	case event.Decision:
		kind += e.Rule
	case event.Signal:
		kind += e.Signal
	case event.Fault:
		kind += e.Part
	case event.Diagnosis:
		kind += string(e.Finding) + string(e.Role)
	case event.Cure:
		kind += string(e.Remedy)
	case event.Rank:
		kind += string(e.What)
	case event.Found:
		kind += string(e.Name)
	}
	at := time.Duration(0)
	if e, ok := v.(interface{ When() time.Time }); ok {
		at = e.When().Sub(j.opt.Meta.Start)
	}
	last, again := j.kinds[kind]
	if again && at-last < max(leastAge, time.Duration(float64(at)*seldomAge)) || !again && len(j.kinds) >= mostKinds {
		return false
	}
	j.kinds[kind] = at
	return true
}

// sample takes in one look, where it tells something.
func (j *journaler) sample(l *Look) {
	if !j.due(l) {
		return
	}
	line := sampleLine{
		Head:     event.Head{V: event.Version, Time: j.opt.Meta.Start.Add(l.At), Event: event.NameSample},
		Roles:    roleSums(l.Sample),
		Decision: l.AtDecision,
	}
	for i := range l.Limits {
		lim := l.Limits[i]
		key := limitKey{lim.ID(), lim.LimitSource}
		if j.known[key] {
			// The sources were told with the first.
			lim.Enforcer, lim.UsedSource, lim.LimitSource, lim.Note = "", "", "", ""
		}
		j.known[key] = true
		if lim.UsedMax == lim.Used {
			lim.UsedMax = 0
		}
		line.Limits = append(line.Limits, lim)
	}
	b, err := json.Marshal(line)
	if err != nil {
		return
	}
	c := *l
	c.Sample, c.Limits = nil, append([]event.Limit(nil), l.Limits...)
	j.last = &c
	j.put(b, mostJournal-lastRoom, false)
}

// due says whether a look tells enough to be written.
func (j *journaler) due(l *Look) bool {
	if j.last == nil {
		return true
	}
	size := j.written()
	share := journalAge
	if size <= softJournal {
		share = min(max(share, float64(size)/quietJournal), 1)
	}
	if l.At-j.last.At >= max(leastAge, time.Duration(float64(j.last.At)*share)) {
		return true
	}
	if size > softJournal {
		return false
	}
	for i := range l.Limits {
		now := &l.Limits[i]
		if now.Limit == 0 || now.Name == event.LimitNode {
			continue
		}
		before := rss.Bytes(0)
		for k := range j.last.Limits {
			if o := &j.last.Limits[k]; o.Name == now.Name && o.Scope == now.Scope && o.Level == now.Level && o.Accounting == now.Accounting {
				before = o.Used
			}
		}
		moved := (max(now.Used, before) - min(now.Used, before)).Of(now.Limit)
		if moved >= journalMove || moved >= journalNear && now.Ratio() >= nearLimit {
			return true
		}
	}
	return false
}

// written is how much has been queued in all.
func (j *journaler) written() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.size
}

// recordAt tells where the full record is. It is called by the record's
// goroutine.
func (j *journaler) recordAt(m Meta) {
	if line, err := makeRunLine(m); err == nil {
		j.put(line, mostJournal, false)
	}
}

// put queues a line, where the journal is no longer than most with it.
func (j *journaler) put(line []byte, most int, sync bool) {
	line = text.JSON(line) // people read journals by cat
	j.mu.Lock()
	if !j.off && j.size+len(line)+1 <= most {
		j.size += len(line) + 1
		j.lines = append(j.lines, append(line, '\n'))
		j.sync = j.sync || sync
	}
	j.mu.Unlock()
	j.tell()
}
