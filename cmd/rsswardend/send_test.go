package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/alert"
)

// carry gives a request to a process of the program, with these variables beside the
// environment, and returns its answer and exit status.
func carry(t *testing.T, r alert.Request, env ...string) (a alert.Answer, status int) {
	t.Helper()
	data, err := json.Marshal(r)
	must(t, err)
	out, status := program(t, data, env...)
	if n := strings.Count(out, "\n"); n != 1 || !strings.HasSuffix(out, "\n") {
		t.Fatalf("%d lines: %q", n, out)
	}
	if err := json.Unmarshal([]byte(out), &a); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	return a, status
}

func program(t *testing.T, in []byte, env ...string) (out string, status int) {
	t.Helper()
	cmd := exec.Command(binary, sendCommand)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin = bytes.NewReader(in)
	var said, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if errs.Len() > 0 {
		t.Errorf("it wrote to stderr: %s", errs.String())
	}
	return said.String(), cmd.ProcessState.ExitCode()
}

func request(url string, bodies ...string) alert.Request {
	r := alert.Request{URL: url, Timeout: time.Minute}
	for _, b := range bodies {
		r.Bodies = append(r.Bodies, json.RawMessage(b))
	}
	return r
}

// receiver answers with a status and keeps what came.
type receiver struct {
	*httptest.Server
	got []*http.Request
	all []string
}

func receive(t *testing.T, secure bool, answer http.HandlerFunc) *receiver {
	r := &receiver{}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		b, _ := io.ReadAll(req.Body)
		r.got, r.all = append(r.got, req), append(r.all, string(b))
		answer(w, req)
	}))
	r.Config.ErrorLog = log.New(io.Discard, "", 0)
	if secure {
		r.StartTLS()
	} else {
		r.Start()
	}
	t.Cleanup(r.Close)
	return r
}

func status(code int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		io.WriteString(w, text)
	}
}

// TestSend: all bodies are posted in turn, with what goes along.
func TestSend(t *testing.T) {
	r := receive(t, false, status(202, "ok"))
	q := request(r.URL+"/x?y=1", `{"a":1}`, `{"b":2}`)
	q.Token = "s3cret"
	a, st := carry(t, q)
	if want := (alert.Answer{Taken: 2, Status: 202}); a != want || st != 0 {
		t.Errorf("%+v, exit status %d", a, st)
	}
	if got := strings.Join(r.all, " "); got != `{"a":1} {"b":2}` {
		t.Errorf("it got %s", got)
	}
	for _, h := range r.got {
		if h.Method != "POST" || h.Header.Get("Authorization") != "Bearer s3cret" || h.Header.Get("Content-Type") != "application/json" || h.URL.String() != "/x?y=1" {
			t.Errorf("%s %s %v", h.Method, h.URL, h.Header)
		}
	}
}

// TestSendStatus: what is worth another try.
func TestSendStatus(t *testing.T) {
	for code, retry := range map[int]bool{
		400: false, 401: false, 403: false, 404: false, 408: true, 413: false, 422: false, 425: true, 429: true, 500: true, 502: true, 503: true, 507: true,
	} {
		r := receive(t, false, func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Retry-After", "7")
			status(code, " no such\x1b[31m luck \nsecond line")(w, req)
		})
		a, st := carry(t, request(r.URL, `1`, `2`))
		if a.Retry != retry || a.Status != code || a.Taken != 0 || st != 1 || a.Error != fmt.Sprintf("HTTP status %d: no such\ufffd[31m luck", code) || a.Later != 7*time.Second {
			t.Errorf("%d: %+v, exit status %d", code, a, st)
		}
		if len(r.all) != 1 {
			t.Errorf("%d: %d requests", code, len(r.all))
		}
	}
}

// TestSendTLS: certificates are verified, with SSL_CERT_FILE; nothing is sent where one is
// not valid.
func TestSendTLS(t *testing.T) {
	r := receive(t, true, status(200, ""))
	q := request(r.URL, `1`)
	q.Token = "s3cret"
	if a, st := carry(t, q); a.Retry || st != 1 || !strings.Contains(a.Error, "certificate") || len(r.all) != 0 {
		t.Errorf("unknown: %+v, exit status %d, %d requests", a, st, len(r.all))
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw}), 0o600))
	if a, st := carry(t, q, "SSL_CERT_FILE="+file); a.Taken != 1 || st != 0 || len(r.all) != 1 {
		t.Errorf("known: %+v, exit status %d, %d requests", a, st, len(r.all))
	}
	q.URL = strings.Replace(r.URL, "127.0.0.1", "localhost", 1)
	if a, _ := carry(t, q, "SSL_CERT_FILE="+file); a.Taken != 0 || !strings.Contains(a.Error, "localhost") {
		t.Errorf("another name: %+v", a)
	}
	r.TLS.MaxVersion = tls.VersionTLS11
	q.URL = r.URL
	if a, _ := carry(t, q, "SSL_CERT_FILE="+file); a.Taken != 0 {
		t.Errorf("TLS 1.1: %+v", a)
	}
}

