package control

import (
	"bufio"
	"bytes"
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

// What of a request is read at most.
const (
	maxHead    = 8 << 10 // bytes of request line and headers
	maxHeaders = 64
	maxBody    = 64 << 10
)

type request struct {
	method, path string
	body         []byte
}

// errGone says that the client closed the connection before it sent a request.
var errGone = errors.New("the client has gone")

// readRequest reads one request as RFC 9112 has it, the parts of it that a client
// of this server needs. sendContinue is called where the client waits to be told to send
// the body. The error is errGone or a *problem.
func readRequest(r io.Reader, sendContinue func() error) (request, error) {
	b := bufio.NewReaderSize(r, maxHead)
	lines, err := readHead(b)
	if err != nil {
		return request{}, err
	}
	h, p := parseHead(lines)
	q := request{method: h.method, path: h.path}
	if p != nil {
		return q, p
	}
	if h.length == 0 {
		return q, nil
	}
	if h.waits && b.Buffered() == 0 {
		if err := sendContinue(); err != nil {
			return q, errGone
		}
	}
	q.body = make([]byte, h.length)
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
			return nil, &problem{status: 431, text: "request line and headers are longer than 8 KiB"}
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
		return &problem{status: 408, text: "the request did not come within 5 seconds"}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &problem{status: 400, text: "the request ends early"}
	}
	return errGone
}

type head struct {
	method, path string
	length       int
	waits        bool // for "100 Continue"
}

func parseHead(lines []string) (head, *problem) {
	var h head
	for _, l := range lines {
		if strings.ContainsFunc(l, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return h, malformed("there is a control character in the head")
		}
	}
	p := h.requestLine(lines[0])
	if p != nil {
		return h, p
	}
	if len(lines)-1 > maxHeaders {
		return h, &problem{status: 431, text: "more than 64 header lines"}
	}
	return h, h.headers(lines[1:], strings.HasSuffix(lines[0], "/1.1"))
}

func malformed(text string) *problem {
	return &problem{status: 400, text: text, hint: "curl --unix-socket PATH http://rsswarden/v1/status"}
}

func (h *head) requestLine(line string) *problem {
	f := strings.Split(line, " ")
	if len(f) != 3 || !isToken(f[0]) || f[1] == "" {
		return malformed("the first line is not that of an HTTP/1.1 request")
	}
	version, ok := strings.CutPrefix(f[2], "HTTP/")
	if !ok || len(version) != 3 || version[1] != '.' || !isDigit(version[0]) || !isDigit(version[2]) {
		return malformed("the first line is not that of an HTTP/1.1 request")
	}
	h.method = f[0]
	if version[0] != '1' {
		return &problem{status: 505, text: "HTTP/" + version + " is not spoken here", hint: "speak HTTP/1.1"}
	}
	h.path = f[1]
	if rest, absolute := strings.CutPrefix(h.path, "http://"); absolute {
		_, path, _ := strings.Cut(rest, "/")
		h.path = "/" + path
	}
	if !strings.HasPrefix(h.path, "/") {
		return malformed("the path does not begin with a slash")
	}
	// A client that writes ?pid=5 means less than all.
	if strings.ContainsAny(h.path, "?#") {
		return malformed("there are no parameters in a path here; what a command needs is in its body")
	}
	return nil
}

func (h *head) headers(lines []string, hostNeeded bool) *problem {
	hosts, length := 0, ""
	for _, l := range lines {
		name, value, ok := strings.Cut(l, ":")
		if !ok || !isToken(name) {
			return malformed("a header line is not NAME: VALUE")
		}
		switch value = strings.Trim(value, " \t"); strings.ToLower(name) {
		case "host":
			hosts++
		case "transfer-encoding":
			return &problem{status: 411, text: "the length of the body must be known before it comes", hint: "send Content-Length, and no Transfer-Encoding"}
		case "content-length":
			if value == "" || strings.Trim(value, "0123456789") != "" || length != "" && value != length {
				return malformed("Content-Length is not one number")
			}
			length = value
		case "expect":
			if !strings.EqualFold(value, "100-continue") {
				return &problem{status: 417, text: "of Expect only 100-continue is known"}
			}
			h.waits = true
		}
	}
	if hosts > 1 || hosts == 0 && hostNeeded {
		return malformed("a request has one Host header")
	}
	if digits := strings.TrimLeft(length, "0"); len(digits) > 9 {
		h.length = maxBody + 1
	} else if digits != "" {
		h.length, _ = strconv.Atoi(digits)
	}
	if h.length > maxBody {
		return &problem{status: 413, text: "the body is longer than 64 KiB"}
	}
	return nil
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// isToken says that s is a token of RFC 9110.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
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

// asked is what a request comes to: status, events, or a command.
type asked struct {
	status, events bool
	command        Command
}

func route(q request) (asked, *problem) {
	version, name, _ := strings.Cut(strings.TrimPrefix(q.path, "/"), "/")
	if number, ok := strings.CutPrefix(version, "v"); ok && version != "v1" && number != "" && strings.Trim(number, "0123456789") == "" {
		return asked{}, &problem{status: 404, text: "version " + version + " is not spoken here", hint: "the only version is v1"}
	}
	a := asked{status: name == "status", events: name == "events"}
	does, isCommand := commanded(name)
	if version != "v1" || !a.status && !a.events && !isCommand {
		return a, &problem{status: 404, text: "there is no such path", hint: pathsHint()}
	}
	want := "GET"
	if isCommand {
		want = "POST"
	}
	if q.method != want {
		return a, &problem{status: 405, text: fmt.Sprintf("/v1/%s is asked for by %s", name, want), allow: want}
	}
	if !isCommand {
		if len(q.body) > 0 {
			return a, malformed("a GET has no body here")
		}
		return a, nil
	}
	var p *problem
	a.command, p = parseCommand(q.body)
	if p == nil && a.command.Signal != "" && name != "checkpoint" {
		p = &problem{status: 400, text: `"signal" goes with /v1/checkpoint alone`}
	}
	a.command.Do = does
	return a, p
}

const bodyHint = `a body is empty for all that can, or like {"pids":[4711]} or {"ranks":[0]}`

// parseCommand reads the body of a command. Whatever could be meant to narrow it
// down and does not is an error: it would be done to all.
func parseCommand(b []byte) (Command, *problem) {
	var c Command
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return c, nil
	}
	bad := func(format string, args ...any) (Command, *problem) {
		return Command{}, &problem{status: 400, text: fmt.Sprintf(format, args...), hint: bodyHint}
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
	c = Command{PIDs: body.PIDs, Ranks: body.Ranks, Signal: body.Signal}
	return c, nil
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
