package screen

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/control"
)

// TestMain is the tests, or the screen that they look at: the test binary with the
// argument "screen" and how it behaves.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "screen" {
		os.Exit(fakeScreen(os.Args[2], os.Args[3:]))
	}
	rsstest.DefaultSignals()
	os.Exit(m.Run())
}

// fakeScreen shows a scene that grows ten times a second.
func fakeScreen(how string, args []string) int {
	m := New(80, 24, Look{Unicode: true, Colour: true})
	m.Interval = 100 * time.Millisecond
	s, n := scene("n1", 0, 4, 8), 0
	s.Time = time.Now()
	var asked atomic.Int64
	o := Options{
		In: os.Stdin, Out: os.Stdout, Model: m,
		Fetch: func(context.Context) ([]control.Status, []error) {
			n++
			switch {
			case how == "panic" && n == 3:
				panic("of the fetching")
			case how == "many": // as many bytes as can be had
				time.Sleep(time.Millisecond)
				if err := os.WriteFile(args[0], fmt.Append(nil, n), 0o600); err != nil {
					panic(err)
				}
				s = scene("n1", n, 4, 8)
			}
			s = grown(s, n)
			s.Time = time.Now()
			return nodesOf(s), nil
		},
		Do: func(_ context.Context, o Order, each func(control.Result)) error {
			if how == "panic in an order" {
				panic("of the order")
			}
			asked.Add(1)
			for _, pid := range o.Command.PIDs {
				each(control.Result{PID: pid, OK: true})
			}
			return nil
		},
	}
	if how == "many" {
		o.Model.Interval = 0
	}
	err := Run(context.Background(), o)
	var sig *SignalError
	if errors.As(err, &sig) {
		Raise(sig.Signal)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	fmt.Println("left after", asked.Load(), "orders")
	return 0
}
