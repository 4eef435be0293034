package hold

import (
	"os"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

func TestParseStat(t *testing.T) {
	rest := " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20"
	for _, test := range []struct {
		in   string
		want stat
		ok   bool
	}{
		{"12 (sh)" + rest, stat{'S', 4711}, true},
		{"12 (a) R (b)" + rest, stat{'S', 4711}, true},
		{"12 (sh) S 1 2", stat{}, false},
		{"12 sh S", stat{}, false},
		{"", stat{}, false},
	} {
		got, err := parseStat([]byte(test.in))
		if (err == nil) != test.ok || test.ok && got != test.want {
			t.Errorf("%q: got %+v, %v", test.in, got, err)
		}
	}
}

func TestParsePending(t *testing.T) {
	status := "Name:\tx\nState:\tS (sleeping)\nSigPnd:\t0000000000000001\nShdPnd:\t0000000000000200\nSigBlk:\t0\n"
	state, p, ok := parsePending([]byte(status))
	if !ok || state != 'S' || p != bit(10) {
		t.Errorf("got %c %x %v", state, p, ok)
	}
	for _, bad := range []string{"", "Name:\tx\nState:\tS\n", "Name:\tx\nState:\tS\nShdPnd:\t02\n", "Name:\tx\nState:\tS\nShdPnd:\t000000000000020g\n", "Name:\tx\nState:\tS\nShdPnd:\t0000000000000200"} {
		if _, _, ok := parsePending([]byte(bad)); ok {
			t.Errorf("%q accepted", bad)
		}
	}
}

// What runs in the holder on a signal allocates nothing.
func TestNoAllocation(t *testing.T) {
	status, err := os.ReadFile("/proc/self/status")
	wardentest.NoError(t, err)
	w := &witness{status: -1}
	w.open(os.Getpid())
	defer w.close()
	var b [messageSize]byte
	n := testing.AllocsPerRun(100, func() {
		parsePending(status)
		w.see(10, 0)
		m := message{kind: kindSignal}
		m.put(&b)
		parseMessage(b[:])
		takeOther(0)
		stoppedBy(1)
		judge(&arrival{signo: 10}, &circumstances{})
		parentOf(os.Getpid())
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("1 (x) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20"))
	f.Fuzz(func(t *testing.T, b []byte) { parseStat(b) })
}

func FuzzParsePending(f *testing.F) {
	f.Add([]byte("Name:\tx\nState:\tS (sleeping)\nShdPnd:\t0000000000000200\nSigBlk:\t0\n"))
	f.Fuzz(func(t *testing.T, b []byte) { parsePending(b) })
}
