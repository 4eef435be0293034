package screen

import (
	"context"
	"fmt"
	"io"
	"time"
)

// Once asks the nodes one time and returns a frame without keys, and what kept
// nodes from answering. The frame is nil where no node did.
func Once(ctx context.Context, o Options) (*Frame, []error) {
	m, errs := once(ctx, o, o.Model)
	if m.Nobody() {
		return nil, errs
	}
	return m.View(), errs
}

func once(ctx context.Context, o Options, m Model) (Model, []error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	statuses, errs := o.Fetch(ctx)
	m, _ = m.Update(Answer{statuses, errs, time.Now()})
	return m, errs
}

// Scroll is for a terminal that can only scroll: one frame below the other, until
// ctx ends or the terminal is gone.
func Scroll(ctx context.Context, o Options) error {
	if _, err := io.WriteString(o.Out, "by TERM this terminal can only scroll: keys do nothing, Ctrl-C ends top\n"); err != nil {
		return fmt.Errorf("cannot write to the terminal: %w", err)
	}
	for m := o.Model; ; {
		began := time.Now()
		size := SizeOf(o.Out)
		m.W, m.H = size.W-1, max(leastHeight, size.H-1)
		m, _ = once(ctx, o, m)
		if _, err := io.WriteString(o.Out, m.View().Text()+"\n"); err != nil {
			return fmt.Errorf("cannot write to the terminal: %w", err)
		}
		select {
		case <-time.After(time.Until(began.Add(m.Interval))):
		case <-ctx.Done():
			return nil
		}
	}
}
