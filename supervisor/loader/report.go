package loader

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Grown is what a worker says of itself after its 6th batch, and each time the number
// of its batches has doubled: what it needs and what it leaks can be told from it. It
// is the watcher's alone, and no event.
const Grown event.Loader = "grown"

// Private is what a worker that was not forked says of itself before its first batch:
// how much private memory it has, and how much of that it had before the data set
// came. It is the watcher's alone, and no event.
const Private event.Loader = "private"

// PoolWorker is what a worker of a pool says of itself before its first task. The first of a
// pool is an event too, as [event.LoaderIter].
const PoolWorker event.Loader = "pool"

// Said is one thing the hook reported. Of the embedded event, Head is left for
// the caller to fill, but for Time, which is the reporter's.
type Said struct {
	event.LoaderSaid

	// Request is the id that Trim, GC or Recycle returned, 0 where the report
	// answers none of them. A request about several processes is answered by
	// each of them.
	Request uint64
	// Last says that nothing more will come for this Request and process:
	// after trimmed, collected, recycled and refused.
	Last bool
	// Trainer owns the loader it is about.
	Trainer rss.ProcID
	// New is the PID of the replacement, with started, swapped, recycled and revived.
	New int
	// Mode is the way the worker was replaced, with accepted and recycled.
	Mode event.Mode
	// Before and After are what the process had mapped from files and shared
	// memory (statm's share) with trimmed, its anonymous RSS (statm's resident
	// less share) with collected, and the RSS of the old and of the
	// new worker with recycled, both read when the old one was told to end.
	Before, After rss.Bytes
	// Batches is how many batches the worker has made, with grown; Half and Own are the
	// anonymous RSS that came since its first, by half of them and by all.
	Batches   int
	Half, Own rss.Bytes
	// Old says that it was reported before this Control was opened: a watcher
	// that was started again reads all of it once more.
	Old bool
}

// Bounds on what is believed: the files are written by the user's process,
// and a watcher must survive any content of them.
const (
	maxLine     = 64 << 10 // bytes of a line or of a hello
	maxWorkers  = 4096     // workers of one loader
	maxLoaders  = 1024     // living loaders of one trainer
	maxTrainers = 1024     // trainers of one run directory
	maxText     = 512      // bytes of a reason
)

var errMalformed = errors.New("malformed")

// hello is the content of a file hello.PID.START.
type hello struct {
	V          int    `json:"v"`
	PID        int    `json:"pid"`
	Start      uint64 `json:"start"`
	Parent     int    `json:"ppid"`
	BootID     string `json:"boot_id"`
	PIDNS      string `json:"pid_ns"`
	Torch      string `json:"torch"`
	Python     string `json:"python"`
	CanRecycle bool   `json:"can_recycle"`
	Why        string `json:"why"`
}

func parseHello(data []byte) (hello, error) {
	var h hello
	if len(data) > maxLine {
		return h, fmt.Errorf("%w: hello of %d bytes", errMalformed, len(data))
	}
	if err := json.Unmarshal(data, &h); err != nil {
		return h, fmt.Errorf("%w: hello: %v", errMalformed, err)
	}
	if h.V != 1 || h.PID <= 0 || h.PID > math.MaxInt32 || h.Start == 0 || h.Parent < 0 {
		return h, fmt.Errorf("%w: hello of pid %d, version %d", errMalformed, h.PID, h.V)
	}
	h.Torch, h.Python, h.Why = clip(h.Torch), clip(h.Python), clip(h.Why)
	return h, nil
}

// line is one line of a file log.PID.START.
type line struct {
	T    float64      `json:"t"` // seconds since 1970
	PID  int          `json:"pid"`
	What event.Loader `json:"what"`

	N      int        `json:"n"` // the loader within its trainer
	K      int        `json:"k"` // worker id
	ID     uint64     `json:"id"`
	Worker int        `json:"worker"`
	New    int        `json:"new"`
	Exit   int        `json:"exit"`
	Mode   event.Mode `json:"mode"`
	Pause  float64    `json:"pause_ms"`
	Before uint64     `json:"before"` // bytes
	After  uint64     `json:"after"`
	Count  int        `json:"count"`
	Freed  uint64     `json:"freed"` // bytes, of Count trims
	Why    string     `json:"why"`

	iterator
	Sharing *event.Sharing `json:"sharing"`
}

