package supervisor

import (
	"slices"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/tell"
)

// keeping is a recorder that makes a run of what it is given, as a record would.
type keeping struct {
	*record.Builder
	start  time.Time
	limits map[event.LimitID]int
}

func newKeeping(start time.Time) *keeping {
	return &keeping{record.NewBuilder(record.Meta{V: record.Version, ID: "kept", Start: start}), start, map[event.LimitID]int{}}
}

func (k *keeping) Sample(l *record.Look) {
	s := record.Sample{At: l.At, AtDecision: l.AtDecision}
	for i := range l.Limits {
		e := &l.Limits[i]
		n, ok := k.limits[e.ID()]
		if !ok {
			n = k.Builder.Limit(event.Limit{Name: e.Name, Scope: e.Scope, Accounting: e.Accounting, Level: e.Level})
			k.limits[e.ID()] = n
		}
		r := record.Reading{Limit: n, Used: e.Used, UsedMax: e.UsedMax, Size: e.Limit, ETA: -1}
		if e.ETA != nil {
			r.ETA = *e.ETA
		}
		s.Limits = append(s.Limits, r)
	}
	k.Builder.Sample(&s)
}

// Event keeps what a record has: a pointer to what is read back.
func (k *keeping) Event(name event.Name, v any) {
	e := record.Entry{Name: name, Value: v}
	switch v := v.(type) {
	case event.Start:
		e.At, e.Value = v.Time.Sub(k.start), &v
	case event.Handover:
		e.At, e.Value = v.Time.Sub(k.start), &v
	case event.Decision:
		e.At, e.Value = v.Time.Sub(k.start), &v
	default:
		return
	}
	k.Builder.Event(e)
}

func (k *keeping) Begin()              {}
func (k *keeping) Close(time.Duration) {}

// TestSuccessorIsRecorded: the record of a successor has the rules and the state it took
// over, which go nowhere else.
func TestSuccessorIsRecorded(t *testing.T) {
	first, second := twoUsing(t, 900*rss.MiB, "80%:warn", "85%:warn")
	second.tell.Run.Begun, second.tell.Run.BegunMono = time.Now(), tell.Monotonic()
	k := newKeeping(second.tell.Run.Begun)
	second.tell.Recorder = k
	second.inherits(first)
	second.full()
	if got := second.fired(); got != "" {
		t.Errorf("fired %q", got)
	}
	all := second.events()
	if n := len(named(all, event.NameHandover)) + len(named(all, event.NameStart)); n != 0 {
		t.Errorf("%d events were written, want them in the record alone", n)
	}
	run := k.Run()
	var names []event.Name
	for _, e := range run.Events {
		names = append(names, e.Name)
	}
	if !slices.Equal(names, []event.Name{event.NameStart, event.NameHandover}) {
		t.Fatalf("recorded %v", names)
	}
	start, h := run.Events[0].Value.(*event.Start), run.Events[1].Value.(*event.Handover)
	if !slices.Equal(start.Rules, second.Settings.RuleTexts()) {
		t.Errorf("the record's rules are %v", start.Rules)
	}
	if m, err := policy.ParseMemory(h.Memory); err != nil || len(m.Rungs) != 2 || m.At > h.Clock || h.Ran < 0 || h.Ran > second.runTime() {
		t.Errorf("%+v, %v", h, err)
	}
}
