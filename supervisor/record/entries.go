package record

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

var errEvent = errors.New("not an event")

// What a run leaves at most: of a record a tenth is routine events, and 1 MiB others; each
// watcher of a run, of which there are three at most, tells mostProcs processes apart.
const (
	mostParts    = 1 << 17 // events, limits, and what is listed in them
	mostText     = 16 << 20
	mostRecorded = 3 * mostProcs
)

var errParts = errors.New("it has more than any run leaves")

// parts is how much was decoded of one record or journal: a small file can hold what takes
// gigabytes in memory.
type parts struct{ n, bytes int }

// decode decodes a value that counts as a part, unless it is too many.
func (p *parts) decode(value []byte, to any) error {
	if err := p.add(value); err != nil {
		return err
	}
	return json.Unmarshal(value, to)
}

func (p *parts) add(value []byte) error {
	n := event.Elements(value)
	if n > mostParts-p.n || len(value) > mostText-p.bytes {
		return errParts
	}
	p.n += n
	p.bytes += len(value)
	return nil
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

// nameOf returns the name of an event that was written as this version does,
// with three plain fields in front of it; empty where it looks otherwise. To
// parse a line for its name alone takes as long as to parse it.
func nameOf(line []byte) event.Name {
	const field = `"event":"`
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

// mostBefore is how far into a line its name begins at most: behind version,
// time and number.
const mostBefore = 96
