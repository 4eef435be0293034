package control

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// problem is why a request gets no good answer, and the body of the answer it gets.
type problem struct {
	status int
	allow  string // the methods there are, with 405

	V      int          `json:"v"`
	Text   string       `json:"error"`
	Hint   string       `json:"hint,omitempty"`
	Reason event.Reason `json:"reason,omitempty"` // with 409
}

func (p *problem) Error() string { return p.Text }

var statusText = map[int]string{
	200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
	408: "Request Timeout", 409: "Conflict", 411: "Length Required", 413: "Content Too Large",
	431: "Request Header Fields Too Large", 500: "Internal Server Error", 503: "Service Unavailable",
}

const (
	oneObject = "application/json"
	manyLines = "application/x-ndjson"
)

// headOf is an answer up to its body. A length below 0 is not told: the body ends
// with the connection.
func headOf(status int, contentType string, length int, more string) []byte {
	b := fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nDate: %s\r\nContent-Type: %s\r\nCache-Control: no-store\r\nConnection: close\r\n",
		status, statusText[status], time.Now().UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT"), contentType)
	if length >= 0 {
		b = append(b, "Content-Length: "+strconv.Itoa(length)+"\r\n"...)
	}
	return append(b, more+"\r\n"...)
}

// whole is the answer with that problem; a HEAD request gets its head alone.
func (p *problem) whole(method string) []byte {
	p.V = Version
	body, err := json.Marshal(p)
	if err != nil {
		body = []byte("{}") // strings are always encoded
	}
	body = append(body, '\n')
	more := ""
	if p.allow != "" {
		more = "Allow: " + p.allow + "\r\n"
	}
	if p.status == 503 {
		more = "Retry-After: 1\r\n"
	}
	b := headOf(p.status, oneObject, len(body), more)
	if method == "HEAD" {
		return b
	}
	return append(b, body...)
}
