package alert

import (
	"time"
)

// lastPatience is how long the end of a run waits for receivers that have answered
// so far. It waits for no other.
const lastPatience = 200 * time.Millisecond

// Close resolves what fires and tells each receiver once more, by processes that
// may outlive us. The function that it returns waits for the answers of receivers
// that have answered so far, until 200 ms have passed since Close. Without resolve
// nobody is told anything any more: somebody else goes on.
func (s *Sender) Close(resolve bool) (wait func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.stop()
	if !resolve {
		return func() {}
	}
	from := time.Now()
	hangs := s.busy
	if hangs != nil && from.Sub(s.busyFrom) < lastPatience {
		hangs = nil // it has hardly begun
	}
	s.book.End(from)
	s.look()
	type left struct {
		r      *receiver
		l      load
		answer <-chan Answer
	}
	var all []left
	for _, r := range s.receivers {
		if len(r.untold(s.book)) == 0 {
			continue
		}
		l, err := r.load(s.book, from)
		if err != nil {
			continue
		}
		r.asked = true
		answer := s.opt.Leave(s.request(r, l, lastTime))
		if r.fails == 0 && r != hangs && (r.Sent > 0 || hangs == nil) {
			all = append(all, left{r, l, answer})
		}
	}
	return func() {
		late := time.After(time.Until(from.Add(lastPatience)))
		for _, e := range all {
			select {
			case a := <-e.answer:
				s.mu.Lock()
				e.r.asked = false
				e.r.done(e.l, a, time.Now(), 1)
				s.mu.Unlock()
			case <-late:
				return
			}
		}
	}
}
