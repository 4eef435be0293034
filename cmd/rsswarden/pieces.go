package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// What nodes say to the one that asks goes through srun, which passes on lines of
// up to 1 KiB whole and cuts longer ones, so that those of several nodes mix. A
// message is therefore cut here, into lines that name the node:
//
//	rsswarden NODE + PIECE
//	rsswarden NODE . LAST PIECE

const (
	pieceMark  = "rsswarden "
	pieceBytes = 900
	// mostPieces bounds what is kept of one message, in bytes.
	mostPieces = 20 << 20
	// mostListed bounds the elements of its arrays.
	mostListed = 1 << 17
)

// putPieces writes one message.
func putPieces(w io.Writer, s says) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	node := nodeWord(s.Node)
	for len(b) > pieceBytes {
		fmt.Fprintf(&out, "%s%s + %s\n", pieceMark, node, b[:pieceBytes])
		b = b[pieceBytes:]
	}
	fmt.Fprintf(&out, "%s%s . %s\n", pieceMark, node, b)
	_, err = w.Write(out.Bytes())
	return err
}

// nodeWord keeps a node's name short and without blanks, as Slurm's are.
func nodeWord(name string) string {
	name = strings.Join(strings.Fields(oneLine(name)), "_")
	if name == "" {
		return "-"
	}
	return name[:min(len(name), 64)]
}

var errPieces = errors.New("an answer is damaged")

// gathered puts messages together from lines.
type gathered map[string][]byte

// add takes a line in, and returns the message that it ends, nil for none. A line
// that is no piece of one is passed over: a site's own programs may have written it.
func (g gathered) add(line []byte) (*says, error) {
	rest, ok := bytes.CutPrefix(line, []byte(pieceMark))
	node, rest, cut := bytes.Cut(rest, []byte(" "))
	if !ok || !cut || len(rest) < 2 || rest[1] != ' ' || rest[0] != '+' && rest[0] != '.' {
		return nil, nil
	}
	name := string(node)
	g[name] = append(g[name], rest[2:]...)
	if len(g[name]) > mostPieces {
		delete(g, name)
		return nil, errPieces
	}
	if rest[0] == '+' {
		return nil, nil
	}
	var s says
	text := g[name]
	delete(g, name)
	if event.Elements(text) > mostListed || json.Unmarshal(text, &s) != nil {
		return nil, errPieces
	}
	return &s, nil
}
