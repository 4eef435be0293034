package record

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Kinds of the entries of a full record. A key is a kind and, of all but the first, a
// number, big endian, so that keys sort by kind and time.
const (
	KindMeta  = 'a'
	KindLimit = 'b' // number of a limit in samples
	KindProc  = 'c' // number of a process in samples
	KindEvent = 'd' // order, over both kinds of events
	// KindRoutine has events of which there may be too many: the oldest are deleted.
	KindRoutine = 'e'
	KindBlock   = 'f' // milliseconds since the start of its first sample
)

type Item struct {
	Kind  byte
	N     uint64
	Value []byte
}

// BlockItem is the entry of a block of samples, the first of which is at a moment.
func BlockItem(first time.Duration, block []byte) Item {
	return Item{KindBlock, uint64(first / time.Millisecond), block}
}

func (it *Item) Key() []byte { return binary.BigEndian.AppendUint64([]byte{it.Kind}, it.N) }

// Sealed is the value as it is stored, with a checksum of key and value in front.
func (it *Item) Sealed() []byte { return seal(it.Key(), it.Value) }

func SplitKey(k []byte) (kind byte, n uint64, ok bool) {
	if len(k) != 9 {
		return 0, 0, false
	}
	return k[0], binary.BigEndian.Uint64(k[1:]), true
}

// ErrForeign says that a file is no record.
var ErrForeign = errors.New("not a record of rsswarden")

// ErrNewer says that a record is in a format that is not known here yet.
var ErrNewer = errors.New("it was written by a newer rsswarden")

// ErrTooMuch says that a record or journal holds more than rsswarden writes.
var ErrTooMuch = errors.New("it has more than any run leaves")

var errEvent = errors.New("not an event")

// readable says why this version cannot read the record of a run, nil where it can.
func (m *Meta) readable() error {
	if m.V > Version {
		return fmt.Errorf("%w (format %d, this one reads up to %d)", ErrNewer, m.V, Version)
	}
	return nil
}

// What a run leaves at most: a tenth of a record is routine events, and 1 MiB others; each of
// the three watchers that a run may have tells mostProcs processes apart.
const (
	mostParts    = 1 << 17 // events, limits, and what is listed in them
	mostText     = 16 << 20
	mostRecorded = 3 * mostProcs
)

// parts counts what was decoded of one record or journal: a small file can hold what takes
// gigabytes in memory.
type parts struct{ n, bytes int }

// decode decodes a value, unless there were too many.
func (p *parts) decode(value []byte, to any) error {
	n := event.Elements(value)
	if n > mostParts-p.n || len(value) > mostText-p.bytes {
		return ErrTooMuch
	}
	p.n, p.bytes = p.n+n, p.bytes+len(value)
	return json.Unmarshal(value, to)
}

// event reads one event from its JSON. Those with a name that this version
// does not know are an error.
func (p *parts) event(line []byte) (Entry, error) {
	name := nameOf(line)
	if name == "" {
		var h event.Head
		if err := json.Unmarshal(line, &h); err != nil {
			return Entry{}, err
		}
		name = h.Event
	}
	v := name.New()
	if v == nil || name == event.NameSample { // a record has samples in a form of its own
		return Entry{}, errEvent
	}
	if err := p.decode(line, v); err != nil {
		return Entry{}, err
	}
	return Entry{Name: name, Value: v}, nil
}

// nameOf returns the name of an event that was written as this version does, with three
// plain fields in front of it; else empty. Parsing a line for its name alone takes as long
// as parsing all of it.
func nameOf(line []byte) event.Name {
	const (
		field      = `"event":"`
		mostBefore = 96 // bytes of version, time and number
	)
	at := bytes.Index(line, []byte(field))
	if at < 0 || at > mostBefore || bytes.Count(line[:at], []byte{'{'}) != 1 {
		return ""
	}
	name, _, ok := bytes.Cut(line[at+len(field):], []byte{'"'})
	if !ok || bytes.IndexByte(name, '\\') >= 0 {
		return ""
	}
	return event.Name(name)
}

// Assembly makes a run of the entries of a full record, in any order of their kinds.
type Assembly struct {
	Found   bool // there is a Meta
	Entries int  // that were added
	Bad     int  // … of which could not be read

	run    Run
	parts  parts
	limits map[int]int // number in the record to index in the run
	procs  map[int]int
	events []numbered
	last   time.Duration
}

