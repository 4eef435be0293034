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
