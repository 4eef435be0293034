package chart

import (
	"strings"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// LimitTitle names a limit for a heading: "cgroup, step · kernel OOM killer".
func LimitTitle(l *event.Limit) string {
	title := phrase.LimitName(l)
	if l.Scope != "" && string(l.Scope) != title && l.Name != event.LimitUser {
		title += ", " + string(l.Scope)
	}
	if who, _, _ := strings.Cut(values.Plain(l.Enforcer), ","); who != "" {
		title += " · " + who
	}
	return title
}

// UsedMeans says what is compared with a limit, and how shared pages count in it.
func UsedMeans(l *event.Limit) string {
	switch text := l.Compared(); text {
	case event.AccountingRSS.Sum():
		return text + ", shared pages counted in each process"
	case event.AccountingPSS.Sum():
		return text + ", shared pages divided"
	default:
		return text
	}
}

// escape makes text safe inside an element and inside an attribute in double
// quotes, in HTML and XML alike.
func escape(s string) string { return escaper.Replace(values.Plain(s)) }

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#39;")

// wrap breaks a text into at most most lines of width characters; what is left over
// is cut.
func wrap(s string, width, most int) []string {
	lines := values.Wrap(s, width)
	if len(lines) > most {
		lines = lines[:most]
		lines[most-1] += " …"
	}
	for i := range lines {
		lines[i] = values.Cut(lines[i], width+2)
	}
	return lines
}
