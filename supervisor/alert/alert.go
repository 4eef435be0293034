// Package alert sends alerts about crossed rungs to Alertmanager and to webhooks.
//
// A [Store] holds the alerts: one per limit and rung, firing until the rung is left, and
// resolved ones for a while after that. A receiver decides what to send next and when, with
// back-off. Both are pure. A [Sender] runs them on a goroutine of its own: each message is
// carried by a process of another program, one at a time and for [SendTime] at most, so that
// the watcher links nothing of the network. Where a receiver does not answer, the newest
// state wins: only the present state of an alert waits, and what was lost is counted.
package alert

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Alert is one rung of one limit that was crossed.
type Alert struct {
	// Job is empty outside Slurm. Run is the short name of the sender: two that watch the
	// same limit, with different options or one from outside, differ in it, so that the
	// end of one resolves nothing of the other's. Step is that of the limit,
	// empty where it is not of one step.
	Job, Run, Step, Node string
	Limit                event.LimitName
	Scope                event.Scope
	Rung                 string // "80%": the condition of the rule, without what it does
	ETA                  bool   // … is on a forecast
	Action               event.Action
	Since                time.Time
	Test                 bool // nothing is wrong: see [Try]

	// Used, Size and Left (seconds to the limit, nil without a forecast) are as read
	// last; Size is 0 where the limit was not read.
	Used, Size rss.Bytes
	Left       *float64
	Summary    string // a sentence
	Text       string // what the numbers mean, and what is done
}

// Name is the alertname: alerts on memory as one have two, as it can be forecast.
func (a *Alert) Name() string {
	if a.Test {
		return "RsswardenTest"
	}
	if name := a.Limit.Row().Alert; name != "" {
		return name
	}
	if a.ETA {
		return "RsswardenMemoryFullSoon"
	}
	return "RsswardenMemoryNearLimit"
}

// The severities.
const (
	SeverityWarning  = "warning"
	SeverityCritical = "critical" // the job is about to be ended, by us
)

// Severity is critical where the rule ends the job.
func (a *Alert) Severity() string {
	if a.Action.Row().Ends {
		return SeverityCritical
	}
	return SeverityWarning
}

// Labels tell one alert from all others, as name and value in the order of the
// names. All are from closed lists, or as few as jobs, runs, nodes and rules are; a
// process, a command, a user or a path is in none.
func (a *Alert) Labels() [][2]string {
	all := [][2]string{
		{"action", string(a.Action)}, {"alertname", a.Name()}, {"jobid", a.Job}, {"limit", string(a.Limit)}, {"node", a.Node},
		{"run", a.Run}, {"rung", a.Rung}, {"scope", string(a.Scope)}, {"severity", a.Severity()}, {"step", a.Step},
	}
	return slices.DeleteFunc(all, func(l [2]string) bool { return l[1] == "" })
}

// ID is short for the labels.
func (a *Alert) ID() string {
	text := ""
	for _, l := range a.Labels() {
		text += l[0] + "\x00" + l[1] + "\x00"
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

const (
	// resend is how often what fires is sent to Alertmanager, and holds for how long
	// Alertmanager believes it. Prometheus does the same.
	resend = time.Minute
	holds  = 4 * resend
	// lasts is for how long Alertmanager believes an alert where there may soon be no
	// memory to send it again. An alert that fires too long is better than one that
	// resolves when a job is at its worst.
	lasts = time.Hour
	// generator is where a reader of an alert is led.
	generator = "https://github.com/rsswarden/rsswarden/blob/main/docs/alerts.md"
)

// postable is an alert as POST /api/v2/alerts takes it.
type postable struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	StartsAt    time.Time         `json:"startsAt"`
	EndsAt      time.Time         `json:"endsAt"`
	Generator   string            `json:"generatorURL"`
}

// managerBody is all of the store: what fires, until it is sent again, and what was
// resolved. What was resolved before Alertmanager has heard of it fires there for a
// while: it sends no notification for an alert that arrives resolved.
func managerBody(list []*entry, now time.Time, holds time.Duration, heard func(id string) bool) (json.RawMessage, error) {
	all := make([]postable, 0, len(list))
	for _, e := range list {
		p := postable{
			Labels: map[string]string{}, Annotations: map[string]string{"summary": e.Summary, "description": e.Text},
			StartsAt: e.Since.UTC(), EndsAt: now.Add(holds).UTC(), Generator: generator,
		}
		for _, l := range e.Labels() {
			p.Labels[l[0]] = l[1]
		}
		if !e.firing() && !heard(e.id) {
			p.EndsAt = now.Add(resend).UTC()
		} else if !e.firing() {
			p.EndsAt = e.ends.UTC()
			if !p.EndsAt.After(p.StartsAt) {
				p.EndsAt = p.StartsAt.Add(time.Millisecond) // Alertmanager refuses an alert that ends before it starts
			}
		}
		all = append(all, p)
	}
	return json.Marshal(all)
}

// MessageVersion is "v" of a [Message]. Fields are only ever added.
const MessageVersion = 1

// The statuses of a [Message].
const (
	Firing   = "firing"
	Resolved = "resolved"
)

// Message is what a webhook is sent, once when an alert begins to fire and once
// when it is resolved. What is sent twice, because an answer was lost or another
// watcher has taken over, has the same ID and status.
type Message struct {
	V        int    `json:"v"`
	Status   string `json:"status"` // "firing" or "resolved"
	ID       string `json:"id"`     // the same for all about one rung of one limit
	Alert    string `json:"alert"`  // "RsswardenMemoryNearLimit"
	Severity string `json:"severity"`
	Job      string `json:"job,omitempty"` // SLURM_JOB_ID; left out outside Slurm
	Run      string `json:"run,omitempty"` // short for the runs of a job that one leader watches on a node
	Step     string `json:"step,omitempty"`
	Node     string `json:"node"`

	Limit  event.LimitName `json:"limit"`
	Scope  event.Scope     `json:"scope,omitempty"`
	Rung   string          `json:"rung"`   // "80%"
	Action event.Action    `json:"action"` // what the rule does
	amounts
	ETA *float64 `json:"eta_s"` // to the limit, null without a forecast

	StartsAt time.Time  `json:"starts_at"`
	EndsAt   *time.Time `json:"ends_at,omitempty"` // of a resolved one
	Text     string     `json:"text"`
}

// amounts has one of the two pairs: numbers of things are in no bytes. The limit time has
// neither.
type amounts struct {
	UsedBytes  *uint64 `json:"used_bytes,omitempty"`
	LimitBytes *uint64 `json:"limit_bytes,omitempty"`
	Used       *uint64 `json:"used,omitempty"`
	LimitCount *uint64 `json:"limit_count,omitempty"`
}

func hookBody(e *entry) (json.RawMessage, error) {
	m := Message{
		V: MessageVersion, Status: Firing, ID: e.id, Alert: e.Name(), Severity: e.Severity(),
		Job: e.Job, Run: e.Run, Step: e.Step, Node: e.Node, Limit: e.Limit, Scope: e.Scope, Rung: e.Rung, Action: e.Action,
		ETA: e.Left, StartsAt: e.Since, Text: e.Summary + "; " + e.Text,
	}
	if used, size := uint64(e.Used), uint64(e.Size); size != 0 && e.Limit.Counts() {
		m.Used, m.LimitCount = &used, &size
	} else if size != 0 {
		m.UsedBytes, m.LimitBytes = &used, &size
	}
	if !e.firing() {
		ends := e.ends
		m.Status, m.EndsAt, m.Text = Resolved, &ends, "resolved: "+m.Text
	}
	return json.Marshal(m)
}

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
