package alert

import (
	"context"
	"time"
)

// Try tells the receiver of one alert that says that nothing is wrong. A webhook is told
// at once that it is over. Alertmanager is not, as it notifies nobody of what was over
// when it came: there the alert ends by itself, after a minute.
func Try(ctx context.Context, node string, t Target, opt Options) Answer {
	s, r, now := &Sender{opt: opt, book: NewBook()}, newReceiver(t), time.Now()
	s.book.Set(now, []Alert{{
		Node: node, Rung: "test", Test: true, Since: now, Summary: "rsswarden doctor on " + node + " tries out alerts", Text: "nothing is wrong",
	}})
	told := func() Answer {
		r.look(s.book)
		l, err := r.load(s.book, now)
		if err == nil && t.Kind == Alertmanager {
			l.bodies[0], err = managerBody(s.book.sorted(), now, resend, func(string) bool { return true })
		}
		if err != nil {
			return Answer{Error: err.Error()}
		}
		a := opt.Send(ctx, s.request(r, l, SendTime))
		r.done(l, a, now, 1)
		return a
	}
	a := told()
	if a.Error != "" || t.Kind == Alertmanager {
		return a
	}
	s.book.End(time.Now())
	return told()
}
