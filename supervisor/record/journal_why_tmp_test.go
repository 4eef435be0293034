package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// leak is a finding as long as they get.
func leak(head event.Head, finding event.Finding, role rss.Role, size rss.Bytes) event.Diagnosis {
	return event.Diagnosis{
		Head: head, Finding: finding, Confidence: event.Likely, Role: role, PID: 4711, Bytes: size,
		Evidence: []string{strings.Repeat("evidence ", 30)}, Advice: []string{strings.Repeat("advice ", 80)},
	}
}

// TestWhyInAJournal: what was found, changed and warned of is in a journal, and
// read back as it was told.
func TestWhyInAJournal(t *testing.T) {
	r := New(Options{Meta: testMeta()})
	r.begun = true
	start := r.opt.Meta.Start
	code := 1
	events := []Entry{
		{0, event.NameStart, &event.Start{Head: headed(start, 0, event.NameStart)}},
		{time.Second, event.NameLoader, &event.LoaderSaid{Head: headed(start, time.Second, event.NameLoader), What: event.LoaderPickling, PID: 7,
			Sharing: &event.Sharing{Method: "spawn", Workers: 2, Tensors: 9000, FDs: 9010, MaxFDs: 1024}}},
		{2 * time.Second, event.NameCure, &event.Cure{Head: headed(start, 2*time.Second, event.NameCure), Remedy: event.RemedyNoFile, PID: 7, OK: true, Before: 1024, After: 65536}},
	}
	d := leak(headed(start, 3*time.Second, event.NameDiagnosis), event.FindingWorkerLeak, rss.RoleWorker, rss.GiB)
	events = append(events, Entry{3 * time.Second, event.NameDiagnosis, &d},
		Entry{4 * time.Second, event.NameExit, &event.Exit{Head: headed(start, 4*time.Second, event.NameExit), Code: &code}})
	for _, e := range events {
		switch v := e.Value.(type) {
		case *event.Start:
			r.Event(e.Name, *v)
		case *event.LoaderSaid:
			r.Event(e.Name, *v)
		case *event.Cure:
			r.Event(e.Name, *v)
		case *event.Diagnosis:
			r.Event(e.Name, *v)
		case *event.Exit:
			r.Event(e.Name, *v)
		}
	}
	first, err := makeRunLine(r.opt.Meta)
	if err != nil {
		t.Fatal(err)
	}
	file := append(first, '\n')
	for _, line := range r.journal.lines {
		file = append(file, line...)
	}
	run, err := parseJournal(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(events, run.Events); diff != "" || run.Damage != nil {
		t.Errorf("damage %v, -told +read\n%s", run.Damage, diff)
	}
}

// TestWhyIsBounded: findings that are told again and again, and cures and
// warnings of each of many workers, leave a journal small, and what is new is kept.
func TestWhyIsBounded(t *testing.T) {
	r := New(Options{Meta: testMeta()})
	r.begun = true
	start := r.opt.Meta.Start
	tell := func(n int, finding event.Finding) {
		at := time.Duration(n) * time.Minute
		r.Event(event.NameDiagnosis, leak(headed(start, at, event.NameDiagnosis), finding, rss.RoleWorker, rss.Bytes(n)*rss.MiB))
	}
	for n := range 1000 {
		at := time.Duration(n) * time.Minute
		tell(n, event.FindingWorkerLeak)
		r.Event(event.NameCure, event.Cure{Head: headed(start, at, event.NameCure), Remedy: event.RemedyOOMPrefer, PID: n, OK: true, After: 500})
		r.Event(event.NameLoader, event.LoaderSaid{Head: headed(start, at, event.NameLoader), What: event.LoaderPickling, PID: n, Sharing: &event.Sharing{}})
	}
	for i, f := range event.Findings {
		tell(2000+i, f)
	}
	text := ""
	for _, line := range r.journal.lines {
		text += string(line)
	}
	if size := r.journal.written(); size > 56<<10 {
		t.Errorf("%d KiB", size>>10)
	}
	for _, f := range event.Findings {
		if !strings.Contains(text, fmt.Sprintf("%q", f)) {
			t.Errorf("%q is not in the journal", f)
		}
	}
	if n := strings.Count(text, `"remedy"`); n != mostCures {
		t.Errorf("%d cures", n)
	}
}

// TestHandoverStaysInTheRecord: what a ladder took over may be large, and is for a
// replay alone: the record keeps it and the journal does not have it.
func TestHandoverStaysInTheRecord(t *testing.T) {
	r := New(Options{Meta: testMeta()})
	r.begun = true // nothing is written: what would be is counted
	h := event.Handover{
		Head: headed(r.opt.Meta.Start, time.Second, event.NameHandover), Ran: time.Second, Clock: time.Hour, Own: "46.0",
		Memory: json.RawMessage(`{"v":1,"at_ns":5,"rungs":[{"level":"` + strings.Repeat("x", 48<<10) + `"}]}`),
	}
	before := r.journal.written()
	r.Event(event.NameHandover, h)
	if n := r.journal.written() - before; n != 0 {
		t.Errorf("%d bytes of it are in the journal", n)
	}
	it := r.waiting.items[len(r.waiting.items)-1]
	if it.kind != keyEvent || r.kept != len(it.value) {
		t.Errorf("kept as %d, of %d bytes %d", it.kind, len(it.value), r.kept)
	}
	e, err := new(parts).event(it.value)
	if err != nil {
		t.Fatal(err)
	}
	got := e.Value.(*event.Handover)
	if got.Ran != h.Ran || got.Clock != h.Clock || got.Own != h.Own || !bytes.Equal(got.Memory, h.Memory) {
		t.Errorf("read back %.200s", it.value)
	}
}
