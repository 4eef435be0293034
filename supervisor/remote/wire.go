package remote

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Answers go through srun, which passes lines of up to 1 KiB on whole and cuts longer ones,
// so that those of several nodes mix. An answer is therefore cut into lines that name the
// node:
//
//	rsswarden NODE + PIECE
//	rsswarden NODE . LAST PIECE

const (
	pieceMark  = "rsswarden "
	pieceBytes = 900
	// maxMessage bounds what is kept of one answer, in bytes.
	maxMessage = 20 << 20
	// maxElements bounds the elements of its arrays.
	maxElements = 1 << 17
)

// writePieces writes one answer.
func writePieces(w io.Writer, s Answer) error {
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
	name = strings.Join(strings.Fields(text.Plain(name)), "_")
	if name == "" {
		return "-"
	}
	return name[:min(len(name), 64)]
}

var errPieces = errors.New("an answer is damaged")

// messages are answers of which lines have come, by node.
type messages map[string][]byte

// add takes a line in, and returns the answer that it ends, nil for none. A line
// that is no piece of one is passed over: a site's own programs may have written it.
func (g messages) add(line []byte) (*Answer, error) {
	rest, ok := bytes.CutPrefix(line, []byte(pieceMark))
	node, rest, cut := bytes.Cut(rest, []byte(" "))
	if !ok || !cut || len(rest) < 2 || rest[1] != ' ' || rest[0] != '+' && rest[0] != '.' {
		return nil, nil
	}
	name := string(node)
	g[name] = append(g[name], rest[2:]...)
	if len(g[name]) > maxMessage {
		delete(g, name)
		return nil, errPieces
	}
	if rest[0] == '+' {
		return nil, nil
	}
	var s Answer
	whole := g[name]
	delete(g, name)
	if event.Elements(whole) > maxElements || json.Unmarshal(whole, &s) != nil {
		return nil, errPieces
	}
	return &s, nil
}
