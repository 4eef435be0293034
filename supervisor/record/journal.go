package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// The journal is a file of JSON lines with the schema of --events, and a first
// line "run" with the [Meta]. It may lie on a network file system: lines are
// appended, seldom, and nothing is ever locked, mapped or rewritten.

const (
	// journalSuffix ends the name of a journal; in front of it stands the ID.
	journalSuffix = ".jsonl"
	// softJournal is the size from which on only what is rare is written,
	// mostJournal where it ends.
	softJournal = 512 << 10
	mostJournal = 1 << 20
	// A sample is written when a limit has moved by so much of itself since the
	// last, by less where little is left, or when the run is longer by so much.
	journalMove = 0.05
	journalNear = 0.01
	nearLimit   = 0.8
	journalAge  = 0.10
	// leastAge is the time between two samples at least where nothing moves.
	leastAge = 30 * time.Second
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
	j.opt, j.wake, j.done, j.known = opt, make(chan struct{}, 1), make(chan struct{}), map[limitKey]bool{}
}

// event takes in one event, with its JSON.
func (j *journaler) event(name event.Name, v any, line []byte) {
	switch e := v.(type) {
	case event.LoaderSaid:
		if e.What != event.LoaderOff && e.What != event.LoaderRefused && e.What != event.LoaderHello {
			return
		}
	case event.Help:
		return
	}
	if routine(name, v) && j.written() > softJournal/4 {
		return
	}
	j.put(line, name == event.NameDecision || name == event.NameExit)
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
		key := limitKey{lim.Name, lim.Scope, lim.Accounting, lim.Level, lim.LimitSource}
		if j.known[key] {
			// The sources were told with the first.
			lim.Enforcer, lim.UsedSource, lim.LimitSource, lim.Note = "", "", "", ""
		}
		j.known[key] = true
		line.Limits = append(line.Limits, lim)
	}
	b, err := json.Marshal(line)
	if err != nil {
		return
	}
	c := *l
	c.Sample, c.Limits = nil, append([]event.Limit(nil), l.Limits...)
	j.last = &c
	j.put(b, false)
}

// due says whether a look tells enough to be written.
func (j *journaler) due(l *Look) bool {
	if j.last == nil {
		return true
	}
	if j.written() > softJournal && !l.AtDecision {
		return l.At-j.last.At >= max(leastAge, time.Duration(float64(l.At)*journalAge))
	}
	if l.At-j.last.At >= max(leastAge, time.Duration(float64(l.At)*journalAge)) {
		return true
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
		j.put(line, false)
	}
}

// put queues a line.
func (j *journaler) put(line []byte, sync bool) {
	j.mu.Lock()
	if !j.off && j.size+len(line)+1 <= mostJournal {
		j.size += len(line) + 1
		j.lines = append(j.lines, append(line, '\n'))
		j.sync = j.sync || sync
	}
	j.mu.Unlock()
	j.tell()
}

func (j *journaler) begin() { go j.write() }

func (j *journaler) tell() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

func (j *journaler) close(end <-chan time.Time) {
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	j.tell()
	select {
	case <-j.done:
	case <-end:
	}
}

func (j *journaler) write() {
	defer close(j.done)
	f, path, err := openJournal(j.opt.Places.Journals, j.opt.Meta.ID)
	if err != nil {
		j.stop(err)
		return
	}
	defer f.Close()
	meta := j.opt.Meta
	meta.V, meta.Journal = Version, path
	first, err := makeRunLine(meta)
	if err == nil && j.opt.Attempt <= 1 {
		_, err = f.Write(append(first, '\n'))
	}
	for err == nil {
		j.mu.Lock()
		lines, sync, closed := j.lines, j.sync, j.closed
		j.lines, j.sync = nil, false
		j.mu.Unlock()
		var b []byte
		for _, l := range lines {
			b = append(b, l...)
		}
		if len(b) > 0 {
			_, err = f.Write(b)
		}
		if err == nil && sync {
			err = f.Sync()
		}
		if err != nil || closed {
			break
		}
		<-j.wake
	}
	if err != nil {
		j.stop(fmt.Errorf("cannot write journal %s, it ends here: %w", path, err))
	}
}

func (j *journaler) stop(err error) {
	j.mu.Lock()
	j.off, j.lines = true, nil
	j.mu.Unlock()
	j.opt.Fault("journal", err)
}

// openJournal makes the journal in the first place that takes it.
func openJournal(places []string, id string) (*os.File, string, error) {
	var errs []error
	for _, place := range places {
		path := filepath.Join(place, id+journalSuffix)
		mode := fs.FileMode(0o700)
		if filepath.Base(place) == journalDir {
			mode = 0o755 // beside the job's own files, for those who may read them
		}
		err := makeAll(place, homeLevels, mode)
		if err == nil {
			var f *os.File
			f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, 0o644)
			if err == nil {
				return f, path, nil
			}
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		errs = append(errs, errors.New("no place for it is known"))
	}
	return nil, "", fmt.Errorf("cannot make journal: %w", errors.Join(errs...))
}
