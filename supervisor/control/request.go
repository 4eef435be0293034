package control

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// What of a request is read at most, in bytes.
const (
	maxHead = 8 << 10 // of request line and headers
	maxBody = 64 << 10
)

type request struct {
	method, path string
	body         []byte
}

// errGone says that the client closed the connection before it sent a request.
var errGone = errors.New("the client has gone")

// readRequest reads one request, the parts of RFC 9112 that a client of this server needs.
// The error is errGone or a *problem.
func readRequest(r io.Reader) (q request, err error) {
	b := bufio.NewReaderSize(r, maxHead)
	lines, err := readHead(b)
	if err != nil {
		return q, err
	}
	length, p := q.parseHead(lines)
	if p != nil {
		return q, p
	}
	q.body = make([]byte, length)
	if _, err := io.ReadFull(b, q.body); err != nil {
		return q, cut(err)
	}
	return q, nil
}

// readHead reads the lines before the first empty one. Line breaks in front are tolerated,
// as RFC 9112 asks.
func readHead(r *bufio.Reader) (lines []string, err error) {
	for size := 0; ; {
		b, err := r.ReadSlice('\n')
		line := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
		if size > 0 || line != "" {
			size += len(b)
		}
		switch {
		case size > maxHead, errors.Is(err, bufio.ErrBufferFull):
			return nil, &problem{status: 431, Text: "request line and headers are longer than 8 KiB"}
		case err != nil && size == 0 && !errors.Is(err, os.ErrDeadlineExceeded):
			return nil, errGone
		case err != nil:
			return nil, cut(err)
		case line != "":
			lines = append(lines, line)
		case len(lines) > 0:
			return lines, nil
		}
	}
}

// cut is what a request comes to that did not come whole.
func cut(err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &problem{status: 408, Text: "the request did not come within 5 seconds"}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &problem{status: 400, Text: "the request ends early"}
	}
	return errGone
}

func malformed(text string) *problem {
	return &problem{status: 400, Text: text, Hint: "curl --unix-socket PATH http://rsswarden/v1/status"}
}

// parseHead reads request line and headers, and returns the length of the body.
func (q *request) parseHead(lines []string) (length int, p *problem) {
	f := strings.Split(lines[0], " ")
	if len(f) != 3 || f[0] == "" || !strings.HasPrefix(f[1], "/") || !strings.HasPrefix(f[2], "HTTP/1.") {
		return 0, malformed("the first line is not that of an HTTP/1.1 request")
	}
	q.method, q.path = f[0], f[1]
	// A client that writes ?pid=5 means less than all.
	if strings.ContainsAny(q.path, "?#") {
		return 0, malformed("there are no parameters in a path here; what a command needs is in its body")
	}
	digits := ""
	for _, l := range lines[1:] {
		name, value, ok := strings.Cut(l, ":")
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			return 0, malformed("a header line is not NAME: VALUE")
		}
		switch value = strings.Trim(value, " \t"); strings.ToLower(name) {
		case "transfer-encoding":
			return 0, &problem{status: 411, Text: "the length of the body must be known before it comes", Hint: "send Content-Length, and no Transfer-Encoding"}
		case "content-length":
			if value == "" || strings.Trim(value, "0123456789") != "" || digits != "" && value != digits {
				return 0, malformed("Content-Length is not one number")
			}
			digits = value
		}
	}
	length, err := strconv.Atoi(cmp.Or(digits, "0"))
	if err != nil || length > maxBody {
		return 0, &problem{status: 413, Text: "the body is longer than 64 KiB"}
	}
	return length, nil
}

// commanded is the action that the last element of a path asks for.
func commanded(name string) (event.Action, bool) {
	for _, a := range event.Actions {
		if name != "" && a.Row().Command == name {
			return a, true
		}
	}
	return "", false
}

func pathsHint() string {
	hint := "there are GET /v1/status, GET /v1/events, and POST "
	for _, a := range event.Actions {
		if name := a.Row().Command; name != "" {
			hint += "/v1/" + name + ", "
		}
	}
	return strings.TrimSuffix(hint, ", ")
}

// route says what a request asks for: "status", "events", or a command by its name.
func route(q request) (name string, c Command, p *problem) {
	version, name, _ := strings.Cut(strings.TrimPrefix(q.path, "/"), "/")
	if number, ok := strings.CutPrefix(version, "v"); ok && version != "v1" && number != "" && strings.Trim(number, "0123456789") == "" {
		return name, c, &problem{status: 404, Text: "version " + version + " is not spoken here", Hint: "the only version is v1"}
	}
	does, isCommand := commanded(name)
	if version != "v1" || name != "status" && name != "events" && !isCommand {
		return name, c, &problem{status: 404, Text: "there is no such path", Hint: pathsHint()}
	}
	want := "GET"
	if isCommand {
		want = "POST"
	}
	switch {
	case q.method != want:
		return name, c, &problem{status: 405, Text: fmt.Sprintf("/v1/%s is asked for by %s", name, want), allow: want}
	case !isCommand && len(q.body) > 0:
		return name, c, malformed("a GET has no body here")
	case !isCommand:
		return name, c, nil
	}
	c, p = parseCommand(q.body)
	if p == nil && c.Signal != "" && does != event.ActionSignal {
		p = &problem{status: 400, Text: `"signal" goes with /v1/checkpoint alone`}
	}
	c.Do = does
	return name, c, p
}

const bodyHint = `a body is empty for all that can, or like {"pids":[4711]} or {"ranks":[0]}`

// parseCommand reads the body of a command. Whatever could be meant to narrow it
// down and does not is an error: it would be done to all.
func parseCommand(b []byte) (Command, *problem) {
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return Command{}, nil
	}
	bad := func(format string, args ...any) (Command, *problem) {
		return Command{}, &problem{status: 400, Text: fmt.Sprintf(format, args...), Hint: bodyHint}
	}
	if b[0] != '{' {
		return bad("the body is no JSON object")
	}
	var body struct {
		PIDs   numbers `json:"pids"`
		Ranks  numbers `json:"ranks"`
		Signal string  `json:"signal"`
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&body); err != nil {
		if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
			return bad("unknown field %s", name)
		}
		return bad("the body is not what is expected: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return bad("there is something behind the JSON object")
	}
	if slices.Contains(body.PIDs, 0) {
		return bad(`"pids" are numbers above 0`)
	}
	return Command{PIDs: body.PIDs, Ranks: body.Ranks, Signal: body.Signal}, nil
}

// numbers are PIDs or ranks. A list, where given, is not empty.
type numbers []int

func (n *numbers) UnmarshalJSON(b []byte) error {
	var list []int
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	if len(list) == 0 {
		return errors.New("an empty list names no process; leave it out for all")
	}
	if slices.Min(list) < 0 {
		return errors.New("a number below 0")
	}
	*n = list
	return nil
}
