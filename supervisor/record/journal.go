package record

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/wake"
)

// The journal is a file of JSON lines with the schema of --events, and a first line "run"
// with the [Meta]. It may be on a network file system: lines are appended, seldom, and
// nothing is locked, mapped or rewritten.
const (
	journalSuffix = ".jsonl" // after the ID of the run
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

type sampleLine struct {
	event.Head
	Limits []event.Limit `json:"limits"`
	Roles  []RoleSum     `json:"roles"`
	// Decision says that a rule fired on it.
	Decision bool `json:"decision,omitempty"`
}

// Journal writes the journal of a run. Its methods are called by one goroutine and wait for
// no file system; another one writes.
type Journal struct {
	places []string
	meta   Meta
	fault  func(error) // called once, when the journal ends early

	last    *Look                    // that was written
	known   map[limitKey]bool        // limits whose sources were written
	kinds   map[string]time.Duration // when an event of a kind was written last
	decided uint64                   // the last decision that was written
	counts  map[string]int           // events of a kind of which only some are written

	mu     sync.Mutex
	lines  [][]byte
	size   int // of all lines so far
	sync   bool
	off    bool
	closed bool
	wake   *wake.Bell
	done   chan struct{}
}

// NewJournal returns a journal of which nothing is written before [Journal.Begin].
func NewJournal(places []string, m Meta, fault func(error)) *Journal {
	return &Journal{
		places: places, meta: m, fault: fault, wake: wake.New(), done: make(chan struct{}),
		known: map[limitKey]bool{}, kinds: map[string]time.Duration{}, counts: map[string]int{},
	}
}

func (j *Journal) Event(name event.Name, v any, line []byte) {
	warns := false // what may end the run in a moment is not one of many
	kind, most := kindOf(name, v), 0
	switch e := v.(type) {
	case event.LoaderSaid:
		switch e.What {
		case event.LoaderPickling:
			warns, most = true, mostPickling
		case event.LoaderOff, event.LoaderRefused, event.LoaderHello, event.LoaderUnreached:
		default:
			return
		}
	case event.Diagnosis:
		if j.counts[string(name)]++; j.counts[string(name)] > mostFindings {
			most = 1
		}
	case event.Cure:
		most = mostCures
	case event.Help, event.Judged, event.Handover: // the ones are often, the last may be large
		return
	}
	if j.counts[kind]++; most > 0 && j.counts[kind] > most {
		return
	}
	size := j.written()
	if Routine(name, v) && !warns && size > softJournal/4 || size > softJournal && !j.seldom(kind, v) {
		return
	}
	if d, ok := v.(event.Decision); ok {
		j.decided = d.ID
	}
	room := mostJournal - lastRoom
	if name == event.NameExit {
		room = mostJournal
	}
	j.put(line, room, name == event.NameDecision || name == event.NameExit)
}

// kindOf is the kind of an event: what is bounded is so for each.
func kindOf(name event.Name, v any) string {
	kind := string(name)
	switch e := v.(type) {
	case event.Decision:
		kind += e.Rule
	case event.Signal:
		kind += e.Signal
	case event.Fault:
		kind += e.Part
	case event.Diagnosis:
		kind += string(e.Finding) + string(e.Role)
	case event.Cure:
		kind += string(e.Remedy) + strconv.FormatBool(e.OK)
	case event.Rank:
		kind += string(e.What)
	case event.Found:
		kind += string(e.Name)
	case event.LoaderSaid:
		kind += string(e.What)
	}
	return kind
}

// seldom says that no event of this kind was written for long, by how long the
// run is. Of a decision that was written the outcome is written too.
func (j *Journal) seldom(kind string, v any) bool {
	switch e := v.(type) {
	case event.Exit:
		return true
	case event.Outcome:
		return e.Decision == j.decided
	}
	at := time.Duration(0)
	if e, ok := v.(interface{ When() time.Time }); ok {
		at = e.When().Sub(j.meta.Start)
	}
	last, again := j.kinds[kind]
	if again && at-last < max(leastAge, time.Duration(float64(at)*seldomAge)) || !again && len(j.kinds) >= mostKinds {
		return false
	}
	j.kinds[kind] = at
	return true
}

// Sample takes one look, if it tells something new.
func (j *Journal) Sample(l *Look) {
	if !j.due(l) {
		return
	}
	line := sampleLine{
		Head:     event.Head{V: event.Version, Time: j.meta.Start.Add(l.At), Event: event.NameSample},
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

func (j *Journal) due(l *Look) bool {
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
			if o := &j.last.Limits[k]; o.ID() == now.ID() {
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
func (j *Journal) written() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.size
}

// Record notes where the full record is, by its Meta. Any goroutine may call it.
func (j *Journal) Record(m Meta) {
	if line, err := makeRunLine(m); err == nil {
		j.put(line, mostJournal, false)
	}
}

// put queues a line, where the journal is no longer than most with it.
func (j *Journal) put(line []byte, most int, sync bool) {
	line = text.JSON(line) // people read journals by cat
	j.mu.Lock()
	if !j.off && j.size+len(line)+1 <= most {
		j.size += len(line) + 1
		j.lines = append(j.lines, append(line, '\n'))
		j.sync = j.sync || sync
	}
	j.mu.Unlock()
	j.wake.Ring(0)
}

// Begin starts to write what was taken and what will be.
func (j *Journal) Begin() { go j.write() }

// Close writes what is left, until end at the latest.
func (j *Journal) Close(end <-chan time.Time) {
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	j.wake.Ring(0)
	select {
	case <-j.done:
	case <-end:
	}
}

func (j *Journal) write() {
	defer close(j.done)
	f, err := openInFirst(j.places, j.meta.ID+journalSuffix)
	if err != nil {
		j.stop(fmt.Errorf("cannot make journal: %w", err))
		return
	}
	defer f.Close()
	err = j.first(f)
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
		<-j.wake.C()
	}
	if err != nil {
		j.stop(fmt.Errorf("cannot write journal %s, it ends here: %w", f.Name(), err))
	}
}

// first writes the first line. Where an earlier watcher has begun the journal,
// which a kill may have cut off within a line, it goes on after that.
func (j *Journal) first(f *os.File) error {
	meta := j.meta
	meta.V, meta.Journal = Version, f.Name()
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

func (j *Journal) stop(err error) {
	j.mu.Lock()
	j.off, j.lines = true, nil
	j.mu.Unlock()
	j.fault(err)
}

// openInFirst opens a file to append to it, in the first place that takes it.
func openInFirst(places []string, name string) (*os.File, error) {
	var errs []error
	for _, place := range places {
		mode := fs.FileMode(0o700)
		if filepath.Base(place) == journalDir {
			mode = 0o755 // beside the job's own files, for those who may read them
		}
		f, err := openAppend(filepath.Join(place, name), mode)
		if err == nil {
			return f, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		errs = append(errs, ErrNoPlace)
	}
	return nil, errors.Join(errs...)
}

// openAppend opens a file of this user's to append to it. It and its directory are made
// where they are missing, the directory with a mode.
func openAppend(path string, mode fs.FileMode) (*os.File, error) {
	dir, err := OpenPlace(filepath.Dir(path), HomeLevels, mode)
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

// Bounds of what a journal keeps of findings, remedies and warnings. A line is up to a kilobyte
// of sentences, and a leak that goes on for days is reported each time it has doubled.
const (
	// mostFindings is after how many findings only what is new is written.
	mostFindings = 18
	// mostCures bounds what was changed, of each remedy: recycling makes workers
	// by the thousand.
	mostCures = 8
	// mostPickling bounds warnings of a data set that is about to be sent: they
	// come with each epoch, and the first is mostly the last.
	mostPickling = 32
)

// Routine says that an event is one of many of its kind: reports of workers, what the ladder
// was given, and outcomes of mild actions.
func Routine(name event.Name, v any) bool {
	switch e := v.(type) {
	case event.Decision:
		return e.Action.Row().Routine
	case event.Outcome:
		return e.OK
	}
	return name == event.NameLoader || name == event.NameHelp || name == event.NameJudged || name == event.NameCure || name == event.NameMapped
}

// mostLine bounds a line of a journal: a start event with a long command and
// many settings takes some 20 KiB.
const mostLine = 1 << 20

// ReadJournal reads a journal. Lines that cannot be understood are left out and listed in
// Run.Damage, except for the last, which a kill may have cut off.
func ReadJournal(path string) (*Run, error) {
	r, err := readJournal(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read journal %s: %w", path, Reason(err))
	}
	return r, nil
}

func readJournal(path string) (*Run, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	r, err := parseJournal(io.LimitReader(f, 4*mostJournal))
	if err == nil {
		r.Sources = append(r.Sources, path)
		r.owner = int(info.Sys().(*syscall.Stat_t).Uid)
	}
	return r, err
}

func parseJournal(from io.Reader) (*Run, error) {
	r := &Run{JournalOnly: true}
	bad, found, cut := 0, false, false
	var p parts
	in := bufio.NewReaderSize(from, 64<<10)
	for {
		line, err := readLine(in)
		if len(line) == 0 && err != nil {
			if !errors.Is(err, io.EOF) {
				return nil, err
			}
			break
		}
		if len(line) == 0 {
			continue // here a watcher was started again
		}
		cut = err != nil // no newline: this is the last
		ok := false
		if !found {
			var first runLine
			if p.decode(line, &first) != nil || first.Event != NameRun || first.Run.ID == "" {
				return nil, ErrForeign
			}
			if err := first.Run.readable(); err != nil {
				return nil, err
			}
			r.Meta, found, ok = first.Run, true, true
		} else {
			ok = r.line(line, &p)
		}
		if !ok && !cut {
			bad++
		}
		if err != nil {
			break
		}
	}
	if !found {
		return nil, ErrForeign
	}
	if bad > 0 {
		r.Damage = append(r.Damage, fmt.Sprintf("%d lines of the journal are damaged and were left out", bad))
	}
	slices.SortStableFunc(r.plain, func(a, b Sample) int { return int(a.At - b.At) })
	return r, nil
}

// readLine returns the next line without its end. A longer one than mostLine is cut.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if len(line) < mostLine {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSuffix(line, []byte("\n")), err
		}
	}
}

func (r *Run) line(line []byte, p *parts) bool {
	var h event.Head
	if json.Unmarshal(line, &h) != nil {
		return false
	}
	if h.Event == NameRun {
		var again runLine
		ok := p.decode(line, &again) == nil && again.Run.ID == r.Meta.ID
		if ok {
			r.Meta.Record = again.Run.Record
		}
		return ok
	}
	at := max(0, h.Time.Sub(r.Meta.Start)) // the clock may have been set back
	if h.Event != event.NameSample {
		e, err := p.event(line)
		e.At = at
		if err == nil {
			r.Events = append(r.Events, e)
		}
		return err == nil
	}
	var s sampleLine
	if p.decode(line, &s) != nil {
		return false
	}
	out := Sample{At: at, AtDecision: s.Decision, Roles: s.Roles}
	for i := range s.Limits {
		l := still(&s.Limits[i])
		out.Limits = append(out.Limits, reading(&s.Limits[i], r.limit(&l)))
	}
	r.plain = append(r.plain, out)
	return true
}
