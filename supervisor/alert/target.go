package alert

import (
	"errors"
	"net/url"
	"strings"
)

// Kind is what a receiver understands.
type Kind string

// The kinds of receivers.
const (
	Alertmanager Kind = "alertmanager" // POST /api/v2/alerts
	Webhook      Kind = "webhook"      // POST of one object, see [Message]
)

// APIPath is where Alertmanager takes alerts.
const APIPath = "/api/v2/alerts"

// Target is a receiver.
type Target struct {
	Kind Kind   `json:"kind"`
	URL  string `json:"url"`
}

// Errors of [ParseTarget]; none repeats the URL, which may hold a secret.
var (
	ErrScheme = errors.New("is no http:// or https:// URL")
	ErrURL    = errors.New("is no URL")
)

// ParseTarget reads what a user wrote. "alertmanager+" or "webhook+" in front says
// what is there. Without it a URL that has no path, or one that ends in
// /api/v2/alerts, is Alertmanager's, and every other a webhook's.
func ParseTarget(text string) (t Target, err error) {
	text = strings.TrimSpace(text)
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

// Secret says that the URL has what nobody else should read: a user's name and
// password, or a query.
func (t Target) Secret() bool {
	u, err := url.Parse(t.URL)
	return err != nil || u.User != nil || u.RawQuery != ""
}

// String is the receiver as it is told of anywhere: without user, password and
// query, and of a webhook without the path, which is often all that keeps others
// from using it.
func (t Target) String() string {
	u, err := url.Parse(t.URL)
	if err != nil {
		return string(t.Kind)
	}
	text := string(t.Kind) + "+" + u.Scheme + "://" + u.Host
	switch path := strings.TrimSuffix(u.EscapedPath(), APIPath); {
	case t.Kind == Alertmanager:
		text += path
	case path != "" && path != "/":
		text += "/…"
	}
	return text
}

// Redact is what a user wrote, as it is told of.
func Redact(text string) string {
	t, err := ParseTarget(text)
	if err != nil {
		return "(not a URL)"
	}
	return t.String()
}