// TestSendRedirects: what is posted is posted again at the same host alone.
func TestSendRedirects(t *testing.T) {
	other := receive(t, false, status(200, ""))
	var to string
	var code int
	r := receive(t, false, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/there" {
			return
		}
		http.Redirect(w, req, to, code)
	})
	for _, test := range []struct {
		code  int
		to    string
		taken int
	}{
		{307, r.URL + "/there", 1}, {308, "/there", 1}, {307, other.URL, 0}, {308, other.URL + "/there", 0},
		{301, r.URL + "/there", 0}, {302, "/there", 0}, {303, "/there", 0}, {307, "/loop", 0},
	} {
		to, code = test.to, test.code
		q := request(r.URL+"/x", `1`)
		q.Token = "s3cret"
		a, _ := carry(t, q)
		if a.Taken != test.taken || a.Retry || test.taken == 0 && !strings.Contains(a.Error, "redirect") {
			t.Errorf("%d to %s: %+v", test.code, test.to, a)
		}
	}
	if len(other.got) != 0 {
		t.Error("another host was told")
	}
}

// TestSendSlow: it ends by itself when its time is over, and says so.
func TestSendSlow(t *testing.T) {
	hold := make(chan struct{})
	r := receive(t, false, func(w http.ResponseWriter, req *http.Request) { <-hold })
	defer close(hold)
	l, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	must(t, err)
	defer l.Close()
	for _, to := range []string{r.URL, "http://" + l.Addr().String(), "https://" + l.Addr().String()} {
		q := request(to, `1`)
		q.Timeout = 300 * time.Millisecond
		began := time.Now()
		a, st := carry(t, q)
		if a.Error != "no answer in time" || !a.Retry || st != 1 || time.Since(began) < q.Timeout {
			t.Errorf("%s: %+v, exit status %d after %v", to, a, st, time.Since(began))
		}
	}
}

// TestSendRefused: the error is the same each time, and has no URL in it.
func TestSendRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	to := "http://me:s3cret@" + l.Addr().String() + "/path?token=t0ken"
	l.Close()
	if a, _ := carry(t, request(to, `1`)); a.Error != "connection refused" || !a.Retry {
		t.Errorf("%+v", a)
	}
	if a, _ := carry(t, request("http://nowhere.invalid/x", `1`)); !strings.HasPrefix(a.Error, "cannot find the host nowhere.invalid: ") || !a.Retry {
		t.Errorf("%+v", a)
	}
}

// TestSendHidesSecrets: also where a server says them back to us.
func TestSendHidesSecrets(t *testing.T) {
	r := receive(t, false, func(w http.ResponseWriter, req *http.Request) {
		user, password, _ := req.BasicAuth()
		status(500, fmt.Sprint(user, " ", password, " ", req.URL, " ", req.Header))(w, req)
	})
	to := strings.Replace(r.URL, "://", "://alice:s3cret@", 1) + "/services/T0/h00k-key?key=t0ken"
	a, _ := carry(t, request(to, `1`))
	for _, secret := range []string{"alice", "s3cret", "t0ken", "h00k-key"} {
		if strings.Contains(a.Error, secret) {
			t.Errorf("it says %s: %s", secret, a.Error)
		}
	}
	file := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(file, []byte("  file-t0ken \nmore\n"), 0o600))
	q := request(r.URL, `1`)
	q.TokenFile = file
	if a, _ := carry(t, q); strings.Contains(a.Error, "file-t0ken") {
		t.Error(a.Error)
	}
	if got := r.got[len(r.got)-1].Header.Get("Authorization"); got != "Bearer file-t0ken" {
		t.Errorf("%q", got)
	}
	q.TokenFile += ".gone"
	if a, _ := carry(t, q); !strings.Contains(a.Error, "cannot read the token: ") || !a.Retry || a.Status != 0 {
		t.Errorf("%+v", a)
	}
}

// TestSendProxy: that of the environment counts.
func TestSendProxy(t *testing.T) {
	r := receive(t, false, status(200, ""))
	a, _ := carry(t, request("http://am.example/api", `1`), "HTTP_PROXY="+r.URL, "NO_PROXY=")
	if a.Taken != 1 || len(r.got) != 1 || r.got[0].Host != "am.example" {
		t.Errorf("%+v, %d requests", a, len(r.got))
	}
}

// TestSendBounds: nothing that a server says, and no request, is believed without
// bounds.
func TestSendBounds(t *testing.T) {
	r := receive(t, false, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Retry-After", "99999999999")
		status(503, strings.Repeat("x", 1<<20))(w, req)
	})
	if a, _ := carry(t, request(r.URL, `1`)); len(a.Error) > 300 || a.Later > maxLater {
		t.Errorf("%d bytes, %v", len(a.Error), a.Later)
	}
	for name, in := range map[string]string{
		"nothing": "", "no JSON": "{", "no time": `{"url":"` + r.URL + `","bodies":[1]}`, "too long": `"` + strings.Repeat("x", alert.MostRequest) + `"`,
	} {
		out, st := program(t, []byte(in))
		if st != 2 || !strings.Contains(out, "cannot read the request") {
			t.Errorf("%s: exit status %d, %s", name, st, out)
		}
	}
	for _, to := range []string{"://", "x", "ftp://h/x"} {
		if a, st := carry(t, request(to, `1`)); a.Error == "" || st != 1 {
			t.Errorf("%s: %+v, exit status %d", to, a, st)
		}
	}
}
