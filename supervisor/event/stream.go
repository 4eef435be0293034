package event

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Stream writes events as lines to one file. A write to a pipe or a
// network file system may hang, so a goroutine of the stream's own does it,
// behind a queue: where that is full, samples are dropped and counted, and
// everything else waits in memory.
type Stream struct {
	path    string
	line    func(any) ([]byte, error)
	onError func(error)
	done    chan struct{}
	dropped atomic.Uint64

	mu     sync.Mutex
	queue  [][]byte
	wake   chan struct{}
	closed bool
}

// maxQueue is the number of lines beyond which samples are dropped.
const maxQueue = 256

// hardQueue bounds the memory that a file which never takes a line may cost:
// beyond it every line is dropped and counted.
const hardQueue = 16384

// NewStream returns a stream of what line makes of each event, without its line feed, to the
// file at path, made where it is missing and appended to where it is not; nil, which takes
// nothing, for no path. An empty line is left out. The file is opened in the background (a FIFO
// without a reader would hang), and onError is called from there, once, when
// it cannot be opened or written; the stream then swallows what it is given.
func NewStream(path string, line func(any) ([]byte, error), onError func(error)) *Stream {
	if path == "" {
		return nil
	}
	s := &Stream{path: path, line: line, onError: onError, done: make(chan struct{}), wake: make(chan struct{}, 1)}
	go s.write()
	return s
}

// Line is an event as a line of JSON.
func Line(v any) ([]byte, error) {
	line, err := json.Marshal(v)
	return text.JSON(line), err
}

// Takes says that it takes every event.
func (s *Stream) Takes(Name) bool { return s != nil }

// Event queues one event. It never blocks. A sample is dropped where the queue
// is long; see [Stream.Dropped].
func (s *Stream) Event(name Name, v any) {
	line, err := s.line(v)
	if err != nil {
		s.dropped.Add(1)
		return
	}
	if len(line) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.queue) >= hardQueue || name == NameSample && len(s.queue) >= maxQueue {
		s.dropped.Add(1)
		return
	}
	s.queue = append(s.queue, append(line, '\n'))
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Dropped returns how many events were dropped since the last call.
func (s *Stream) Dropped() uint64 {
	if s == nil {
		return 0
	}
	return s.dropped.Swap(0)
}

// Close writes what is queued, for at most patience, and ends the stream.
func (s *Stream) Close(patience time.Duration) {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	select {
	case <-s.done:
	case <-time.After(patience):
	}
}

func (s *Stream) write() {
	defer close(s.done)
	f, err := nodedir.OpenAppend(s.path)
	if err != nil {
		s.fail(fmt.Errorf("cannot open events file: %w", err))
		return
	}
	defer f.Close()
	for {
		s.mu.Lock()
		lines, closed := s.queue, s.closed
		s.queue = nil
		s.mu.Unlock()
		for _, line := range lines {
			fault.Point("events")
			if _, err := f.Write(line); err != nil {
				s.fail(fmt.Errorf("cannot write events file: %w", err))
				return
			}
		}
		if closed && len(lines) == 0 {
			return
		}
		if len(lines) == 0 {
			<-s.wake
		}
	}
}

func (s *Stream) fail(err error) {
	s.mu.Lock()
	s.closed, s.queue = true, nil
	s.mu.Unlock()
	if s.onError != nil {
		s.onError(err)
	}
}
