package control

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
)

// What of a request is read at most.
const (
	maxHead    = 8 << 10 // bytes of request line and headers
	maxHeaders = 64
	maxBody    = 64 << 10
)

// request is what is needed of one.
type request struct {
	method, path string
	body         []byte
}

// errGone is met where the client left without a word: nobody waits for an answer.
var errGone = errors.New("the client has gone")

// readRequest reads one request as RFC 9112 has it, the parts of it that a client
// of this server needs. goOn is called where the client waits to be told to send
// the body. The error is errGone or a *problem.
func readRequest(r io.Reader, goOn func() error) (request, error) {
	head, rest, err := readHead(r)
	if err != nil {
		return request{}, err
	}
	h, p := parseHead(head)
	q := request{method: h.method, path: h.path}
	if p != nil {
		return q, p
	}
	if h.length == 0 {
		return q, nil
	}
	q.body = make([]byte, h.length)
	n := copy(q.body, rest)
	if h.waits && n == 0 {
		if err := goOn(); err != nil {
			return q, errGone
		}
	}
	if _, err := io.ReadFull(r, q.body[n:]); err != nil {
		return q, cut(err)
	}
	return q, nil
}

// readHead reads up to the empty line and returns what stands before it, and what
// was read of the rest.
func readHead(r io.Reader) (head, rest []byte, err error) {
	buf := make([]byte, 0, 1<<10)
	for {
		if len(buf) == cap(buf) {
			buf = append(make([]byte, 0, min(2*cap(buf), maxHead+4)), buf...)
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		from := max(0, len(buf)-3)
		if buf = buf[:len(buf)+n]; from == 0 {
			// A line break in front is tolerated, as RFC 9112 asks.
			buf = append(buf[:0], bytes.TrimLeft(buf, "\r\n")...)
		}
		if end, next := headEnd(buf, from); end >= 0 {
			return buf[:end], buf[next:], nil
		}
		switch {
		case len(buf) >= maxHead:
			return nil, nil, &problem{status: 431, text: "request line and headers are longer than 8 KiB"}
		case err != nil && len(buf) == 0 && !errors.Is(err, os.ErrDeadlineExceeded):
			return nil, nil, errGone
		case err != nil:
			return nil, nil, cut(err)
		}
	}
}

// headEnd finds the empty line, looking from a place on: where the head ends, and
// where the body begins; -1 where it is not there yet.
func headEnd(b []byte, from int) (end, next int) {
	for i := from; i < len(b); i++ {
		if b[i] != '\n' {
			continue
		}
		switch rest := b[i+1:]; {
		case bytes.HasPrefix(rest, []byte("\n")):
			return i, i + 2
		case bytes.HasPrefix(rest, []byte("\r\n")):
			return i, i + 3
		}
	}
	return -1, -1
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

func parseHead(b []byte) (head, *problem) {
	var h head
	lines := strings.Split(string(b), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimSuffix(l, "\r")
		if strings.ContainsFunc(lines[i], func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
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
	// Who writes ?pid=5 means less than everybody.
	if strings.ContainsAny(h.path, "?#") {
		return malformed("there are no parameters in a path here; what a command needs stands in its body")
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
