package remote

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestPieces: messages of two nodes whose lines mix arrive whole, whatever else is
// written between them, and no line is longer than srun leaves whole.
func TestPieces(t *testing.T) {
	var nodes [2][]string
	var sent []Answer
	for i := range 2 {
		var b bytes.Buffer
		for n := range 3 {
			s := Answer{Node: fmt.Sprintf("n%d", i+1), Leader: n + 1, Error: strings.Repeat("a\nü\\", n*1000)}
			if n == 2 {
				s.Status = &control.Status{Node: s.Node, Procs: make([]control.Proc, 500)}
			}
			sent = append(sent, s)
			wardentest.NoError(t, writePieces(&b, s))
		}
		nodes[i] = strings.SplitAfter(b.String(), "\n")
	}
	var got []Answer
	g := messages{}
	for i := range max(len(nodes[0]), len(nodes[1])) {
		for _, lines := range append(nodes[:], []string{"Welcome to n1\n"}, []string{"rsswarden n1\n"}) {
			if i >= len(lines) {
				continue
			}
			if len(lines[i]) > 1024 {
				t.Fatalf("a line of %d bytes", len(lines[i]))
			}
			s, err := g.add([]byte(strings.TrimSuffix(lines[i], "\n")))
			wardentest.NoError(t, err)
			if s != nil {
				got = append(got, *s)
			}
		}
	}
	if len(got) != len(sent) {
		t.Fatalf("%d messages of %d", len(got), len(sent))
	}
	for _, s := range sent {
		found := false
		for _, o := range got {
			found = found || reflect.DeepEqual(s, o)
		}
		if !found {
			t.Errorf("lost: %s %d", s.Node, s.Leader)
		}
	}
}

// FuzzPieces: whatever another program writes between, nothing panics, and a
// message that follows is read.
func FuzzPieces(f *testing.F) {
	f.Add([]byte("rsswarden n1 + {\"node\":\nrsswarden n1 . \"n1\"}"))
	f.Add([]byte("rsswarden n1 . {}"))
	f.Add([]byte("rsswarden  ."))
	f.Fuzz(func(t *testing.T, b []byte) {
		g := messages{}
		for line := range bytes.Lines(b) {
			_, _ = g.add(bytes.TrimSuffix(line, []byte("\n"))) // it must not panic
		}
		var out bytes.Buffer
		wardentest.NoError(t, writePieces(&out, Answer{Node: "another-node", Error: string(bytes.ToValidUTF8(b, []byte("?")))}))
		if _, mine := g["another-node"]; mine {
			return
		}
		var last *Answer
		for line := range bytes.Lines(out.Bytes()) {
			var err error
			if last, err = g.add(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
				t.Fatal(err)
			}
		}
		if last == nil || last.Error != string(bytes.ToValidUTF8(b, []byte("?"))) {
			t.Errorf("%+v", last)
		}
	})
}
