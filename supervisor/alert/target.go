package alert

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/rsswarden/rsswarden/rss/procfile"
)

type Kind string

const (
	Alertmanager Kind = "alertmanager" // POST /api/v2/alerts
	Webhook      Kind = "webhook"      // POST of one object, see [Message]
)

// APIPath is where Alertmanager takes alerts.
const APIPath = "/api/v2/alerts"

type Target struct {
	Kind Kind   `json:"kind"`
	URL  string `json:"url"`
	// Token goes to this receiver and no other, or the first line of TokenFile, a full
	// path.
	Token     string `json:"token,omitempty"`
	TokenFile string `json:"token_file,omitempty"`
}

// Errors of [ParseTarget]; none repeats the URL, which may hold a secret.
var (
	ErrScheme = errors.New("is no http:// or https:// URL")
	ErrURL    = errors.New("is no URL")
	ErrToken  = errors.New("has more behind the URL than token=TOKEN or token-file=FILE, with its full path")
	ErrTwo    = errors.New("has a token beside a user: give one of them")
)

// ParseTarget reads what a user wrote. "alertmanager+" or "webhook+" in front says
// what is there. Without it a URL that has no path, or one that ends in
// /api/v2/alerts, is Alertmanager's, and every other a webhook's. It may be followed by
// what that receiver is to know us by: "token=TOKEN" or "token-file=FILE".
func ParseTarget(text string) (t Target, err error) {
	text, behind, _ := strings.Cut(strings.TrimSpace(text), " ")
	if behind = strings.TrimSpace(behind); behind != "" {
		switch name, value, _ := strings.Cut(behind, "="); {
		case name == "token" && value != "" && !strings.ContainsFunc(value, unicode.IsSpace):
			t.Token = value
		case name == "token-file" && filepath.IsAbs(value):
			t.TokenFile = value
		default:
			return t, ErrToken
		}
	}
	for _, k := range []Kind{Alertmanager, Webhook} {
		if rest, ok := strings.CutPrefix(text, string(k)+"+"); ok {
			t.Kind, text = k, rest
		}
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return t, ErrURL
	case u.Scheme != "http" && u.Scheme != "https":
		return t, ErrScheme
	case u.Hostname() == "":
		return t, ErrURL
	case u.User != nil && behind != "":
		return t, ErrTwo
	}
	u.Fragment = ""
	path := strings.TrimRight(u.Path, "/")
	if t.Kind == "" {
		t.Kind = Webhook
		if path == "" || strings.HasSuffix(path, APIPath) {
			t.Kind = Alertmanager
		}
	}
	if t.Kind == Alertmanager {
		u.Path, u.RawPath = strings.TrimSuffix(path, APIPath)+APIPath, ""
	}
	t.URL = u.String()
	return t, nil
}

// parsed is the URL, which [ParseTarget] has read before.
func (t Target) parsed() *url.URL {
	u, err := url.Parse(t.URL)
	if err != nil {
		return &url.URL{User: url.User("unknown")} // as if it held a secret
	}
	return u
}

// Secret says that it holds a secret: a user's name and password, a query or a token.
func (t Target) Secret() bool {
	u := t.parsed()
	return u.User != nil || u.RawQuery != "" || t.Token != ""
}

// Knows says that it has credentials of its own.
func (t Target) Knows() bool { return t.parsed().User != nil || t.Token != "" || t.TokenFile != "" }

// Pathed says that it is a webhook's URL with a path, which is often all that keeps
// others from using it.
func (t Target) Pathed() bool { return t.Kind == Webhook && strings.Trim(t.parsed().Path, "/") != "" }

// TakesToken says that the token which is given for no receiver is for this one: it
// is Alertmanager's, and not for a webhook elsewhere.
func (t Target) TakesToken() bool { return t.Kind == Alertmanager && !t.Knows() }

// Plain says that others can read on the way what goes there.
func (t Target) Plain() bool {
	u := t.parsed()
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Scheme != "https" && u.Hostname() != "localhost" && (err != nil || !ip.IsLoopback())
}

// String is the receiver as it is shown: without user, password and
// query, and of a webhook without the path, which is often all that keeps others
// from using it.
func (t Target) String() string {
	u := t.parsed()
	text := string(t.Kind) + "+" + u.Scheme + "://" + u.Host
	switch path := strings.TrimSuffix(u.EscapedPath(), APIPath); {
	case t.Kind == Alertmanager:
		text += path
	case path != "" && path != "/":
		text += "/…"
	}
	return text
}

// Redact is what a user wrote, as it is shown.
func Redact(text string) string {
	t, err := ParseTarget(text)
	if err != nil {
		return "(not a URL)"
	}
	return t.String()
}

// mostToken is how much of a file with a token is read, in bytes.
const mostToken = 16 << 10

// ReadToken reads the first line of a file. It may hang.
func ReadToken(path string) (string, error) {
	b, err := procfile.Read(path, mostToken)
	if err != nil {
		return "", fmt.Errorf("cannot read the token: %w", err)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	if line = strings.TrimSpace(line); line == "" {
		return "", fmt.Errorf("cannot read the token: %s is empty", path)
	}
	return line, nil
}
