package tell

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestEnd: the exit event and the summary of the same end.
func TestEnd(t *testing.T) {
	size := event.Limit{Name: event.LimitUser, Accounting: event.AccountingRSS, Used: 500 * rss.MiB, Limit: rss.GiB}
	seven, status, interrupt := 7, 137, 130
	kill := "SIGKILL"
	for name, c := range map[string]struct {
		sum    Summary
		end    Ending
		by     string
		code   *int
		signal *string
		want   event.RunOutcome
		advice bool
	}{
		"by itself":        {end: Ending{Said: true, Code: 7}, by: "command", code: &seven, want: event.RunFailed},
		"by a signal":      {end: Ending{Said: true, Signal: 9}, by: "command", signal: &kill, want: event.RunKilled},
		"by an order":      {end: Ending{Said: true, Code: 130}, by: "command", code: &interrupt, want: event.RunCancelled},
		"well":             {end: Ending{Said: true}, by: "command", code: new(int), want: event.RunOK, advice: true},
		"stopped":          {sum: Summary{Stopped: true}, end: Ending{Said: true, Signal: 15, StopStatus: 137}, by: "rsswarden", code: &status, want: event.RunStopped, advice: true},
		"the holder ended": {by: "command", want: event.RunUnknown},
		"others' ended":    {end: Ending{Said: true, Attached: "process 7 has ended"}, by: "command", want: event.RunUnknown},
		"others' runs on":  {end: Ending{Attached: "process 7 runs on"}, by: "detached", want: event.RunUnknown},
		"several ranks":    {sum: Summary{Ranks: 2}, end: Ending{Said: true, Node: "n1"}, by: "command", code: new(int), want: event.RunOK, advice: true},
		"hidden processes": {sum: Summary{treeSeen: treeSeen{unread: 3}}, end: Ending{Said: true}, by: "command", code: new(int), want: event.RunOK},
		"in the queue":     {end: Ending{Said: true, Requeued: &Requeued{From: rss.GiB, To: 2 * rss.GiB}}, by: "command", code: new(int), want: event.RunRequeued, advice: true},
	} {
		s, e := c.sum, c.end
		s.Watched, s.nearest, s.looks = true, &size, 2
		e.Took = time.Second
		out, brief := s.End(&e)
		if out.By != c.by || !same(out.Code, c.code) || !same(out.Signal, c.signal) || (out.Next.Size != 0) != c.advice || out.Outcome != c.want {
			t.Errorf("%s: %+v", name, out)
		}
		if brief.Outcome != out.Outcome || brief.Peak == nil || brief.Peak.Used != size.Used {
			t.Errorf("%s: %+v", name, brief)
		}
	}
}

func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// TestWhatRanOut is what a failure may be laid to, by what was read when.
func TestWhatRanOut(t *testing.T) {
	of := func(name event.LimitName, percent rss.Bytes, age float64) event.Limit {
		return event.Limit{Name: name, Scope: event.ScopeProcess, Used: percent * 10, UsedMax: percent * 10, Limit: 1000, Age: age, PID: 7}
	}
	shared := func(name event.LimitName, percent rss.Bytes) event.Limit {
		return event.Limit{Name: name, Scope: event.ScopeNode, Used: percent * 10, UsedMax: percent * 10, Limit: 1000}
	}
	type reading struct {
		at float64 // seconds
		l  event.Limit
	}
	other := func(l event.Limit) event.Limit {
		l.PID++
		return l
	}
	for _, c := range []struct {
		name     string
		readings []reading
		last     float64
		want     rss.Bytes // used; 0 for none
		pace     float64   // of the process that is nearest, a second
	}{
		{"never near", []reading{{1, of(event.LimitFDs, 94, 0)}}, 1, 0, 0},
		{"at the end", []reading{{1, of(event.LimitFDs, 10, 0)}, {2, of(event.LimitFDs, 96, 0)}}, 2, 960, 0},
		{"a process that ended just before", []reading{{10, of(event.LimitFDs, 99, 0)}, {11, of(event.LimitFDs, 5, 0)}}, 20, 990, 0},
		{"a process that ended a minute before", []reading{{10, of(event.LimitFDs, 99, 0)}, {11, of(event.LimitFDs, 5, 0)}}, 70, 0, 0},
		{"an hour before, and again", []reading{{10, of(event.LimitFDs, 99, 0)}, {3590, of(event.LimitFDs, 97, 0)}}, 3600, 970, 0},
		{"the fullest of the last", []reading{{10, of(event.LimitFDs, 99, 0)}, {50, of(event.LimitFDs, 96, 0)}, {52, of(event.LimitFDs, 97, 0)}}, 60, 970, 0},
		{"on its way", []reading{{1, of(event.LimitMaps, 60, 0)}, {2, of(event.LimitMaps, 80, 0)}}, 2, 800, 0},
		{"another is on its way", []reading{{1, of(event.LimitMaps, 60, 0)}, {2, other(of(event.LimitMaps, 79, 0))}}, 2, 790, 100},
		{"another is on its way, slowly", []reading{{1, of(event.LimitMaps, 60, 0)}, {2, other(of(event.LimitMaps, 79, 0))}}, 2, 0, 10},
		{"slowly on its way", []reading{{1, of(event.LimitMaps, 60, 0)}, {2, of(event.LimitMaps, 62, 0)}}, 2, 0, 0},
		{"it was on its way", []reading{{1, of(event.LimitMaps, 60, 0)}, {2, of(event.LimitMaps, 80, 0)}, {9, of(event.LimitMaps, 80, 0)}}, 20, 0, 0},
		{"counted long ago", []reading{{100, of(event.LimitFDs, 99, 90)}}, 100, 0, 0},
		{"a /dev/shm that others fill", []reading{{1, shared(event.LimitSHM, 96)}, {2, shared(event.LimitSHM, 97)}}, 2, 0, 0},
		{"a /dev/shm that fills", []reading{{1, shared(event.LimitSHM, 60)}, {2, shared(event.LimitSHM, 83)}}, 2, 830, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s Summary
			for _, r := range c.readings {
				s.Peak(&rss.Sample{Mono: seconds(r.at)}, []event.Limit{r.l}, func(*event.Limit) float64 { return c.pace })
			}
			name := c.readings[0].l.Name
			l, ok := s.tails[name].ranOut(seconds(c.last))
			if ok != (c.want > 0) || ok && l.Used != c.want {
				t.Errorf("%v %v, want %v", l.Used, ok, c.want)
			}
		})
	}
}

func seconds(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }
