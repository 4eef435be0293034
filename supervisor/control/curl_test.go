package control

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCurl: the documented way to ask without a program of ours.
func TestCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("needs curl")
	}
	s := serve(t, source{
		status: func(context.Context) (*Status, error) { return &Status{Node: "n1"}, nil },
		do:     results(Result{PID: 5, OK: true}, Result{Task: -1, OK: true, Done: true}),
		events: func(context.Context) (<-chan []byte, error) {
			ch := make(chan []byte, 1)
			ch <- []byte(`{"event":"exit"}`)
			close(ch)
			return ch, nil
		},
	})
	ask := func(args ...string) (string, error) {
		args = append([]string{"-sS", "--max-time", "20", "--unix-socket", filepath.Join(s.dir, SocketName)}, args...)
		out, err := exec.Command(curl, args...).CombinedOutput()
		return string(out), err
	}
	const at = "http://rsswarden"
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"status":    {[]string{"-f", at + "/v1/status"}, `"node":"n1"`},
		"recycle":   {[]string{"-f", "-X", "POST", at + "/v1/recycle"}, `{"pid":5,"task":0,"ok":true}` + "\n" + `{"task":-1,"ok":true,"done":true}`},
		"of a PID":  {[]string{"-f", "-d", `{"pids":[5]}`, at + "/v1/recycle"}, `"done":true`},
		"events":    {[]string{"-f", "-N", at + "/v1/events"}, `{"event":"exit"}`},
		"continued": {[]string{"-f", "-H", "Expect: 100-continue", "-d", "{}", at + "/v1/gc"}, `"done":true`},
		"a mistake": {[]string{"-d", `{"pid":5}`, at + "/v1/recycle"}, `unknown field \"pid\"`},
		"no path":   {[]string{"-w", "%{http_code}", at + "/v1/x"}, "404"},
		"huge":      {[]string{"-w", "%{http_code}", "-d", strings.Repeat("x", 100<<10), at + "/v1/recycle"}, "413"},
		"chunked":   {[]string{"-w", "%{http_code}", "-H", "Transfer-Encoding: chunked", "-d", "{}", at + "/v1/recycle"}, "411"},
	} {
		if out, err := ask(c.args...); err != nil || !strings.Contains(out, c.says) {
			t.Errorf("%s: %v, %s", name, err, out)
		}
	}
	if out, err := ask("-f", at+"/v1/x"); err == nil {
		t.Errorf("an error is none for curl -f: %s", out)
	}
}
