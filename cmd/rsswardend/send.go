package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// sendCommand is what rsswarden starts to carry alerts to one receiver; not for users. A
// process of its own: a network that hangs holds up nothing else.
const sendCommand = alert.SendCommand

const (
	maxAnswer    = 4 << 10 // bytes read of an answer
	maxSaid      = 200     // runes shown of what a server answered
	maxRedirects = 3
	maxLater     = 5 * time.Minute // believed of Retry-After
)

// send reads one request, posts each of its bodies, and writes one line with the
// result. The exit status is 0 where all were taken, 1 where not, and 2
// where the request cannot be understood.
func send(in io.Reader, out io.Writer) int {
	var r alert.Request
	data, err := io.ReadAll(io.LimitReader(in, alert.MostRequest+1))
	if err == nil && len(data) > alert.MostRequest {
		err = errors.New("it is too long")
	}
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err == nil && r.Timeout <= 0 {
		err = errors.New("it has no timeout")
	}
	if err != nil {
		_ = answer(out, alert.Answer{Error: fmt.Sprintf("cannot read the request: %v", err)}) // that says it already
		return 2
	}
	// A resolver in C can hang where no context reaches; the sender must not wait for it.
	time.AfterFunc(r.Timeout+time.Second, func() { os.Exit(1) })
	ctx, cancel := context.WithTimeout(context.Background(), r.Timeout)
	defer cancel()
	a := deliver(ctx, &r)
	if err := answer(out, a); err != nil || a.Error != "" {
		return 1
	}
	return 0
}

func answer(out io.Writer, a alert.Answer) error { return json.NewEncoder(out).Encode(a) }

// deliver posts the bodies in turn until one is not taken.
func deliver(ctx context.Context, r *alert.Request) (a alert.Answer) {
	to, err := url.Parse(r.URL)
	if err != nil {
		return alert.Answer{Error: "the URL cannot be understood"} // what it is may be secret
	}
	token := r.Token
	if r.TokenFile != "" {
		if token, err = alert.ReadToken(r.TokenFile); err != nil {
			return alert.Answer{Error: err.Error(), Retry: true}
		}
	}
	hide := secrets(to, token)
	t := http.DefaultTransport.(*http.Transport).Clone() // with the proxy of the environment
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	t.MaxResponseHeaderBytes = 64 << 10
	client := &http.Client{Transport: t, CheckRedirect: mayFollow}
	defer client.CloseIdleConnections()
	for _, body := range r.Bodies {
		status, said, later, err := post(ctx, client, to, token, body)
		a.Status = status
		switch {
		case err != nil:
			// Who is not who it says it is will not be at the next try.
			a.Error, a.Retry = reason(err), !errors.As(err, new(*tls.CertificateVerificationError))
		case status >= 300:
			a.Retry, a.Later = status == 408 || status == 425 || status == 429 || status >= 500, later
			a.Error = strings.TrimSuffix(fmt.Sprintf("HTTP status %d: %s", status, said), ": ")
		}
		if a.Error != "" {
			a.Error = hide.Replace(a.Error)
			return a
		}
		a.Taken++
	}
	return a
}

// mayFollow lets a POST be posted again at the same host, and never in plain where
// it was not: what goes along may be secret. Everything else is the answer.
func mayFollow(req *http.Request, via []*http.Request) error {
	was := via[0].URL
	same := req.URL.Scheme == was.Scheme && req.URL.Host == was.Host
	upgraded := was.Scheme == "http" && req.URL.Scheme == "https" && req.URL.Hostname() == was.Hostname()
	if req.Method != http.MethodPost || len(via) > maxRedirects || !same && !upgraded {
		return http.ErrUseLastResponse
	}
	return nil
}

// post posts one body; said is what a server answered that took nothing.
func post(ctx context.Context, client *http.Client, to *url.URL, token string, body []byte) (status int, said string, later time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(body))
	if err != nil {
		return 0, "", 0, errors.New("the URL cannot be used")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "rsswarden")
	if token != "" && to.User == nil { // or it would take the place of what the URL has
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", 0, err
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // the status tells what matters
	said = firstLine(text)
	if resp.StatusCode/100 == 3 {
		said = "a redirect to another place, which is not followed"
	}
	if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
		later = min(time.Duration(min(n, 1<<20))*time.Second, maxLater)
	}
	return resp.StatusCode, said, later, nil
}

// secrets takes out of a text what a server may have said back to us.
func secrets(to *url.URL, token string) *strings.Replacer {
	var pairs []string
	hide := func(s string) {
		if len(s) >= 4 { // shorter ones would hide words
			pairs = append(pairs, s, "***")
		}
	}
	hide(token)
	if to.User != nil {
		hide(to.User.Username())
		password, _ := to.User.Password()
		hide(password)
	}
	if !strings.HasSuffix(to.Path, alert.APIPath) { // the path of a webhook is often its key
		hide(to.EscapedPath())
		hide(to.Path)
		for part := range strings.SplitSeq(to.Path, "/") {
			if len(part) >= 8 {
				hide(part)
			}
		}
	}
	hide(to.RawQuery)
	for _, values := range to.Query() {
		for _, v := range values {
			hide(v)
		}
	}
	return strings.NewReplacer(pairs...)
}

// reason says what went wrong in words that stay the same from one try to the next:
// no port of ours is in them, and no URL.
func reason(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var dns *net.DNSError
	var op *net.OpError
	var no syscall.Errno
	switch {
	case errors.Is(err, context.DeadlineExceeded) || os.IsTimeout(err):
		return "no answer in time"
	case errors.As(err, &dns):
		return fmt.Sprintf("cannot find the host %s: %s", dns.Name, dns.Err)
	case errors.As(err, &no):
		return no.Error()
	case errors.As(err, &op):
		return firstLine([]byte(op.Err.Error()))
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was closed without an answer"
	}
	return firstLine([]byte(err.Error()))
}

// firstLine is a text as one line of what can be printed.
func firstLine(b []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	return text.Cut(strings.TrimSpace(text.Plain(line)), maxSaid)
}
