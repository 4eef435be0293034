package hold

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

type Begin struct {
	Setup   json.RawMessage `json:"setup,omitempty"`
	PID     int             `json:"pid"`    // the command
	Start   uint64          `json:"start"`  // its start time, field 22 of /proc/PID/stat, 0 if unread
	Holder  int             `json:"holder"` // PID of the holder
	Attempt int             `json:"attempt"`
	// Last: no further watcher will be started, so this one should leave out
	// what may have killed the others: the record.
	Last bool `json:"last,omitempty"`
	// Ignored and Blocked are the signals the user's command was given
	// ignored and blocked; bit n-1 is signal n.
	Ignored uint64 `json:"ignored,omitempty"`
	Blocked uint64 `json:"blocked,omitempty"`
	// LeftOut: the command has the user's environment, as there was no room for ours.
	LeftOut bool `json:"left_out,omitempty"`
	// Rested is what a watcher kept that was at rest, nil for any other.
	Rested *Rested `json:"rested,omitempty"`
}

// Rested is what a watcher keeps while it is at rest, see [Link.Rest].
type Rested struct {
	Order uint64 `json:"order,omitempty"` // the last that was carried out
	Event uint64 `json:"event,omitempty"` // the last that was told
	Lock  int    `json:"-"`               // descriptor of the lead's lock, which it has got; else 0
	Ended bool   `json:"-"`               // it has that because the leader was stopped, and ended here
}

type Exit struct {
	Code   int // when Signal is 0
	Signal int
}

// Signal is a signal that reached the holder, for the record.
type Signal struct {
	Signal    int
	Forwarded bool // else the command had it already, or it was not for it
	Sender    int  // PID, 0 for the kernel or another PID namespace
}

// JobControl says that the signal stops or continues the command, as scontrol suspend and resume
// do: it tells nothing of how the run will end.
func (s Signal) JobControl() bool {
	return stopping.has(s.Signal) || unix.Signal(s.Signal) == unix.SIGCONT
}

// Gone is the last message: the holder has closed the link or died.
type Gone struct{}

// Message is what the holder tells its watcher: [Signal], [TrimAnswer], [Exit] or [Gone].
type Message interface{ fromHolder() }

func (Signal) fromHolder() {}
func (Exit) fromHolder()   {}
func (Gone) fromHolder()   {}

type kind uint32

const (
	kindBegin kind = iota + 1
	kindExit
	kindSignal
	kindDrain   // to the watcher: take one copy of each signal in set, answer with a
	kindDrained // they were taken; set and a as asked
	kindPending // to the holder: these are pending and not asked for
	kindSubreaper
	kindOverride
	kindTrim    // to the holder
	kindTrimmed // to the watcher: its result
	kindWake    // to the holder, if it is parked
	kinds
)

// message is one packet, as it lies in memory. Begin alone carries bytes (JSON) behind its
// kind.
type message struct {
	kind kind
	a, b int32
	c    int32
	set  signalSet
	trim [6]uint64 // of kindTrim and kindTrimmed
}

const messageSize = int(unsafe.Sizeof(message{}))

func (m *message) packet() *[messageSize]byte { return (*[messageSize]byte)(unsafe.Pointer(m)) }

func (m *message) put(b *[messageSize]byte) { *b = *m.packet() }

var errMessage = errors.New("malformed message")

func parseMessage(b []byte) (m message, err error) {
	if len(b) != messageSize {
		return m, errMessage
	}
	copy(m.packet()[:], b)
	if m.kind <= kindBegin || m.kind >= kinds {
		return m, errMessage
	}
	return m, nil
}

func encodeBegin(b Begin) ([]byte, error) {
	j, err := json.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("cannot encode begin message: %w", err)
	}
	return append(binary.NativeEndian.AppendUint32(nil, uint32(kindBegin)), j...), nil
}

func parseBegin(p []byte) (b Begin, err error) {
	if len(p) < 4 || kind(binary.NativeEndian.Uint32(p)) != kindBegin {
		return b, errMessage
	}
	if err := json.Unmarshal(p[4:], &b); err != nil {
		return b, fmt.Errorf("cannot decode begin message: %w", err)
	}
	return b, nil
}