type numbered struct {
	n uint64
	Entry
}

func NewAssembly() *Assembly { return &Assembly{limits: map[int]int{}, procs: map[int]int{}} }

func (a *Assembly) Damage(text string) { a.run.Damage = append(a.run.Damage, text) }

// Until is the last moment of which there is an entry, as time of day.
func (a *Assembly) Until() string { return a.run.Wall(a.last).Local().Format("15:04:05") }

// Add takes one entry as it was stored. The error is ErrTooMuch, or nil.
func (a *Assembly) Add(key, sealed []byte) error {
	a.Entries++
	value, err := Unseal(key, sealed)
	if kind, n, ok := SplitKey(key); err == nil && ok {
		err = a.add(kind, n, value)
	} else {
		err = errCRC
	}
	if errors.Is(err, ErrTooMuch) {
		return err
	}
	if err != nil {
		a.Bad++
	}
	return nil
}

func (a *Assembly) add(kind byte, n uint64, value []byte) (err error) {
	r := &a.run
	switch kind {
	case KindMeta:
		if err = a.parts.decode(value, &r.Meta); err == nil {
			a.Found = true
		}
	case KindLimit:
		var v event.Limit
		if err = a.parts.decode(value, &v); err == nil {
			a.limits[int(n)] = len(r.Limits)
			r.Limits = append(r.Limits, v)
		}
	case KindProc:
		var v Proc
		if len(r.Procs) >= mostRecorded {
			err = ErrTooMuch
		} else if err = json.Unmarshal(value, &v); err == nil {
			a.procs[int(n)] = len(r.Procs)
			r.Procs = append(r.Procs, v)
		}
	case KindEvent, KindRoutine:
		var e Entry
		if e, err = a.parts.event(value); err == nil {
			a.events = append(a.events, numbered{n, e})
		}
	case KindBlock:
		r.Thinned = r.Thinned || len(value) > 0 && value[0] != 0
		if n < 1<<42 {
			a.last = max(a.last, time.Duration(n)*time.Millisecond)
		}
		r.blocks = append(r.blocks, value)
	}
	return err
}

// Run makes a run of what was added. source names the record.
func (a *Assembly) Run(source string) (*Run, error) {
	r := &a.run
	err := ErrForeign
	if a.Found {
		err = r.Meta.readable()
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read record %s: %w", source, err)
	}
	if a.Bad > 0 {
		a.Damage(fmt.Sprintf("%d of %d entries are damaged and were left out", a.Bad, a.Entries))
	}
	r.Sources = append(r.Sources, source)
	slices.SortFunc(a.events, func(x, y numbered) int { return int(int64(x.n) - int64(y.n)) })
	before := uint64(0)
	for _, e := range a.events {
		e.At = e.Value.(interface{ When() time.Time }).When().Sub(r.Meta.Start)
		if gap := e.n - before - 1; before != 0 && e.n>>40 == before>>40 {
			r.Dropped += int(gap)
		}
		before = e.n
		r.Events = append(r.Events, e.Entry)
	}
	r.limitAt, r.procAt = newIDMap(a.limits), newIDMap(a.procs)
	return r, nil
}

const crcSize = 4

// castagnoli is made when it is needed: a process that records nothing, as the
// holder, is not to pay for it at its start.
var castagnoli = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

var errCRC = errors.New("checksum does not match")

// seal puts the CRC-32C of key and value in front of the value, so that a damaged tree
// which returns a value for another key is found out.
func seal(key, value []byte) []byte {
	b := make([]byte, crcSize, crcSize+len(value))
	binary.BigEndian.PutUint32(b, checksum(key, value))
	return append(b, value...)
}

// Unseal checks a stored value and takes off its checksum.
func Unseal(key, sealed []byte) ([]byte, error) {
	if len(sealed) < crcSize {
		return nil, errCRC
	}
	value := sealed[crcSize:]
	if binary.BigEndian.Uint32(sealed) != checksum(key, value) {
		return nil, errCRC
	}
	return value, nil
}

func checksum(key, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli()), castagnoli(), value)
}
