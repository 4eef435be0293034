package control

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// FuzzRequest: whatever comes is a request within its bounds or an error that has
// an answer, however it is cut into pieces.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(get("GET", "/v1/status")))
	f.Add([]byte(post("/v1/recycle", `{"pids":[4711],"ranks":[0]}`)))
	f.Add([]byte("POST http://x/v1/checkpoint HTTP/1.0\nExpect: 100-continue\nContent-Length: 17\n\n{\"signal\":\"USR1\"}"))
	f.Add([]byte("\r\n\r\nGET /v9/status HTTP/1.1\r\nHost: x\r\nContent-Length: 00\r\n\r\n"))
	f.Add([]byte("POST /v1/gc HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"))
	f.Add([]byte("GET /" + strings.Repeat("x", maxHead) + " HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := readRequest(strings.NewReader(string(b)))
		slow, slowErr := readRequest(iotest.OneByteReader(strings.NewReader(string(b))))
		if (err == nil) != (slowErr == nil) || err == nil && (q.path != slow.path || q.method != slow.method || !slices.Equal(q.body, slow.body)) {
			t.Errorf("at once %+v, %v; a byte at a time %+v, %v", q, err, slow, slowErr)
		}
		var p *problem
		switch {
		case err == nil:
			if len(q.body) > maxBody || !strings.HasPrefix(q.path, "/") {
				t.Errorf("%+v", q)
			}
			name, c, bad := route(q)
			if p = bad; bad == nil && name != "status" && name != "events" && c.Do.Row().Command == "" {
				t.Errorf("nothing is asked for: %+v", q)
			}
		case errors.As(err, &p):
		case !errors.Is(err, errGone):
			t.Errorf("%v", err)
		}
		if p != nil && (statusText[p.status] == "" || p.Text == "" || !strings.HasPrefix(string(p.whole("GET")), "HTTP/1.1 ")) {
			t.Errorf("%+v", p)
		}
	})
}
