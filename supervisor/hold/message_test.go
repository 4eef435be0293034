package hold

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestMessagesKeepTheEnd: a watcher that takes nothing for a while loses signals, and
// neither what came of a trim nor the end. The order is the holder's.
func TestMessagesKeepTheEnd(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	wardentest.NoError(t, err)
	defer unix.Close(pair[1])
	holder, l := &Link{fd: pair[0]}, &Link{fd: pair[1], messages: make(chan Message, messageRoom)}
	says := func(m message) {
		t.Helper()
		wardentest.NoError(t, holder.send(&m))
		if _, ok := l.receive(make([]byte, 4096)); !ok {
			t.Fatal("the holder is gone")
		}
	}
	for i := range signalRoom + 10 {
		says(message{kind: kindSignal, a: int32(i)})
	}
	answer := TrimAnswer{ID: 7}
	for range 3 {
		says(answer.message())
	}
	for range 2 {
		says(message{kind: kindExit, a: 3})
	}
	unix.Close(pair[0])
	go l.serve()
	for i := range signalRoom {
		if m := <-l.messages; m != (Signal{Signal: i}) {
			t.Fatalf("message %d is %#v", i, m)
		}
	}
	for _, want := range []Message{answer, Exit{Code: 3}, Gone{}} {
		if m := <-l.messages; m != want {
			t.Errorf("%#v, want %#v", m, want)
		}
	}
	if len(l.messages) > 0 {
		t.Errorf("and then %#v", <-l.messages)
	}
}

func TestMessages(t *testing.T) {
	want := message{kind: kindDrain, a: -1, b: 2, c: 3, set: bit(64)}
	var b [messageSize]byte
	want.put(&b)
	if got, err := parseMessage(b[:]); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	begin := Begin{Setup: json.RawMessage(`{"a":1}`), PID: 2, Start: 3, Holder: 4, Attempt: 4, Last: true, Blocked: 1 << 63}
	p, err := encodeBegin(begin)
	wardentest.NoError(t, err)
	got, err := parseBegin(p)
	wardentest.NoError(t, err)
	if d := cmp.Diff(begin, got); d != "" {
		t.Error(d)
	}
}

func FuzzParseMessage(f *testing.F) {
	f.Add(make([]byte, messageSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		parseMessage(b)
		parseBegin(b)
	})
}
