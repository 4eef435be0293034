package record

import (
	"encoding/json"
	"errors"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

var errEvent = errors.New("not an event")

// parseEvent reads one event from its JSON. Those with a name that this version
// does not know are an error.
func parseEvent(line []byte) (Entry, error) {
	var h event.Head
	if err := json.Unmarshal(line, &h); err != nil {
		return Entry{}, err
	}
	var v any
	switch h.Event {
	case event.NameStart:
		v = &event.Start{}
	case event.NameLimit:
		v = &event.Found{}
	case event.NameDecision:
		v = &event.Decision{}
	case event.NameOutcome:
		v = &event.Outcome{}
	case event.NameLoader:
		v = &event.LoaderSaid{}
	case event.NameFault:
		v = &event.Fault{}
	case event.NameSignal:
		v = &event.Signal{}
	case event.NameHelp:
		v = &event.Help{}
	case event.NameExit:
		v = &event.Exit{}
	default:
		return Entry{}, errEvent
	}
	if err := json.Unmarshal(line, v); err != nil {
		return Entry{}, err
	}
	return Entry{Name: h.Event, Value: v}, nil
}
