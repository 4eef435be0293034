package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
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

// This file writes what the journal takes in.

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
	err = j.first(f, path)
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
			fault.Point("journal")
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

// first writes the first line. Where an earlier watcher has begun the journal,
// which a kill may have cut off within a line, it goes on after that.
func (j *journaler) first(f *os.File, path string) error {
	meta := j.opt.Meta
	meta.V, meta.Journal = Version, path
	line, err := makeRunLine(meta)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() > 0 {
		line = nil
	}
	line = append(line, '\n')
	j.mu.Lock()
	j.size += int(info.Size()) + len(line)
	j.mu.Unlock()
	_, err = f.Write(line)
	return err
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
		f, err := openAppend(path, mode)
		if err == nil {
			return f, path, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		errs = append(errs, errNoPlace)
	}
	return nil, "", fmt.Errorf("cannot make journal: %w", errors.Join(errs...))
}

// openAppend opens a file of this user's to append to it. It and its directory are made
// where they are missing, the directory with a mode.
func openAppend(path string, mode fs.FileMode) (*os.File, error) {
	dir, err := makeAll(filepath.Dir(path), homeLevels, mode)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	name := filepath.Base(path)
	const flags = unix.O_WRONLY | unix.O_APPEND | unix.O_CLOEXEC
	fd, err := unix.Openat(int(dir.Fd()), name, flags|unix.O_CREAT|unix.O_EXCL, 0o644)
	if errors.Is(err, unix.EEXIST) {
		var at int
		if at, err = unix.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err != nil {
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
		defer unix.Close(at)
		var st unix.Stat_t
		switch err := unix.Fstat(at, &st); {
		case err != nil:
			return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
		case st.Mode&unix.S_IFMT != unix.S_IFREG:
			return nil, fmt.Errorf("%s is %s", path, nodedir.Kind(st.Mode))
		case !nodedir.Trusted(st.Uid) || st.Nlink > 1:
			return nil, fmt.Errorf("%s belongs to another user, or is a hard link", path)
		}
		fd, err = unix.Open("/proc/self/fd/"+strconv.Itoa(at), flags, 0)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// This file bounds what a journal keeps of why something grew and of what was
// changed in time. Each line is a kilobyte of sentences, and a leak that goes on for
// days is told again each time it has doubled.

const (
	// mostWhy is the bytes of findings in a journal, mostAgain those after which
	// only what was not told yet is written.
	mostWhy   = 40 << 10
	mostAgain = 20 << 10
	// mostCures bounds what was changed, of each remedy: recycling makes workers
	// by the thousand.
	mostCures = 8
	// mostPickling bounds warnings of a data set that is about to be sent: they
	// come with each epoch, and the first is mostly the last.
	mostPickling = 32
)

// whys is what was written of it. The zero value is ready.
type whys struct {
	told   map[whyKey]bool
	size   int
	cures  map[cureKey]int
	warned int
}

type whyKey struct {
	finding event.Finding
	role    rss.Role
}

type cureKey struct {
	remedy event.Remedy
	ok     bool
}

// diagnosis says whether a finding is written, in a line of so many bytes.
func (w *whys) diagnosis(d *event.Diagnosis, size int) bool {
	key := whyKey{d.Finding, d.Role}
	if w.size+size > mostWhy || w.size > mostAgain && w.told[key] {
		return false
	}
	if w.told == nil {
		w.told = map[whyKey]bool{}
	}
	w.told[key] = true
	w.size += size
	return true
}

func (w *whys) cure(c *event.Cure) bool {
	if w.cures == nil {
		w.cures = map[cureKey]int{}
	}
	key := cureKey{c.Remedy, c.OK}
	w.cures[key]++
	return w.cures[key] <= mostCures
}

// pickling says whether a report of the loader's is such a warning, and written.
func (w *whys) pickling(s *event.LoaderSaid) bool {
	if s.What != event.LoaderPickling {
		return false
	}
	w.warned++
	return w.warned <= mostPickling
}