// iterator is what a line says of a new iterator over a DataLoader.
type iterator struct {
	Workers    []int       `json:"workers"`
	NumWorkers int         `json:"num_workers"`
	Persistent bool        `json:"persistent"`
	Kind       string      `json:"kind"`
	Start      string      `json:"start"`
	CanRecycle bool        `json:"can_recycle"`
	Trial      event.Trial `json:"trial"`
	Key        string      `json:"key"` // names the text of its torch
	StartBy    string      `json:"start_by"`
	StartMS    float64     `json:"start_ms"`
	Sent       int64       `json:"sent"` // bytes for each worker
	CUDA       bool        `json:"cuda"`
	Registered string      `json:"registered"`
	Helper     int         `json:"helper"` // PID of the fork helper, 0 for none
	Revives    bool        `json:"revives"`
	Born       uint64      `json:"born"` // start time of a pool's worker in clock ticks since boot
}

func parseLine(data []byte) (line, error) {
	var l line
	if len(data) > maxLine {
		return l, fmt.Errorf("%w: line of %d bytes", errMalformed, len(data))
	}
	if err := json.Unmarshal(data, &l); err != nil {
		return l, fmt.Errorf("%w: %v", errMalformed, err)
	}
	switch l.What {
	case event.LoaderIter, event.LoaderAccepted, event.LoaderStarted, event.LoaderSwapped, event.LoaderRecycled, event.LoaderRevives, event.LoaderRevived,
		event.LoaderTrimmed, event.LoaderCollected, event.LoaderRefused, event.LoaderOff, event.LoaderEnded, Grown, Private, PoolWorker:
		l.Sharing = nil
	case event.LoaderPickling, event.LoaderRaised:
		if err := checkSharing(l.Sharing); err != nil {
			return l, err
		}
	default:
		return l, fmt.Errorf("%w: unknown report %q", errMalformed, clip(string(l.What)))
	}
	pids := append([]int{l.PID, l.Worker, l.New, l.Helper}, l.Workers...)
	for _, pid := range pids {
		if pid < 0 || pid > math.MaxInt32 {
			return l, fmt.Errorf("%w: pid %d", errMalformed, pid)
		}
	}
	switch {
	case l.PID == 0:
		return l, fmt.Errorf("%w: no pid", errMalformed)
	case len(l.Workers) > maxWorkers, l.K < 0, l.K >= maxWorkers, l.N < 0, l.NumWorkers < 0, l.Count < 0:
		return l, fmt.Errorf("%w: number out of range", errMalformed)
	case badPause(l.Pause), badPause(l.StartMS):
		return l, fmt.Errorf("%w: pause of %g ms, start of %g ms", errMalformed, l.Pause, l.StartMS)
	case l.T < 0 || l.T > 1e11:
		return l, fmt.Errorf("%w: time %g", errMalformed, l.T)
	}
	switch l.Trial {
	case "", event.TrialKnown, event.TrialTried, event.TrialWaiting, event.TrialRefused:
	default:
		return l, fmt.Errorf("%w: unknown trial %q", errMalformed, clip(string(l.Trial)))
	}
	if !isKey(l.Key) {
		l.Key = ""
	}
	l.Why, l.Kind, l.Start, l.Mode = clip(l.Why), clip(l.Kind), clip(l.Start), event.Mode(clip(string(l.Mode)))
	l.StartBy, l.Registered = clip(l.StartBy), clip(l.Registered)
	return l, nil
}

// isKey says whether a text names a torch, as the hook's fingerprint does; it is part of
// names of files.
func isKey(text string) bool {
	return len(text) == 32 && strings.Trim(text, "0123456789abcdef") == ""
}

// badPause says that a number of milliseconds is none that can have passed.
func badPause(ms float64) bool { return math.IsNaN(ms) || ms < 0 || ms > 1e9 }

func checkSharing(s *event.Sharing) error {
	if s == nil {
		return fmt.Errorf("%w: nothing of what is shared", errMalformed)
	}
	for _, n := range []int{s.Workers, s.Tensors, s.Maps, s.MaxMaps, s.FDs, s.MaxFDs, s.HardFDs, s.Before, s.Sent, s.MaxSent} {
		if n < 0 || n > math.MaxInt32 {
			return fmt.Errorf("%w: %d of what is shared", errMalformed, n)
		}
	}
	if s.Workers > maxWorkers {
		return fmt.Errorf("%w: %d workers", errMalformed, s.Workers)
	}
	s.Method, s.Strategy = clip(s.Method), clip(s.Strategy)
	return nil
}

