package hold

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestMessagesKeepTheEnd: a watcher that takes nothing for a while loses signals, and
// neither what came of a trim nor the end. The order is the holder's.
func TestMessagesKeepTheEnd(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[1])
	holder, l := &Link{fd: pair[0]}, &Link{fd: pair[1], messages: make(chan Message, messageRoom)}
	says := func(m message) {
		t.Helper()
		if err := holder.send(&m); err != nil {
			t.Fatal(err)
		}
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
