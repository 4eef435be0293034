package event

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

func head(seq int, name Name) Head {
	return Head{V: Version, Time: time.Unix(int64(seq), 0).UTC(), Seq: uint64(seq), Event: name}
}

func TestStreamWritesWhatWasPut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	s := NewStream(path, Line, func(err error) { t.Error(err) })
	code := 0
	for i := range 3 {
		d := Decision{Head: head(i+1, NameDecision), ID: uint64(i + 1), Rule: "85%:trim", Limit: LimitSlurm, Action: ActionTrim}
		s.Event(NameDecision, d)
	}
	s.Event(NameExit, Exit{Head: head(4, NameExit), By: "command", Code: &code})
	s.Close(time.Minute)

	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var seqs []uint64
	var names []Name
	for line := range bytes.Lines(b) {
		var h Head
		if err := json.Unmarshal(line, &h); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		seqs, names = append(seqs, h.Seq), append(names, h.Event)
	}
	if len(seqs) != 4 || seqs[0] != 1 || seqs[3] != 4 || names[3] != NameExit {
		t.Errorf("read back %v %v", seqs, names)
	}
}

func TestStreamFullQueueDropsSamplesOnly(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	s := NewStream(fifo, Line, nil) // without a reader nothing leaves the queue
	for range maxQueue + 10 {
		s.Event(NameSample, Sample{Head: head(1, NameSample)})
	}
	for range 5 {
		s.Event(NameDecision, Decision{Head: head(1, NameDecision)})
	}
	if n := s.Dropped(); n != 10 {
		t.Errorf("dropped %d, want the 10 samples that found no room", n)
	}
	r, err := os.Open(fifo)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s.Close(0)
	lines := 0
	for sc := bufio.NewScanner(r); sc.Scan(); {
		lines++
	}
	if lines != maxQueue+5 {
		t.Errorf("%d lines, want %d", lines, maxQueue+5)
	}
}

func TestStreamThatCannotWriteSaysSoOnce(t *testing.T) {
	said := make(chan error, 8)
	s := NewStream(filepath.Join(t.TempDir(), "no", "such", "directory"), Line, func(err error) { said <- err })
	err := <-said
	if !strings.Contains(err.Error(), "cannot open events file") {
		t.Errorf("said %q", err)
	}
	s.Event(NameExit, Exit{Head: head(1, NameExit)})
	s.Close(time.Minute)
	if len(said) != 0 {
		t.Error("said again")
	}
}

// TestSaved: decisions with their outcomes, rules that could not help, and what loaders did by
// themselves, each counted once.
func TestSaved(t *testing.T) {
	var s Ledger
	at := time.Unix(1, 0)
	decide := func(id uint64, a Action, o Outcome) {
		s.Decided(at, &Decision{ID: id, Action: a, Limit: LimitSlurm, Used: 900 * rss.MiB})
		o.Decision = id
		s.Finished(at, &o)
		s.Finished(at, &o) // told twice
	}
	decide(1, ActionRecycle, Outcome{OK: true, Freed: 300 * rss.MiB, Paused: 0.5})
	decide(2, ActionTrim, Outcome{OK: true, Freed: 100 * rss.MiB})
	decide(3, ActionTrim, Outcome{OK: true}) // freed nothing
	decide(4, ActionTrim, Outcome{Reason: ReasonStatus})
	s.Finished(at, &Outcome{Action: ActionGC, Reason: ReasonStatus})
	s.Said(&LoaderSaid{What: LoaderTrimmed, Count: 3, Freed: 200 * rss.MiB})
	s.Said(&LoaderSaid{What: LoaderTrimmed, Count: 1, Freed: 100 * rss.MiB, Reason: TrimRequested}) // decision 2
	s.Said(&LoaderSaid{What: LoaderRecycled, Reason: string(ReasonDeferred), Paused: 0.25})
	s.Said(&LoaderSaid{What: LoaderRecycled}) // decision 1
	trim := s.Sum(ActionTrim)
	if trim.Fired != 3 || trim.Worked != 2 || trim.Freed != 100*rss.MiB || trim.Reasons[ReasonStatus] != 1 || trim.PeakUsed != 900*rss.MiB {
		t.Errorf("trims %+v", trim)
	}
	if s.Recycled != 2 || s.Helped != 2 || s.WorkerTrims != 3 || s.Dropped != 200*rss.MiB || s.Skipped() != 1 || s.Paused() != 0.75 {
		t.Errorf("%+v", s)
	}
	if s.Outcome() != HelpedYes || s.Actions[0].Action != ActionTrim {
		t.Errorf("%s, %+v", s.Outcome(), s.Actions)
	}
	var both Saved
	both.Add(&s.Saved)
	both.Add(&s.Saved)
	if b := both.Sum(ActionTrim); b.Worked != 4 || both.Recycled != 4 || both.Skipped() != 2 || both.Paused() != 1.5 {
		t.Errorf("two of the same: %+v", both)
	}
}

// TestSavedOutcome: whether all of it helped.
func TestSavedOutcome(t *testing.T) {
	for want, s := range map[Helped]Saved{
		HelpedNo:      {},
		HelpedDryRun:  {Actions: []ActionSum{{Action: ActionTrim, Fired: 1, Reasons: map[Reason]int{ReasonDryRun: 1}}}},
		HelpedRefused: {Actions: []ActionSum{{Action: ActionTrim, Skipped: 1}}},
		HelpedYes:     {WorkerTrims: 1, Dropped: 1},
	} {
		if got := s.Outcome(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