func (l *line) said(trainer rss.ProcID) Said {
	s := Said{
		Request: l.ID, Trainer: trainer, New: l.New, Mode: l.Mode, Before: rss.Bytes(l.Before), After: rss.Bytes(l.After),
	}
	s.Exit, s.Count = l.Exit, l.Count
	if l.What == Grown {
		s.Before, s.After, s.Count = 0, 0, 0
		s.Batches, s.Half, s.Own = l.Count, rss.Bytes(l.Before), rss.Bytes(l.After)
	}
	s.Time, s.Event, s.What, s.PID, s.Worker = l.time(), event.NameLoader, l.What, l.PID, l.Worker
	s.Reason, s.Paused, s.Sharing, s.Trial = l.Why, l.Pause/1e3, l.Sharing, l.Trial
	switch l.What {
	case event.LoaderTrimmed, event.LoaderCollected, event.LoaderRecycled:
		s.Freed = max(s.Before.Sub(s.After), rss.Bytes(l.Freed))
		s.Last = true
	case event.LoaderRefused:
		s.Last = true
	}
	return s
}

func (l *line) time() time.Time {
	sec, frac := math.Modf(l.T)
	return time.Unix(int64(sec), int64(frac*1e9))
}

func clip(s string) string {
	if len(s) > maxText {
		return s[:maxText]
	}
	return s
}

// readChunk is the most that one call reads of one log: a file that grows
// faster than it is read costs a bounded time, and memory, a call.
const readChunk = 1 << 20

// tail reads the lines that are added to a file.
type tail struct {
	path   string
	offset int64  // of the next byte to read
	size   int64  // when it was last looked at
	rest   []byte // a line whose end has not been seen
	skip   bool   // inside a line that is too long
	file   *os.File
	buf    []byte
}

// next returns the whole lines that were added since the last call, at most
// readChunk bytes of them, and how many were too long and left out. The lines
// are good until the next call.
func (t *tail) next() (lines [][]byte, dropped int, err error) {
	if t.file == nil {
		f, _, err := openRegular(t.path)
		if errors.Is(err, os.ErrNotExist) {
			return nil, 0, nil
		}
		if err != nil {
			return nil, 0, err
		}
		t.file = f
	}
	info, err := t.file.Stat()
	if err != nil {
		return nil, 0, err
	}
	t.size = info.Size()
	size := t.size - t.offset
	if size <= 0 {
		return nil, 0, nil
	}
	size = min(size, readChunk)
	if int64(cap(t.buf)) < size {
		t.buf = make([]byte, size)
	}
	n, err := t.file.ReadAt(t.buf[:size], t.offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, err
	}
	t.offset += int64(n)
	lines, dropped = t.split(t.buf[:n])
	return lines, dropped, nil
}

// split cuts data, which follows what was given before, into whole lines.
func (t *tail) split(data []byte) (lines [][]byte, dropped int) {
	for {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			break
		}
		one := data[:i]
		data = data[i+1:]
		switch {
		case t.skip:
			t.skip = false
			dropped++
		case len(t.rest)+len(one) > maxLine:
			dropped++
		case len(t.rest) > 0:
			lines = append(lines, append(t.rest, one...))
		case len(one) > 0:
			lines = append(lines, one)
		}
		t.rest = nil
	}
	if t.skip || len(t.rest)+len(data) > maxLine {
		t.skip, t.rest = true, nil
		return lines, dropped
	}
	t.rest = append(t.rest, data...)
	return lines, dropped
}

// atEnd says that all was read that was there at the last look.
func (t *tail) atEnd() bool { return t.offset >= t.size }

func (t *tail) close() {
	if t.file != nil {
		t.file.Close()
		t.file = nil
	}
}

// openRegular opens a file that a process of the user's may have put there: neither a link
// nor a pipe.
func openRegular(path string) (*os.File, os.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: %s", errMalformed, strings.ToValidUTF8(filepath.Base(path), "?"))
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// readSmall reads a regular file of at most maxLine bytes.
func readSmall(path string) ([]byte, time.Time, error) {
	f, info, err := openRegular(path)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer f.Close()
	if info.Size() > maxLine {
		return nil, time.Time{}, fmt.Errorf("%w: %s", errMalformed, strings.ToValidUTF8(filepath.Base(path), "?"))
	}
	data, err := io.ReadAll(io.LimitReader(f, maxLine+1))
	return data, info.ModTime(), err
}

func readDirNames(dir string, most int) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(most)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}
